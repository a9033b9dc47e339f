"""A session's calls as an ordinary `Trajectory`: one turn per call, the tree in `Turn.parent`, labels beside.

Called by the session's owner when the episode is graded. Every sampled token is in exactly one turn, whatever became of it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from agent_runtime.calls.labels import labels
from agent_runtime.calls.nodes import Call, Node
from agent_runtime.calls.tree import CallTree
from agent_runtime.chat import Parsed
from agent_runtime.types import (
    RolloutFailure,
    RolloutRequest,
    StopReason,
    Trajectory,
    Turn,
    TurnFault,
)
from rock_env.env import observation_hash

__all__ = ["Outcome", "answer_text", "trajectory"]


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of a session: the environment's verdict, or why there is none."""

    env: str
    """`name@version`."""
    stop_reason: StopReason
    reward: float = math.nan
    passed: bool = False
    failure: RolloutFailure | None = None
    duration_s: float = 0.0


def trajectory(
    tree: CallTree, request: RolloutRequest, outcome: Outcome, *, policy_step: int = 0
) -> Trajectory:
    """Return the record of a session. A malformed tool call makes its turn illegal, not the trajectory failed."""
    calls = tree.calls
    found = labels(tree)
    shown = _observations(calls)
    faults = tuple(TurnFault.ILLEGAL if call.parsed.malformed else TurnFault.NONE for call in calls)
    illegal = sum(fault is TurnFault.ILLEGAL for fault in faults)
    return Trajectory(
        id=request.id,
        env=outcome.env,
        params_json=request.params_json,
        task_id=request.task_id,
        group_id=request.group_id,
        index=request.index,
        seed=request.seed,
        start=request.start,
        first_observation=_text(calls[0].node, None) if calls else "",
        turns=tuple(_turn(call, calls) for call in calls),
        actions=tuple(answer_text(call.parsed) for call in calls),
        observations=shown,
        observation_hashes=tuple(map(observation_hash, shown)),
        turn_rewards=(0.0,) * len(calls),
        illegal_actions=illegal,
        reward=outcome.reward,
        passed=outcome.passed,
        stop_reason=outcome.stop_reason,
        failure=outcome.failure,
        duration_s=outcome.duration_s,
        policy_step=policy_step,
        turn_faults=faults if illegal else (),
        turn_labels=tuple(found),
    )


def answer_text(parsed: Parsed) -> str:
    """Return what an answer says, for readers: its text, then a line for each tool call."""
    said = [parsed.text] if parsed.text else []
    return "\n".join([*said, *(f"{call.name}({call.arguments})" for call in parsed.tool_calls)])


def _turn(call: Call, calls: Sequence[Call]) -> Turn:
    completion = call.completion
    return Turn(
        index=call.index,
        parent=None if call.parent is None else call.parent.index,
        context_ids=call.context_ids,
        completion_ids=completion.ids,
        logprobs=completion.logprobs,
        finish_reason=completion.finish_reason,
        policy_version=completion.policy_version,
        started_s=call.started_s,
        sampled_s=call.sampled_s,
    )


def _observations(calls: Sequence[Call]) -> tuple[str, ...]:
    """Return what each call's answer led to: the new messages of the first call that goes on from it."""
    shown = [""] * len(calls)
    for call in reversed(calls):
        if call.parent is not None:
            shown[call.parent.index] = _text(call.node, call.parent.answer)
    return tuple(shown)


def _text(node: Node, after: Node | None) -> str:
    """Return the messages up to `node`, after the place `after`."""
    parts: list[str] = []
    place: Node | None = node
    while place is not None and place is not after and place.message is not None:
        parts.append(place.message.content)
        place = place.parent
    return "\n\n".join(reversed(parts))
