"""What every installed environment promises, whoever wrote it: one suite over all `ale.envs` entry points.

Environments with a sandbox are checked for what can be checked without one.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from random import Random
from typing import cast

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rock_env.env import Env, Oracle, StepResult, observation_hash
from rock_env.errors import InvalidArgument, RockError, UnknownName
from rock_env.plugins import env_params, load_env, names
from rock_env.spec import EnvParams, EnvSpec, TaskSpec

VARIANTS: dict[str, tuple[str, ...]] = {
    "fork_chain": ("{}", '{"length": 3, "width": 4, "crucial": 0, "clues": false}'),
    "frozen_lake": ("{}", '{"slippery": true}', '{"size": 8, "slippery": true, "symbols": "gymnasium"}'),
    "math": ("{}", '{"style": "symbols", "min_level": 4, "max_level": 5}'),
    "sokoban": ("{}", '{"level": "8x8", "symbols": "boxoban"}'),
    "webshop": ("{}", '{"style": "brief", "products": 60, "kinds": 10, "per_page": 4, "attributes": 1}'),
}
"""Arguments worth testing beside the defaults; an environment that is not named is tested with its defaults."""
CASES = [(name, params) for name in names("ale.envs") for params in VARIANTS.get(name, ("{}",))]
TASKS = 50
MANY_TURNS = 2000


@pytest.fixture(params=CASES, ids=[f"{name}{params}" for name, params in CASES])
def case(request: pytest.FixtureRequest) -> tuple[EnvSpec, EnvParams]:
    name, params_json = request.param
    spec = load_env(name)
    return spec, env_params(spec, params_json)


@pytest.fixture
def simulator(case: tuple[EnvSpec, EnvParams]) -> tuple[EnvSpec, EnvParams]:
    if case[0].sandbox is not None:
        pytest.skip("acts through a sandbox; its own integration test plays it")
    return case


def build(spec: EnvSpec, params: EnvParams) -> Env:
    return cast("Env", spec.factory(params))


def some_tasks(spec: EnvSpec, params: EnvParams, split: str, most: int = TASKS) -> list[TaskSpec]:
    source = spec.tasks(params)
    return [source.get(split, index) for index in range(min(most, source.count(split)))]


def first_words(spec: EnvSpec, params: EnvParams, task: TaskSpec, turns: int) -> list[str]:
    """Return the oracle's first actions on `task`: legal moves of an environment this suite knows nothing about."""
    env, player = build(spec, params), spec.oracle(params, task)
    observation, _ = env.reset(task, 1)
    words: list[str] = []
    for _ in range(turns):
        words.append(player(observation))
        result = env.step(words[-1])
        observation = result.observation
        if result.terminated or result.truncated:
            break
    return words


def vocabulary(spec: EnvSpec, params: EnvParams) -> list[str]:
    tasks = some_tasks(spec, params, spec.tasks(params).splits[0], 10)
    return sorted({word for task in tasks for word in first_words(spec, params, task, 10)})


def random_actions(spec: EnvSpec, params: EnvParams, seed: int, turns: int = 12) -> list[str]:
    rng = Random(seed)
    return [rng.choice([*vocabulary(spec, params), "?"]) for _ in range(turns)]


def play_all(env: Env, actions: Sequence[str]) -> list[StepResult]:
    return [env.step(action) for action in actions]


def play_out(env: Env, task: TaskSpec, player: Oracle, seed: int) -> bool:
    observation, _ = env.reset(task, seed)
    for _ in range(MANY_TURNS):
        result = env.step(player(observation))
        observation = result.observation
        if result.terminated or result.truncated:
            return env.evaluate().passed
    pytest.fail(f"no end within {MANY_TURNS} turns")


def test_the_spec_is_well_formed(case: tuple[EnvSpec, EnvParams]) -> None:
    spec, params = case
    assert spec.key == f"{spec.name}@{spec.version}"
    assert spec.name in names("ale.envs")
    assert spec.version
    assert spec.summary.endswith(".")
    assert "\n" not in spec.summary
    assert spec.params.model_validate_json(params.canonical()) == params
    assert spec.params.model_validate_json("{}") == spec.params()
    with pytest.raises(UnknownName):
        env_params(spec, '{"no_such_argument": 1}')


def test_tasks_are_pure_counted_and_told_apart(case: tuple[EnvSpec, EnvParams]) -> None:
    spec, params = case
    source, again = spec.tasks(params), spec.tasks(spec.params.model_validate_json(params.canonical()))
    assert {"train", "held_out"} <= set(source.splits)
    for split in source.splits:
        assert source.count(split) >= 1
        for index in {0, min(3, source.count(split) - 1), source.count(split) - 1}:
            task = source.get(split, index)
            assert task == again.get(split, index)
            assert (task.id, task.split, task.index) == (f"{split}/{index}", split, index)
            assert task.instruction.strip()
            assert task.time_limit_s > 0
        for index in (-1, source.count(split)):
            with pytest.raises(InvalidArgument):
                source.get(split, index)
    with pytest.raises(UnknownName):
        source.count("no_such_split")


def test_oracle_and_optimum_exist_for_every_split(case: tuple[EnvSpec, EnvParams]) -> None:
    spec, params = case
    for split in spec.tasks(params).splits:
        task = spec.tasks(params).get(split, 0)
        assert isinstance(spec.oracle(params, task), Oracle)
        assert 0.0 < spec.optimum(params, task) <= 1.0


def test_held_out_tasks_are_not_training_tasks(simulator: tuple[EnvSpec, EnvParams]) -> None:
    spec, params = simulator
    train = {task.payload for task in some_tasks(spec, params, "train", 300)}
    held_out = {task.payload for task in some_tasks(spec, params, "held_out", 100)}
    assert len(train) > 1
    assert not train & held_out


def test_equal_seeds_give_equal_episodes(simulator: tuple[EnvSpec, EnvParams]) -> None:
    spec, params = simulator
    one, other = build(spec, params), build(spec, params)
    for number, task in enumerate(some_tasks(spec, params, "train", 10)):
        actions = random_actions(spec, params, number)
        assert one.reset(task, number) == other.reset(task, number)
        recorded = play_all(one, actions)
        assert recorded == play_all(other, actions)
        assert one.evaluate() == other.evaluate()


def test_a_second_reset_forgets_the_first_episode(simulator: tuple[EnvSpec, EnvParams]) -> None:
    spec, params = simulator
    used = build(spec, params)
    tasks = some_tasks(spec, params, "train", 5)
    for number, task in enumerate(tasks):
        used.reset(tasks[-1], 99)
        play_all(used, random_actions(spec, params, 7))
        fresh = build(spec, params)
        actions = random_actions(spec, params, number)
        assert used.reset(task, 3) == fresh.reset(task, 3)
        assert play_all(used, actions) == play_all(fresh, actions)


def test_replayed_actions_give_the_same_observation_hashes(simulator: tuple[EnvSpec, EnvParams]) -> None:
    spec, params = simulator
    if not spec.replayable:
        pytest.skip("does not promise replay")
    for number, task in enumerate(some_tasks(spec, params, "held_out", 10)):
        actions = random_actions(spec, params, number)
        hashes = []
        for _ in range(2):
            env = build(spec, params)
            first, _ = env.reset(task, 11)
            results = play_all(env, actions)
            hashes.append([observation_hash(text) for text in (first, *(r.observation for r in results))])
        assert hashes[0] == hashes[1]


def test_a_snapshot_restores_the_same_state_and_future(simulator: tuple[EnvSpec, EnvParams]) -> None:
    spec, params = simulator
    if not spec.snapshots:
        pytest.skip("does not promise snapshots")
    for number, task in enumerate(some_tasks(spec, params, "train", 10)):
        before, after = random_actions(spec, params, number, 3), random_actions(spec, params, number + 100)
        env = build(spec, params)
        env.reset(task, number)
        shown = play_all(env, before)[-1].observation
        state = env.snapshot()
        assert state == env.snapshot()
        verdict, future = env.evaluate(), play_all(env, after)
        for target in (env, build(spec, params)):
            assert target.restore(state) == shown
            assert target.snapshot() == state
            assert target.evaluate() == verdict
            assert play_all(target, after) == future


def test_reseeding_changes_the_future_only(simulator: tuple[EnvSpec, EnvParams]) -> None:
    spec, params = simulator
    if not spec.snapshots:
        pytest.skip("does not promise snapshots")
    random_futures = 0
    for number, task in enumerate(some_tasks(spec, params, "train", 10)):
        actions = random_actions(spec, params, number)
        env = build(spec, params)
        shown, _ = env.reset(task, number)
        state, verdict = env.snapshot(), env.evaluate()
        futures = []
        for seed in (1, 2, 1, 3):
            assert env.restore(state) == shown
            env.reseed(seed)
            assert env.evaluate() == verdict
            futures.append(play_all(env, actions))
        assert futures[0] == futures[2]
        random_futures += futures[0] != futures[1] or futures[0] != futures[3]
    slips = any(spec.optimum(params, task) < 1.0 for task in some_tasks(spec, params, "train", 10))
    assert (random_futures > 0) == slips


def test_the_oracle_succeeds_as_often_as_the_optimum_says(simulator: tuple[EnvSpec, EnvParams]) -> None:
    spec, params = simulator
    env = build(spec, params)
    expected, variance, passed = 0.0, 0.0, 0
    for split in ("train", "held_out"):
        for task in some_tasks(spec, params, split, TASKS // 2 if split == "held_out" else TASKS):
            optimum = spec.optimum(params, task)
            episodes = 1 if optimum == 1.0 else 8
            expected += episodes * optimum
            variance += episodes * optimum * (1.0 - optimum)
            passed += sum(play_out(env, task, spec.oracle(params, task), seed) for seed in range(episodes))
    assert abs(passed - expected) <= 3.0 * math.sqrt(variance) + 1e-6


def test_doing_nothing_fails(simulator: tuple[EnvSpec, EnvParams]) -> None:
    spec, params = simulator
    env = build(spec, params)
    for task in some_tasks(spec, params, "train", 10):
        env.reset(task, 0)
        assert (env.evaluate().passed, env.evaluate().reward) == (False, 0.0)
        assert not play_out(env, task, lambda observation: "", 0)


def test_grading_changes_nothing(simulator: tuple[EnvSpec, EnvParams]) -> None:
    spec, params = simulator
    task = spec.tasks(params).get("train", 1)
    asked, unasked = build(spec, params), build(spec, params)
    asked.reset(task, 5)
    unasked.reset(task, 5)
    for action in random_actions(spec, params, 5):
        asked.evaluate()
        assert asked.step(action) == unasked.step(action)


def test_results_hold_plain_values(simulator: tuple[EnvSpec, EnvParams]) -> None:
    spec, params = simulator
    env = build(spec, params)
    env.reset(spec.tasks(params).get("train", 2), 0)
    for result in play_all(env, random_actions(spec, params, 2, 40)):
        assert isinstance(result.observation, str)
        assert math.isfinite(result.reward)
        assert not (result.terminated and result.truncated)
        assert all(isinstance(value, str | int | float | bool) for value in result.info.values())


@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(actions=st.lists(st.text(), min_size=1, max_size=5), seed=st.integers(0, 2**64 - 1))
def test_no_text_and_no_seed_ever_raises(
    simulator: tuple[EnvSpec, EnvParams], actions: list[str], seed: int
) -> None:
    spec, params = simulator
    env = build(spec, params)
    task = spec.tasks(params).get("train", seed % 1000 % spec.tasks(params).count("train"))
    shown, _ = env.reset(task, seed)
    env.reseed(seed)
    for result in play_all(env, actions):
        if result.info.get("illegal"):
            assert result.observation == shown
        shown = result.observation


@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(state=st.binary(max_size=60))
def test_bytes_that_are_no_snapshot_are_refused_by_name(
    simulator: tuple[EnvSpec, EnvParams], state: bytes
) -> None:
    spec, params = simulator
    if not spec.snapshots:
        return
    with pytest.raises(RockError):
        build(spec, params).restore(state)
