"""A run in which something never comes says within its budget who waits for whom, and where both are."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest
from own_agent import own_agent_yaml, shelf_with_own_agent
from own_rule import write_rule

from trainer.live.door import ask

pytestmark = [pytest.mark.ray, pytest.mark.timeout(300)]

LATE_S = 2.0
SMALL = {
    "guard.late_s": LATE_S,
    "rollout.groups_per_step": 4,
    "rollout.group_size": 2,
    "rollout.workers": 1,
    "rollout.engines": 1,
    "warmup.trajectories": 0,
    "anchors.inject": 0,
    "eval.every": 0,
    "eval.tasks": 2,
    "engine_options.layers": 1,
    "engine_options.width": 16,
    "engine_options.heads": 2,
}
NO_MORE = """
from trainer.scheduler import admission

let_in = admission.Admission.let_in

def counted(self):
    self.counted = getattr(self, "counted", 0) + 1
    let_in(self)

admission.Admission.let_in = counted
was_open = admission.Admission.is_open
admission.Admission.is_open = property(lambda self: getattr(self, "counted", 0) < 30 and was_open.fget(self))
"""
"""A scheduler with a fault: it lets nothing in after thirty groups."""


@contextmanager
def training(
    folder: Path, *words: str, settings: dict[str, object], **variables: str
) -> Iterator[tuple[Path, Path]]:
    """Train in the block; yield the run and what it prints."""
    said, run = folder / "said", folder / "run"
    named = [word for name, value in {**SMALL, **settings}.items() for word in ("-s", f"{name}={value}")]
    command = [sys.executable, "-m", "ale", "train", *words, *named, "--steps=10000", f"--run={run}"]
    path = os.pathsep.join([str(folder), *sys.path])
    with said.open("w") as output:
        process = subprocess.Popen(
            command,
            cwd=folder,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            env={**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1", **variables},
            start_new_session=True,
        )
        tree: list[psutil.Process] = []
        try:
            until(lambda: (run / "metrics.jsonl").exists() and len(steps(run)) > 2, said)
            tree = psutil.Process(process.pid).children(recursive=True)
            yield run, said
        finally:
            for each in [*tree, process]:
                try:
                    each.kill()
                except psutil.NoSuchProcess:
                    continue
            process.wait()


def steps(run: Path) -> list[str]:
    return [line for line in (run / "metrics.jsonl").read_text().splitlines() if '"kind": "train"' in line]


def until(true: Callable[[], bool], said: Path) -> None:
    for _ in range(1200):
        if true():
            return
        time.sleep(0.1)
    raise AssertionError(said.read_text())


def stop(run: Path, name: str) -> None:
    """Have a process of the run stand still."""
    status = ask(run)
    assert status is not None
    (at,) = (process.at for process in status.processes if process.name == name)
    assert at is not None
    os.kill(at.pid, signal.SIGSTOP)


def late(said: Path, *told: str) -> str:
    """Wait for a report that says all of this."""
    reports: list[str] = []

    def is_told() -> bool:
        reports[:] = [" ".join(each.split()) for each in said.read_text().split("note: ")[1:]]
        return any(all(part in each for part in told) for each in reports)

    until(is_told, said)
    return next(each for each in reports if all(part in each for part in told))


@pytest.mark.turn(0)
def test_a_sampler_that_does_not_answer_is_named(tmp_path: Path) -> None:
    with training(tmp_path, "--env=frozen_lake", "--algo=ipa", settings={}) as (run, said):
        stop(run, "sampler 1")
        told = late(said, "sampler 1: it does not answer within 2 s", "waiting for a sampler's answer")
        assert "driver has been at waiting for the batch of step" in told
        assert re.search(r"in flight: [1-8], the longest", told), "others had ended when it was stopped"
        outside = subprocess.run(
            [sys.executable, "-m", "ale", "status", str(run), "--json"], capture_output=True, check=True
        )
    found = json.loads(outside.stdout)
    assert {process["name"]: bool(process["silent"]) for process in found["processes"]} == {
        "learner": False,
        "sampler 1": True,
        "worker 1": False,
    }


@pytest.mark.turn(1)
def test_a_reply_of_the_server_that_is_lost_is_named_with_its_rollout(tmp_path: Path) -> None:
    with training(tmp_path, "--env=frozen_lake", "--algo=ipa", settings={"rollout.games": "served"}) as (
        run,
        said,
    ):
        status = ask(run)
        assert status is not None
        children = psutil.Process(status.pid).children(recursive=True)
        server = next(each for each in children if "rock_env.server" in each.cmdline())
        server.suspend()
        late(said, "waiting for ROCK's answer, such as 0")
        server.resume()


@pytest.mark.turn(2)
def test_a_reward_worker_that_does_not_answer_is_named(tmp_path: Path) -> None:
    write_rule(tmp_path)
    rule = {"reward.routes": '[{worker="rule",options={check="told_apart:unlike"}}]'}
    with training(tmp_path, "--env=frozen_lake", "--algo=ipa", settings=rule) as (run, said):
        stop(run, "rewards")
        late(said, "waiting for the reward workers", "rewards: it does not answer within 2 s")


@pytest.mark.turn(0)
def test_a_request_of_a_gateway_that_nobody_answers_is_named(tmp_path: Path) -> None:
    (tmp_path / "own.yaml").write_text(own_agent_yaml("insist"))
    shelf = shelf_with_own_agent(tmp_path)
    settings = {
        "env_args.source": "handmade",
        "rollout.groups_per_step": 1,
        "engine_options.max_context": 4096,
        "sampling.max_tokens": 6,
    }
    words = ("--env=swe", "--algo=ipa", "--agent=own.yaml", "--model=tiny")
    with training(tmp_path, *words, settings=settings, ALE_AGENTS=str(shelf)) as (run, said):
        stop(run, "sampler 1")
        late(
            said,
            "sampler 1: it does not answer within 2 s",
            "waiting for an answer of the gateway",
            "agent_runtime.gateway.session.Session._sample",
        )


@pytest.mark.turn(1)
def test_a_learner_whose_batch_cannot_fill_is_named(tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text(NO_MORE)
    stream = {"rollout.mode": "stream", "rollout.staleness": 1, "rollout.batching": "eager"}
    with training(tmp_path, "--env=frozen_lake", "--algo=ipa", settings=stream) as (_, said):
        told = late(said, "driver has been at waiting for the batch of step")
    assert "in flight" not in told
