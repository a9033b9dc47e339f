"""Turns that ask nothing of the environment, summaries and calls of the memory: who learns them, who must not see them."""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import count
from pathlib import Path

import numpy as np
import pytest
from algo_reference import CONTEXT, TABLE, trajectory
from anchor_cases import expert, played
from local_fleet import config_of, local_run
from pydantic import ValidationError

from agent_runtime.graph import validate
from agent_runtime.store import read_segment
from agent_runtime.types import PrefixTurn, Trajectory, TurnFault, TurnLabel
from rock_env.env import observation_hash
from trainer.algo.ipa import Ipa, IPAOptions
from trainer.algo.terms.returns import chunk_of_turn, credit_group, state_ids
from trainer.config import AgentOptions, FilterOptions
from trainer.data.build import build_batch
from trainer.processes.learner import Learner
from trainer.rollout.anchors import AnchorPool
from trainer.rollout.filtering import ILLEGAL, rejection
from trainer.rollout.report import agent_metrics, fault_metrics
from trainer.rollout.starts import Injection, Origin, expert_from, stood_at

MAIN, SUMMARY = TurnLabel.MAIN, TurnLabel.SUMMARY


def long_one(name: str = "t", reward: float = 1.0) -> Trajectory:
    """Return act, note, act, summary | act: five turns in two contexts, three of them actions."""
    seen = ["o1", "kept", "o2", "", "o3"]
    one = trajectory(
        name,
        [2, 3, 1, 4, 2],
        reward,
        ids=count(CONTEXT),
        mu=np.full(TABLE, -0.5),
        parents=[None, 0, 1, 2, None],
    )
    return replace(
        one,
        first_observation="o0",
        actions=("a0", "memory write n x", "a1", "so far", "a2"),
        observations=tuple(seen),
        observation_hashes=tuple(map(observation_hash, seen)),
        turn_rewards=(0.0,) * 5,
        turn_labels=(MAIN, MAIN, MAIN, SUMMARY, MAIN),
        internal_turns=(1, 3),
    )


def test_the_environment_gets_the_actions_alone_and_an_anchor_keeps_the_notes():
    one = long_one()
    validate(one)
    assert one.env_turns == (0, 2, 4)
    assert one.env_steps_before == (0, 1, 1, 2, 2)
    assert one.final_action == "a2"
    assert one.played() == (
        PrefixTurn("a0", "o1"),
        PrefixTurn("a1", "o2", ("memory write n x",)),
        PrefixTurn("a2", "o3"),
    )
    forgotten = replace(one, turn_faults=(TurnFault.NONE, TurnFault.TOOL_FAILED, *[TurnFault.NONE] * 3))
    assert forgotten.played()[1].memory == ()
    assert expert_from(one, Origin.SELF).turns == one.played()


def test_a_rollout_stands_where_an_expert_stood_whatever_it_noted():
    theirs = expert("e", 4)
    one = replace(long_one(), task_id=theirs.task_id)
    assert stood_at(theirs, one) == range(4)
    off = replace(one, actions=("a0", "memory read", "elsewhere", "so far", "a2"))
    assert stood_at(theirs, off) == range(2)


def test_the_shortest_success_is_the_one_with_the_fewest_actions():
    pool = AnchorPool(config_of(anchors={"scheduler": "sequential"}).anchors)
    short = replace(long_one(), id="noted", task_id="train/1", group_id="g", passed=True)
    long = played(["a0", "a1", "b", "a2"], passed=True, name="acted")
    pool.observe(1, {}, [long, short])
    assert [each.id for each in pool.experts] == ["noted"]
    assert len(pool.experts[0].turns) == 3


def test_a_summary_and_a_note_are_chunks_of_their_own():
    assert chunk_of_turn(5, 1, (1, 3)).tolist() == [0, 1, 2, 3, 4]
    assert chunk_of_turn(8, 2, (2, 5)).tolist() == [0, 0, 1, 2, 2, 3, 4, 4]
    assert chunk_of_turn(5, 2, (0, 1)).tolist() == [0, 1, 2, 2, 3]
    assert chunk_of_turn(5, 0, (1, 3)).tolist() == [0] * 5
    (credit,) = credit_group([long_one()], lambda learners: [np.ones(5)], chunk_turns=3)
    assert credit.chunk_K is not None
    assert credit.chunk_K.tolist() == [0, 1, 2, 3, 4]


def test_they_share_the_outcome_as_any_chunk_does_and_train_once():
    one = long_one()
    (credit,) = Ipa(IPAOptions(gamma=0.5)).credit([one])
    assert credit.advantage_K.tolist() == [0.0625, 0.125, 0.25, 0.5, 1.0]
    batch, ledger = build_batch([one], [credit], token_budget=50)
    assert ledger.total == ledger.trained == one.sampled_tokens == 12
    assert len(batch.tokens_BT) == 2
    assert batch.chunks == 5


def test_states_are_the_environments_and_being_asked_for_a_summary_is_one_apart():
    one, plain = long_one(), trajectory("p", [1, 1, 1], 0.0, ids=count(CONTEXT))
    hashes = tuple(map(observation_hash, ("o1", "o2", "o3")))
    plain = replace(plain, first_observation="o0", observation_hashes=hashes)
    own, other = state_ids([one, plain])
    assert own.tolist() == [0, 1, 1, 2, 3]
    assert other.tolist() == [0, 1, 3]
    assert [ids.tolist() for ids in state_ids([one, plain], 2)] == [[0, 1, 1, 2, 3], [0, 3]]
    assert [ids.tolist() for ids in state_ids([one, plain], 0)] == [[0], [0]]


@pytest.mark.parametrize("chunk_turns", [0, 1, 2])
def test_ipa_with_values_of_states_credits_long_rollouts(chunk_turns):
    group = [long_one("a", 1.0), long_one("b", 0.0)]
    options = IPAOptions(baseline="state_mean", chunk_turns=chunk_turns, neg_weight=1.0, gamma=1.0)
    won, lost = Ipa(options).credit(group)
    np.testing.assert_allclose(won.advantage_K, 0.5)
    np.testing.assert_allclose(lost.advantage_K, -0.5)


def test_a_summary_between_illegal_messages_does_not_hide_them():
    illegal = TurnFault.ILLEGAL
    one = replace(long_one(), turn_faults=(TurnFault.NONE, TurnFault.NONE, illegal, TurnFault.NONE, illegal))
    assert rejection(one, FilterOptions(illegal_turns=2)) == ILLEGAL
    assert rejection(one, FilterOptions(illegal_turns=3)) == ""


def test_metrics_count_what_the_policy_said_to_itself_and_whose_fault_what_was():
    one = replace(long_one(), turn_faults=(TurnFault.TOOL_BROKE, TurnFault.ILLEGAL, *[TurnFault.NONE] * 3))
    failed = played(["a"], passed=False, failure="env_lost")
    assert agent_metrics([one, played(["a"], passed=True), failed]) == {
        "turns/summary": 0.5,
        "turns/memory": 0.5,
        "turns/thought": 0.0,
    }
    assert agent_metrics([failed]) == {}
    compacting = replace(played(["a"], passed=True), turn_labels=(TurnLabel.SUMMARY,))
    assert agent_metrics([compacting]) == {"turns/summary": 1.0, "turns/memory": 0.0, "turns/thought": 0.0}
    assert fault_metrics([one, failed]) == {
        "faults/agent": 1.0,
        "faults/tool": 1.0,
        "faults/infrastructure": 1.0,
    }


LONG = {
    "agent": {
        "kind": "long_horizon",
        "window_turns": 0,
        "max_turns": 24,
        "compact_at": 0.12,
        "summary_tokens": 6,
        "memory_chars": 100,
    },
    "engine_options": {"layers": 1, "width": 16, "heads": 2, "max_context": 768},
    "env_args": {"max_turns": 12},
}


def test_an_injection_names_steps_of_the_environment(tmp_path: Path):
    local, _ = local_run(tmp_path, config_of(**LONG, steps=0, warmup={"trajectories": 4, "held_out": 0.0}))
    experts = list(read_segment(tmp_path / "trajectories" / "expert.rollouts"))
    long = max(experts, key=lambda each: len(each.internal_turns))
    assert long.internal_turns, "no expert needed a summary: make the context shorter"
    first = long.internal_turns[0]
    learner: Learner = local._learner
    _, credit = learner._inject(Injection(long.id, (long.env_steps_before[first],), 1.0))
    assert np.flatnonzero(credit.imitation_K).tolist() == [first, first + 1]


@pytest.mark.parametrize(
    ("algo", "options"),
    [
        ("ipa", {"baseline": "state_mean", "neg_weight": 1.0}),
        ("gigpo", {}),
        ("ppo", {"aggregation": "token_mean"}),
    ],
)
def test_a_run_learns_from_compacted_rollouts_and_accounts_for_every_token(tmp_path: Path, algo, options):
    config = config_of(**LONG, algo=algo, algo_options=options)
    local_run(tmp_path, config, change=_one_wins)
    files = sorted((tmp_path / "trajectories").glob("step-*.rollouts"))
    rollouts = [trajectory for path in files for trajectory in read_segment(path)]
    assert len(rollouts) == 24
    assert sum(each.turn_labels.count(SUMMARY) for each in rollouts) > 24
    for each in rollouts:
        validate(each)
        for branch in each.branches():
            assert sum(len(t.context_ids) + len(t.completion_ids) for t in branch.turns) <= 768
    lines = [json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    steps = [line for line in lines if line["kind"] == "train"]
    assert [line["turns/summary"] > 1 for line in steps] == [True, True]
    assert [line["updates"] > 0 and line["tokens/trained"] > 0 for line in steps] == [True, True]
    assert not any("label" in name for line in steps for name in line), "summaries are learned, not left out"
    assert steps[-1]["env_steps"] == sum(len(each.env_turns) for each in rollouts)


def _one_wins(one: Trajectory) -> Trajectory:
    return replace(one, reward=1.0, passed=True) if one.index == 1 and one.failure is None else one


@pytest.mark.parametrize(
    "settings",
    [
        {"compact_at": 0.5},
        {"summary_tokens": 9},
        {"memory_chars": 0},
        {"kind": "long_horizon", "window_turns": 1},
    ],
)
def test_an_option_that_would_do_nothing_is_refused(settings):
    with pytest.raises(ValidationError, match="would do nothing"):
        AgentOptions(**settings)
    assert AgentOptions(kind="long_horizon", compact_at=0.5, memory_chars=0).kind == "long_horizon"
