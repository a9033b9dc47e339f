"""Environments with a sandbox, played and trained with pods: grades in other pods, checkpoints that are snapshots."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from kubernetes_cluster import guest_image, kubectl, namespace, tasks_image  # noqa: F401  fixtures

from agent_runtime.store import read_segment
from rock_env import plugins
from rock_env.client import Client
from rock_env.client.env import AsyncEnv
from rock_env.local import embedded
from rock_env.spec import EnvSpec

FAMILIES = {"terminal": {"family": "files"}}
"""`git` is not in the base image."""


@pytest.fixture
def backend(guest_image: str, tasks_image: str, namespace: str) -> str:  # noqa: F811
    return f"kubernetes:namespace={namespace},guest={guest_image},image={tasks_image},user=1000,reserved=0.05"


@pytest.fixture
async def rock(backend: str) -> AsyncIterator[Client]:
    async with embedded([f"--backend={backend}"]) as address, Client(address) as client:
        yield client


async def play(spec: EnvSpec, env: AsyncEnv, *, solve: bool) -> float:
    """Play a task as its oracle does, or give it up at once; return the grade."""
    params = spec.params(**FAMILIES.get(spec.name, {}))
    source = spec.tasks(params)
    task = source.get(source.splits[0], 0)
    oracle = spec.oracle(params, task)
    observation, _, _ = await env.reset(task.id, 0)
    done = not solve
    while not done:
        reply = await env.step(oracle(observation))
        observation, done = reply.observation, reply.terminated or reply.truncated
    return (await env.evaluate()).reward


@pytest.mark.parametrize("name", ["swe", "code", "terminal"])
async def test_a_built_in_environment_is_played_in_pods(rock: Client, namespace: str, name: str) -> None:  # noqa: F811
    spec = plugins.load_env(name)
    env = await rock.make(name, spec.params(**FAMILIES.get(name, {})).canonical())
    assert await play(spec, env, solve=False) == 0.0
    assert await play(spec, env, solve=True) == 1.0
    pods = json.loads(await asyncio.to_thread(kubectl, "-n", namespace, "get", "pods", "-o", "json"))["items"]
    assert len(pods) == 1, "the agent's box; those of the grades are gone"
    await env.close()


async def test_a_checkpoint_is_a_snapshot_and_goes_on_in_another_pod(rock: Client) -> None:
    env = await rock.make("swe", "{}")
    await env.reset("train/0", 0)
    wrote = await env.step(
        '{"name": "bash", "arguments": {"command": "echo kept > /tmp/f; echo $$ > /workspace/pid"}}'
    )
    checkpoint = await env.checkpoint()
    other = await rock.make("swe", "{}")
    observation, _, _ = await other.restore(checkpoint)
    assert observation == wrote.observation
    seen = await other.step('{"name": "bash", "arguments": {"command": "cat /tmp/f /workspace/pid"}}')
    assert "kept" in seen.observation


@pytest.mark.timeout(600)
def test_ipa_trains_two_steps_on_swe_with_pods(backend: str, tmp_path: Path) -> None:
    words = ["train", "--env", "swe", "--algo", "ipa", "--model", "tiny", "--steps", "2"]
    small = ("eval.tasks=1", "eval.progress_tasks=1", "warmup.epochs=5", "env_args.max_turns=6")
    words += [word for setting in small for word in ("-s", setting)]
    done = subprocess.run(
        [sys.executable, "-m", "ale", *words, "-s", f"rollout.backends={json.dumps([backend])}"],
        cwd=tmp_path,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        check=False,
        timeout=500,
    )
    assert done.returncode == 0, done.stderr
    run = tmp_path / "runs" / "swe-ipa-seed0"
    assert json.loads((run / "summary.json").read_text())["steps"] == 2
    rollouts = [
        rollout
        for step in (1, 2)
        for rollout in read_segment(run / "trajectories" / f"step-{step:06d}.rollouts")
    ]
    assert [rollout.failure for rollout in rollouts] == [None] * 16
    assert any(text.startswith("[exit code ") for rollout in rollouts for text in rollout.observations)
