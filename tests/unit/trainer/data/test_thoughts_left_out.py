"""Thoughts that are not learned: they are context after the credits, every sequence stays, and the account closes."""

from __future__ import annotations

from dataclasses import replace
from itertools import count

import numpy as np
import pytest
from algo_reference import trajectory as recorded
from flat_branches import token_arrays
from hypothesis import given
from hypothesis import strategies as st
from random_llama import random_llama

from agent_runtime.graph import validate
from agent_runtime.policy import Thought, thought_tokens
from agent_runtime.store import encode
from agent_runtime.types import TurnLabel, VersionTokens
from rock_env.env import observation_hash
from rock_env.errors import InvalidArgument
from trainer.config import RolloutOptions, SamplingOptions, TrainConfig
from trainer.data.thoughts import without_thoughts
from trainer.errors import ConfigError
from trainer.processes.learner import Learner

OPEN, CLOSE = 258, 259
THOUGHT = Thought(OPEN, CLOSE, opened=False, closing=np.array([CLOSE], np.int32))


def told(name, answers, reward, *, labels=(), windowed=False):
    """Return a record whose turns sampled these ids."""
    base = recorded(name, [len(ids) for ids in answers], reward, ids=count(10), windowed=windowed)
    turns = tuple(
        replace(turn, completion_ids=np.array(ids, np.int32), logprobs=np.full(len(ids), -3, np.float32))
        for turn, ids in zip(base.turns, answers, strict=True)
    )
    return replace(
        base,
        turns=tuple(replace(turn, policy_version=0) for turn in turns),
        observation_hashes=(observation_hash("o"),) * len(turns),
        turn_labels=tuple(labels),
        internal_turns=tuple(turn for turn, label in enumerate(labels) if label is TurnLabel.THOUGHT),
    )


def sequences(record):
    return [token_arrays(branch)[0].tolist() for branch in record.branches()]


answers = st.lists(
    st.lists(st.sampled_from([OPEN, CLOSE, 20, 21]), min_size=1, max_size=6), min_size=1, max_size=5
)


@given(answers, st.booleans(), st.integers(1, 5))
def test_thoughts_become_context_and_no_token_is_lost(ids, windowed, change):
    whole = told("t", ids, 1.0, windowed=windowed)
    spans = [
        (VersionTokens(3, change), VersionTokens(4, len(turn.completion_ids) - change))
        if change < len(turn.completion_ids)
        else 4
        for turn in whole.turns
    ]
    turns = [replace(turn, policy_version=each) for turn, each in zip(whole.turns, spans, strict=True)]
    whole = replace(whole, turns=tuple(turns))
    (part,), moved = without_thoughts([whole], THOUGHT)
    validate(part)
    assert sequences(part) == sequences(whole)
    assert part.sampled_tokens + moved == whole.sampled_tokens
    for turn, before in zip(part.turns, whole.turns, strict=True):
        left = len(turn.completion_ids)
        assert THOUGHT.length(before.completion_ids) == len(before.completion_ids) - left
        assert turn.versions.tolist() == before.versions.tolist()[len(before.completion_ids) - left :]


def test_a_thought_that_was_cut_off_is_all_thought_and_its_answer_none():
    ids = [[OPEN, 20, 20], [OPEN, 21]]
    labels = (TurnLabel.THOUGHT, TurnLabel.MAIN)
    whole = told("t", ids, 1.0, labels=labels)
    assert [thought_tokens(whole, turn, THOUGHT) for turn in (0, 1)] == [3, 0]
    whole = told("t", [[20, 20, 20], [21]], 1.0, labels=labels)
    opened = THOUGHT._replace(opened=True)
    assert [thought_tokens(whole, turn, opened) for turn in (0, 1)] == [3, 0]


def test_experts_are_left_alone():
    expert = recorded("e", [2], 1.0, ids=count(OPEN), expert=True)
    assert without_thoughts([expert], THOUGHT) == ([expert], 0)


GROUP = [
    ([[OPEN, 20, CLOSE, 21, 22]], 1.0),
    ([[OPEN, 23, CLOSE, 24]], 0.0),
    ([[OPEN, 25, 26]], 0.0),
    ([[27, 28]], 1.0),
]


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return random_llama(tmp_path_factory.mktemp("thinks"), words=("<think>", "</think>"))


def learner(model, *, thinking, algo="grpo", **about):
    config = TrainConfig(model=model, algo=algo, rollout=RolloutOptions(train_thinking=thinking), **about)
    made = Learner(config)
    made.ready()
    return made


def test_the_answer_gets_the_credit_and_the_thought_no_gradient(model):
    rollouts = [encode(told(f"r{n}", ids, reward)) for n, (ids, reward) in enumerate(GROUP)]
    all_of_it = learner(model, thinking=True).prepare(rollouts, [], step=1)
    one = learner(model, thinking=False)
    part = one.prepare(rollouts, [], step=1)
    for mine, theirs in zip(part.credits, all_of_it.credits, strict=True):
        assert mine.advantage_K.tolist() == theirs.advantage_K.tolist()
    assert part.batch.tokens_BT[part.batch.loss_mask_BT].tolist() == [21, 22, 24, 27, 28]
    assert part.ledger.masked == {"thought": 3 + 3 + 3}
    assert part.ledger.total == all_of_it.ledger.total == 14
    metrics = one.learn(part, lr=1e-3, step=1)
    assert metrics["tokens/trained"] == 5
    assert metrics["tokens/masked/thought"] == 9
    assert metrics["grad_norm"] > 0


@pytest.mark.parametrize(
    ("about", "error", "said"),
    [
        ({"thinking": False, "algo": "ppo"}, ConfigError, "leaves a critic no state to judge"),
        (
            {"model": "tiny", "thinking": False},
            InvalidArgument,
            r"rollout\.train_thinking=false needs a model",
        ),
        (
            {
                "model": "tiny",
                "thinking": True,
                "sampling": SamplingOptions(max_tokens=9, thinking_tokens=4),
            },
            InvalidArgument,
            r"sampling\.thinking_tokens=4 needs a model that thinks",
        ),
    ],
)
def test_what_cannot_be_done_is_refused_as_the_learner_begins(model, about, error, said):
    with pytest.raises(error, match=said):
        learner(about.pop("model", model), **about)


@pytest.mark.parametrize(
    ("about", "said"),
    [
        ({"sampling": {"thinking_tokens": 8, "max_tokens": 8}}, "leaves no answer"),
        (
            {"sampling": {"thinking_tokens": 8}, "agent": {"kind": "long_horizon"}},
            "bounds the thoughts of a chat",
        ),
        (
            {
                "sampling": {"thinking_tokens": 8},
                "agent": {"name": "codex"},
                "warmup": {"trajectories": 0},
                "anchors": {"scheduler": "none", "inject": 0, "self_sampled": False},
                "rollout": {"batching": "eager"},
            },
            "an agent of our own",
        ),
    ],
)
def test_settings_that_do_nothing_are_refused(about, said):
    with pytest.raises(ValueError, match=said):
        TrainConfig.model_validate(about)
