"""The synchronous face and GEM's: the same environments, with `gem.Env`'s calls and results."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import pytest
import transports

import rock_env
from rock_env.client.sync import Connection
from rock_env.errors import InvalidArgument, NotFound, Unimplemented, UnknownName

pytestmark = pytest.mark.any_address

TOYS = [f"--env={Path(__file__).with_name('toy_envs.py')}:{name}" for name in ("TOY", "BOX")]


@pytest.fixture(scope="module")
def rock() -> Iterator[Connection]:
    with transports.served([*TOYS, "--workers=1"]) as server, rock_env.connect(server.address) as connection:
        yield connection


def test_a_seed_fixes_the_task_and_the_episode(rock: Connection) -> None:
    first, second = rock.make("toy"), rock.make("toy")
    state = random.getstate()
    assert first.reset(5) == second.reset(5)
    assert first.step("go") == second.step("go")
    assert first.reset() == second.reset()  # later resets follow from the seed too
    assert random.getstate() == state
    tasks = {first.reset(seed)[1]["task"] for seed in range(20)}
    assert len(tasks) > 10
    assert all(str(task).startswith("train/") for task in tasks)


def test_results_have_the_shape_gem_expects(rock: Connection) -> None:
    env = rock.make("toy", prefix=">")
    observation, info = env.reset(1, task="test/7")
    assert observation.startswith(">0:")
    assert info == {"index": 7, "task": "test/7", "instruction": "Count to 7."}
    observation, reward, terminated, truncated, info = env.step("end")
    assert observation.startswith(">1:")
    assert (reward, terminated, truncated, info) == (0.5, True, False, {"steps": 1})
    assert env.evaluate() == (1.0, True)
    with pytest.raises(Unimplemented):
        env.sample_random_action()
    env.close()
    env.close()
    with pytest.raises(NotFound):
        env.step("go")


def test_spawn_copies_arguments_or_the_state(rock: Connection) -> None:
    env = rock.make("toy", prefix=">")
    env.reset(1)
    env.step("go")
    assert env.spawn().reset(1) == env.spawn(prefix=">").reset(1)
    assert env.spawn(prefix="x").reset(1)[0].startswith("x")
    twin = env.spawn(same_state=True)
    assert twin.step("go") == env.step("go")
    with pytest.raises(InvalidArgument):
        env.spawn(same_state=True, prefix="x")


def test_spawn_replays_where_there_are_no_snapshots(rock: Connection) -> None:
    env = rock.make("toy_box")
    env.reset(1)
    env.step("echo one > file")
    twin = env.spawn(same_state=True)
    assert twin.step("cat file") == env.step("cat file")
    env.close()
    twin.close()


def test_the_sandbox_of_an_environment_is_there_without_await(rock: Connection) -> None:
    env = rock.make("toy_box")
    env.reset(1)
    assert env.sandbox.exec(["cat", "seed"]).stdout == b"1"
    env.close()


def test_unknown_names_are_named(rock: Connection) -> None:
    with pytest.raises(UnknownName, match="toy"):
        rock.make("toyy")
    with pytest.raises(InvalidArgument, match="neither an address nor a context"):
        rock_env.connect("nonsense")


def test_gem_makes_rock_environments() -> None:
    gem = pytest.importorskip("gem")
    rock_gem = pytest.importorskip("rock_env.gem")
    assert "rock:frozen_lake" in rock_gem.register()
    env = gem.make("rock:frozen_lake", size=5)
    assert isinstance(env, gem.Env)
    state = random.getstate()
    observation, info = env.reset(seed=3)
    assert random.getstate() == state
    assert observation.startswith(str(info["instruction"]))
    twin = gem.make("rock:frozen_lake", size=5)
    assert twin.reset(seed=3) == (observation, info)
    assert env.spawn(same_state=True).step("right") == env.step("right")
    observation, reward, terminated, truncated, info = twin.step("right")
    assert isinstance(observation, str)
    assert (reward, terminated, truncated, info) == (0.0, False, False, {}) or terminated
    vector = gem.make_vec(["rock:frozen_lake"] * 2, seed=9)
    assert len(vector.reset()[0]) == 2


def test_a_connection_without_an_address_brings_its_own_server() -> None:
    with rock_env.connect() as rock:
        with rock.sandboxes.create() as box:
            assert box.exec(["echo", "hi"]).stdout == b"hi\n"
        folder = Path(rock.address.removeprefix("unix://")).parent
        assert folder.is_dir()
    assert not folder.exists(), "the server went with the connection"
