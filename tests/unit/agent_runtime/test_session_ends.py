"""Why a session ended, and whose fault it was."""

from __future__ import annotations

import asyncio
from typing import Any

import numpy as np
import pytest
from agents_at_gateway import TEMPLATE, Gate, Step, chat, rollout_request
from open_sessions import GOOD, opened, refusal

from agent_runtime.chat import Asked, Refusal, RefusalKind
from agent_runtime.gateway.session import Budget, Session, SessionEnd
from agent_runtime.policy import Completion, PolicyError, SampleRequest
from agent_runtime.types import RolloutFailure, StopReason
from rock_env.env import Verdict
from rock_env.faults import Blame


async def test_who_never_spoke_has_failed() -> None:
    session, _ = opened()
    assert await session.close() is SessionEnd.NEVER_SPOKE
    trajectory = session.record("toy@1", GOOD)
    assert trajectory.failure is not None
    assert trajectory.failure.code == "agent_never_spoke"
    assert np.isnan(trajectory.reward)


async def test_who_left_before_the_last_answer_has_failed() -> None:
    session, _ = opened("one")
    asked = session.ask(chat("a"))
    await asked.outcome
    session.lost(asked, broken=True)
    assert await session.close() is SessionEnd.CLIENT_GONE
    failure = session.record("toy@1", GOOD).failure
    assert failure is not None
    assert failure.code == "agent_gone"


async def test_leaving_a_call_beside_the_task_is_no_failure() -> None:
    session, _ = opened("one", "a title")
    title = session.ask(chat("name this", tools=False))
    await session.answer(chat("a"))
    await title.outcome
    session.lost(title, broken=False)
    assert await session.close() is SessionEnd.EXITED


@pytest.mark.parametrize("child", [{"conversation": "child"}, {"asked": Asked.SUB_AGENT}])
async def test_leaving_a_sub_agent_is_no_failure(child: dict[str, Any]) -> None:
    """Codex and claude-code have sub-agents that the main conversation need not wait for."""
    session, _ = opened("one", Gate("a report"))
    await session.answer(chat("a"))
    asked = session.ask(chat("look around", **child))
    session.lost(asked, broken=False)
    assert await session.close() is SessionEnd.EXITED


async def test_leaving_a_summary_is_a_failure() -> None:
    session, _ = opened("one", Gate("a summary"))
    await session.answer(chat("a"))
    asked = session.ask(chat("a", "one", "sum up", asked=Asked.SUMMARY))
    session.lost(asked, broken=False)
    assert await session.close() is SessionEnd.CLIENT_GONE


async def test_an_engine_that_failed_last_is_a_failure_of_the_policy() -> None:
    session, _ = opened("one", PolicyError("gone"))
    await session.answer(chat("a"))
    await refusal(session, chat("b"))
    assert await session.close() is SessionEnd.ENGINE_FAILED
    failure = session.record("toy@1", GOOD).failure
    assert failure is not None
    assert failure.code == "policy"


async def test_time_that_ran_out_on_an_agent_that_never_spoke_is_no_reward_of_nothing() -> None:
    """It hung at its start until it was killed: the same failure as if it had exited."""
    session, _ = opened()
    assert await session.close(SessionEnd.TIME) is SessionEnd.TIME
    trajectory = session.record("toy@1", Verdict(0.0, passed=False))
    assert trajectory.failure is not None
    assert trajectory.failure.code == "agent_never_spoke"
    assert np.isnan(trajectory.reward)


async def test_time_that_ran_out_on_an_engine_that_fails_is_a_failure_of_the_policy() -> None:
    """Agents repeat what the engine fails, many of them until their time is over."""
    session, _ = opened("one", PolicyError("gone"))
    await session.answer(chat("a"))
    await refusal(session, chat("b"))
    assert await session.close(SessionEnd.TIME) is SessionEnd.TIME
    failure = session.record("toy@1", Verdict(0.0, passed=False)).failure
    assert failure is not None
    assert failure.code == "policy"


async def test_time_that_ran_out_after_an_answer_is_graded() -> None:
    session, _ = opened(PolicyError("gone"), "one")
    await refusal(session, chat("a"))
    await session.answer(chat("a"))
    await session.close(SessionEnd.TIME)
    trajectory = session.record("toy@1", GOOD)
    assert (trajectory.stop_reason, trajectory.reward) == (StopReason.TRUNCATED, 1.0)


def refusing(kind: RefusalKind) -> Step:
    async def step(_: SampleRequest) -> str:
        raise Refusal(kind, "as the script says")

    return step


@pytest.mark.parametrize(
    ("kind", "blame", "end", "stop", "failure"),
    [
        (RefusalKind.BAD_REQUEST, Blame.AGENT, SessionEnd.REFUSED, StopReason.TERMINATED, None),
        (RefusalKind.CONTEXT_OVERFLOW, Blame.AGENT, SessionEnd.CONTEXT_FULL, StopReason.CONTEXT_FULL, None),
        (
            RefusalKind.RATE_LIMIT,
            Blame.INFRASTRUCTURE,
            SessionEnd.ENGINE_FAILED,
            StopReason.FAILED,
            "policy",
        ),
        (RefusalKind.UPSTREAM, Blame.INFRASTRUCTURE, SessionEnd.ENGINE_FAILED, StopReason.FAILED, "policy"),
    ],
)
async def test_who_gave_up_after_an_error_is_graded_only_where_it_was_its_own_fault(
    kind: RefusalKind, blame: Blame, end: SessionEnd, stop: StopReason, failure: str | None
) -> None:
    session, _ = opened("one", refusing(kind))
    await session.answer(chat("a"))
    assert not session.blamed
    assert (await refusal(session, chat("b"))).kind is kind
    assert session.blamed == {blame: 1}
    assert await session.close() is end
    trajectory = session.record("toy@1", Verdict(0.0, passed=False))
    assert trajectory.stop_reason is stop
    assert (trajectory.failure and trajectory.failure.code) == failure
    assert np.isnan(trajectory.reward) == (failure is not None)


async def test_an_error_that_was_got_over_is_blamed_but_ends_nothing() -> None:
    session, _ = opened(PolicyError("gone"), "one")
    await refusal(session, chat("a"))
    await session.answer(chat("a"))
    assert await session.close() is SessionEnd.EXITED
    assert session.blamed == {Blame.INFRASTRUCTURE: 1}


async def test_an_agent_of_which_nothing_was_answered_is_no_failure_of_the_policy() -> None:
    session, _ = opened(refusing(RefusalKind.BAD_REQUEST))
    await refusal(session, chat("a"))
    assert await session.close() is SessionEnd.REFUSED
    trajectory = session.record("toy@1", Verdict(0.0, passed=False))
    assert trajectory.failure is not None
    assert trajectory.failure.code == "agent_refused"
    assert np.isnan(trajectory.reward)


async def test_the_callers_word_on_the_end_counts_but_not_over_a_budget() -> None:
    session, _ = opened()
    assert await session.close(SessionEnd.TIME) is SessionEnd.TIME
    over, _ = opened(budget=Budget(turns=0))
    await refusal(over, chat("a"))
    assert await over.close(SessionEnd.EXITED) is SessionEnd.TURNS


async def test_closing_ends_what_is_being_sampled_and_is_idempotent() -> None:
    gate = Gate("never")
    session, policy = opened(gate)
    asking = asyncio.ensure_future(session.answer(chat("a")))
    await policy.asked.wait()
    await session.close(SessionEnd.EXITED)
    assert gate.cancelled
    with pytest.raises(Refusal, match="has ended"):
        await asking
    assert (await refusal(session, chat("b"))).kind is RefusalKind.CLOSED
    assert await session.close() is SessionEnd.EXITED


async def test_the_environments_failure_is_the_records() -> None:
    session, _ = opened()
    await session.answer(chat("a"))
    await session.close()
    trajectory = session.record("toy@1", RolloutFailure("sandbox_lost", "gone", 1))
    assert trajectory.stop_reason is StopReason.FAILED
    assert len(trajectory.turns) == 1


async def test_an_open_session_has_no_record() -> None:
    session, _ = opened()
    with pytest.raises(RuntimeError, match="is open"):
        session.record("toy@1", GOOD)
    await session.close()


async def test_an_engines_bug_is_raised_where_the_record_is_made() -> None:
    class Lying:
        async def sample(self, request: SampleRequest) -> Completion:
            return Completion(np.arange(3, dtype=np.int32), np.zeros(2, np.float32), "stop", 0)

    session = Session("key", rollout_request(), sampler=Lying(), template=TEMPLATE, budget=Budget())
    assert (await refusal(session, chat("a"))).kind is RefusalKind.UPSTREAM
    await session.close()
    with pytest.raises(ValueError, match="malformed"):
        session.record("toy@1", GOOD)


async def test_a_sampler_that_is_cancelled_elsewhere_leaves_nobody_waiting() -> None:
    async def cancelled(request: SampleRequest) -> str:
        raise asyncio.CancelledError

    session, _ = opened(cancelled)
    assert (await refusal(session, chat("a"))).kind is RefusalKind.UPSTREAM
    await session.close()
