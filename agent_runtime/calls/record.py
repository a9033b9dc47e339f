"""A session's calls as an ordinary `Trajectory`: one turn per call, the tree in `Turn.parent`, labels beside.

Every sampled token is in exactly one turn, whatever became of it.
"""

from __future__ import annotations

from collections.abc import Sequence

from agent_runtime.calls.labels import labels
from agent_runtime.calls.nodes import Call, Node
from agent_runtime.calls.tree import CallTree
from agent_runtime.chat import Parsed
from agent_runtime.recording import Recording
from agent_runtime.types import RolloutFailure, RolloutRequest, StopReason, Trajectory, Turn, TurnFault
from rock_env.env import Verdict

__all__ = ["answer_text", "trajectory"]


def trajectory(
    tree: CallTree,
    request: RolloutRequest,
    env: str,
    stop: StopReason,
    outcome: Verdict | RolloutFailure,
    *,
    duration_s: float = 0.0,
    policy_step: int = 0,
) -> Trajectory:
    """Return the record of a session in `env` (`name@version`), graded or failed.

    A malformed tool call makes its turn illegal, not the trajectory failed.
    """
    recording, calls = Recording(request, policy_step=policy_step, labelled=True), tree.calls
    recording.env = env
    recording.first_observation = _text(calls[0].node, None) if calls else ""
    for call, label, shown in zip(calls, labels(tree), _observations(calls), strict=True):
        fault = TurnFault.ILLEGAL if call.parsed.malformed else TurnFault.NONE
        recording.add(_turn(call), answer_text(call.parsed), shown, fault=fault, label=label)
    return recording.trajectory(stop, outcome, duration_s=duration_s)


def answer_text(parsed: Parsed) -> str:
    """Return what an answer says, for readers: its text, then a line for each tool call."""
    said = [parsed.text] if parsed.text else []
    return "\n".join([*said, *(f"{call.name}({call.arguments})" for call in parsed.tool_calls)])


def _turn(call: Call) -> Turn:
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
        entropy=completion.entropy,
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
