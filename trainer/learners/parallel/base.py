"""A network laid over the ranks of a learner, and what its parallelisms share.

Built in every rank by `trainer.models.hf`, driven by `trainer.learners.ranks`. Every rank runs as many forward and backward
passes as the others, also one that has nothing to train: `SpreadNet.idle`.
Shapes: U rows, T tokens, M picked positions of a row, N picked tokens, D width.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Protocol

import torch
import torch.distributed as dist
from numpy.typing import NDArray
from torch import nn

from trainer.learners.head import token_logprobs
from trainer.learners.lora import Adapters
from trainer.learners.spread import Placement
from trainer.learners.update import AdamUpdate, Update

__all__ = ["Scores", "Spread", "SpreadNet", "SummedUpdate", "Whole"]


class Whole(Protocol):
    """The network to lay over ranks: a `PolicyNet` over a model of Transformers, which every rank holds alike."""

    model: Any
    vocabulary: int
    width: int
    max_context: int
    shares: bool

    def hidden_at(self, tokens_BT: torch.Tensor, at_BM: torch.Tensor) -> torch.Tensor: ...

    def logits(self, hidden_ND: torch.Tensor) -> torch.Tensor: ...

    def named_parameters(self) -> Iterator[tuple[str, torch.nn.Parameter]]: ...


class _Head(nn.Module):
    """The output layer as one module, called once a pass: who gathers weights by module must not see its pieces.

    Ranks have different numbers of pieces, and gather together.
    """

    def __init__(self, net: Whole) -> None:
        super().__init__()
        self._logits, self._vocabulary = net.logits, net.vocabulary
        for place, value in enumerate(net.model.get_output_embeddings().parameters()):
            self.register_parameter(f"own{place}", value)

    def forward(self, hidden_ND: torch.Tensor, targets_N: torch.Tensor) -> torch.Tensor:
        return token_logprobs(self._logits, self._vocabulary, hidden_ND, targets_N)


class Scores(nn.Module):
    """A whole forward pass, head included, as one module: who spreads weights gathers them around calls of modules."""

    def __init__(self, net: Whole) -> None:
        super().__init__()
        self.model = net.model
        self.head = _Head(net)
        self._hidden_at = net.hidden_at

    def forward(
        self, tokens_UT: torch.Tensor, at_UM: torch.Tensor, source_N: torch.Tensor, targets_N: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Return log pi (`N`) of each target after place `source_N` of the flattened `at_UM`, and the states (`ND`)."""
        # index_select, because its backward pass adds duplicates in a fixed order.
        hidden_ND = self._hidden_at(tokens_UT, at_UM).flatten(0, 1).index_select(0, source_N)
        return self.head(hidden_ND, targets_N).clone(), hidden_ND  # a hook may hang on the result: no view


Scored = Callable[[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor], tuple[torch.Tensor, torch.Tensor]]


@dataclass(frozen=True, slots=True)
class Spread:
    """A network laid over ranks. All of it is joint."""

    scores: Scored
    """`Scores.forward` of the network."""
    update: Update
    """Of its trained parameters. The sum of the ranks' gradients, divided by their number, is the gradient."""
    placement: Placement
    """Where its tensors are."""


class SummedUpdate(AdamUpdate):
    """AdamW over parameters that every rank has whole: the gradients are averaged over the ranks before they count."""

    def norm(self) -> float:
        """Return the norm of the gradient of all ranks; a rank that has none counts with 0."""
        values = list(self._parameters.values())
        if not values:
            return super().norm()
        has = torch.tensor([float(value.grad is not None) for value in values], device=values[0].device)
        dist.all_reduce(has, op=dist.ReduceOp.MAX)
        for value, anyone in zip(values, has.tolist(), strict=True):
            if anyone:
                grad = torch.zeros_like(value) if value.grad is None else value.grad
                dist.all_reduce(grad)
                value.grad = grad / dist.get_world_size()
        return super().norm()


class SpreadNet:
    """A network whose weights may be spread over the ranks. All methods but `named_parameters` are joint."""

    def __init__(self, net: Whole, spread: Spread, device: torch.device) -> None:
        self.vocabulary, self.width, self.max_context = net.vocabulary, net.width, net.max_context
        self.shares = net.shares
        self.spread = spread
        self._adapters: Adapters | None = getattr(net, "adapters", None)
        self._device = device
        self._parameters = dict(net.named_parameters())

    def named_parameters(self) -> Iterator[tuple[str, torch.nn.Parameter]]:
        """Return this rank's part of every parameter that trains, by the names of the whole model."""
        return iter(self._parameters.items())

    def picked(
        self, tokens_UT: torch.Tensor, at_UM: torch.Tensor, source_N: torch.Tensor, targets_N: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Return log pi (`N`) of each target after place `source_N` of the flattened `at_UM`, and the states (`ND`)."""
        return self.spread.scores(tokens_UT, at_UM, source_N, targets_N)

    def idle(self) -> torch.Tensor:
        """Take part in a pass with nothing to train: return 0, whose gradient is 0 for every parameter."""
        nothing = torch.zeros(1, 1, dtype=torch.int64, device=self._device)
        return self.picked(nothing, nothing, nothing[0], nothing[0])[0].sum() * 0.0

    def merged(self) -> dict[str, NDArray[Any]]:
        """Return the whole weights as float32 host arrays, adapters added in, at every rank."""
        if self._adapters is not None:
            return self._adapters.merged(self.spread.placement)
        place = self.spread.placement
        return {name: place.whole(value).float().cpu().numpy() for name, value in self._parameters.items()}

    @contextmanager
    def showing(self, weights: Mapping[str, NDArray[Any]]) -> Iterator[None]:
        """Compute with other whole weights; afterwards all is as before, bit for bit. Raise `InvalidArgument`."""
        if self._adapters is not None:
            with self._adapters.showing(weights, self.spread.placement):
                yield
            return
        with self.spread.placement.showing(self._parameters, weights):
            yield
