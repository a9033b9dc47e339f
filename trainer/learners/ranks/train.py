"""One rank of a learner: the update of `TorchTrain` with a share of the batch's rows, over a network laid over the ranks.

Built in each process of `trainer.learners.ranks.pool`. Gradients are sums over the ranks, because a loss divides by
constants of the whole batch already. Ranks take part in every pass, also with nothing to train, and refuse an update
together.
Shapes: B rows, T tokens.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from trainer.algo.base import LossOutput
from trainer.data.batch import TrainBatch
from trainer.learners.parallel.base import SpreadNet, SummedUpdate
from trainer.learners.torch_train import TorchTrain, moved_to
from trainer.learners.update import Update
from trainer.protocols.engines import LossFn, OptimOptions, Weights

__all__ = ["OTHERS_REFUSED", "Learned", "RankTrain"]

OTHERS_REFUSED = "another rank's log-probability or loss is not finite"
"""How the error of a rank begins that could have gone on itself; the other rank's says what is wrong."""


@dataclass(frozen=True, slots=True, eq=False)
class Learned:
    """What a rank says of one part of a batch, on the host: enough to account for it elsewhere."""

    logprobs_BT: torch.Tensor
    output: LossOutput


class RankTrain(TorchTrain):
    """A train engine among others. Every method is joint: all ranks call it, with as many parts, None for no part."""

    def __init__(
        self,
        net: SpreadNet,
        optim: OptimOptions,
        *,
        export: Callable[[Path], None],
        device: torch.device | None = None,
    ) -> None:
        super().__init__(net, optim, export=export, device=device, update=net.spread.update)
        self._spread = net

    def learn(
        self, parts: Sequence[TrainBatch | None], loss: LossFn, *, lr: float
    ) -> tuple[list[Learned | None], dict[str, float]]:
        """Take one update; return what is to be said of each part, and the norms of the gradients of all ranks.

        Raise `FloatingPointError` at every rank, with parameters and optimizer untouched, when at any of them a
        log-probability, a loss or the gradient is not finite.
        """
        told = [
            self._learn_part(part, loss, last=place == len(parts) - 1) for place, part in enumerate(parts)
        ]
        return told, self._update(lr)

    def _critic_update(self, named: dict[str, torch.nn.Parameter]) -> Update:
        return SummedUpdate(named, self._options.model_copy(update={"weight_decay": 0.0}))

    def learn_at(
        self, parts: Sequence[TrainBatch | None], loss: LossFn, lr: float
    ) -> tuple[list[Learned | None], dict[str, float]]:
        """Take one update as `learn` does, with arguments that go by place."""
        return self.learn(parts, loss, lr=lr)

    def begin_critic(self, lr: float, seed: int) -> None:
        """Begin a critic as `add_critic` does, with arguments that go by place."""
        self.add_critic(lr=lr, seed=seed)

    def logprobs_of(
        self, parts: Sequence[TrainBatch | None], weights: Weights | None = None
    ) -> list[torch.Tensor | None]:
        """Return log pi_theta of each part (`BT`, on the host), of the policy with these weights if they are given."""
        with nullcontext() if weights is None else self._spread.showing(weights):
            return [self._ask(part, lambda part: self._scores(part).logprobs_BT) for part in parts]

    def values_of(self, parts: Sequence[TrainBatch | None]) -> list[torch.Tensor | None]:
        """Return the critic's values of each part (`BT`, on the host)."""
        return [self._ask(part, self._values) for part in parts]

    def save(self, folder: Path) -> None:
        """Write whole parameters and optimizer state once, for any number of ranks. Raise `OSError` where it was written."""
        tensors, steps = self._state()
        if dist.get_rank() == 0:
            self._write(folder, tensors, steps)

    @torch.no_grad()
    def _ask(
        self, part: TrainBatch | None, compute: Callable[[TrainBatch], torch.Tensor]
    ) -> torch.Tensor | None:
        if part is None:
            self._spread.idle()
            self._agree("")
            return None
        values_BT = compute(moved_to(part, self._device))
        broken = int((~torch.isfinite(values_BT)).sum())
        self._agree(f"the model gives {broken} tokens a value that is not finite" if broken else "")
        return values_BT.cpu()

    def _learn_part(self, part: TrainBatch | None, loss: LossFn, *, last: bool) -> Learned | None:
        if part is None:
            zero = self._spread.idle()
            self._agree("")
            self._policy.backward(zero, last=last)
            return None
        part = moved_to(part, self._device)
        scores = self._scores(part)
        logprobs_BT = scores.logprobs_BT
        broken = int((~torch.isfinite(logprobs_BT.detach())).sum())
        why = (
            f"the policy gives {broken} trained tokens a log-probability that is not finite" if broken else ""
        )
        output = LossOutput(logprobs_BT.sum()) if broken else loss(scores.beside(part), logprobs_BT)
        value = output.loss.detach()
        if not why and not bool(torch.isfinite(value)):
            why = f"the loss is {float(value)}"
        self._agree(why)
        # Gradients are averaged over the ranks. The second term has a gradient of 0 where the loss has none at all.
        total = output.loss * dist.get_world_size() + logprobs_BT.sum() * 0.0
        self._policy.backward(total, last=last)
        return Learned(logprobs_BT.detach().cpu(), _on_host(output))

    def _agree(self, why: str) -> None:
        """Refuse the update where any rank does."""
        refused = torch.tensor(float(bool(why)), device=self._device)
        dist.all_reduce(refused, op=dist.ReduceOp.MAX)
        if bool(refused):
            self._refuse(why or OTHERS_REFUSED)

    def _nothing(self, batch: TrainBatch) -> torch.Tensor:
        """Take part in a pass whose part trains no token."""
        return super()._nothing(batch) + self._spread.idle()


def _on_host(output: LossOutput) -> LossOutput:
    masked: Any = {reason: masked_BT.cpu() for reason, masked_BT in output.masked.items()}
    return LossOutput(output.loss.detach().cpu(), output.metrics, masked)
