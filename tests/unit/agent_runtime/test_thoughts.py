"""Thoughts: where they end, that a bound on them holds, and that what closes one was sampled by nobody."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pytest
from family_models import MODELS
from hypothesis import given
from hypothesis import strategies as st
from scripted_world import ALIAS, END, FIRST_CHAR, CharTemplate, MemoryRock, ScriptedSampler, a_request

from agent_runtime.agents.chat_loop import run_rollout
from agent_runtime.graph import validate
from agent_runtime.policy import Completion, Thought, thought_tokens
from agent_runtime.render import HFChatTemplate
from agent_runtime.store import decode, encode
from agent_runtime.types import AgentConfig, StopReason, TurnLabel, VersionTokens

OPEN, CLOSE = 5, 6
CLOSING = np.array([FIRST_CHAR, CLOSE, FIRST_CHAR + 1], np.int32)


def thinking(opened=False):
    template = CharTemplate()
    object.__setattr__(template, "thought", Thought(OPEN, CLOSE, opened, CLOSING))
    return template


@dataclass
class Thinker(ScriptedSampler):
    """Samples letters, tags and ends from the request's seed alone; most answers begin with a thought."""

    thinks: float = 0.8
    closes: float = 0.1
    ends: float = 0.1

    async def sample(self, request):
        rng = np.random.default_rng(request.seed)
        length = request.params.max_tokens
        ids = FIRST_CHAR + rng.integers(ord("a"), ord("e"), length) + ALIAS * rng.integers(0, 2, length)
        ids[rng.random(length) < self.closes] = CLOSE
        if rng.random() < self.thinks:
            ids[0] = OPEN
        ids[rng.random(length) < self.ends] = END
        if (stopped := END in ids) and (at := ids.tolist().index(END)) >= 0:
            ids = ids[: at + 1]
        self.prompts[request.rollout_id, request.turn] = request.prompt_ids.tolist()
        self.completions[request.rollout_id, request.turn] = ids.tolist()
        version = self.version + request.turn // 3
        return Completion(
            ids.astype(np.int32), np.full(len(ids), -1, np.float32), "stop" if stopped else "length", version
        )


async def play(sampler, *, opened=False, thinking_tokens=4, max_tokens=9, **about):
    asked = a_request(params={"goal": 99}, max_tokens=max_tokens, **about)
    asked = replace(asked, sampling=replace(asked.sampling, thinking_tokens=thinking_tokens))
    return await run_rollout(asked, rock=MemoryRock(), sampler=sampler, template=thinking(opened))


def path(record, turn):
    """Return all tokens up to a turn's last."""
    told, parts = record.turns[turn], []
    while told is not None:
        parts = [*told.context_ids.tolist(), *told.completion_ids.tolist(), *parts]
        told = None if told.parent is None else record.turns[told.parent]
    return parts


@pytest.mark.parametrize("window", [0, 1, 3])
@pytest.mark.parametrize("opened", [False, True])
@pytest.mark.parametrize("seed", range(12))
async def test_a_bound_on_thoughts_holds_and_the_record_is_what_the_sampler_saw(seed, opened, window):
    sampler = Thinker(thinks=0 if opened else 0.8)
    record = await play(
        sampler, opened=opened, seed=seed, agent=AgentConfig(max_turns=12, window_turns=window)
    )
    validate(record)
    assert encode(decode(encode(record))) == encode(record)
    thought = Thought(OPEN, CLOSE, opened, CLOSING)
    calls = {tuple(sampler.prompts[key]) + tuple(sampler.completions[key]) for key in sampler.prompts}
    sampled = sum(len(ids) for ids in sampler.completions.values())
    assert record.sampled_tokens == sampled
    assert len(record.env_turns) == 12
    cut = [turn for turn in range(len(record.turns)) if record.label(turn) is TurnLabel.THOUGHT]
    assert record.internal_turns == tuple(cut)
    for turn, told in enumerate(record.turns):
        assert tuple(path(record, turn)) in calls
        assert thought_tokens(record, turn, thought) <= 4
        if turn in cut:
            assert len(told.completion_ids) == 4
            assert CLOSE not in told.completion_ids
            after = record.turns[turn + 1]
            assert after.parent == turn
            assert after.context_ids.tolist() == CLOSING.tolist()
            assert len(after.completion_ids) <= 5
        else:
            assert len(told.completion_ids) <= 9
    again = await play(
        Thinker(thinks=0 if opened else 0.8),
        opened=opened,
        seed=seed,
        agent=AgentConfig(max_turns=12, window_turns=window),
    )
    assert [path(again, turn) for turn in range(len(again.turns))] == [
        path(record, turn) for turn in range(len(record.turns))
    ]


async def test_what_the_environment_gets_is_the_whole_answer():
    record = await play(Thinker(thinks=1, closes=0, ends=0))
    assert {record.label(turn) for turn in range(0, len(record.turns), 2)} == {TurnLabel.THOUGHT}
    thought, answer = record.turns[:2]
    told = np.concatenate((thought.completion_ids, CLOSING, answer.completion_ids))
    assert record.actions[1] == CharTemplate().decode(told)
    assert record.actions[0] == CharTemplate().decode(thought.completion_ids)
    assert record.played()[0].action == record.actions[1]
    assert record.played()[1].memory == ()
    assert record.stop_reason is StopReason.MAX_TURNS


async def test_a_model_that_does_not_think_is_cut_by_nothing_but_the_answer_s_bound():
    sampler = Thinker(thinks=0, closes=0, ends=0)
    record = await play(sampler)
    assert not record.internal_turns
    assert [len(turn.completion_ids) for turn in record.turns] == [9] * 12
    assert len(sampler.prompts) == 24
    assert record.turns[1].policy_version == (VersionTokens(5, 4), VersionTokens(6, 5))


async def test_a_rollout_of_a_model_that_does_not_think_fails_with_a_bound_on_thoughts():
    asked = a_request(max_tokens=9)
    asked = replace(asked, sampling=replace(asked.sampling, thinking_tokens=4))
    record = await run_rollout(asked, rock=MemoryRock(), sampler=ScriptedSampler(), template=CharTemplate())
    assert record.failure.code == "invalid_argument"
    assert record.failure.message.startswith("sampling.thinking_tokens=4 needs a model that thinks")


@pytest.mark.parametrize("name", sorted(MODELS))
def test_families_say_how_they_think(name):
    template = HFChatTemplate(MODELS[name].tokenizer, 1000)
    if name not in ("qwen3", "qwen3 thinking", "smollm 3"):
        assert template.thought is None
        return
    thought = template.thought
    assert thought.opened is (name == "qwen3 thinking")
    said = template.encode_completion(
        "Hm.\n</think>\n\nLeft" if thought.opened else "<think>\nHm.</think>Left"
    )
    assert template.decode(said[: thought.length(said)]).endswith("</think>")
    assert template.decode(thought.closing) == "\n</think>\n\n"


@given(st.lists(st.sampled_from([OPEN, CLOSE, 10, 11]), max_size=8), st.booleans())
def test_a_thought_is_the_beginning_up_to_the_first_closing_tag(tokens, opened):
    thought = Thought(OPEN, CLOSE, opened, CLOSING)
    ids = np.array(tokens, np.int32)
    length = thought.length(ids)
    if not opened and tokens[:1] != [OPEN]:
        assert length == 0
    else:
        assert CLOSE not in tokens[: max(length - 1, 0)]
        assert length == len(tokens) or tokens[length - 1] == CLOSE
    assert thought.is_open(ids) == ((opened or tokens[:1] == [OPEN]) and CLOSE not in tokens)
