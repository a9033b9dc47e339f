"""GEM's and Gymnasium's environments as `gem:ID` and `gym:ID`: the same episodes as there, whoever else plays."""

from __future__ import annotations

import json
import random
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
import transports

from rock_env.client import AsyncEnv, Client
from rock_env.client.admin import AdminClient
from rock_env.env import observation_hash
from rock_env.errors import InvalidArgument, PermissionDenied, Unimplemented, UnknownName
from rock_env.local import start_embedded
from rock_env.plugins import load_env, load_library

pytestmark = pytest.mark.any_address

gem = pytest.importorskip("gem", reason="gem-llm is not installed: `pip install gem-llm` (Python below 3.12)")
gymnasium = pytest.importorskip("gymnasium", reason="gymnasium is not installed: `pip install gymnasium`")
ROOT = Path(__file__).parents[2]
TOY = f"--env={Path(__file__).with_name('toy_envs.py')}:TOY"


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    with transports.served([TOY, "--workers=1"]) as server:
        yield server.address


async def made(client: Client, name: str, task: str = "train/7", seed: int = 0, **params: object) -> AsyncEnv:
    env = await client.make(name, json.dumps(params))
    await env.reset(task, seed)
    return env


MOVES = ["\\boxed{left}", "\\boxed{up}", "\\boxed{right}", "\\boxed{down}"] * 5


async def test_an_episode_is_gems_own(address: str) -> None:
    native = gem.make("game:Game2048-v0-easy")
    observation, info = native.reset(7)
    expected = [f"{observation.rstrip()}\n{info['suffix']}"]
    for move in MOVES:
        observation, reward, _, _, info = native.step(move)
        expected += [f"{observation.rstrip()}\n{info['suffix']}", float(reward)]
    async with Client(address) as client:
        env = await client.make("gem:game:Game2048-v0-easy")
        first, _, instruction = await env.reset("train/7", 0)
        seen: list[object] = [first]
        for move in MOVES:
            result = await env.step(move)
            seen += [result.observation, result.reward]
        verdict = await env.evaluate()
    assert seen == expected
    assert "Game2048" in instruction
    assert verdict.reward == pytest.approx(sum(each for each in expected if isinstance(each, float)))


async def test_an_episode_is_gymnasiums_own(address: str) -> None:
    native = gymnasium.make("FrozenLake-v1")
    first, _ = native.reset(seed=1_000_003)
    expected = [int(first)]
    actions = [2, 1, 1, 2, 1, 2]
    for action in actions:
        observation, _, terminated, _, _ = native.step(action)
        expected.append(int(observation))
        if terminated:
            break
    async with Client(address) as client:
        env = await client.make("gym:FrozenLake-v1")
        opening, _, _ = await env.reset("held_out/3", 0)
        seen = [int(opening.splitlines()[-1])]
        seen += [int((await env.step(str(action))).observation) for action in actions[: len(expected) - 1]]
    assert seen == expected
    assert opening.startswith("Actions: Discrete(4), as JSON.")


async def test_episodes_in_one_process_do_not_disturb_each_other(address: str) -> None:
    async with Client(address) as client:

        async def alone(task: str) -> list[str]:
            env = await made(client, "gem:game:Game2048-v0-easy", task)
            return [(await env.step(move)).observation for move in MOVES]

        apart = [await alone("train/1"), await alone("train/2")]
        one = await made(client, "gem:game:Game2048-v0-easy", "train/1")
        two = await made(client, "gem:game:Game2048-v0-easy", "train/2")
        both: list[list[str]] = [[], []]
        for move in MOVES:
            both[0].append((await one.step(move)).observation)
            both[1].append((await two.step(move)).observation)
    assert both == apart
    assert apart[0] != apart[1]


async def test_a_seed_changes_the_chance_and_not_the_beginning(address: str) -> None:
    async with Client(address) as client:
        seen = []
        for seed in (0, 5, 5):
            env = await client.make("gem:game:Game2048-v0-easy")
            first, _, _ = await env.reset("train/7", seed)
            seen.append((first, [(await env.step(move)).observation for move in MOVES]))
    assert seen[0][0] == seen[1][0]
    assert seen[0][1] != seen[1][1]
    assert seen[1] == seen[2]


@pytest.mark.parametrize(
    ("name", "action"),
    [("gem:game:Game2048-v0-easy", MOVES[0]), ("gym:Taxi-v4", "0"), ("gym:Pendulum-v1", "[0.5]")],
)
async def test_recorded_actions_are_a_checkpoint(address: str, name: str, action: str) -> None:
    async with Client(address) as client:
        env = await client.make(name)
        first, _, _ = await env.reset("train/4", 0)
        seen = [(await env.step(action)).observation for _ in range(4)]
        with pytest.raises(Unimplemented, match="prefix"):
            await env.checkpoint()
        again = await client.make(name)
        prefix = [(action, observation_hash(each)) for each in seen[:3]]
        await again.reset("train/4", 0, prefix, initial_hash=observation_hash(first))
        assert (await again.step(action)).observation == seen[3]


@pytest.mark.parametrize(
    "action",
    ["", "x", "9", "-1", "1.5", "[1]", "true", '"1"', '{"a": 1}', "null", "1e999", "[" * 5000, "1" * 5000],
)
async def test_no_action_is_a_turn_that_changes_nothing(address: str, action: str) -> None:
    async with Client(address) as client:
        env = await made(client, "gym:FrozenLake-v1")
        result = await env.step(action)
        assert result.info["illegal"] is True
        assert "No action of Discrete(4)" in result.observation
        assert not result.terminated
        assert (await env.step("0")).info.get("illegal") is None


@pytest.mark.parametrize("answer", ["\\boxed{-1 -1 -1}", f"\\boxed{{{'9' * 5000}}}"])
async def test_an_answer_that_the_scorer_raises_on_is_a_turn_without_reward(
    address: str, answer: str
) -> None:
    async with Client(address) as client:
        env = await made(client, "gem:rg:prime_factorization")
        result = await env.step(answer)
        assert (result.reward, result.info, result.terminated) == (0.0, {"illegal": True}, False)
        assert result.observation == (
            "No action that gem:rg:prime_factorization can take: it raised ValueError."
        )
        again = await client.make("gem:rg:prime_factorization")
        observed = await again.reset("train/7", 0, [(answer, observation_hash(result.observation))])
        assert observed[0] == result.observation
        scored = await env.step("\\boxed{2 × 2}")
        assert scored.terminated
        assert scored.info.get("illegal") is None
        assert (await env.evaluate()).reward == scored.reward


async def test_arguments_reach_the_library(address: str) -> None:
    async with Client(address) as client:
        env = await client.make(
            "gym:FrozenLake-v1", json.dumps({"arguments": '{"is_slippery": false}', "pictures": True})
        )
        await env.reset("train/0", 0)
        down = await env.step("1")
        assert down.observation == "4\n(Down)\nSFFF\n[F]HFH\nFFFH\nHFFG"
        ended = await env.step("2")
        assert ended.terminated
        assert await env.evaluate() == (await env.evaluate())
        assert (await env.evaluate()).passed is False


async def test_vectors_and_tuples_are_json(address: str) -> None:
    async with Client(address) as client:
        pendulum = await made(client, "gym:Pendulum-v1")
        result = await pendulum.step("[0.25]")
        assert len(json.loads(result.observation)) == 3
        assert len(result.observation) < 45  # as short as single precision allows
        assert (await pendulum.step("[9]")).info["illegal"] is True
        blackjack = await client.make("gym:Blackjack-v1")
        opening, _, _ = await blackjack.reset("train/0", 0)
        assert len(json.loads(opening.splitlines()[-1])) == 3


async def test_success_is_the_librarys(address: str) -> None:
    async with Client(address) as client:
        game = await client.make("gem:game:GuessTheNumber-v0-easy")
        rewards = []
        for guess in range(1, 11):
            await game.reset("train/3", 0)
            rewards.append((await game.step(f"\\boxed{{{guess}}}")).reward)
            if rewards[-1] >= 1:
                break
        verdict = await game.evaluate()
    assert verdict.passed
    assert verdict.reward == 1.0


async def test_held_out_questions_are_others(address: str) -> None:
    async with Client(address) as client:
        env = await client.make("gem:rg:caesar_cipher", json.dumps({"arguments": '{"size": 3}'}))
        questions = {
            split: {(await env.reset(f"{split}/{index}", 0))[0] for index in range(12)}
            for split in ("train", "held_out")
        }
    assert len(questions["train"]) == 3
    assert not questions["train"] & questions["held_out"]


@pytest.mark.parametrize(
    ("name", "params", "error", "said"),
    [
        ("gem:game:Gess-v0", {}, UnknownName, "unknown environment of gem"),
        ("gym:CartPole", {}, UnknownName, "CartPole-v1"),
        ("gym:os:system", {}, UnknownName, "unknown environment of gym"),
        ("gym:os:CartPole-v1", {}, UnknownName, "unknown environment of gym"),
        ("gem:", {}, InvalidArgument, "expected gem:ID"),
        ("gem:../x y", {}, InvalidArgument, "expected gem:ID"),
        ("gem:" + "a" * 129, {}, InvalidArgument, "1 to 128"),
        ("gyn:CartPole-v1", {}, UnknownName, "gym:ID"),
        ("gym:CartPole-v1", {"arguments": "[]"}, InvalidArgument, "JSON object"),
        ("gym:CartPole-v1", {"arguments": "[" * 5000}, InvalidArgument, "JSON object"),
        ("gym:CartPole-v1", {"picture": 1}, UnknownName, "pictures"),
    ],
)
async def test_a_wrong_name_or_argument_is_one_clear_error(
    address: str, name: str, params: dict[str, object], error: type[Exception], said: str
) -> None:
    async with Client(address) as client:
        with pytest.raises(error, match=said.replace("(", "\\(")):
            await client.make(name, json.dumps(params))


@pytest.mark.parametrize(
    ("name", "params", "said"),
    [
        ("gem:rg:composite", {}, "cannot be made here: AssertionError: Must specify at least one dataset"),
        ("gym:FrozenLake-v1", {"arguments": '{"ice": 1}'}, "unexpected keyword argument 'ice'"),
        ("gym:FrozenLake-v1", {"arguments": '{"map_name": "9x9"}'}, "cannot be made here: KeyError"),
    ],
)
async def test_what_a_library_cannot_make_says_why_and_the_worker_lives(
    address: str, name: str, params: dict[str, object], said: str
) -> None:
    async with Client(address) as client:
        env = await client.make(name, json.dumps(params))
        with pytest.raises(InvalidArgument, match=said):
            await env.reset("train/0", 0)
        other = await made(client, name.split(":")[0] + (":CartPole-v1" if "gym" in name else ":rg:ab"))
        await other.close()


@pytest.mark.parametrize(
    ("package", "name", "said"),
    [
        ("mujoco", "gym:Ant-v5", "cannot be made here: .*MuJoCo is not installed"),
        ("Box2D", "gym:LunarLander-v3", "cannot be made here: .*Box2D is not installed"),
        ("mujoco_py", "gym:Ant-v3", "cannot be made here: .*gymnasium-robotics"),
        ("jax", "gym:phys2d/CartPole-v1", "cannot be made here: .*jax"),
    ],
)
async def test_an_id_whose_package_is_missing_says_at_make_which(
    address: str, package: str, name: str, said: str
) -> None:
    if find_spec(package) is not None:
        pytest.skip(f"{package} is installed, and the test wants it missing")
    async with Client(address) as client:
        for _ in range(2):
            with pytest.raises(InvalidArgument, match=said):
                await client.make(name)
        await (await made(client, "gym:CartPole-v1")).close()


async def test_each_library_has_processes_of_its_own() -> None:
    with start_embedded([TOY, "--workers=1"]) as server:
        async with Client(server.address) as client, AdminClient(server.address) as admin:
            workers = []
            for name in ("toy", "gym:CartPole-v1", "gym:Taxi-v4", "gem:rg:ab"):
                await client.make(name)
                workers.append((await admin.capacity()).workers)
    assert workers == [1, 2, 2, 3]


def test_a_name_imports_nothing_and_its_tasks_are_seeds() -> None:
    spec = load_env("gem:no:such")  # the library is asked where the environment is made
    assert (spec.name, spec.library, spec.snapshots) == ("gem:no:such", "gem", False)
    tasks = spec.tasks(spec.params())
    assert [tasks.get("train", 0).payload, tasks.get("held_out", 9).payload] == ["0", "1000009"]
    with pytest.raises(InvalidArgument, match="numbered from 0"):
        tasks.get("held_out", 10_000)
    with pytest.raises(UnknownName, match="split"):
        tasks.get("test", 0)


def test_random_players_repeat_and_leave_the_process_its_chance() -> None:
    before = random.getstate(), np.random.get_state()[1].tolist()
    for name in ("gem:game:Game2048-v0-easy", "gym:Pendulum-v1"):
        spec = load_env(name)
        task = spec.tasks(spec.params()).get("train", 3)
        one, two = (spec.explorer(spec.params(), task) for _ in range(2))
        actions = [one("") for _ in range(20)]
        assert actions == [two("") for _ in range(20)]
        assert len(set(actions)) > 2
    assert (random.getstate(), np.random.get_state()[1].tolist()) == before


@pytest.mark.slow
def test_random_players_made_at_once_leave_the_process_its_output() -> None:
    spec, before = load_env("gym:Taxi-v4"), sys.stdout
    tasks = spec.tasks(spec.params())
    with ThreadPoolExecutor(8) as apart:
        list(apart.map(lambda index: spec.explorer(spec.params(), tasks.get("train", index)), range(64)))
    assert sys.stdout is before


def test_ids_whose_scorer_runs_answers_are_left_out_and_no_others_do() -> None:
    command = [
        sys.executable,
        "tests/contract/answer_events.py",
        "--ids=gem:rg:*",
        "--tasks=1",
        "--limit-s=2",
    ]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    found = json.loads(done.stdout.splitlines()[-1])
    assert set(found["raising"]) <= set(found["left_out"]), "see answer_events.py: leave them out by name"
    assert "gem:rg:spiral_matrix" in found["raising"]
    assert len(found["played"]) > 90


def test_ids_that_start_programs_or_parse_with_sympy_are_left_out() -> None:
    places = {name: str(spec.entry_point) for name, spec in gem.envs.registration.ENV_REGISTRY.items()}
    runs_answers = ("gem.envs.math_env:", "gem.envs.math_visual_env:", "gem.envs.code_env:")
    hosted = load_library("gem").ids()
    assert not [name for name in hosted if places[name].startswith(runs_answers)]
    assert "rg:ab" in hosted


@pytest.mark.parametrize("name", ["gem:rg:spiral_matrix", "gem:math:GSM8K", "gem:code:Taco8k"])
async def test_an_id_that_is_left_out_says_why(address: str, name: str) -> None:
    async with Client(address) as client:
        with pytest.raises(InvalidArgument, match=r"is not hosted: .*answer"):
            await client.make(name)
    assert name.removeprefix("gem:") not in load_library("gem").ids()


async def test_an_id_that_is_left_out_scores_no_answer_under_anothers_name(address: str) -> None:
    named = json.dumps({"arguments": json.dumps({"name": "spiral_matrix"})})
    replaced = "\\boxed{setattr(type(self), 'score_answer', lambda s, answer, entry: 1.0)}"
    async with Client(address) as client:
        env = await client.make("gem:rg:ab", named)
        await env.reset("train/0", 0)
        with pytest.raises(PermissionDenied, match="ran code for an answer"):
            await env.step(replaced)
        await env.reset("train/0", 0)
        assert (await env.step("\\boxed{}")).reward == 0.0


PACKAGE = """
import gymnasium

class Door(gymnasium.Env):
    def __init__(self):
        self.action_space = gymnasium.spaces.Discrete(2)
        self.observation_space = gymnasium.spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return int(self.np_random.integers(2)), {}

    def step(self, action):
        return 0, 1.0, True, False, {}

def register():
    gymnasium.register("Listed-v0", entry_point=Door)

gymnasium.register("Door-v0", entry_point=Door)
"""


async def test_packages_register_their_ids_in_the_worker(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "toy_doors.py").write_text(PACKAGE)
    for name, value in (
        ("toy_doors", "__root__ = toy_doors:register"),
        ("toy_torn", "__root__ = no_such:torn"),
    ):
        told = tmp_path / f"{name}-1.dist-info"
        told.mkdir()
        (told / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1\n")
        (told / "entry_points.txt").write_text(f"[gymnasium.envs]\n{value}\n")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    with start_embedded(["--workers=1"]) as server:
        async with Client(server.address) as client:
            for name in ("gym:toy_doors:Door-v0", "gym:Listed-v0"):
                env = await client.make(name)
                first, _, _ = await env.reset("train/1", 0)
                assert first.startswith("Actions: Discrete(2), as JSON.")
                assert (await env.step("1")).terminated
            with pytest.raises(InvalidArgument, match="No module named 'no_such_doors'"):
                await client.make("gym:no_such_doors:Door-v0")
            with pytest.raises(UnknownName, match=r"'Dor-v0'.*Did you mean 'Door-v0'.*gym:MODULE:ID"):
                await client.make("gym:toy_doors:Dor-v0")
            await (await made(client, "gym:CartPole-v1")).close()
    assert "toy_doors" not in sys.modules
