"""What an engine is: one side samples (inference), one side learns (train), tied by versioned weights.

Found by entry point `ale.engines`. Engines are synchronous and own their device; Ray actors wrap them
(`trainer.processes`).
Between a rollout and the sampling side stands `trainer.rollout.sampler.BatchingSampler`, so an engine sees batches only; one
that `steps` sees single requests where `rollout.batching` is `eager`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import torch
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict

from agent_runtime.chat import ToolTemplate
from agent_runtime.policy import ChatTemplate, Completion, SampleRequest
from agent_runtime.types import IntArray
from trainer.algo.base import LossOutput
from trainer.config import OptimOptions, TrainConfig
from trainer.data.batch import TrainBatch
from trainer.protocols.memory import Parameters, Part, Role

__all__ = [
    "AUTO",
    "EngineOptions",
    "EngineSpec",
    "InferenceEngine",
    "LearnsValues",
    "LossFn",
    "OptimOptions",
    "RemembersTurns",
    "SamplerSpec",
    "TellsEntropy",
    "TrainEngine",
    "Weights",
]

AUTO = "auto"
"""Of an engine's option `checkpointing`: the run chooses by the memory that there is."""

Weights = dict[str, NDArray[Any]]
"""Named parameters as host arrays: zero-copy through Ray's object store."""

LossFn = Callable[[TrainBatch, torch.Tensor], LossOutput]


class EngineOptions(BaseModel):
    """Base of an engine's options: frozen, unknown names refused."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)

    @property
    def half(self) -> bool:
        """Return whether the engine computes in less than float32."""
        return False


class InferenceEngine(Protocol):
    """Samples completions in batches. Single-threaded; the actor serialises calls.

    One that is a `trainer.samplers.arrival.StatesWeights`, too, lets a run prove that weights arrived.
    """

    def sample(self, requests: Sequence[SampleRequest]) -> list[Completion]:
        """Return one completion per request, in order. The result depends on the requests and weights only."""
        ...

    def load(self, weights: Weights, version: int) -> None:
        """Take new weights; later completions carry `version`."""
        ...


@runtime_checkable
class RemembersTurns(Protocol):
    """An inference engine that keeps what it computed for a rollout's earlier turns, until other weights arrive."""

    def sample_turns(self, requests: Sequence[SampleRequest]) -> list[Completion]:
        """Return one completion per request, in order. The result depends on the rollouts' own earlier turns, in its
        rounding only, and on no other rollout's.
        """
        ...


class TrainEngine(Protocol):
    """Holds parameters and optimizer; turns a batch and a loss into an update."""

    def logprobs(self, batch: TrainBatch, weights: Weights | None = None) -> torch.Tensor:
        """Return log pi_theta of every trained token (float32, `_BT`) without gradients.

        Trained are tokens with `loss_mask_BT` or a non-zero `imitation_BT`; elsewhere the value is 0. `weights` asks what
        another version of the policy says; parameters and optimizer are afterwards as before, bit for bit.
        """
        ...

    def step(self, batch: TrainBatch, loss: LossFn, *, lr: float) -> dict[str, float]:
        """One optimizer update over the batch (microbatched). Return metrics, `grad_norm` and `loss` among them.

        Calls `loss` exactly once per part, and no row is in two parts: the token ledger counts along. Parameters whose
        gradient norm is 0 stay as they are: where everything is masked there is no update. Raise
        `FloatingPointError` and leave parameters untouched when a log-probability, loss or gradient is not finite.
        """
        ...

    def weights(self) -> Weights:
        """Return the current parameters as host arrays (copies, or views that stay valid until the next `step`)."""
        ...

    def save(self, folder: Path) -> None:
        """Write parameters and optimizer state into an existing folder."""
        ...

    def load(self, folder: Path) -> None:
        """Read what `save` wrote; the continuation is bitwise equal on CPU."""
        ...

    def export(self, folder: Path) -> None:
        """Write the model in the form that `--model FOLDER` reads again."""
        ...


@runtime_checkable
class TellsEntropy(Protocol):
    """A train engine that may know the whole distribution of a token."""

    @property
    def tells_entropy(self) -> bool:
        """Return whether it does: it then divides logits by `TrainBatch.temperature`, and `step` gives the loss
        `TrainBatch.entropy_BT` where the batch `wants_entropy`."""
        ...


@runtime_checkable
class LearnsValues(Protocol):
    """A train engine that can have a critic: the values of states, predicted from the policy network's last state.

    With one, `step` gives the loss `TrainBatch.values_BT` wherever the batch has `returns_BT`, and reports the norm of its
    gradient as `critic/grad_norm`; `save` and `load` take it along, `weights` and `export` leave it out.
    """

    def add_critic(self, *, lr: float, seed: int) -> None:
        """Begin a critic that says 0 everywhere and learns at the rate `lr`, once, before the first `step` or `load`."""
        ...

    def values(self, batch: TrainBatch) -> torch.Tensor:
        """Return V of the state before every token with `loss_mask_BT` (float32, `_BT`, 0 elsewhere), without gradients.

        Raise `FloatingPointError` when one is not finite.
        """
        ...


@dataclass(frozen=True, slots=True)
class SamplerSpec:
    """An engine plugin that only samples, from models that another engine trains: also a value of `ale.engines`."""

    name: str
    summary: str
    options: type[EngineOptions]
    inference: Callable[[str, Any, int], InferenceEngine]
    """As that of an `EngineSpec`; its `load` takes the weights by the learner's names."""
    stops: bool = False
    """It ends an answer at a text (`SampleRequest.stop`)."""
    steps: bool = False
    """It is a `trainer.samplers.threaded.SteppedBatch`, too: requests join and leave between two tokens."""
    memory: Callable[[str, Any, TrainConfig], list[Role]] | None = None
    """As `sampler_memory` of an `EngineSpec`."""
    learners: tuple[str, ...] = ()
    """The engines whose models it samples from; a run with another is refused. Empty: any. The contract suite takes its
    weights from the first."""


@dataclass(frozen=True, slots=True)
class EngineSpec:
    """An engine plugin that trains: a value of `ale.engines`. Each builder takes (model, options[, seed])."""

    name: str
    summary: str
    options: type[EngineOptions]
    template: Callable[[str, Any], ChatTemplate]
    inference: Callable[[str, Any, int], InferenceEngine] | None
    """(model, options, seed) -> engine; weights arrive by `load` before the first `sample`. None: it only trains, and a run
    names a sampler beside it."""
    train: Callable[[str, Any, int, OptimOptions], TrainEngine]
    tools: Callable[[str, Any], ToolTemplate] | None = None
    """(model, options) -> the template of CLI agents, which bring their own tools; None: the model cannot chat with them."""
    prose: Callable[[str, Any, str], IntArray] | None = None
    """(model, options, text) -> the ids of plain text as the model read it when it was pretrained; None: its models know no
    prose, so that nothing can be forgotten."""
    stops: bool = False
    """Its inference ends an answer at a text (`SampleRequest.stop`)."""
    memory: Callable[[str, Any, TrainConfig, Part | None], list[Role]] | None = None
    """(model, options, config, part) -> what the learner's processes take in memory, without loading the model. `part`: the
    largest pass that a run had; None: the largest that its settings allow. Raise `InvalidArgument` where the model is not
    here. None: nothing is worked out."""
    sampler_memory: Callable[[str, Any, TrainConfig], list[Role]] | None = None
    """(model, options, config) -> the same, of the processes that sample."""
    parameters: Callable[[str, Any], Parameters] | None = None
    """(model, options) -> how many the model has, without loading it, by which a run says how large its checkpoints will be.
    Raise `InvalidArgument` where the model is not here. None: the engine is built and its weights are counted."""
    steps: bool = False
    """Its inference is a `trainer.samplers.threaded.SteppedBatch`, too: requests join and leave between two tokens."""
    agreement: float = 0.0
    """With the same weights its two sides differ by less in the log-probability of a token (nats), computing in float32; 0:
    not known. Where it is known, a learner in float32 need not compute again what its own weights have just sampled."""

    @property
    def sampler(self) -> SamplerSpec | None:
        """Return the part that samples, if there is one."""
        if self.inference is None:
            return None
        return SamplerSpec(
            self.name,
            self.summary,
            self.options,
            self.inference,
            self.stops,
            self.steps,
            self.sampler_memory,
        )
