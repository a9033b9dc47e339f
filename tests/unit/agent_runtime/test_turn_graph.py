"""The four invariants of the record, as properties over real rollouts and over hand-built trees of turns."""

from __future__ import annotations

import asyncio
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from flat_branches import token_arrays
from hypothesis import given, settings
from hypothesis import strategies as st
from scripted_world import ALIAS, END, CharTemplate, MemoryRock, ScriptedSampler, a_request

from agent_runtime.agents.chat_loop import run_rollout
from agent_runtime.errors import InvalidTrajectory
from agent_runtime.graph import validate
from agent_runtime.types import (
    AgentConfig,
    PrefixTurn,
    RolloutFailure,
    Start,
    StopReason,
    Trajectory,
    Turn,
    TurnLabel,
)


def play(request, sampler=None, template=None) -> Trajectory:
    return asyncio.run(
        run_rollout(
            request,
            rock=MemoryRock(),
            sampler=sampler or ScriptedSampler(),
            template=template or CharTemplate(),
        )
    )


def prefix_from(trajectory: Trajectory, turns: int) -> Start:
    pairs = zip(trajectory.actions[:turns], trajectory.observations[:turns], strict=True)
    return Start(
        trajectory.start.env_seed,
        trajectory.first_observation,
        tuple(PrefixTurn(action, observation) for action, observation in pairs),
        resume_seed=9,
        source_id=trajectory.id,
    )


requests = st.builds(
    lambda seed, window, system, max_tokens, max_turns: a_request(
        seed=seed,
        agent=AgentConfig(window_turns=window, max_turns=max_turns, system=system),
        max_tokens=max_tokens,
        params={"goal": 5},
    ),
    seed=st.integers(0, 2**63),
    window=st.integers(0, 4),
    system=st.booleans(),
    max_tokens=st.integers(1, 5),
    max_turns=st.integers(1, 9),
)


@settings(max_examples=60)
@given(request=requests, anchor=st.integers(0, 4))
def test_a_branch_holds_exactly_the_ids_the_engine_saw(request, anchor):
    source = play(request)
    anchor = min(anchor, len(source.turns) - 1)
    sampler = ScriptedSampler()
    trajectory = play(replace(request, start=prefix_from(source, anchor), seed=request.seed + 1), sampler)
    validate(trajectory)
    assert trajectory.failure is None
    for branch in trajectory.branches():
        ids, trains, logprobs = token_arrays(branch)
        length = 0
        for turn in branch.turns:
            key = (trajectory.id, turn.index)
            length += len(turn.context_ids)
            assert ids[:length].tolist() == sampler.prompts[key]
            sampled = slice(length, length + len(turn.completion_ids))
            assert ids[sampled].tolist() == sampler.completions[key]
            assert trains[sampled].all()
            np.testing.assert_array_equal(logprobs[sampled], turn.logprobs)
            length += len(turn.completion_ids)
        assert length == len(ids) == len(trains) == len(logprobs)
        assert trains.sum() == sum(len(turn.completion_ids) for turn in branch.turns)


@settings(max_examples=60)
@given(request=requests)
def test_sampled_tokens_are_never_tokenised_again(request):
    """The template writes no alias, so every alias in a prompt must have come from a stored completion."""
    sampler = ScriptedSampler()
    trajectory = play(request, sampler)
    window = request.agent.window_turns
    for turn in trajectory.turns:
        prompt = sampler.prompts[trajectory.id, turn.index]
        first = max(0, turn.index - window + 1) if window else 0
        earlier = [sampler.completions[trajectory.id, past] for past in range(first, turn.index)]
        expected = [token for completion in earlier for token in completion if token > ALIAS]
        assert [token for token in prompt if token > ALIAS] == expected


@settings(max_examples=60)
@given(request=requests, anchor=st.integers(0, 4))
def test_a_prompt_shows_the_last_observations_of_the_window_and_closes_every_answer(request, anchor):
    source = play(request)
    anchor = min(anchor, len(source.turns) - 1)
    sampler = ScriptedSampler()
    trajectory = play(replace(request, start=prefix_from(source, anchor), seed=request.seed + 1), sampler)
    observations = [source.first_observation, *source.observations[:anchor], *trajectory.observations]
    actions = source.actions[:anchor] + trajectory.actions
    window = request.agent.window_turns
    for turn in trajectory.turns:
        newest = anchor + turn.index
        first = max(0, newest - window + 1) if window else 0
        text = CharTemplate().decode(np.array(sampler.prompts[trajectory.id, turn.index]))
        expected = f"Solve {trajectory.task_id}." if request.agent.system else ""
        for past in range(first, newest):
            expected += observations[past] + actions[past]
        assert text == expected + observations[newest]
        messages = int(request.agent.system) + 2 * (newest - first) + 1
        assert sampler.prompts[trajectory.id, turn.index].count(END) == messages


@st.composite
def trees(draw) -> Trajectory:
    """A trajectory whose turns form a random forest; token ids are unique over the whole trajectory."""
    turns, next_id = [], 0
    for index in range(draw(st.integers(1, 9))):
        parent = draw(st.none() | st.integers(0, index - 1)) if index else None
        context, completion = draw(st.integers(0, 3)), draw(st.integers(0, 3))
        ids = np.arange(next_id, next_id + context + completion, dtype=np.int32)
        next_id += len(ids)
        logprobs = -ids[context:].astype(np.float32)
        turns.append(Turn(index, parent, ids[:context], ids[context:], logprobs, "stop", 1))
    base = play(a_request(params={"goal": 1}))
    count = len(turns)
    return replace(
        base,
        turns=tuple(turns),
        actions=("a",) * count,
        observations=base.observations[:1] * count,
        observation_hashes=base.observation_hashes[:1] * count,
        turn_rewards=(0.0,) * count,
        illegal_actions=0,
    )


@settings(max_examples=80)
@given(trajectory=trees())
def test_every_sampled_token_trains_exactly_once_over_all_branches(trajectory):
    validate(trajectory)
    trained: Counter[int] = Counter()
    for branch in trajectory.branches():
        ids, trains, logprobs = token_arrays(branch)
        trained.update(ids[trains].tolist())
        np.testing.assert_array_equal(logprobs[trains], -ids[trains].astype(np.float32))
        assert [turn.parent for turn in branch.turns] == [None, *(turn.index for turn in branch.turns[:-1])]
    completions = [token for turn in trajectory.turns for token in turn.completion_ids.tolist()]
    assert trained == Counter(completions)


def spoil_turn(**changes):
    def spoil(trajectory: Trajectory) -> Trajectory:
        return replace(trajectory, turns=(*trajectory.turns[:-1], replace(trajectory.turns[-1], **changes)))

    return spoil


@pytest.mark.parametrize(
    ("spoil", "named"),
    [
        (spoil_turn(index=7), "index is 7"),
        (spoil_turn(parent=99), "parent is 99"),
        (spoil_turn(logprobs=np.zeros(9, np.float32)), "9 logprobs for"),
        (spoil_turn(completion_ids=np.zeros(2, np.int64)), "completion_ids is int64"),
        (spoil_turn(finish_reason="tired"), "finish_reason is 'tired'"),
        (spoil_turn(finish_reason="expert"), "policy_version is 5"),
        (spoil_turn(finish_reason="expert", policy_version=-1), "not all NaN"),
        (lambda t: spoil_turn(logprobs=t.turns[-1].logprobs * np.nan)(t), "not all finite"),
        (lambda t: spoil_turn(logprobs=t.turns[-1].logprobs + 2)(t), "not all finite"),
        (lambda t: replace(t, actions=t.actions[1:]), "actions has"),
        (lambda t: replace(t, observation_hashes=t.observation_hashes[::-1]), "observation_hash is"),
        (lambda t: replace(t, illegal_actions=99), "illegal_actions is 99"),
        (lambda t: replace(t, turn_labels=(TurnLabel.SIDE,) * (len(t.turns) + 1)), "turn_labels has"),
        (lambda t: replace(t, reward=float("nan")), "reward is nan"),
        (lambda t: replace(t, stop_reason=StopReason.FAILED), "stop_reason is"),
        (lambda t: replace(t, failure=RolloutFailure("infra", "x", 0)), "stop_reason is"),
        (lambda t: replace(t, schema_version=0), "schema_version is 0"),
    ],
)
def test_validate_names_the_broken_invariant(spoil, named):
    trajectory = play(a_request(params={"goal": 2}))
    assert len(trajectory.turns) > 1
    validate(trajectory)
    with pytest.raises(InvalidTrajectory, match=named) as caught:
        validate(spoil(trajectory))
    assert "'r0'" in str(caught.value)
