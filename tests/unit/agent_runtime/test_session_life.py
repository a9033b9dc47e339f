"""A session: budgets, repeated requests, what the engine saw, and why it ended."""

from __future__ import annotations

import asyncio
from typing import Any

import numpy as np
import pytest
from agents_at_gateway import TEMPLATE, Gate, Scripted, Step, chat, rollout_request
from waiting import until

from agent_runtime.chat import Asked, ChatReply, ChatRequest, Refusal, RefusalKind
from agent_runtime.gateway.session import IN_FLIGHT, SERVED, Budget, Session, SessionEnd
from agent_runtime.graph import token_arrays, validate
from agent_runtime.policy import Completion, PolicyError, SampleRequest
from agent_runtime.types import RolloutFailure, StopReason, TurnLabel
from rock_env.env import Verdict
from rock_env.faults import Blame

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


async def test_the_record_is_what_the_engine_saw() -> None:
    session, policy = opened("one", "two", "three")
    replies = await played(session, 3)
    assert [reply.text for reply in replies] == ["one", "two", "three"]
    await session.close()
    trajectory = session.record("toy@1", GOOD)
    validate(trajectory)
    (branch,) = trajectory.branches()
    ids, trains, logprobs = token_arrays(branch)
    last = policy.seen[-1].prompt_ids
    assert np.array_equal(ids, np.concatenate([last, policy.sampled[-1]]))
    assert np.array_equal(ids[trains], np.concatenate(policy.sampled))
    assert np.array_equal(logprobs[trains], np.full(trains.sum(), -0.5, np.float32))
    assert trajectory.stop_reason is StopReason.TERMINATED
    assert not session.tree.drift


async def test_the_session_decides_how_to_sample() -> None:
    session, policy = opened()
    await session.answer(chat("a", max_tokens=9000))
    await session.answer(chat("b", max_tokens=5))
    first, second = (seen.params for seen in policy.seen)
    assert (first.temperature, first.top_p, first.max_tokens) == (0.7, 0.9, 200)
    assert (second.temperature, second.max_tokens) == (0.7, 5)
    assert policy.seen[0].seed != policy.seen[1].seed
    await session.close()


async def test_usage_is_true() -> None:
    session, policy = opened("one", "two")
    first, second = await played(session, 2)
    assert first.usage.prompt_tokens == len(policy.seen[0].prompt_ids)
    assert first.usage.cached_tokens == 0
    assert second.usage.prompt_tokens == len(policy.seen[1].prompt_ids)
    assert second.usage.cached_tokens == len(policy.seen[0].prompt_ids) + len(policy.sampled[0])
    assert second.usage.completion_tokens == len(policy.sampled[1])
    assert await session.count(chat("fix it")) == len(policy.seen[0].prompt_ids)
    await session.close()


# -- the same request again


async def test_two_equal_requests_at_once_share_one_sample() -> None:
    gate = Gate("shared")
    session, policy = opened(gate)
    asking = [asyncio.ensure_future(session.answer(chat("a"))) for _ in range(2)]
    await policy.asked.wait()
    gate.open.set()
    first, second = await asyncio.gather(*asking)
    assert first is second
    assert len(policy.seen) == 1
    await session.close()


async def test_one_of_two_waiting_clients_may_leave() -> None:
    gate = Gate("shared")
    session, policy = opened(gate)
    asking = [asyncio.ensure_future(session.answer(chat("a"))) for _ in range(2)]
    await policy.asked.wait()
    asking[0].cancel()
    gate.open.set()
    assert (await asking[1]).text == "shared"
    await session.close()


async def test_after_a_delivered_answer_the_same_request_gets_the_stored_one() -> None:
    session, policy = opened("one", "two")
    first = await session.answer(chat("a"))
    assert await session.answer(chat("a", stream=True)) is first
    assert len(policy.seen) == 1
    await session.close()
    assert len(session.record("toy@1", GOOD).turns) == 1


async def test_after_a_broken_stream_the_same_request_gets_a_new_sample() -> None:
    session, policy = opened("one", "two", "three")
    asked = session.ask(chat("a"))
    await asked.outcome
    session.lost(asked, broken=True)
    assert session.end is SessionEnd.CLIENT_GONE
    assert (await session.answer(chat("a"))).text == "two"
    assert (await session.answer(chat("a", "two", "b"))).text == "three"
    await session.close()
    trajectory = session.record("toy@1", GOOD)
    assert trajectory.turn_labels == (TurnLabel.SUPERSEDED, TurnLabel.MAIN, TurnLabel.MAIN)
    assert trajectory.turns[2].parent == 1
    assert np.array_equal(policy.seen[0].prompt_ids, policy.seen[1].prompt_ids)


async def test_an_answer_of_which_nothing_left_is_kept_for_who_comes_back() -> None:
    session, policy = opened("one", "two")
    asked = session.ask(chat("a"))
    session.lost(asked, broken=False)
    await asked.outcome
    assert (await session.answer(chat("a"))).text == "one"
    assert session.end is SessionEnd.EXITED
    await session.close()
    assert len(policy.seen) == 1


@pytest.mark.parametrize("useless", ["", "   "])
async def test_an_empty_answer_is_not_given_twice(useless: str) -> None:
    session, _ = opened(useless, "better", "on")
    await session.answer(chat("a"))
    assert (await session.answer(chat("a"))).text == "better"
    await session.answer(chat("a", "better", "b"))
    await session.close()
    labels = session.record("toy@1", GOOD).turn_labels
    assert labels == (TurnLabel.ERROR, TurnLabel.MAIN, TurnLabel.MAIN)


async def test_an_answer_that_was_cut_short_is_not_given_twice() -> None:
    """Codex takes `response.incomplete` for a broken stream and asks again, a few times only."""
    session, _ = opened("x" * 300, "short", "on")
    assert (await session.answer(chat("a"))).finish == "length"
    assert (await session.answer(chat("a"))).text == "short"
    await session.answer(chat("a", "short", "b"))
    await session.close()
    labels = session.record("toy@1", GOOD).turn_labels
    assert labels == (TurnLabel.ERROR, TurnLabel.MAIN, TurnLabel.MAIN)


async def test_who_went_on_and_begins_again_plays_anew() -> None:
    """An outer loop that starts the conversation over must not be given its old one, for ever and free of charge."""
    session, policy = opened("one", "two", "three")
    await played(session, 2)
    assert (await session.answer(chat("fix it"))).text == "three"
    assert len(policy.seen) == 3
    await session.close()


async def test_who_keeps_asking_the_same_gets_new_samples_in_the_end() -> None:
    session, policy = opened("one", "two")
    for _ in range(SERVED):
        assert (await session.answer(chat("a"))).text == "one"
    assert (await session.answer(chat("a"))).text == "two"
    assert len(policy.seen) == 2
    await session.close()


# -- budgets


async def test_turns_are_a_budget_and_its_end_is_final() -> None:
    session, policy = opened(budget=Budget(turns=2))
    await played(session, 2)
    refused = await refusal(session, chat("something else"))
    assert refused.kind is RefusalKind.BUDGET
    assert "all 2 model calls" in refused.message
    assert (await refusal(session, chat("fix it"))).kind is RefusalKind.BUDGET
    assert await session.close() is SessionEnd.TURNS
    assert session.record("toy@1", GOOD).stop_reason is StopReason.MAX_TURNS
    assert len(policy.seen) == 2


async def test_a_used_up_budget_spares_what_is_under_way_and_what_was_answered() -> None:
    gate = Gate("late")
    session, policy = opened("one", gate, budget=Budget(turns=2))
    await session.answer(chat("a"))
    late = session.ask(chat("b"))
    await until(lambda: len(policy.seen) == 2)
    assert (await refusal(session, chat("c"))).kind is RefusalKind.BUDGET
    gate.open.set()
    assert isinstance(await late.outcome, ChatReply)
    session.delivered(late)
    assert (await session.answer(chat("a"))).text == "one"
    assert await session.close() is SessionEnd.TURNS
    assert len(session.record("toy@1", GOOD).turns) == 2


async def test_a_stream_that_broke_for_one_of_two_clients_is_there_for_it_again() -> None:
    session, policy = opened("one", "two")
    asked = session.ask(chat("a"))
    await asked.outcome
    session.delivered(asked)
    session.lost(asked, broken=True)
    assert (await session.answer(chat("a"))).text == "one"
    assert len(policy.seen) == 1
    await session.close()


async def test_the_last_answer_is_cut_to_the_tokens_left() -> None:
    session, policy = opened("x" * 50, budget=Budget(tokens=80))
    first = await session.answer(chat("a"))
    second = await session.answer(chat("b"))
    assert (first.finish, second.finish) == ("stop", "length")
    assert sum(map(len, policy.sampled)) == 80
    assert (await refusal(session, chat("c"))).kind is RefusalKind.BUDGET
    assert await session.close() is SessionEnd.TOKENS


async def test_tokens_being_sampled_are_reserved() -> None:
    """Calls side by side must not spend the same tokens."""
    gates = [Gate("x" * 50), Gate("y" * 50)]
    session, policy = opened(*gates, budget=Budget(tokens=80))
    first = asyncio.ensure_future(session.answer(chat("a", max_tokens=60)))
    await policy.asked.wait()
    second = asyncio.ensure_future(session.answer(chat("b", max_tokens=60)))
    await until(lambda: len(policy.seen) == 2)
    for gate in gates:
        gate.open.set()
    await asyncio.gather(first, second)
    assert [seen.params.max_tokens for seen in policy.seen] == [60, 20]
    await session.close()


async def test_calls_begun_at_the_same_time_do_not_reserve_the_same_tokens() -> None:
    """The one too many is told to come back: an answer of a single token is of no use to anybody."""
    session, policy = opened("x" * 50, budget=Budget(tokens=60))
    first = session.ask(chat("a"))
    refused = await refusal(session, chat("b"))
    assert refused.kind is RefusalKind.RATE_LIMIT
    assert isinstance(await first.outcome, ChatReply)
    assert (await session.answer(chat("b"))).finish == "length"
    assert [seen.params.max_tokens for seen in policy.seen] == [60, 9]
    await session.close()


async def test_time_is_a_budget_for_who_waits_too() -> None:
    gate = Gate("never")
    session, _ = opened(gate, budget=Budget(time_s=0.05))
    refused = await refusal(session, chat("a"))
    assert refused.kind is RefusalKind.BUDGET
    assert await session.close() is SessionEnd.TIME
    assert gate.cancelled
    assert session.record("toy@1", GOOD).stop_reason is StopReason.TRUNCATED


async def test_a_call_that_failed_takes_no_turn() -> None:
    session, _ = opened(PolicyError("out of memory"), "one", budget=Budget(turns=1))
    refused = await refusal(session, chat("a"))
    assert refused.kind is RefusalKind.UPSTREAM
    assert refused.retry_after_s
    assert (await session.answer(chat("a"))).text == "one"
    await session.close()


async def test_too_many_calls_at_once_are_told_to_come_back() -> None:
    gate = Gate("late")
    session, _ = opened(gate)
    waiting = [session.ask(chat(f"call {number}")) for number in range(IN_FLIGHT)]
    refused = await refusal(session, chat("one more"))
    assert refused.kind is RefusalKind.RATE_LIMIT
    assert refused.retry_after_s
    gate.open.set()
    await asyncio.gather(*(asked.outcome for asked in waiting))
    assert (await session.answer(chat("one more"))).text == "late"
    await session.close()


async def test_a_full_context_is_refused_with_its_numbers_and_remembered() -> None:
    session, policy = opened("short")
    refused = await refusal(session, chat("x" * 99_900))
    assert refused.kind is RefusalKind.CONTEXT_OVERFLOW
    details = dict(refused.details)
    assert details["limit"] == 100_000
    assert details["got"] == details["prompt"] + details["completion"] > 100_000
    assert not policy.seen
    assert session.end is SessionEnd.CONTEXT_FULL
    await session.answer(chat("compacted"))
    assert session.end is SessionEnd.EXITED
    await session.close()


# -- the end


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
