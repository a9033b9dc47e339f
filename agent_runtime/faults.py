"""Whose fault the failures in a record are, in the words of `rock_env.faults`. Read by the trainer's metrics and sessions.

A turn's fault is the agent's or its tool's. What fails a rollout is the infrastructure's, whatever its code: such a rollout
has no reward, not one of 0, and nothing of it is learned. So is a model's answer that does not come; a request that no model
could have answered is the agent's.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from agent_runtime.chat import RefusalKind
from agent_runtime.types import Trajectory, TurnFault
from rock_env.faults import Blame

__all__ = ["blame_of_refusal", "blame_of_turn", "count_blame"]

_TURNS = {
    TurnFault.ILLEGAL: Blame.AGENT,
    TurnFault.TOOL_FAILED: Blame.AGENT,
    TurnFault.TOOL_BROKE: Blame.TOOL,
}
_ENGINE = frozenset({RefusalKind.RATE_LIMIT, RefusalKind.UPSTREAM})


def blame_of_turn(fault: TurnFault) -> Blame | None:
    """Return whose fault a turn's fault is; None for a turn that did what it should, later taken back or not."""
    return _TURNS.get(fault)


def blame_of_refusal(kind: RefusalKind) -> Blame:
    """Return whose fault it is that an agent's request for an answer was refused."""
    return Blame.INFRASTRUCTURE if kind in _ENGINE else Blame.AGENT


def count_blame(trajectories: Iterable[Trajectory]) -> Counter[Blame]:
    """Return how many turns were the agent's and the tool's fault, and how many rollouts the infrastructure's."""
    counts: Counter[Blame] = Counter()
    for trajectory in trajectories:
        blames = map(blame_of_turn, trajectory.turn_faults)
        counts.update(blame for blame in blames if blame is not None)
        counts[Blame.INFRASTRUCTURE] += not trajectory.has_reward
    return counts
