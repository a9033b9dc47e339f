"""Rollouts as chat messages, one a line of JSON, and back: the form in which data for fine-tuning is passed around.

Texts alone: token ids and log-probabilities stay behind. Out go the calls that acted in the environment; in come messages of
any roles, of which the assistant's are actions and all else is what it was told.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import msgspec

from agent_runtime.types import Trajectory
from ale.errors import RecordError
from ale.replay.interchange.foreign import Outcome, imported, silent_turns
from rock_env.foreign import budget

__all__ = ["Message", "decode_chat", "encode_chat", "messages_of", "rollout_of_messages"]


class Message(msgspec.Struct):
    role: str
    content: str | None = ""
    tool_calls: list[Any] | None = None


class _Line(msgspec.Struct):
    messages: list[Message]
    id: str | None = None
    env: str | None = None
    task: str | None = None
    reward: float | None = None
    passed: bool | None = None


def messages_of(trajectory: Trajectory) -> list[dict[str, str]]:
    """Return a rollout's messages: what the environment said is the user's."""
    found = [{"role": "user", "content": trajectory.first_observation}]
    for turn in trajectory.env_turns:
        found.append({"role": "assistant", "content": trajectory.actions[turn]})
        if turn < len(trajectory.observations):
            found.append({"role": "user", "content": trajectory.observations[turn]})
    return found


def encode_chat(trajectory: Trajectory) -> bytes:
    """Return a rollout's line, with its end."""
    named = {
        "id": trajectory.id,
        "env": trajectory.env,
        "task": trajectory.task_id,
        "messages": messages_of(trajectory),
        **({"reward": trajectory.reward, "passed": trajectory.passed} if trajectory.has_reward else {}),
    }
    return msgspec.json.encode(named) + b"\n"


def decode_chat(content: Iterable[bytes], place: str) -> Iterator[Trajectory]:
    """Yield the rollouts of lines. Raise `RecordError` naming the line that is none, after those before it, and
    `InvalidArgument` for one beyond the budget.
    """
    for number, line in enumerate(content, 1):
        if not line.strip():
            continue
        where = f"{place} line {number}"
        budget.check_json(line, where)
        try:
            read = msgspec.json.decode(line, type=_Line)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            raise RecordError(f"{where} holds no chat messages: {error}.") from error
        outcome = None
        if read.reward is not None:
            outcome = Outcome(read.reward, read.reward >= 1 if read.passed is None else read.passed)
        yield rollout_of_messages(
            read.messages,
            name=read.id or where,
            env=read.env or "chat@1",
            task=read.task or f"chat/{number}",
            outcome=outcome,
            place=where,
        )


def rollout_of_messages(
    messages: list[Message], *, name: str, env: str, task: str, place: str, outcome: Outcome | None = None
) -> Trajectory:
    """Return the rollout of messages. Raise `RecordError` where no assistant speaks."""
    first: list[str] = []
    actions: list[str] = []
    told: list[list[str]] = []
    for message in messages:
        if message.role == "assistant":
            calls = [msgspec.json.encode(call).decode() for call in message.tool_calls or []]
            actions.append("\n".join(filter(None, (message.content or "", *calls))))
            told.append([])
        else:
            (told[-1] if told else first).append(message.content or "")
    if not actions:
        raise RecordError(
            f"{place} has no message of an assistant among {len(messages)}, expected at least one."
        )
    return imported(
        name,
        env=env,
        task=task,
        group=name,
        first_observation="\n\n".join(first),
        actions=actions,
        observations=["\n\n".join(each) for each in told],
        turns=silent_turns(len(actions)),
        outcome=outcome,
    )
