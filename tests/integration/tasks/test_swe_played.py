"""The built-in swe tasks through a server: the expert repairs each, doing nothing earns nothing, and the index is true."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from fences import why_not_isolated

import rock_env
from rock_env.client.sync import Connection, SyncEnv
from sandboxes.swe import ENV
from sandboxes.swe.params import SweParams

pytestmark = pytest.mark.timeout(120)

SCRIPT = Path(__file__).parents[3] / "scripts" / "swe_tasks.py"
PARAMS = SweParams()
TASKS = ENV.tasks(PARAMS)
SAMPLE = [f"{split}/{TASKS.count(split) * share // 8}" for split in TASKS.splits for share in (1, 4, 7)][:8]


@pytest.fixture(scope="module")
def server() -> Iterator[Connection]:
    with rock_env.connect() as connection:
        yield connection


def play(env: SyncEnv, task_id: str, most: int = 100) -> list[str]:
    """Return what the expert sees in its first `most` turns."""
    split, _, index = task_id.partition("/")
    oracle = ENV.oracle(PARAMS, TASKS.get(split, int(index)))
    observation, _ = env.reset(task=task_id, seed=0)
    seen = [observation]
    for _ in range(most):
        observation, _, terminated, truncated, info = env.step(oracle(observation))
        assert not info.get("illegal")
        assert not info.get("tool_failed")
        seen.append(observation)
        if terminated or truncated:
            break
    return seen


@pytest.mark.parametrize("task_id", SAMPLE)
def test_the_expert_earns_one_and_doing_nothing_zero(server: Connection, task_id: str) -> None:
    env = server.make("swe")
    seen = play(env, task_id)
    assert seen[1].startswith("[exit code 1]")
    assert seen[-1] == "Submitted."
    assert env.evaluate() == (1.0, True)
    env.reset(task=task_id, seed=1)
    env.step("submit")
    assert env.evaluate() == (0.0, False)
    env.close()


def test_the_same_actions_give_the_same_observations(server: Connection) -> None:
    if why_not_isolated():
        pytest.skip(f"/workspace must be the same path in every box: {why_not_isolated()}")
    one, two = server.make("swe"), server.make("swe")
    assert play(one, SAMPLE[0]) == play(two, SAMPLE[0])
    one.close()
    two.close()


def test_an_endless_loop_ends_by_processor_time(server: Connection) -> None:
    env = server.make("swe", command_timeout_s=60.0)
    env.reset(task=SAMPLE[0], seed=0)
    env.step("bash for f in */__init__.py; do echo 'while True: pass' >> $f; done")
    observation, _, terminated, _, info = env.step("run_tests")
    assert (observation, terminated, info) == ("[exit code 137]\nKilled", False, {})
    env.close()


def test_the_committed_index_is_what_the_tests_say() -> None:
    done = subprocess.run(
        [sys.executable, str(SCRIPT), "--check", "12"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == "tasks.json is fresh.\n"
