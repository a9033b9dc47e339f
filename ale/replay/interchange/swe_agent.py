"""Rollouts as SWE-agent's `.traj` files, which are JSON, and back. Texts alone, as its inspector shows them."""

from __future__ import annotations

from typing import Any

import msgspec

from agent_runtime.types import Trajectory
from ale.errors import RecordError
from ale.replay.interchange.chat import messages_of
from ale.replay.interchange.foreign import imported, silent_turns
from rock_env.foreign import budget

__all__ = ["decode_swe_agent", "encode_swe_agent"]


class _Step(msgspec.Struct):
    action: str
    observation: str | None = ""


class _Said(msgspec.Struct):
    role: str
    content: Any = ""


class _File(msgspec.Struct):
    trajectory: list[_Step]
    history: list[_Said] = []
    environment: str = "swe-agent"


def encode_swe_agent(trajectory: Trajectory) -> bytes:
    """Return a rollout's file."""
    steps = [
        {
            "action": trajectory.actions[turn],
            "observation": trajectory.observations[turn] if turn < len(trajectory.observations) else "",
            "response": trajectory.actions[turn],
            "thought": "",
            "execution_time": trajectory.turns[turn].stepped_s,
            "state": {},
        }
        for turn in trajectory.env_turns
    ]
    kinds = {"assistant": "action", "user": "observation"}
    history = [
        {**message, "agent": "main", "message_type": kinds[message["role"]]}
        for message in messages_of(trajectory)
    ]
    info = {
        "exit_status": str(trajectory.stop_reason),
        "submission": None,
        "model_stats": {"tokens_received": trajectory.sampled_tokens, "api_calls": len(trajectory.turns)},
        "ale": {"id": trajectory.id, "task": trajectory.task_id},
    }
    named = {"environment": trajectory.env, "trajectory": steps, "history": history, "info": info}
    return msgspec.json.format(msgspec.json.encode(named), indent=1)


def decode_swe_agent(content: bytes, place: str) -> Trajectory:
    """Read a file. Raise `RecordError` for one that is none of SWE-agent's, `InvalidArgument` for one beyond the budget."""
    budget.check_json(content, place)
    try:
        read = msgspec.json.decode(content, type=_File)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise RecordError(f"{place} is no .traj of SWE-agent: {error}.") from error
    if not read.trajectory:
        raise RecordError(f"{place} has no steps, expected at least one.")
    first: list[str] = []
    for said in read.history:
        if said.role == "assistant":
            break
        first.append(
            said.content if isinstance(said.content, str) else msgspec.json.encode(said.content).decode()
        )
    return imported(
        place,
        env=f"{read.environment}@swe-agent",
        task="swe-agent/0",
        group=place,
        first_observation="\n\n".join(first),
        actions=[step.action for step in read.trajectory],
        observations=[step.observation or "" for step in read.trajectory],
        turns=silent_turns(len(read.trajectory)),
    )
