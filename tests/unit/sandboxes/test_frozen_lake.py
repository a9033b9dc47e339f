"""FrozenLake against Gymnasium's, and its text protocol, rewards, limits and optimum."""

from __future__ import annotations

from collections import Counter
from itertools import count

import pytest
from gymnasium.envs.toy_text.frozen_lake import FrozenLakeEnv, generate_random_map
from hypothesis import given
from hypothesis import strategies as st

from rock_env.errors import FailedPrecondition, InvalidArgument, UnknownName
from rock_env.plugins import env_params
from rock_env.spec import EnvParams, TaskSpec
from sandboxes.frozen_lake import ENV
from sandboxes.frozen_lake.env import FrozenLake, direction_of
from sandboxes.frozen_lake.generator import FIXED_MAPS, random_map
from sandboxes.frozen_lake.oracle import transitions

TINY = "SFF\nFHF\nFFG"
MAPS = [*FIXED_MAPS.values(), *(random_map(size, 0.8, size) for size in (2, 3, 4, 5, 8))]


def play(text: str, params: str = "{}") -> tuple[FrozenLake, str]:
    env = ENV.factory(env_params(ENV, params))
    assert isinstance(env, FrozenLake)
    observation, info = env.reset(TaskSpec("train/0", "train", 0, "", text), 0)
    assert info == {}
    return env, observation


def gymnasium_lake(text: str, slippery: bool) -> FrozenLakeEnv:
    return FrozenLakeEnv(desc=text.split("\n"), is_slippery=slippery)


@pytest.mark.parametrize(("size", "frozen"), [(2, 0.8), (4, 0.8), (4, 0.65), (8, 0.8), (11, 0.9), (5, 1.0)])
def test_random_maps_are_gymnasiums_seed_for_seed(size: int, frozen: float) -> None:
    for seed in range(200):
        assert random_map(size, frozen, seed).split("\n") == generate_random_map(size, frozen, seed)


@pytest.mark.parametrize("slippery", [False, True])
@pytest.mark.parametrize("text", MAPS)
def test_transitions_are_gymnasiums(text: str, slippery: bool) -> None:
    ours = transitions(text, slippery)
    letters = text.replace("\n", "")
    for state, actions in gymnasium_lake(text, slippery).P.items():
        for action, outcomes in actions.items():
            expected: Counter[int] = Counter()
            for probability, following, reward, done in outcomes:
                expected[following] += probability
                assert done == (letters[following] in "GH")
                assert reward == (letters[following] == "G" != letters[state])
            got = Counter(ours[state, action].tolist())
            assert {cell: n / ours.shape[2] for cell, n in got.items()} == pytest.approx(dict(expected))


def test_fixed_maps_are_gymnasiums() -> None:
    for name, text in FIXED_MAPS.items():
        tasks = ENV.tasks(env_params(ENV, f'{{"map_name": "{name}", "size": {name[0]}}}'))
        assert tasks.get("train", 0).payload == tasks.get("held_out", 0).payload == text
        theirs = FrozenLakeEnv(map_name=name)
        assert [row.tobytes().decode() for row in theirs.desc] == text.split("\n")


def test_every_move_on_firm_ice_goes_where_gymnasium_goes() -> None:
    text = FIXED_MAPS["8x8"]
    lake = gymnasium_lake(text, False)
    for cell, letter in enumerate(text.replace("\n", "")):
        if letter in "GH":
            continue
        env, _ = play(text, '{"max_turns": 1000}')
        start = env.snapshot().replace(b'"cell": 0', f'"cell": {cell}'.encode())
        for action, word in enumerate(("left", "down", "right", "up")):
            env.restore(start)
            result = env.step(word)
            ((_, following, reward, done),) = lake.P[cell][action]
            assert (result.reward, result.terminated) == (reward, done)
            assert f'"cell": {following}'.encode() in env.snapshot()


def test_slips_are_one_third_each() -> None:
    env, _ = play("SFF\nFFF\nFFG", '{"slippery": true}')
    middle = env.snapshot().replace(b'"cell": 0', b'"cell": 4')
    seen: Counter[str] = Counter()
    for seed in range(3000):
        env.restore(middle)
        env.reseed(seed)
        seen[env.step("left").observation] += 1
    # up, left and down of the middle; 4 standard deviations of a binomial with p = 1/3 are 103
    assert set(seen) == {"_P_\n___\n__G", "___\nP__\n__G", "___\n___\n_PG"}
    assert all(abs(times - 1000) < 103 for times in seen.values())


def test_a_walk_to_the_goal_is_shown_and_rewarded() -> None:
    env, observation = play(TINY)
    assert observation == "P__\n_O_\n__G"
    results = [env.step(word) for word in ("right", "right", "down")]
    assert [result.observation for result in results] == ["_P_\n_O_\n__G", "__P\n_O_\n__G", "___\n_OP\n__G"]
    assert not env.evaluate().passed
    last = env.step("down")
    assert (last.observation, last.reward, last.terminated, last.truncated) == (
        "___\n_O_\n__√",
        1.0,
        True,
        False,
    )
    assert (env.evaluate().reward, env.evaluate().passed) == (1.0, True)
    after = env.step("up")
    assert (after.observation, after.reward, after.terminated) == (last.observation, 0.0, True)


def test_a_hole_ends_the_episode_without_reward() -> None:
    env, _ = play(TINY)
    env.step("down")
    fallen = env.step("right")
    assert (fallen.observation, fallen.reward, fallen.terminated) == ("___\n_X_\n__G", 0.0, True)
    assert not env.evaluate().passed


def test_the_edge_stops_the_player_and_the_turn_limit_the_episode() -> None:
    env, observation = play(TINY, '{"max_turns": 3}')
    stayed = [env.step("up") for _ in range(3)]
    assert [result.observation for result in stayed] == [observation] * 3
    assert [result.truncated for result in stayed] == [False, False, True]
    late = env.step("right")
    assert (late.observation, late.truncated, late.terminated) == (observation, True, False)


def test_the_goal_on_the_last_turn_counts() -> None:
    env, _ = play("SF\nFG", '{"max_turns": 2}')
    env.step("right")
    last = env.step("down")
    assert (last.reward, last.terminated, last.truncated) == (1.0, True, False)


def test_an_illegal_action_uses_a_turn_and_moves_nobody() -> None:
    env, observation = play(TINY, '{"max_turns": 2, "slippery": true}')
    first, second = env.step("jump"), env.step("")
    assert first.info == second.info == {"illegal": True}
    assert (first.observation, first.truncated, second.truncated) == (observation, False, True)


def test_gymnasium_symbols_show_the_maps_letters() -> None:
    env, observation = play(TINY, '{"symbols": "gymnasium"}')
    assert observation == "PFF\nFHF\nFFG"
    assert env.step("right").observation == "SPF\nFHF\nFFG"
    env.step("left")
    env.step("down")
    assert env.step("right").observation == "SFF\nFXF\nFFG"


@pytest.mark.parametrize(
    ("action", "direction"),
    [
        ("left", 0),
        (" Down\n", 1),
        ("\\boxed{RIGHT}", 2),
        ("<answer>up</answer>", 3),
        ("not left, not up: down!", 1),
        ("move_right", 2),
        ("leftover", None),
        ("cupboard", None),
        ("", None),
        ("2", None),
        ("north", None),
    ],
)
def test_the_last_direction_word_counts(action: str, direction: int | None) -> None:
    assert direction_of(action) == direction


@given(st.text(), st.sampled_from(["left", "down", "right", "up"]), st.sampled_from(["{}", "<{}>", "{{{}}}"]))
def test_whatever_stands_before_the_last_word_does_not_matter(before: str, word: str, frame: str) -> None:
    assert direction_of(f"{before} {frame.format(word)}") == ("left", "down", "right", "up").index(word)


@pytest.mark.parametrize("slippery", [False, True])
@pytest.mark.parametrize("text", MAPS)
def test_optimum_is_dynamic_programming_over_gymnasiums_table(text: str, slippery: bool) -> None:
    limit = 30
    table = gymnasium_lake(text, slippery).P
    value = dict.fromkeys(table, 0.0)
    for _ in range(limit):
        value = {
            state: max(
                sum(
                    p * (reward + (0.0 if done else value[following]))
                    for p, following, reward, done in outcomes
                )
                for outcomes in actions.values()
            )
            for state, actions in table.items()
        }
    params = env_params(ENV, f'{{"slippery": {str(slippery).lower()}, "max_turns": {limit}}}')
    assert ENV.optimum(params, TaskSpec("train/0", "train", 0, "", text)) == pytest.approx(
        value[0], abs=1e-12
    )


@pytest.mark.parametrize("text", MAPS)
def test_the_oracle_walks_a_shortest_path_on_firm_ice(text: str) -> None:
    task = TaskSpec("train/0", "train", 0, "", text)
    shortest = next(n for n in count(1) if ENV.optimum(env_params(ENV, f'{{"max_turns": {n}}}'), task) == 1.0)
    env, observation = play(text, '{"max_turns": 1000}')
    oracle = ENV.oracle(env_params(ENV, '{"max_turns": 1000}'), task)
    for turn in count(1):
        result = env.step(oracle(observation))
        observation = result.observation
        if result.terminated:
            assert (turn, result.reward) == (shortest, 1.0)
            break


def test_the_oracle_survives_being_asked_beyond_the_end() -> None:
    oracle = ENV.oracle(env_params(ENV, '{"max_turns": 1}'), TaskSpec("train/0", "train", 0, "", TINY))
    assert {oracle(observation) for observation in ("P__\n_O_\n__G",) * 3} == {"right"}
    assert oracle("___\n_O_\n__√") in ("left", "down", "right", "up")


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ('{"size": 1}', "size"),
        ('{"size": 33}', "size"),
        ('{"max_turns": 0}', "max_turns"),
        ('{"map_name": "8x8"}', "set size=8"),
        ('{"map_name": "4x4", "frozen_probability": 0.9}', "random maps only"),
        ('{"symbols": "emoji"}', "symbols"),
    ],
)
def test_bad_arguments_are_refused(params: str, message: str) -> None:
    with pytest.raises(InvalidArgument, match=message):
        env_params(ENV, params)


def test_unknown_arguments_name_the_nearest() -> None:
    with pytest.raises(UnknownName, match="slippery"):
        env_params(ENV, '{"slipery": true}')


def test_hopeless_ice_is_an_error_not_an_endless_search() -> None:
    with pytest.raises(InvalidArgument, match=r"no crossable 8x8 map.*frozen_probability=0.05"):
        random_map(8, 0.05, 0)


@pytest.mark.parametrize("text", ["", "S", "SF\nF", "SFG", "SF\nFX", "SS\nFG", "FF\nFG", "SG\nGF"])
def test_a_payload_that_is_no_map_is_refused(text: str) -> None:
    with pytest.raises(InvalidArgument, match="FrozenLake map"):
        play(text)


@pytest.mark.parametrize(
    "state",
    [b"", b"{}", b"[]", b"\xff", b'{"frozen_lake": "SF\\nFG", "cell": 9, "turn": 0, "seed": 0, "draws": 0}'],
)
def test_bytes_that_are_no_snapshot_are_refused(state: bytes) -> None:
    env, _ = play(TINY)
    with pytest.raises(InvalidArgument, match="snapshot"):
        env.restore(state)


def test_nothing_works_without_an_episode() -> None:
    env, _ = play(TINY)
    env.close()
    for call in (lambda: env.step("up"), env.evaluate, env.snapshot):
        with pytest.raises(FailedPrecondition, match="call reset"):
            call()


def test_another_environments_arguments_are_refused() -> None:
    with pytest.raises(InvalidArgument, match="expected FrozenLakeParams"):
        ENV.factory(EnvParams())


def test_the_instruction_follows_the_arguments_and_not_the_task() -> None:
    def told(params: str, index: int) -> str:
        return ENV.tasks(env_params(ENV, params)).get("train", index).instruction

    assert told("{}", 0) == told("{}", 7)
    assert "slippery" not in told("{}", 0)
    assert "1/3" in told('{"slippery": true}', 0)
    assert "within 12 turns" in told('{"max_turns": 12}', 0)
    assert "H a hole" in told('{"symbols": "gymnasium"}', 0)
