"""The fork chain: its maps, what is seen and when, its splits, and where success jumps."""

from __future__ import annotations

from itertools import pairwise, product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rock_env.errors import FailedPrecondition, InvalidArgument, UnknownName
from rock_env.plugins import env_params
from rock_env.spec import EnvParams, TaskSpec
from sandboxes.fork_chain import ENV
from sandboxes.fork_chain.chain import HELD_OUT_SYMBOLS, TRAIN_SYMBOLS, chain, random_chain
from sandboxes.fork_chain.env import ForkChain
from sandboxes.fork_chain.oracle import ForkChainOracle
from sandboxes.fork_chain.params import ForkChainParams

MAP = "=ka mo ka ti\n>ti mo ka ti\n=le le fu na"
SHAPES = st.integers(1, 8).flatmap(
    lambda length: st.fixed_dictionaries(
        {"length": st.just(length), "width": st.integers(2, 8), "crucial": st.integers(0, length)}
    )
)


def play(text: str, **params: object) -> tuple[ForkChain, str]:
    env = ENV.factory(ForkChainParams(**{"length": len(text.split("\n")), **params}))
    assert isinstance(env, ForkChain)
    observation, info = env.reset(TaskSpec("train/0", "train", 0, "", text), 0)
    assert info == {}
    return env, observation


def success(text: str, policy: dict[str, float], start: int = 0) -> float:
    """Return the exact success of a policy from fork `start` on: it obeys each rule with the probability given."""
    chances = [policy[fork.rule] for fork in chain(text).forks[start:]]
    total = 1.0
    for chance in chances:
        total *= chance
    return total


def test_the_way_home_is_shown_fork_by_fork_and_rewarded_at_its_end() -> None:
    env, observation = play(MAP)
    assert observation == "1/3 =ka mo ka ti"
    results = [env.step(path) for path in ("ka", "mo", "le")]
    assert [result.observation for result in results] == ["2/3 >ti mo ka ti", "3/3 =le le fu na", "home"]
    assert [result.reward for result in results] == [0.0, 0.0, 1.0]
    assert [result.terminated for result in results] == [False, False, True]
    assert (env.evaluate().reward, env.evaluate().passed) == (1.0, True)
    late = env.step("le")
    assert (late.observation, late.reward, late.terminated) == ("home", 0.0, True)


@given(st.integers(0, 999), SHAPES)
def test_a_wrong_turn_is_seen_at_the_end_and_not_before(seed: int, shape: dict[str, int]) -> None:
    text = random_chain(TRAIN_SYMBOLS, **shape, seed=seed)
    forks = chain(text).forks
    right, _ = play(text)
    wrong, _ = play(text)
    for number, fork in enumerate(forks):
        astray = (
            next(path for path in fork.paths if path != fork.right)
            if number == seed % len(forks)
            else fork.right
        )
        good, bad = right.step(fork.right), wrong.step(astray)
        if number < len(forks) - 1:
            assert good == bad
    assert (good.observation, bad.observation) == ("home", "dead end")
    assert (right.evaluate().passed, wrong.evaluate().passed) == (True, False)
    assert wrong.evaluate().details.endswith(f"astray since fork {seed % len(forks) + 1}")


def test_exactly_one_way_leads_home() -> None:
    homes = []
    for way in product(*(fork.paths for fork in chain(MAP).forks)):
        env, _ = play(MAP)
        homes += [way] if [env.step(path) for path in way][-1].reward else []
    assert homes == [("ka", "mo", "le")], "chance is one in width ** length"


@given(st.integers(0, 2**64 - 1), SHAPES)
def test_a_map_has_the_shape_asked_for_and_is_its_own_text(seed: int, shape: dict[str, int]) -> None:
    text = random_chain(TRAIN_SYMBOLS, **shape, seed=seed)
    drawn = chain(text)
    assert len(drawn.forks) == shape["length"]
    assert len(drawn.crucial) == shape["crucial"]
    assert {len(fork.paths) for fork in drawn.forks} == {shape["width"]}
    assert "\n".join(fork.text() for fork in drawn.forks) == text
    for fork in drawn.forks:
        assert fork.right in fork.paths
        assert (fork.right == fork.sign) == (fork.rule == "=")


def test_the_path_after_the_last_is_the_first() -> None:
    assert [fork.right for fork in chain(">ka mo ka ti\n>ti mo ka ti\n>mo mo ka").forks] == ["ti", "mo", "ka"]


def test_the_oracle_names_the_forks_after_which_success_jumps() -> None:
    params = ForkChainParams(length=8, crucial=2)
    obeys_plain_signs = {"=": 0.99, ">": 0.02}
    for index in range(20):
        task = ENV.tasks(params).get("train", index)
        oracle = ENV.oracle(params, task)
        assert isinstance(oracle, ForkChainOracle)
        values = [success(task.payload, obeys_plain_signs, start) for start in range(9)]
        ratios = [after / before for before, after in pairwise(values)]
        assert tuple(turn for turn, ratio in enumerate(ratios) if ratio > 10) == oracle.crucial
        assert len(oracle.crucial) == 2


def test_the_oracle_goes_on_from_any_fork() -> None:
    task = TaskSpec("train/0", "train", 0, "", MAP)
    oracle = ENV.oracle(ForkChainParams(length=3), task)
    assert [oracle(text) for text in ("3/3 =le le fu na", "1/3 =ka mo ka ti", "home", "")] == [
        "le",
        "ka",
        "ka",
        "ka",
    ]


def test_optimum_counts_the_turns() -> None:
    task = TaskSpec("train/0", "train", 0, "", MAP)
    assert [ENV.optimum(ForkChainParams(length=3, max_turns=turns), task) for turns in (2, 3)] == [0.0, 1.0]


def test_without_clues_nothing_tells_the_right_path() -> None:
    env, observation = play(MAP, clues=False, crucial=0)
    assert observation == "1/3 mo ka ti"
    assert [env.step(path).observation for path in ("ka", "mo", "le")][-1] == "home"


@pytest.mark.parametrize(
    ("action", "path"),
    [
        ("ka", "ka"),
        (" KA\n", "ka"),
        ("not mo: \\boxed{ka}", "ka"),
        ("ka, no, mo", "mo"),
        ("kamo", None),
        ("le", None),
        ("", None),
    ],
)
def test_the_last_path_named_counts(action: str, path: str | None) -> None:
    env, observation = play(MAP)
    result = env.step(action)
    if path is None:
        assert (result.observation, result.info, result.terminated) == (observation, {"illegal": True}, False)
    else:
        assert result.info == {}
        assert ("on the right way" in env.evaluate().details) is (path == "ka")


def test_actions_that_name_no_path_use_up_the_turns() -> None:
    env, observation = play(MAP, max_turns=4)
    results = [env.step(action) for action in ("x", "ka", "x", "mo")]
    assert [result.truncated for result in results] == [False, False, False, True]
    assert (env.step("le").observation, env.evaluate().passed) == ("3/3 =le le fu na", False)
    assert observation == results[0].observation


def test_a_copy_of_a_lost_walk_is_lost() -> None:
    env, _ = play(MAP)
    env.step("mo")
    copy, _ = play(MAP)
    assert copy.restore(env.snapshot()) == "2/3 >ti mo ka ti"
    copy.step("mo")
    assert copy.step("le").observation == "dead end"


def test_splits_differ_by_map_and_by_symbol() -> None:
    tasks = ENV.tasks(ENV.params())
    maps = {split: [tasks.get(split, index).payload for index in range(300)] for split in tasks.splits}
    symbols = {
        split: {path for text in texts for fork in chain(text).forks for path in fork.paths}
        for split, texts in maps.items()
    }
    assert symbols["train"] == symbols["held_out"] == set(TRAIN_SYMBOLS)
    assert symbols["held_out_symbols"] == set(HELD_OUT_SYMBOLS)
    assert not set(TRAIN_SYMBOLS) & set(HELD_OUT_SYMBOLS)
    assert set("".join(HELD_OUT_SYMBOLS)) == set("".join(TRAIN_SYMBOLS)), "every letter is known"
    assert not set(maps["train"]) & set(maps["held_out"])


def test_a_few_maps_are_the_tabular_case() -> None:
    few = ENV.tasks(ForkChainParams(train_maps=6))
    many = ENV.tasks(ForkChainParams())
    assert (few.count("train"), few.count("held_out")) == (6, 10_000)
    assert [few.get("train", index) for index in range(6)] == [many.get("train", index) for index in range(6)]
    with pytest.raises(InvalidArgument, match="6 tasks, numbered from 0"):
        few.get("train", 6)


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ('{"width": 1}', "width"),
        ('{"length": 2, "crucial": 3}', "do not fit into length=2"),
        ('{"clues": false}', "set crucial=0"),
        ('{"train_maps": 0}', "train_maps"),
    ],
)
def test_bad_arguments_are_refused(params: str, message: str) -> None:
    with pytest.raises(InvalidArgument, match=message):
        env_params(ENV, params)


@pytest.mark.parametrize(
    "text", ["", "ka", "=ka ka", "=ka mo ti", "=ka ka ka", "?ka mo ka", "=ka mo ka\n", "=KA mo KA"]
)
def test_a_payload_that_is_no_map_is_refused(text: str) -> None:
    with pytest.raises(InvalidArgument, match="not a fork_chain map"):
        play(text)


@pytest.mark.parametrize(("passed", "turn", "astray"), [(4, 4, 0), (2, 1, 0), (1, 1, 2), (-1, 0, -1)])
def test_a_corrupt_snapshot_is_refused(passed: int, turn: int, astray: int) -> None:
    env, _ = play(MAP)
    state = env.snapshot().decode()
    for key, value in (("passed", passed), ("turn", turn), ("astray", astray)):
        state = state.replace(f'"{key}": 0', f'"{key}": {value}')
    with pytest.raises(InvalidArgument, match="corrupt"):
        env.restore(state.encode())


def test_the_instruction_follows_the_arguments_and_not_the_task() -> None:
    def told(params: ForkChainParams, index: int = 0) -> str:
        return ENV.tasks(params).get("train", index).instruction

    assert told(ForkChainParams()) == told(ForkChainParams(), 7)
    assert "5 forks of 4 paths" in told(ForkChainParams(length=5, width=4))
    assert ">ka" not in told(ForkChainParams(clues=False, crucial=0))


def test_nothing_works_without_an_episode() -> None:
    env, _ = play(MAP)
    env.close()
    for call in (lambda: env.step("ka"), env.evaluate, env.snapshot):
        with pytest.raises(FailedPrecondition, match="call reset"):
            call()
    with pytest.raises(InvalidArgument, match="expected ForkChainParams"):
        ENV.factory(EnvParams())
    with pytest.raises(UnknownName):
        ENV.tasks(ENV.params()).count("test")
