"""Hints: what the policy saw is what is recorded and trained on, token by token, and no hint is ever trained."""

from __future__ import annotations

import asyncio

import numpy as np
from flat_branches import token_arrays
from hypothesis import given
from hypothesis import strategies as st
from scripted_world import FIRST_CHAR, CharTemplate, MemoryRock, ScriptedSampler, a_request

from agent_runtime.agents.chat_loop import run_rollout
from agent_runtime.graph import validate
from agent_runtime.store import decode, encode
from agent_runtime.types import AgentConfig, PrefixTurn, Start

HINT = "Hint: §1 | §2"  # the sampler never writes §


def play(start: Start, window: int, seed: int = 11):
    sampler = ScriptedSampler()
    request = a_request(
        start=start, seed=seed, params={"goal": 9}, agent=AgentConfig(window_turns=window, max_turns=7)
    )
    played = run_rollout(request, rock=MemoryRock(), sampler=sampler, template=CharTemplate())
    return asyncio.run(played), sampler


@given(window=st.integers(0, 4), seed=st.integers(0, 1 << 40))
def test_every_prompt_shows_the_hint_once_and_no_token_of_it_trains(window, seed):
    trajectory, sampler = play(Start(3, hint=HINT), window, seed)
    validate(trajectory)
    assert len(trajectory.turns) == 7
    for prompt in sampler.prompts.values():
        assert CharTemplate().decode(np.array(prompt)).count(HINT) == 1
    hint_id = FIRST_CHAR + ord("§")
    hints = 0
    for branch in trajectory.branches():
        ids, trains, _ = token_arrays(branch)
        last = branch.turns[-1]
        seen = sampler.prompts[trajectory.id, last.index] + sampler.completions[trajectory.id, last.index]
        assert ids.tolist() == seen
        assert not trains[ids == hint_id].any()
        hints += int((ids == hint_id).sum())
    assert hints == (2 if window == 0 else 14)


@given(window=st.integers(0, 4), seed=st.integers(0, 1 << 40))
def test_the_environment_and_its_record_know_nothing_of_a_hint(window, seed):
    told, _ = play(Start(3, hint=HINT), window, seed)
    plain, _ = play(Start(3), window, seed)
    for field in (
        "first_observation",
        "observations",
        "observation_hashes",
        "turn_rewards",
        "actions",
        "reward",
    ):
        assert getattr(told, field) == getattr(plain, field), field


def test_a_hint_stands_below_the_newest_observation_after_a_replayed_prefix():
    source, _ = play(Start(3), 0)
    prefix = (PrefixTurn(source.actions[0], source.observations[0]),)
    told, sampler = play(Start(3, source.first_observation, prefix, hint=HINT), 0)
    shown = CharTemplate().decode(np.array(sampler.prompts[told.id, 0]))
    assert shown.endswith(f"{source.observations[0]}\n\n{HINT}")


def test_the_store_keeps_the_hint():
    told, _ = play(Start(3, hint=HINT), 1)
    assert decode(encode(told)).start == told.start
