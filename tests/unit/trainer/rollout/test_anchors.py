"""The anchor pool and its schedules: where rollouts start, and what is imitated (docs/ipa.md sections 4 and 5)."""

from __future__ import annotations

import random
from dataclasses import replace

import msgspec
import pytest
from anchor_cases import expert, played, visit
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from trainer.config import AnchorOptions, TrainConfig
from trainer.errors import CheckpointError
from trainer.rollout.anchors import Anchor, AnchorPool, Origin, injections
from trainer.rollout.starts import Injection
from trainer.rollout.tasks import eval_requests, train_requests

SCHEDULERS = ["sequential", "parallel", "hint"]


def pool_of(*experts, **options) -> AnchorPool:
    pool = AnchorPool(AnchorOptions(**{"scheduler": "sequential", **options}))
    for each in experts:
        pool.add(each)
    return pool


def only(pool: AnchorPool, seed: int = 0) -> Anchor:
    (anchor,) = pool.choose(1, seed)
    return anchor


# -- sequential rollback --------------------------------------------------------------------------------------


def test_sequential_starts_at_the_last_turn_and_rolls_back_to_the_start_on_success():
    pool = pool_of(expert("e"))
    turns = []
    for step in range(8):
        turns.append(only(pool, step).turn)
        visit(pool, only(pool, step), 8)
    assert turns == [4, 3, 2, 1, 0, 0, 0, 0]


def test_sequential_waits_for_eight_rollouts_and_moves_from_a_half_up():
    pool = pool_of(expert("e"))
    visit(pool, only(pool), 4, 4)
    assert only(pool).turn == 4
    visit(pool, only(pool), 3, 4)
    assert only(pool).turn == 3
    visit(pool, only(pool), 3, 8)
    assert only(pool).turn == 3
    visit(pool, only(pool), 8, 8)
    assert only(pool).turn == 2


def test_sequential_retreats_after_three_low_visits_in_a_row_only():
    pool = pool_of(expert("e"))
    visit(pool, only(pool), 8)
    for passed, turn in [(0, 3), (0, 3), (2, 3), (0, 3), (0, 3), (0, 4)]:
        visit(pool, only(pool), passed)
        assert only(pool).turn == turn, (passed, turn)


def test_an_anchor_outside_the_rollback_counts_but_does_not_move_it():
    pool = pool_of(expert("e"))
    visit(pool, Anchor(expert("e"), 0), 8)
    visit(pool, Anchor(expert("e"), 0), 8)
    assert only(pool).turn == 4


# -- parallelized initialization ------------------------------------------------------------------------------


def test_parallel_offers_four_anchors_the_true_start_among_them():
    pool = pool_of(expert("e", turns=20), scheduler="parallel", per_expert=4)
    assert {only(pool, seed).turn for seed in range(300)} == {0, 5, 10, 15}


def test_parallel_prefers_undecided_anchors():
    pool = pool_of(expert("e", turns=8), scheduler="parallel")
    for turn, passed in [(0, 12), (2, 20), (4, 28), (6, 36)]:
        visit(pool, Anchor(expert("e", turns=8), turn), passed, 40)
    drawn = [only(pool, seed).turn for seed in range(2000)]
    weights = [(p + 1) * (41 - p) / (42 * 43) for p in (12, 20, 28, 36)]
    for turn, weight in zip((0, 2, 4, 6), weights, strict=True):
        assert drawn.count(turn) / len(drawn) == pytest.approx(weight / sum(weights), abs=0.04)


@given(st.integers(2, 40), st.data())
def test_parallel_finds_a_planted_fork_by_halving(turns, data):
    """Success is certain behind the crucial turn and impossible before: few visits leave no other explanation."""
    crucial = data.draw(st.integers(0, turns - 1))
    one = expert("e", turns=turns)
    pool = pool_of(one, scheduler="parallel")
    seen = set()
    for step in range(400):
        anchor = only(pool, step)
        seen.add(anchor.turn)
        visit(pool, anchor, 8 if anchor.turn > crucial else 0)
        if pool.forks()["e"]:
            break
    assert pool.forks() == {"e": [crucial]}
    assert pool.injections(9, 0) == [Anchor(one, crucial)]
    assert len(seen) <= 4 + turns.bit_length()


# -- hints ----------------------------------------------------------------------------------------------------


def test_a_hint_tells_the_next_actions_and_shrinks_with_success_until_nothing_is_told():
    pool = pool_of(expert("e", turns=3), scheduler="hint")
    told = []
    for step in range(5):
        start = only(pool, step).start(step)
        assert (start.anchor, start.env_seed) == (0, 7)
        told.append(start.hint)
        visit(pool, only(pool, step), 8)
    assert told == ["Hint: a0 | a1 | a2", "Hint: a0 | a1", "Hint: a0", "", ""]


def test_a_hint_grows_again_where_nothing_succeeds_but_never_beyond_its_limit():
    pool = pool_of(expert("e", turns=5), scheduler="hint", hint_turns=2)
    lengths = []
    for passed in (8, 0, 0, 0, 0, 0, 0):
        lengths.append(only(pool).hint)
        visit(pool, only(pool), passed)
    assert lengths == [2, 1, 1, 1, 2, 2, 2]


def test_hinted_rollouts_say_nothing_of_success_without_a_hint():
    pool = pool_of(expert("e"), scheduler="hint", inject=4)
    visit(pool, only(pool), 8)
    tally = pool.state()["progress"]["e"]["tallies"][0]
    assert (tally["rollouts"], tally["passed"], tally["dry"]) == (0, 0, 0)
    visit(pool, only(pool), 0)
    assert [anchor.turn for anchor in pool.injections(4, 0)] == [0], "eight rollouts with a hint failed"


def test_evaluation_starts_have_neither_prefix_nor_hint():
    pool = pool_of(expert("e"), scheduler="hint")
    config = TrainConfig()
    hinted = train_requests(config, "{}", 1, tasks=["train/3"], anchors=pool.choose(1, 0))
    assert [bool(each.start.hint) for each in hinted] == [True] * 8 + [False] * 8
    assert all(
        not r.start.hint and not r.start.prefix for r in eval_requests(config, "{}", 1, ["held_out/1"])
    )


# -- the pool -------------------------------------------------------------------------------------------------


def test_the_pool_lets_its_own_oldest_leave_first_then_the_oldest():
    kinds = {"t": Origin.TEACHER, "o": Origin.ORACLE, "i": Origin.IMPORTED, "s": Origin.SELF}
    pool = pool_of(*(expert(name, origin=kinds[name[0]]) for name in ("t1", "s1", "o2", "s2")), pool=3)
    assert [e.id for e in pool.experts] == ["t1", "o2", "s2"]
    pool.add(expert("i3", origin=Origin.IMPORTED))
    pool.add(expert("i4", origin=Origin.IMPORTED))
    assert [e.id for e in pool.experts] == ["o2", "i3", "i4"]


def test_successes_from_the_true_start_join_the_pool_with_their_provenance():
    pool = pool_of(expert("e"))
    ways = [(["b", "c"], True, "long"), (["b"], True, "short"), (["b"], False, "lost")]
    pool.observe(1, {}, [played(a, passed=p, name=n, task="train/9") for a, p, n in ways])
    own = pool.experts[-1]
    assert (own.id, own.origin, own.step, len(own.turns)) == ("short", Origin.SELF, 1, 1)
    anchored = Anchor(expert("e"), 4)
    pool.observe(2, {"g": anchored}, [played(["b"], passed=True, start=anchored.start(0), name="from e")])
    assert len(pool) == 2, "a rollout that replayed a prefix under another seed is no expert"


def test_an_expert_of_another_run_and_a_success_of_this_one_may_be_called_alike():
    """Rollouts are numbered in every run, and `--data RUN` brings that run's names."""
    theirs = expert("000001-0000-000", origin=Origin.TEACHER)
    slow = expert("e", 4, task="train/9")
    pool = pool_of(theirs, slow, refresh=2)
    alike = played(["b"], passed=True, name=theirs.id, task="train/9")
    pool.observe(1, {}, [alike])
    own = pool.experts[-1]
    assert (own.origin, own.task_id, own.id != theirs.id) == (Origin.SELF, "train/9", True)
    assert pool.state()["progress"][own.id]["tallies"] == {}, "it succeeded, so it became an expert"
    pool.observe(2, {}, [])
    assert [(e.id, e.task_id) for e in pool.experts] == [(theirs.id, "train/1"), (own.id, "train/9")]
    assert pool.state()["progress"][theirs.id]["rollback"]["level"] == 4, "another task's refresh moved it"
    pool.observe(3, {}, [played(["a0", "x"], passed=False, name=theirs.id)])
    assert sorted(pool.state()["progress"][theirs.id]["tallies"]) == [0, 1], "a rollout like any other"


def test_a_diverged_replay_drops_the_expert():
    pool = pool_of(expert("e"), expert("f", task="train/2"))
    anchor = Anchor(expert("e"), 4)
    members = [played([], passed=False, start=anchor.start(0), failure="reset_divergence")]
    pool.observe(1, {"g": anchor}, members)
    assert [e.id for e in pool.experts] == ["f"]


def test_an_expert_that_diverged_does_not_come_back_with_the_refresh():
    pool = pool_of(expert("e"), refresh=2)
    pool.observe(1, {}, [played(["b"], passed=True, name="own")])
    own = pool.experts[-1]
    lost = played([], passed=False, start=Anchor(own, 0).start(0), failure="reset_divergence")
    pool.observe(2, {"g": Anchor(own, 0)}, [lost])
    assert [e.id for e in pool.experts] == ["e"]


def test_other_failures_count_for_nothing():
    pool = pool_of(expert("e"))
    anchor = only(pool)
    before = pool.state()
    pool.observe(1, {"g": anchor}, [played([], passed=False, start=anchor.start(0), failure="env_lost")] * 9)
    assert pool.state() == before


def test_no_scheduler_means_no_anchors():
    assert pool_of(expert("e"), scheduler="none").choose(4, 0) == []


def test_no_rollout_starts_on_the_way_of_an_expert_that_takes_more_turns_than_a_rollout_has():
    """From its last turn the policy would not have one turn left: no success, and so no way back either."""
    options = AnchorOptions(scheduler="sequential", inject=2, inject_gate="none")
    pool = AnchorPool(options, max_turns=4)
    pool.add(expert("long", 5))
    assert pool.choose(6, 0) == []
    pool.add(expert("fits", 4, task="train/2"))
    assert {anchor.expert.id for anchor in pool.choose(6, 0)} == {"fits"}
    assert {anchor.expert.id for anchor in pool.injections(2, 0)} == {"long", "fits"}
    pool = at_the_fork(replay_share=1)
    pool.add(expert("fits", 4, task="train/2"))
    assert {anchor.expert.id for anchor in pool.choose(6, 0)} == {"e", "fits"}, "failures left the way of e"
    pool._max_turns = 4
    assert {anchor.expert.id for anchor in pool.choose(6, 0)} == {"fits"}


def test_a_fifth_of_the_groups_at_least_begin_at_the_true_start():
    with pytest.raises(ValidationError, match="start_share"):
        AnchorOptions(start_share=0.19)


def test_an_anchor_replays_the_turns_before_it_and_reseeds_what_follows():
    start = only(pool_of(expert("e"))).start(99)
    assert [turn.action for turn in start.prefix] == ["a0", "a1", "a2", "a3"]
    assert (start.env_seed, start.resume_seed, start.anchor, start.source_id) == (7, 99, 4, "e")
    assert start.hint == ""


# -- refresh and age ------------------------------------------------------------------------------------------


def test_a_refresh_replaces_an_expert_by_the_shortest_success_of_the_policy():
    pool = pool_of(expert("e"), refresh=2, self_sampled=False)
    visit(pool, only(pool), 8, step=1)  # the rollback stands at turn 3, two turns before the end
    for step, actions in [(3, ["b"] * 4), (4, ["b"] * 3)]:
        pool.observe(step, {}, [played(actions, passed=True, name=f"own{step}")])
    assert [e.id for e in pool.experts] == ["own4"]
    assert only(pool).turn == 1, "two turns before the end of the new one"
    assert pool.metrics()["anchors/replaced"] == 1
    pool.observe(6, {}, [played(["b"] * 3, passed=True, name="no shorter")])
    assert [e.id for e in pool.experts] == ["own4"]


def test_a_refresh_tells_no_longer_hint_than_the_policy_needed_before():
    pool = pool_of(expert("e"), scheduler="hint", refresh=5, self_sampled=False)
    for step in (1, 2, 3):
        visit(pool, only(pool), 8, step=step)
    assert only(pool).hint == 2
    pool.observe(5, {}, [played(["b"] * 4, passed=True, name="own")])
    assert [e.id for e in pool.experts] == ["own"]
    assert only(pool).hint == 2, "three of five actions were not needed any more"


def test_a_refresh_lets_old_counts_weigh_half():
    pool = pool_of(expert("e"), refresh=4)
    visit(pool, Anchor(expert("e"), 2), 6, step=3)
    visit(pool, Anchor(expert("e"), 2), 2, step=4)
    tally = pool.state()["progress"]["e"]["tallies"][2]
    assert (tally["passed"], tally["rollouts"], tally["dry"]) == (4, 8, 6)


def test_without_refresh_nothing_is_replaced_or_forgotten():
    pool = pool_of(expert("e"), self_sampled=False)
    visit(pool, Anchor(expert("e"), 2), 6)
    pool.observe(8, {}, [played(["b"], passed=True, name="own")])
    assert [e.id for e in pool.experts] == ["e"]
    assert pool.state()["progress"]["e"]["tallies"][2]["rollouts"] == 8


def test_what_the_policy_did_itself_leaves_when_it_is_too_old():
    pool = pool_of(expert("e"), max_age=3)
    pool.observe(1, {}, [played(["b"], passed=True, name="own", task="train/9")])
    pool.observe(4, {}, [])
    assert [e.id for e in pool.experts] == ["e", "own"]
    pool.observe(5, {}, [])
    assert [e.id for e in pool.experts] == ["e"]


def test_what_the_policy_did_itself_is_as_old_as_the_step_that_learned_it():
    pool = pool_of(expert("e"), max_age=3)
    pool.observe(1, {}, [replace(played(["b"], passed=True, name="own", task="train/9"), policy_step=6)])
    pool.observe(5, {}, [])
    assert [e.id for e in pool.experts] == ["e"]


# -- reset-replay of failures ---------------------------------------------------------------------------------


def at_the_fork(**options) -> AnchorPool:
    """Return a pool that knows turn 2 of its expert to be crucial, two failures having left there last."""
    pool = pool_of(expert("e"), **options)
    visit(pool, Anchor(expert("e"), 3), 8, 16)
    visit(pool, Anchor(expert("e"), 2), 0, 16)
    pool._state.left = []
    pool.observe(
        1, {}, [played(["a0", "a1", "x"], passed=False, name=f"r{n}", group=f"r{n}") for n in range(2)]
    )
    return pool


def test_failures_start_again_at_their_crucial_turn():
    anchors = at_the_fork(replay_share=0.25, start_share=0.2).choose(8, 0)
    assert [(a.expert.id, a.turn) for a in anchors[-2:]] == [("e", 2)] * 2
    assert at_the_fork().state()["left"] == []


def test_failures_elsewhere_are_not_kept():
    pool = at_the_fork(replay_share=1)
    kept = pool.state()["left"]
    assert [left["turn"] for left in kept] == [2, 2]
    for actions, passed, task in [(["x"], False, "train/1"), (["a0", "a1", "x"], True, "train/1")]:
        pool.observe(1, {}, [played(actions, passed=passed, task=task)])
    pool.observe(1, {}, [played(["a0", "a1", "x"], passed=False, task="train/2")])
    assert pool.state()["left"] == kept


def test_failures_age_and_leave_with_their_expert():
    pool = at_the_fork(replay_share=1, max_age=2)
    pool.observe(3, {}, [])
    assert len(pool.state()["left"]) == 2
    pool.observe(4, {}, [])
    assert pool.state()["left"] == []
    pool = at_the_fork(replay_share=1)
    pool.drop("e")
    assert pool.state()["left"] == []


# -- imitation ------------------------------------------------------------------------------------------------


def test_imitation_is_gated_to_anchors_without_a_success_in_eight_rollouts_and_to_what_the_learner_holds():
    names = {"dry": Origin.ORACLE, "wet": Origin.IMPORTED, "own": Origin.SELF, "few": Origin.TEACHER}
    pool = pool_of(*(expert(name, origin=o, task=f"train/{name}") for name, o in names.items()))
    for each in pool.experts:
        visit(pool, Anchor(each, 4), 0, 7 if each.id == "few" else 8)
    visit(pool, Anchor(pool.experts[1], 4), 1)
    assert [(a.expert.id, a.turn) for a in pool.injections(5, 0)] == [("dry", 4)]


def test_a_success_at_one_anchor_does_not_close_the_gate_of_another():
    pool = pool_of(expert("e"))
    visit(pool, Anchor(expert("e"), 4), 0)
    visit(pool, Anchor(expert("e"), 1), 8)
    assert [a.turn for a in pool.injections(5, 0)] == [4]


def test_imitation_reaches_up_to_and_including_the_crucial_turn():
    pool = pool_of(expert("e"))
    visit(pool, Anchor(expert("e"), 3), 8, 16)
    visit(pool, Anchor(expert("e"), 2), 0, 16)
    drawn = injections(pool.injections(5, 0), 0, weight=1.0, seed=0)
    assert drawn == [Injection("e", (0, 1, 2), 1.0)]
    visit(pool, Anchor(expert("e"), 2), 1, 1)
    assert pool.injections(5, 0) == [], "the policy has found the way"


def test_ungated_imitation_takes_whole_trajectories():
    experts = [expert("a"), expert("b"), expert("own", origin=Origin.SELF)]
    pool = pool_of(*experts, scheduler="none", inject_gate="none")
    assert {(anchor.expert.id, anchor.turn) for anchor in pool.injections(5, 0)} == {("a", 4), ("b", 4)}
    assert len(pool.injections(1, 0)) == 1


def test_without_a_limit_every_turn_up_to_the_anchor_is_imitated():
    drawn = injections([Anchor(expert("e"), 2), Anchor(expert("f", turns=3), 0)], 0, weight=0.5, seed=0)
    assert drawn == [Injection("e", (0, 1, 2), 0.5), Injection("f", (0,), 0.5)]
    assert injections([], 4, weight=0.5, seed=0) == []


@given(st.integers(1, 40), st.integers(0, 99))
def test_drawn_turns_stand_for_all(limit, seed):
    """The imitation term divides by the experts given; the sum of weights over it must not depend on the draw."""
    anchors = [Anchor(expert(str(n), turns=n + 1), n) for n in range(7)]
    every = {(str(n), turn) for n in range(7) for turn in range(n + 1)}
    drawn = injections(anchors, limit, weight=0.5, seed=seed)
    turns = [(each.trajectory_id, turn) for each in drawn for turn in each.turns]
    assert set(turns) <= every
    assert len(set(turns)) == len(turns) == min(limit, len(every))
    total = sum(each.weight * len(each.turns) for each in drawn)
    assert abs(total / len(drawn) - 0.5 * len(every) / len(anchors)) < 1e-9


# -- state ----------------------------------------------------------------------------------------------------


def random_step(pool: AnchorPool, step: int, seed: int) -> None:
    """Play one step of a policy that follows the expert as chance has it."""
    rng = random.Random(seed)
    anchors = dict(enumerate(pool.choose(3, seed)))
    played_all = []
    for number in range(5):
        anchor = anchors.get(number)
        start = anchor.start(number) if anchor else None
        at = anchor.turn if anchor else 0
        task = anchor.expert.task_id if anchor else "train/1"
        for index in range(4):
            follows = [f"a{turn}" for turn in range(at, at + rng.randrange(4))]
            won = rng.random() < 0.4
            name = f"{step}-{number}-{index}"
            played_all.append(
                played([*follows, "x"], passed=won, start=start, name=name, group=f"g{number}", task=task)
            )
    pool.observe(step, {f"g{number}": anchor for number, anchor in anchors.items()}, played_all)


@given(st.sampled_from(SCHEDULERS), st.lists(st.integers(0, 1 << 30), max_size=12), st.integers(0, 12))
def test_a_pool_restored_at_any_step_goes_on_as_the_original(scheduler, seeds, cut):
    """Choices and state stay equal step by step, through the bytes of a checkpoint."""
    options = AnchorOptions(scheduler=scheduler, pool=4, refresh=3, replay_share=0.4, max_age=4, inject=2)
    pool, twin = AnchorPool(options), AnchorPool(options)
    for name, turns in (("e", 5), ("f", 3)):
        pool.add(expert(name, turns, task=f"train/{turns}"))
        twin.add(expert(name, turns, task=f"train/{turns}"))
    for step, seed in enumerate(seeds, 1):
        if step == cut:
            twin = AnchorPool(options)
            twin.restore(msgspec.msgpack.decode(msgspec.msgpack.encode(pool.state())))
        assert twin.choose(4, seed) == pool.choose(4, seed)
        assert twin.injections(3, seed) == pool.injections(3, seed)
        random_step(pool, step, seed)
        random_step(twin, step, seed)
        assert twin.state() == pool.state()
        assert len(pool) <= 4


@given(st.sampled_from(SCHEDULERS), st.lists(st.integers(0, 1 << 30), max_size=12))
def test_choosing_changes_nothing_and_stays_within_the_expert(scheduler, seeds):
    pool = pool_of(expert("e"), expert("f", 1, task="train/2"), scheduler=scheduler, replay_share=0.5)
    for step, seed in enumerate(seeds, 1):
        random_step(pool, step, seed)
        before = pool.state()
        for anchor in pool.choose(6, seed):
            assert 0 <= anchor.turn < len(anchor.expert.turns)
            assert 0 <= anchor.hint <= len(anchor.expert.turns)
        assert pool.state() == before


def test_anchors_of_another_version_are_one_clear_error():
    with pytest.raises(CheckpointError, match="cannot read the anchors of this checkpoint"):
        pool_of().restore({"experts": [{"id": "e"}]})
