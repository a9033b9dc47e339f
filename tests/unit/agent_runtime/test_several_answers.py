"""Best of n: several answers of one request are samples of their own, which can be learned."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import numpy as np
import pytest
from agent_session import called
from agents_at_gateway import Gate, chat, world
from open_sessions import GOOD, opened, refusal
from wires import WIRES, events

from agent_runtime.chat import ChatReply, RefusalKind
from agent_runtime.gateway.session import IN_FLIGHT, Budget, SessionEnd
from agent_runtime.graph import validate
from agent_runtime.policy import Completion, PolicyError, SampleRequest
from agent_runtime.types import Trajectory, TurnLabel
from trainer.data.branches import branch_weights, trained_part

FOUR = ("one", "two", "three", "four")
CHAT = next(wire for wire in WIRES if wire.name == "chat")


def answers(reply: ChatReply) -> list[str]:
    return [each.text for each in (reply, *reply.others)]


async def chosen(script: tuple[str, ...], choice: str, n: int = 4) -> Trajectory:
    """Return the record of an agent that asks for n answers, goes on from one, and is done."""
    session, _ = opened(*script, "done")
    await session.answer(chat("fix it", n=n))
    await session.answer(chat("fix it", choice, "output"))
    assert not session.tree.drift
    await session.close()
    record = session.record("toy@1", GOOD)
    validate(record)
    return record


async def test_each_answer_is_a_sample_of_the_same_prompt() -> None:
    session, policy = opened(*FOUR)
    reply = await session.answer(chat("fix it", n=4))
    assert answers(reply) == list(FOUR)
    assert len({seen.prompt_ids.tobytes() for seen in policy.seen}) == 1
    assert len({seen.seed for seen in policy.seen}) == len({seen.turn for seen in policy.seen}) == 4
    assert len({each.id for each in (reply, *reply.others)}) == 4
    await session.close()
    record = session.record("toy@1", GOOD)
    validate(record)
    assert [turn.completion_ids.tolist() for turn in record.turns] == [ids.tolist() for ids in policy.sampled]
    assert record.sampled_tokens == sum(map(len, policy.sampled))


async def test_the_answer_that_the_agent_goes_on_from_is_on_its_path_and_the_others_are_branches() -> None:
    record = await chosen(FOUR, "three")
    assert [turn.parent for turn in record.turns] == [None, None, None, None, 2]
    assert set(record.turn_labels) == {TurnLabel.MAIN}


async def test_all_answers_are_learned_and_share_the_reward_as_branches_do() -> None:
    record = await chosen(FOUR, "three")
    part, left = trained_part(record)
    assert (len(part.turns), left) == (5, {})
    assert branch_weights(part, "whole").tolist() == [1, 1, 1, 1, 1]
    assert branch_weights(part, "split").tolist() == [0.25] * 5
    assert branch_weights(part, "leaf").tolist() == [0, 0, 1, 0, 1]


async def test_a_malformed_answer_that_was_not_chosen_is_an_error() -> None:
    record = await chosen((called("", ("bash", "{")), "two"), "two", n=2)
    assert [label.value for label in record.turn_labels] == ["error", "main", "main"]


async def test_requests_with_seeds_of_their_own_are_learned_too() -> None:
    session, _ = opened(*FOUR, "done")
    for seed in range(4):
        await session.answer(chat("fix it", seed=seed))
    await session.answer(chat("fix it", "two", "output"))
    await session.close()
    assert set(session.record("toy@1", GOOD).turn_labels) == {TurnLabel.MAIN}


async def test_the_same_request_again_gets_the_same_answers_and_another_number_is_another_request() -> None:
    session, policy = opened(*FOUR)
    first = await session.answer(chat("fix it", n=3))
    assert await session.answer(chat("fix it", n=3)) is first
    assert len(policy.seen) == 3
    await session.answer(chat("fix it", n=2))
    assert len(policy.seen) == 5
    await session.close()


@pytest.mark.parametrize(("n", "tasks"), [(1, 1), (3, 4)])
async def test_a_request_for_one_answer_takes_one_task(
    n: int, tasks: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    session, policy = opened(*FOUR)
    seen: set[int] = set()
    sample = policy.sample

    async def noting(request: SampleRequest) -> Completion:
        seen.add(len(asyncio.all_tasks() - before))
        return await sample(request)

    monkeypatch.setattr(policy, "sample", noting)
    before = asyncio.all_tasks()
    await session.answer(chat("fix it", n=n))
    assert max(seen) == tasks
    await session.close()


async def test_answers_that_did_not_arrive_are_superseded_once_asked_again() -> None:
    session, _ = opened(*FOUR)
    asked = session.ask(chat("fix it", n=2))
    await asyncio.wait((asked.outcome,))
    session.lost(asked, broken=True)
    assert answers(await session.answer(chat("fix it", n=2))) == ["three", "four"]
    await session.close()
    labels = [label.value for label in session.record("toy@1", GOOD).turn_labels]
    assert labels == ["superseded", "superseded", "main", "main"]


async def test_where_one_answer_fails_the_others_are_in_the_record_and_the_request_begins_anew() -> None:
    session, policy = opened("one", PolicyError("gone"), "three", "four", budget=Budget(turns=3))
    assert (await refusal(session, chat("fix it", n=2))).kind is RefusalKind.UPSTREAM
    assert answers(await session.answer(chat("fix it", n=2))) == ["three", "four"]
    await session.close()
    record = session.record("toy@1", GOOD)
    assert record.sampled_tokens == sum(map(len, policy.sampled))
    assert [label.value for label in record.turn_labels] == ["superseded", "main", "main"]


async def test_answers_count_as_turns_and_share_the_tokens_that_are_left() -> None:
    session, policy = opened("x" * 50, budget=Budget(turns=5, tokens=100))
    reply = await session.answer(chat("fix it", n=4))
    assert {seen.params.max_tokens for seen in policy.seen} == {25}
    assert [each.finish for each in (reply, *reply.others)] == ["length"] * 4
    assert (await refusal(session, chat("more", n=2))).kind is RefusalKind.BUDGET
    assert await session.close() is SessionEnd.TURNS


async def test_answers_at_once_are_bounded_however_they_are_asked_for() -> None:
    gate = Gate("late")
    session, policy = opened(gate)
    waiting = [session.ask(chat(f"call {number}", n=32)) for number in range(IN_FLIGHT // 32)]
    assert (await refusal(session, chat("one more"))).kind is RefusalKind.RATE_LIMIT
    gate.open.set()
    await asyncio.wait([asked.outcome for asked in waiting])
    assert len(policy.seen) == IN_FLIGHT
    await session.close()


async def test_a_context_that_was_written_anew_is_counted_once() -> None:
    session, _ = opened("one")
    await session.answer(chat("fix it"))
    await session.answer(chat("fix it", "something else", "output", n=4))
    assert session.tree.drift.total() == 1
    await session.close()


@pytest.mark.parametrize("stream", [False, True])
async def test_an_agent_at_the_gateway_chooses_among_its_answers(stream: bool) -> None:
    async with world(*FOUR, "done") as there:
        response = await there.post(CHAT, "fix it", stream=stream, n=4)
        assert response.status_code == 200
        bodies = events(response.content) if stream else [response.json()]
        said = dict.fromkeys(range(4), "")
        for choice in (choice for body in bodies for choice in body["choices"]):
            said[choice["index"]] += choice["delta" if stream else "message"].get("content") or ""
        assert tuple(said.values()) == FOUR
        assert (await there.post(CHAT, "fix it", "four", "output")).status_code == 200
        record = await there.record()
    assert [turn.parent for turn in record.turns] == [None, None, None, None, 3]
    assert np.isfinite(np.concatenate([turn.logprobs for turn in record.turns])).all()


async def test_a_session_that_ends_meanwhile_leaves_no_answer_behind() -> None:
    gate = Gate("never")
    session, policy = opened("one", gate)
    asked = session.ask(replace(chat("fix it"), n=2))
    await policy.asked.wait()
    await session.close()
    assert gate.cancelled
    assert asked.outcome.done()
    assert len(session.tree.calls) == 1
