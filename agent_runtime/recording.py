"""A trajectory in the making: turns go in one by one, the record comes out. The one place that builds a `Trajectory`."""

from __future__ import annotations

import math
from time import perf_counter
from typing import Protocol, runtime_checkable

from agent_runtime.types import (
    Hosting,
    RecordedArtifact,
    RolloutFailure,
    RolloutRequest,
    StopReason,
    Trajectory,
    Turn,
    TurnFault,
    TurnLabel,
)
from rock_env.env import Artifact, Verdict, observation_hash

__all__ = ["Attaches", "Recording", "attached"]


@runtime_checkable
class Attaches(Protocol):
    """An environment whose replies may come with files."""

    @property
    def artifacts(self) -> tuple[Artifact, ...]:
        """Return what the newest reply came with."""
        ...

    async def read_artifact(self, sha256: str) -> bytes:
        """Return the bytes of one of the present episode. Raise `RockError`."""
        ...


def attached(env: object, turn: int) -> tuple[RecordedArtifact, ...]:
    """Return what the newest reply of an environment came with, as a record has it; nothing of one that attaches none."""
    return tuple(
        RecordedArtifact(turn, each.name, each.media_type, each.sha256, each.size, each.missing)
        for each in (env.artifacts if isinstance(env, Attaches) else ())
    )


class Recording:
    """What has happened so far, so that a failure keeps it."""

    def __init__(self, request: RolloutRequest, *, policy_step: int = 0, labelled: bool = False) -> None:
        self.request = request
        self.env = request.env
        """`name@version`, once the version is known."""
        self.first_observation = ""
        self.lost_tokens = 0
        self.turns: list[Turn] = []
        self.began_s = perf_counter()
        self.hosting: Hosting | None = None
        """Once the environment was reset."""
        self.artifacts: list[RecordedArtifact] = []
        self._policy_step = policy_step
        self._labelled = labelled
        """Whether labels are kept although no turn is internal: those of a session."""
        self._actions: list[str] = []
        self._observations: list[str] = []
        self._rewards: list[float] = []
        self._faults: list[TurnFault] = []
        self._labels: list[TurnLabel] = []
        self._internal: list[int] = []
        self._illegal = 0

    def add(
        self,
        turn: Turn,
        action: str,
        observation: str,
        *,
        reward: float = 0.0,
        fault: TurnFault = TurnFault.NONE,
        label: TurnLabel = TurnLabel.MAIN,
        internal: bool = False,
    ) -> None:
        """Add a turn and what it led to; the environment has not heard of an `internal` one."""
        self.turns.append(turn)
        self._actions.append(action)
        self._observations.append(observation)
        self._rewards.append(reward)
        self._faults.append(fault)
        self._labels.append(label)
        self._illegal += fault is TurnFault.ILLEGAL
        if internal:
            self._internal.append(turn.index)

    def undo(self, ago: object) -> None:
        """Note that the newest turn took back the action so many before it, if that has a turn here."""
        internal = frozenset(self._internal)
        acted = [turn for turn in range(len(self.turns)) if turn not in internal]
        if isinstance(ago, int) and 0 < ago < len(acted):
            self._faults[acted[-1 - ago]] = TurnFault.UNDONE

    def trajectory(
        self, stop: StopReason, outcome: Verdict | RolloutFailure, *, duration_s: float | None = None
    ) -> Trajectory:
        """Return the record of a graded or a failed rollout; the duration is that since the recording began, or as given."""
        request = self.request
        verdict = outcome if isinstance(outcome, Verdict) else Verdict(math.nan, passed=False)
        played = Trajectory(
            id=request.id,
            env=self.env,
            params_json=request.params_json,
            task_id=request.task_id,
            group_id=request.group_id,
            index=request.index,
            seed=request.seed,
            start=request.start,
            first_observation=self.first_observation,
            turns=tuple(self.turns),
            actions=tuple(self._actions),
            observations=tuple(self._observations),
            observation_hashes=tuple(map(observation_hash, self._observations)),
            turn_rewards=tuple(self._rewards),
            illegal_actions=self._illegal,
            reward=verdict.reward,
            passed=verdict.passed,
            stop_reason=stop,
            duration_s=perf_counter() - self.began_s if duration_s is None else duration_s,
            policy_step=self._policy_step,
            turn_faults=tuple(self._faults) if any(self._faults) else (),
            lost_tokens=self.lost_tokens,
            turn_labels=tuple(self._labels) if self._labelled or self._internal else (),
            internal_turns=tuple(self._internal),
            grader_output=verdict.details,
            hosting=self.hosting,
            artifacts=tuple(self.artifacts),
        )
        return played if isinstance(outcome, Verdict) else played.as_failed(outcome)
