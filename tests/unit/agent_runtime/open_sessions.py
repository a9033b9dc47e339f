"""Sessions with a scripted engine, for the tests of what they are asked and how they end."""

from __future__ import annotations

import pytest
from agents_at_gateway import TEMPLATE, Scripted, Step, chat, rollout_request

from agent_runtime.chat import ChatReply, ChatRequest, Refusal
from agent_runtime.gateway.session import Budget, Session
from rock_env.env import Verdict

GOOD = Verdict(1.0, passed=True)


def opened(*script: Step, budget: Budget | None = None, **changes: object) -> tuple[Session, Scripted]:
    policy = Scripted(*script)
    session = Session(
        "key", rollout_request(**changes), sampler=policy, template=TEMPLATE, budget=budget or Budget()
    )
    return session, policy


async def refusal(session: Session, request: ChatRequest) -> Refusal:
    with pytest.raises(Refusal) as caught:
        await session.answer(request)
    return caught.value


async def played(session: Session, turns: int) -> list[ChatReply]:
    """Let an append-only agent play so many turns."""
    said, replies = ["fix it"], []
    for turn in range(turns):
        replies.append(await session.answer(chat(*said)))
        said += [replies[-1].text, f"output {turn}"]
    return replies
