"""How much memory a learner takes, worked out before anything is loaded.

Weights and AdamW's two moments are there throughout. The backward pass begins with the states of all layers and a piece of
the logits; from layer to layer it lets go of states and adds gradients, while one layer is computed again. The worst of
these moments counts. `docs/learners.md` says how it is checked. Everything is in bytes.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any

import torch

from rock_env.errors import InvalidArgument
from trainer.learners.recompute import GIVEN_BACK, layers_of

__all__ = ["HEAD_ELEMENTS", "LIBRARIES", "Estimate", "Shape", "UpdatePlan"]

LIBRARIES = 460_000_000
"""Python, PyTorch, Transformers and what a Ray worker brings, as resident memory of a process that has done nothing yet."""
_KEPT_BETWEEN = 0.4
"""Of what layers computed and let go of, the share that malloc keeps: it lies between the inputs that stay."""
_OTHERWISE_GIVEN_BACK = 1 << 25
"""Bytes of a block from which on malloc gives it back at once, where layers are not computed again."""

HEAD_ELEMENTS = 1 << 26
"""Logits held at once: 256 MiB in float32; more is computed again in the backward pass."""
_HEAD_COPIES = 4
"""Logits, log-probabilities, and the gradient of either."""


@dataclass(frozen=True, slots=True)
class Shape:
    """What of a causal language model its memory depends on."""

    parameters: int
    """All of them, tied ones once."""
    layers: int
    layer_parameters: int
    """Those of one layer."""
    width: int
    inner: int
    """Width of the MLP."""
    attention: int
    """Numbers per token that queries, keys and values have together."""
    queries: int
    vocabulary: int

    @property
    def values(self) -> int:
        """Return the numbers per token that keys, or values, have."""
        return (self.attention - self.queries) // 2

    @staticmethod
    def of(config: Any) -> Shape:
        """Return the shape of a Transformers config; its model is built without memory for weights, once in a process.

        Raise `InvalidArgument` for a config that is no causal language model's.
        """
        said = config.to_json_string()
        if said not in _SHAPES:
            try:
                _SHAPES[said] = Shape._built(config)
            except (ValueError, TypeError, AttributeError, ArithmeticError, RuntimeError) as error:
                raise InvalidArgument(
                    f"cannot work out the shape of a model of type {config.model_type!r}: {error}. Expected the config of a "
                    "causal language model."
                ) from error
        return _SHAPES[said]

    @staticmethod
    def _built(config: Any) -> Shape:
        from transformers import AutoModelForCausalLM

        with torch.device("meta"):
            model = AutoModelForCausalLM.from_config(config)  # type: ignore[no-untyped-call]
        layers = layers_of(model)
        heads = int(config.num_attention_heads)
        head = int(getattr(config, "head_dim", None) or config.hidden_size // heads)
        kv_heads = int(getattr(config, "num_key_value_heads", None) or heads)
        return Shape(
            parameters=sum(value.numel() for value in model.parameters()),
            layers=len(layers),
            layer_parameters=sum(value.numel() for value in layers[0].parameters()),
            width=int(config.hidden_size),
            inner=int(getattr(config, "intermediate_size", None) or 4 * config.hidden_size),
            attention=(heads + 2 * kv_heads) * head,
            queries=heads * head,
            vocabulary=int(config.vocab_size),
        )


_SHAPES: dict[str, Shape] = {}
"""By what a config says."""


@dataclass(frozen=True, slots=True)
class UpdatePlan:
    """How the learner is to train."""

    tokens: int
    """Tokens computed in one forward and backward pass, padding included: the longest row, or `optim.microbatch_tokens`."""
    trained: int
    """Those of them that train."""
    half: bool = False
    """Computation in bfloat16; trained weights, their gradients and moments are float32 either way."""
    checkpointing: bool = True
    adapters: int = 0
    """Parameters of LoRA adapters; 0: all weights train."""
    ranks: int = 1
    """Processes that share the work; each has rows of its own."""
    divided: frozenset[str] = frozenset({"weights", "gradients", "moments"})
    """What of it each of several ranks has a share of only."""
    masters: bool = False
    """A further float32 copy of what trains lies beside the moments, and what is frozen is float32, too (DeepSpeed)."""
    offload: bool = False
    """The moments lie on the host."""

    def share(self, part: str, size: int) -> int:
        """Return what of a part's bytes one rank has."""
        return size // self.ranks if part in self.divided else size

    def moments(self, trains: int) -> int:
        """Return what the moments of so many parameters take at one rank, wherever they lie."""
        return self.share("moments", (12 if self.masters else 8) * trains)


@dataclass(frozen=True, slots=True)
class Estimate:
    """Memory of one rank, in bytes. Its parts are not all there at once: `total` is less than their sum."""

    weights: int
    gradients: int
    moments: int
    casts: int
    """bfloat16 copies of float32 weights, or a rank's whole copy of one layer."""
    kept: int
    """States kept for the backward pass."""
    layer: int
    """What one layer holds while its backward pass runs; nothing where all of them are kept anyway."""
    head: int
    """Final states of trained tokens, a piece of the logits, and the output layer's gradient."""

    @property
    def total(self) -> int:
        """Return what is there at the worst moment: as the backward pass begins, or in its first or last layer."""
        moment = max(self.kept + self.head, max(self.kept, self.gradients) + self.layer)
        return self.weights + self.moments + self.casts + moment

    def lines(self) -> list[str]:
        """Return it as a table of GB (10^9 bytes)."""
        parts = [(each.name, getattr(self, each.name)) for each in fields(self)]
        return [f"{name:<10}{size / 1e9:8.2f} GB" for name, size in [*parts, ("total", self.total)]]

    def on_processor(self, shape: Shape, plan: UpdatePlan, *, text: int) -> dict[str, int]:
        """Return the parts of a rank's resident memory on a processor, which add up to it.

        `text`: tokens of the longest row that is only scored (the guard's). There malloc gives large blocks back alone
        (`recompute.give_blocks_back`): what else the layers took stays, merged adapters are made of it, and large blocks
        and logits come on top.
        """
        number = 2 if plan.half else 4
        small = (GIVEN_BACK if plan.checkpointing else _OTHERWISE_GIVEN_BACK) / plan.tokens
        whole_T, stays_T = _layer(shape, number), _layer(shape, number, small)
        adapted_T = adapted_stays_T = 0
        if plan.adapters:  # a linear layer's own result beside the one with its adapter's
            adapted_T, adapted_stays_T = _adapted(shape, number), _adapted(shape, number, small)
        places = plan.tokens * shape.layers
        between = places * adapted_T
        if plan.checkpointing:
            between = round(_KEPT_BETWEEN * places * (stays_T + adapted_stays_T))
        logits = min(text, max(1, HEAD_ELEMENTS // shape.vocabulary)) * shape.vocabulary * 4 * 2
        layer = round(self.layer * stays_T / whole_T)
        layers = max(self.kept - self.gradients, 0) + layer
        merged = 4 * shape.layers * shape.layer_parameters if plan.adapters else 0
        return {
            "libraries": LIBRARIES,
            "weights": self.weights,
            "gradients": self.gradients,
            "moments": self.moments,
            "casts": self.casts,
            "layers": layers,
            "allocator": max(between, merged - layers - self.gradients),
            "logits": max(self.head, logits, self.layer - layer),
        }

    @staticmethod
    def of(shape: Shape, plan: UpdatePlan) -> Estimate:
        """Work out the memory of a rank under a plan."""
        number = 2 if plan.half else 4
        trains = plan.adapters or shape.parameters
        frozen = shape.parameters if plan.adapters else 0
        layer_T = _layer(shape, number)
        rows = min(plan.trained, max(1, HEAD_ELEMENTS // shape.vocabulary))
        head_weights = shape.vocabulary * shape.width
        cast = 0
        if plan.half and not plan.adapters:
            layers = 1 if plan.checkpointing else shape.layers
            cast = 2 * (layers * shape.layer_parameters + head_weights)
        if plan.ranks > 1 and "weights" in plan.divided:  # whole weights and gradient of what is at hand
            cast += 2 * 4 * max(shape.layer_parameters, head_weights)
        # The residual stream is float32 beside bfloat16, unless the embedding is frozen in bfloat16.
        state_T = (number if plan.adapters else 4) * shape.width
        return Estimate(
            weights=plan.share("weights", 4 * trains + (4 if plan.masters else number) * frozen),
            gradients=plan.share("gradients", 4 * trains),
            moments=0 if plan.offload else plan.moments(trains),
            casts=cast,
            kept=plan.tokens * shape.layers * (state_T if plan.checkpointing else layer_T),
            layer=2 * plan.tokens * layer_T if plan.checkpointing else plan.tokens * layer_T,
            head=plan.trained * 3 * state_T
            + rows * shape.vocabulary * 4 * _HEAD_COPIES
            + (0 if plan.adapters else 8 * head_weights),
        )


_Blocks = Sequence[tuple[int, int]]
"""Bytes that a token has in one tensor, and of how many such tensors."""


def _layer(shape: Shape, number: int, small: float = math.inf) -> int:
    """Return what the backward pass of one layer needs per token, in tensors of less than `small` bytes a token.

    Two norms keep their input, its float32 form and their result; queries and keys are kept before and after the
    rotation, values and the attention's result once, with a logsumexp; the MLP keeps gate, activation, up and product.
    """
    norms = [(4 * shape.width, 4), (number * shape.width, 2)]
    attention = [(number * shape.queries, 4), (number * shape.values, 4)]
    return _sum([*norms, *attention, (number * shape.inner, 4)], small)


def _adapted(shape: Shape, number: int, small: float = math.inf) -> int:
    """Return the same of the results of a layer's linear layers without their adapters."""
    attention = [(number * shape.queries, 1), (number * shape.values, 2)]
    return _sum([*attention, (number * shape.width, 2), (number * shape.inner, 2)], small)


def _sum(blocks: _Blocks, small: float) -> int:
    return sum(size * times for size, times in blocks if size < small)
