"""A session: budgets, repeated requests, and what the engine saw."""

from __future__ import annotations

import asyncio

import numpy as np
import pytest
from agents_at_gateway import Gate, chat
from flat_branches import token_arrays
from open_sessions import GOOD, opened, played, refusal
from waiting import until

from agent_runtime.chat import ChatReply, RefusalKind
from agent_runtime.gateway.pending import SERVED
from agent_runtime.gateway.session import IN_FLIGHT, Budget, SessionEnd
from agent_runtime.graph import validate
from agent_runtime.policy import PolicyError
from agent_runtime.types import StopReason, TurnLabel


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
