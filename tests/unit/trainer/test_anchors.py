from hypothesis import given
from hypothesis import strategies as st

from agent_runtime.types import PrefixTurn
from trainer.config import AnchorOptions
from trainer.engine.injection import Injection
from trainer.rollout.anchors import Anchor, AnchorPool, Expert, injections


def expert(name: str, turns: int = 5, *, oracle: bool = True) -> Expert:
    return Expert(
        id=name,
        task_id="train/1",
        env_seed=7,
        first_observation="o0",
        turns=tuple(PrefixTurn(f"a{i}", f"o{i + 1}") for i in range(turns)),
        oracle=oracle,
    )


def test_sequential_starts_at_the_last_turn_and_rolls_back_to_the_start_on_success():
    pool = AnchorPool(AnchorOptions(scheduler="sequential"))
    pool.add(expert("e"))
    turns = []
    for step in range(12):
        (anchor,) = pool.choose(1, step)
        turns.append(anchor.turn)
        pool.observe("e", anchor.turn, passed=8, rollouts=8)
    assert turns[:6] == [4, 3, 2, 1, 0, 0]
    assert turns[-1] == 0


def test_sequential_waits_for_eight_rollouts():
    pool = AnchorPool(AnchorOptions(scheduler="sequential"))
    pool.add(expert("e"))
    pool.observe("e", 4, passed=4, rollouts=4)
    assert pool.choose(1, 0)[0].turn == 4
    pool.observe("e", 4, passed=4, rollouts=4)
    assert pool.choose(1, 0)[0].turn == 3


def test_sequential_retreats_after_three_low_visits_only():
    pool = AnchorPool(AnchorOptions(scheduler="sequential"))
    pool.add(expert("e"))
    pool.observe("e", 4, passed=8, rollouts=8)
    assert pool.choose(1, 0)[0].turn == 3
    for visits, turn in [(1, 3), (2, 3), (3, 4)]:
        pool.observe("e", 3, passed=0, rollouts=8)
        assert pool.choose(1, 0)[0].turn == turn, visits


def test_sequential_planted_fork_is_where_it_stays():
    """Success is certain from turn 3 on and impossible before: the anchor settles around the fork."""
    pool = AnchorPool(AnchorOptions(scheduler="sequential"))
    pool.add(expert("e", turns=8))
    visited = []
    for step in range(60):
        (anchor,) = pool.choose(1, step)
        visited.append(anchor.turn)
        pool.observe("e", anchor.turn, passed=8 if anchor.turn >= 3 else 0, rollouts=8)
    assert min(visited) == 2
    assert set(visited[-20:]) <= {2, 3}


def test_parallel_always_offers_the_true_start_and_keeps_to_four_anchors():
    pool = AnchorPool(AnchorOptions(scheduler="parallel", per_expert=4))
    pool.add(expert("e", turns=20))
    turns = {pool.choose(1, seed)[0].turn for seed in range(300)}
    assert turns == {0, 5, 10, 15}


def test_parallel_prefers_undecided_anchors():
    pool = AnchorPool(AnchorOptions(scheduler="parallel"))
    pool.add(expert("e", turns=8))
    for turn, passed in [(0, 0), (2, 20), (4, 40), (6, 40)]:
        pool.observe("e", turn, passed=passed, rollouts=40)
    turns = [pool.choose(1, seed)[0].turn for seed in range(400)]
    assert turns.count(2) > 2 * max(turns.count(turn) for turn in (0, 4, 6))


def test_the_pool_lets_the_oldest_self_sampled_expert_leave_first():
    pool = AnchorPool(AnchorOptions(pool=3))
    for name, oracle in [("o1", True), ("s1", False), ("o2", True), ("s2", False)]:
        pool.add(expert(name, oracle=oracle))
    assert [e.id for e in pool.experts] == ["o1", "o2", "s2"]


def test_injection_is_gated_to_oracle_anchors_without_recent_success():
    pool = AnchorPool(AnchorOptions(scheduler="sequential"))
    for name, oracle in [("dry", True), ("wet", True), ("own", False)]:
        pool.add(expert(name, oracle=oracle))
    pool.observe("dry", 4, passed=0, rollouts=8)
    pool.observe("wet", 4, passed=0, rollouts=8)
    pool.observe("wet", 4, passed=1, rollouts=8)
    pool.observe("own", 4, passed=0, rollouts=8)
    assert [anchor.expert.id for anchor in pool.injections(5, 0)] == ["dry"]


def test_ungated_injection_imitates_whole_oracle_trajectories():
    pool = AnchorPool(AnchorOptions(inject_gate="none"))
    for name, oracle in [("a", True), ("b", True), ("own", False)]:
        pool.add(expert(name, oracle=oracle))
    assert {(anchor.expert.id, anchor.turn) for anchor in pool.injections(5, 0)} == {("a", 4), ("b", 4)}
    assert len(pool.injections(1, 0)) == 1


def test_no_scheduler_means_no_anchors():
    pool = AnchorPool(AnchorOptions(scheduler="none"))
    pool.add(expert("e"))
    assert pool.choose(4, 0) == []


def test_an_anchor_replays_the_turns_before_it_and_reseeds_what_follows():
    pool = AnchorPool(AnchorOptions(scheduler="sequential"))
    pool.add(expert("e"))
    start = pool.choose(1, 0)[0].start(99)
    assert [turn.action for turn in start.prefix] == ["a0", "a1", "a2", "a3"]
    assert (start.env_seed, start.resume_seed, start.anchor, start.source_id) == (7, 99, 4, "e")


@given(
    st.sampled_from(["sequential", "parallel"]),
    st.lists(st.tuples(st.integers(0, 4), st.integers(0, 8)), max_size=30),
    st.integers(0, 1000),
)
def test_a_restored_pool_goes_on_as_the_original(scheduler, history, seed):
    pool = AnchorPool(AnchorOptions(scheduler=scheduler))
    pool.add(expert("e"))
    pool.add(expert("f", turns=3, oracle=False))
    for step, (turn, passed) in enumerate(history):
        pool.choose(2, step)
        pool.observe("e", turn, passed=passed, rollouts=8)
    twin = AnchorPool(AnchorOptions(scheduler=scheduler))
    twin.restore(pool.state())
    assert twin.choose(2, seed) == pool.choose(2, seed)
    assert twin.injections(3, seed) == pool.injections(3, seed)
    assert twin.state() == pool.state()


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
