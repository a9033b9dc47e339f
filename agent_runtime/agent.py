"""What an agent is to a rollout: it is shown observations and answers with moves.

Implemented by `agents.chat_loop` (the policy samples) and `agents.oracle` (a reference solution acts), played by
`run.rollout`. An agent never touches the environment.
"""

from __future__ import annotations

import math
from typing import NamedTuple, Protocol

from agent_runtime.types import FloatArray, IntArray, PolicyVersion, Turn, TurnFault, TurnLabel

__all__ = ["Agent", "Move", "Reply"]


class Reply(NamedTuple):
    """What the agent itself says to a turn that is not meant for the environment."""

    text: str
    fault: TurnFault = TurnFault.NONE
    label: TurnLabel = TurnLabel.MAIN


class Move(NamedTuple):
    """One answer of an agent: the action's text and the tokens behind it (see `Turn` for the fields)."""

    action: str
    parent: int | None
    context_ids: IntArray
    completion_ids: IntArray
    logprobs: FloatArray
    finish_reason: str
    policy_version: PolicyVersion
    reply: Reply | None = None
    """Where the environment is not to get the action: what the agent is shown next in place of an observation."""
    entropy: float = math.nan

    def turn(
        self, index: int, started_s: float = 0.0, sampled_s: float = 0.0, stepped_s: float = 0.0
    ) -> Turn:
        """Return the turn that this move is, at `index`."""
        return Turn(
            index,
            self.parent,
            self.context_ids,
            self.completion_ids,
            self.logprobs,
            self.finish_reason,
            self.policy_version,
            started_s,
            sampled_s,
            stepped_s,
            self.entropy,
        )


class Agent(Protocol):
    """Decides what to send. One instance serves one rollout, built once the task's instruction is known."""

    async def act(self, observation: str) -> Move | None:
        """Return the next move, or None when the context is full. Raise `PolicyError`."""
        ...
