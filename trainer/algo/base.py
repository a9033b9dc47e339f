"""What an algorithm is: credit per turn (NumPy), loss per batch (torch), both pure.

Implemented by one file per algorithm, found by entry point `ale.algorithms`, called by `trainer.loop`
(credit) and the train engine (loss). An algorithm never samples, steps an optimizer or sees an environment.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, runtime_checkable

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict

from agent_runtime.types import Trajectory
from trainer.data.batch import Credit, TrainBatch

__all__ = [
    "AcrossGroups",
    "AlgoOptions",
    "Algorithm",
    "AlgorithmSpec",
    "Credit",
    "LossOutput",
    "Metric",
    "NeedsCritic",
    "NeedsReference",
    "NeedsSnapshots",
    "OffPolicy",
    "SparesProx",
    "credit_step",
]


class AlgoOptions(BaseModel):
    """Base of an algorithm's options: frozen, unknown names refused, a docstring under each field."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)


@dataclass(frozen=True, slots=True)
class Metric:
    """A mean in the making: `total / weight`, so that microbatches add up exactly."""

    total: float
    weight: float


@dataclass(frozen=True, slots=True, eq=False)
class LossOutput:
    """A scalar to differentiate, already divided by the batch's constants, and what to report."""

    loss: torch.Tensor
    metrics: dict[str, Metric] = field(default_factory=dict)
    masked: Mapping[str, torch.Tensor] = field(default_factory=dict)
    """RL tokens (bool, BT) that this loss gave no gradient, by reason: a chunk mask, a correction's rejection. A token in
    several counts for the first; tokens outside `loss_mask_BT` are not looked at."""


class Algorithm(Protocol):
    """Credit and loss. Both pure: the same input gives the same output, bit for bit."""

    needs_prox: bool
    """Whether several updates per batch need `prox_logprobs_BT`."""

    def credit(self, group: Sequence[Trajectory]) -> list[Credit]:
        """Return a `Credit` per trajectory of a group (one task, one anchor); failures come as dropped."""
        ...

    def loss(self, batch: TrainBatch, logprobs_BT: torch.Tensor) -> LossOutput:
        """Return the loss. `logprobs_BT[b, t]` is log pi_theta(token t | tokens before t).

        Masked entries may be anything, NaN included, and must not change the loss or any gradient by a bit.
        """
        ...


@runtime_checkable
class SparesProx(Protocol):
    """An algorithm that can tell of some batches that pi_prox, computed or not, changes no bit of their updates."""

    def spares_prox(self, batch: TrainBatch, agreement: float) -> bool:
        """Return whether it does for this batch, of whose RL tokens pi_prox sampled every one.

        `agreement` is by how many nats log pi_prox of a token may differ from what the sampler stored. Where the answer is
        True the batch comes with `fresh` and without `prox_logprobs_BT`.
        """
        ...


@runtime_checkable
class AcrossGroups(Protocol):
    """An algorithm whose credit also depends on the step's other groups, such as a mean over the whole batch."""

    def across_groups(self, trajectories: Sequence[Trajectory], credits: Sequence[Credit]) -> list[Credit]:
        """Return the final credit of every trajectory, given what `credit` said of each group."""
        ...


@runtime_checkable
class NeedsCritic(Protocol):
    """An algorithm whose credit comes from the values of states, which the train engine learns beside the policy."""

    value_lr: float
    """Learning rate of the critic."""
    value_warmup: int
    """First steps that learn by `warmup_loss`."""

    def bootstraps(self, trajectory: Trajectory) -> bool:
        """Return whether it asks for the value of the state after the trajectory's last turn."""
        ...

    def criticised(
        self,
        trajectories: Sequence[Trajectory],
        credits: Sequence[Credit],
        values: Sequence[NDArray[np.float64]],
    ) -> list[Credit]:
        """Return the final credit of a step, given what `credit` said of each group, and the states' values.

        `values` has K + 1 entries for a trajectory of K turns: NaN for a state that has none, which may be the last.
        """
        ...

    def warmup_loss(self, batch: TrainBatch, logprobs_BT: torch.Tensor) -> LossOutput:
        """Return the loss of a step in which no rollout moves the policy."""
        ...


def credit_step(
    algorithm: Algorithm,
    trajectories: Sequence[Trajectory],
    values: Sequence[NDArray[np.float64]] | None = None,
) -> list[Credit]:
    """Return a credit per trajectory of a step, in order: group by group, then across groups if the algorithm does.

    `values` are the critic's, as `NeedsCritic.criticised` takes them; None stands for a critic that always says 0.
    """
    groups: dict[str, list[int]] = {}
    for position, trajectory in enumerate(trajectories):
        groups.setdefault(trajectory.group_id, []).append(position)
    found: dict[int, Credit] = {}
    for positions in groups.values():
        group = algorithm.credit([trajectories[position] for position in positions])
        found.update(zip(positions, group, strict=True))
    credits = [found[position] for position in range(len(trajectories))]
    if isinstance(algorithm, NeedsCritic):
        values = [np.zeros(len(t.turns) + 1) for t in trajectories] if values is None else values
        credits = algorithm.criticised(trajectories, credits, values)
    return algorithm.across_groups(trajectories, credits) if isinstance(algorithm, AcrossGroups) else credits


@runtime_checkable
class NeedsReference(Protocol):
    """An algorithm whose loss may read `TrainBatch.reference_logprobs_BT`."""

    needs_reference: bool
    """Whether it does, under its options."""


@runtime_checkable
class NeedsSnapshots(Protocol):
    """An algorithm whose loss may read `TrainBatch.old_logprobs_BT`."""

    snapshots: int
    """How many of the newest policy versions' weights the learner keeps for it, under its options; 0: none are needed."""


@dataclass(frozen=True, slots=True)
class OffPolicy:
    """What an algorithm does about tokens that older weights sampled."""

    largest_lag: Callable[[Any], float]
    """(options) -> by how many versions the weights that sampled may be older than those that learn: 0 where nothing
    corrects for it, `inf` where a ratio to the weights that sampled is bounded or masked, whatever their age."""
    raised_by: str = ""
    """The option that lets it bear more."""


@dataclass(frozen=True, slots=True)
class AlgorithmSpec:
    """An algorithm plugin: the value of an `ale.algorithms` entry point."""

    name: str
    summary: str
    options: type[AlgoOptions]
    build: Callable[[Any], Algorithm]
    """Takes an instance of `options`."""
    learns_from_rollouts: bool = True
    """False for pure imitation: the loop then samples no training rollouts."""
    dynamic_sampling: bool = False
    """Its source replaces groups without variance: what `filter.dynamic = "algorithm"` goes by."""
    off_policy: OffPolicy = OffPolicy(lambda options: 0)
    """Its off-policy correction: a larger `rollout.staleness` than it bears is refused. Declares none unless given."""
