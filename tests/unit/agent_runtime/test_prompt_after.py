"""The prompt that would have come next: what a critic values where an episode was cut off."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from agent_runtime.agents.conversation import open_conversation, prompt_after
from agent_runtime.types import AgentConfig, PrefixTurn, Start, StopReason, Trajectory, Turn
from rock_env.env import observation_hash
from trainer.models.tiny.tokenizer import TinyChatTemplate, TinyTokenizer

TEMPLATE = TinyChatTemplate(TinyTokenizer(), 512)
OBSERVATIONS = ("P_G\n___", "_PG\n___", "__G\n_P_", "__G\n__P")
ANSWERS = (("left", True), ("up", False), ("down", True), ("right", False))
PREFIX = (PrefixTurn("up", "first\nstate"), PrefixTurn("down", "second\nstate"))


def chat(config, start):
    """Return the turns of a chat, and the prompt after each."""
    conversation = open_conversation(config, start, TEMPLATE, instruction="go to G", max_tokens=4)
    turns, prompts = [], []
    for index, (observation, (answer, closed)) in enumerate(zip(OBSERVATIONS, ANSWERS, strict=True)):
        prompt = conversation.observe(observation)
        ids = TEMPLATE.encode_completion(answer)
        ids = ids if closed else ids[:-1]
        prompts.append(prompt)
        conversation.answer(ids, closed=closed)
        zeros = np.zeros(len(ids), np.float32)
        reason = "stop" if closed else "length"
        turns.append(Turn(index, prompt.parent, prompt.context_ids, ids, zeros, reason, 0))
    return turns, prompts


def cut(turns, start, after):
    seen = OBSERVATIONS[1 : after + 1]
    return Trajectory(
        id="t",
        env="toy@1",
        params_json="{}",
        task_id="train/0",
        group_id="g",
        index=0,
        seed=0,
        start=start,
        first_observation=OBSERVATIONS[0],
        turns=tuple(turns[:after]),
        actions=tuple(answer for answer, _ in ANSWERS[:after]),
        observations=seen,
        observation_hashes=tuple(map(observation_hash, seen)),
        turn_rewards=(0.0,) * after,
        illegal_actions=0,
        reward=0.0,
        passed=False,
        stop_reason=StopReason.TRUNCATED,
    )


@pytest.mark.parametrize("system", [True, False])
@pytest.mark.parametrize("prefix", [(), PREFIX])
@pytest.mark.parametrize("window", [0, 1, 2, 3, 5])
def test_it_is_the_prompt_that_the_chat_goes_on_with(window, prefix, system):
    config = AgentConfig(window_turns=window, system=system)
    start = Start(0, first_observation="zeroth" if prefix else "", prefix=prefix)
    turns, prompts = chat(config, start)
    for after in (1, 2, 3):
        found = prompt_after(cut(turns, start, after), config, TEMPLATE, instruction="go to G", max_tokens=4)
        assert found.ids.tolist() == prompts[after].ids.tolist()
        assert found.context_ids.tolist() == prompts[after].context_ids.tolist()
        assert found.parent == prompts[after].parent


def test_before_the_first_turn_it_is_the_first_prompt():
    start, config = Start(0), AgentConfig()
    turns, prompts = chat(config, start)
    nothing = replace(cut(turns, start, 1), turns=(), actions=(), observations=(), turn_rewards=())
    found = prompt_after(nothing, config, TEMPLATE, instruction="go to G", max_tokens=4)
    assert found.ids.tolist() == prompts[0].ids.tolist()
