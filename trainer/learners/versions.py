"""The weights of the newest policy versions, so that what sampled a turn can be asked again, or can sample again.

Kept by the learner for algorithms with `snapshots` and for `rollout.staleness`. Bounded: an older version leaves as a newer
one comes. Lives in host memory and goes into checkpoints, so that a resumed run has what the uninterrupted one had.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import torch
from safetensors import SafetensorError
from safetensors.numpy import load_file, save_file

from agent_runtime.types import Trajectory, VersionTokens
from rock_env.errors import InvalidArgument
from rock_env.plugins import load
from rock_env.store.whole_file import write_whole
from trainer.algo.base import AlgorithmSpec, Credit
from trainer.config import TrainConfig
from trainer.data.batch import TrainBatch
from trainer.errors import ConfigError
from trainer.learners.torch_train import system_errors
from trainer.protocols.engines import Weights

__all__ = ["VERSION_GONE", "Versions", "check_lag", "versions_kept"]

VERSION_GONE = "version gone"
"""Reason of a turn of whose tokens one's policy version is no longer kept, or whose chunk holds such a turn."""

_FILE = "version-{:08d}.safetensors"
_PATTERN = "version-*.safetensors"


def check_lag(config: TrainConfig) -> None:
    """Raise `ConfigError` where `rollout.staleness` has no effect, or is more than the algorithm's correction bears.

    The options of plugins must have been filled in.
    """
    lag = config.rollout.staleness
    algo = load("ale.algorithms", config.algo)
    assert isinstance(algo, AlgorithmSpec)
    if lag and not algo.learns_from_rollouts:
        raise ConfigError(
            f"rollout.staleness={lag} has no effect with algo {config.algo!r}, which learns from no rollouts: leave it out, "
            "or choose another algorithm"
        )
    bears = algo.off_policy.largest_lag(algo.options.model_validate(config.algo_options))
    if lag > bears and not config.rollout.allow_uncorrected_lag:
        more = f"algo_options.{algo.off_policy.raised_by} to bear more, " if algo.off_policy.raised_by else ""
        raise ConfigError(
            f"rollout.staleness={lag} samples with older weights than algo {config.algo!r} corrects for: expected at most "
            f"{bears:g}. Set {more}rollout.staleness={bears:g}, or rollout.allow_uncorrected_lag=true to learn all the "
            "same; or choose another algorithm (`ale algo list`; one of your own declares AlgorithmSpec.off_policy)."
        )


def versions_kept(config: TrainConfig, snapshots: int) -> int:
    """Return how many versions a run keeps whose algorithm asks for the newest `snapshots`; 0 where nobody asks for any.

    Raise `ConfigError` where staleness left nothing to learn.
    """
    lag = config.rollout.staleness
    if 0 < snapshots <= lag:
        raise ConfigError(
            f"rollout.staleness={lag} samples every turn with a version that is gone when it is learned from, because the "
            f"{snapshots} newest are kept: set algo_options.snapshots_kept to at least {lag + 1}"
        )
    return max(snapshots, lag + 1 if lag else 0)


class Versions:
    """The newest `keep` versions' weights; with `keep` 0 none, and nothing is ever gone."""

    def __init__(self, keep: int) -> None:
        self._keep = keep
        self._weights: dict[int, Weights] = {}

    def add(self, version: int, weights: Weights) -> None:
        """Keep a copy of the weights as this version's. The oldest version leaves where there are too many."""
        if not self._keep:
            return
        self._weights[version] = {name: np.array(value, order="C") for name, value in weights.items()}
        for old in sorted(self._weights)[: -self._keep]:
            del self._weights[old]

    def behind(self, lag: int) -> tuple[int, Weights]:
        """Return the version `lag` before the newest, or the oldest there is, and its weights. Something must be kept."""
        version = min(each for each in self._weights if each >= max(self._weights) - lag)
        return version, self._weights[version]

    def without_gone(self, trajectories: Sequence[Trajectory], credits: Sequence[Credit]) -> list[Credit]:
        """Return the credits with weight 0 for every chunk that holds a token of a version that is gone."""
        return [
            credit
            if credit.dropped or trajectory.is_expert or not self._keep
            else self._known_only(trajectory, credit)
            for trajectory, credit in zip(trajectories, credits, strict=True)
        ]

    def _known_only(self, trajectory: Trajectory, credit: Credit) -> Credit:
        turns = trajectory.turns
        gone_K = np.array([any(self._is_gone(s, credit.oldest) for s in turn.spans) for turn in turns], bool)
        chunk_K = np.arange(len(turns)) if credit.chunk_K is None else credit.chunk_K
        gone_K = np.isin(chunk_K, chunk_K[gone_K])
        # A turn that weighed nothing before keeps the reason it had.
        lost = np.flatnonzero(gone_K & (credit.advantage_K != 0)).tolist()
        return replace(
            credit,
            advantage_K=np.where(gone_K, 0.0, credit.advantage_K),
            masked={**credit.masked, **dict.fromkeys(lost, VERSION_GONE)},
        )

    def _is_gone(self, span: VersionTokens, oldest: int) -> bool:
        """Return whether tokens of a version no longer kept are learned: those before `oldest` are not, and need none."""
        return bool(span.tokens) and span.version >= oldest and span.version not in self._weights

    def logprobs(
        self, batch: TrainBatch, ask: Callable[[TrainBatch, Weights], torch.Tensor]
    ) -> torch.Tensor | None:
        """Return log pi_old (`_BT`, float32) of the RL tokens, each under its own version; None where none is kept.

        `ask` is a train engine's `logprobs`. NaN where the version is gone, 0 for other tokens.
        """
        if not self._keep:
            return None
        mask_BT, version_BT = batch.loss_mask_BT, batch.policy_version_BT
        old_BT = torch.where(mask_BT, torch.nan, torch.zeros(mask_BT.shape))
        for version in np.unique(version_BT[mask_BT].numpy()).tolist():
            if version in self._weights:
                own_BT = mask_BT & (version_BT == version)
                only = replace(batch, loss_mask_BT=own_BT, imitation_BT=torch.zeros_like(batch.imitation_BT))
                old_BT = torch.where(own_BT, ask(only, self._weights[version]), old_BT)
        return old_BT

    def save(self, folder: Path) -> None:
        """Write one file per version into an existing folder. Raise `OSError`."""
        for version, weights in self._weights.items():
            path = folder / _FILE.format(version)
            with system_errors(path):
                write_whole(path, partial(save_file, weights), durable=False)

    def load(self, folder: Path) -> None:
        """Read what `save` wrote. Raise `InvalidArgument` for a damaged file."""
        self._weights = {}
        for path in sorted(folder.glob(_PATTERN)) if self._keep else ():
            try:
                self._weights[int(path.stem.removeprefix("version-"))] = load_file(path)
            except (OSError, SafetensorError) as error:
                raise InvalidArgument(
                    f"cannot read the policy version {path}: {error}. Remove the folder {folder.name} to resume from the "
                    "checkpoint before it."
                ) from error
