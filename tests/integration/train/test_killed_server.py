"""A training run whose server is killed again and again: no rollout fails, and the same model comes out."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from own_agent import own_agent_yaml, shelf_with_own_agent

pytestmark = [pytest.mark.ray, pytest.mark.timeout(400)]

ENVIRONMENT = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join(sys.path)}
SETTINGS = {
    "eval.every": 0,
    "eval.tasks": 8,
    "warmup.trajectories": 16,
    "warmup.epochs": 2,
    "rollout.groups_per_step": 8,
}
STEPS = 3
SHORTEST_LIFE_S = 1.5
MOST_KILLS = 5


def start(address: str, *options: str) -> subprocess.Popen[str]:
    command = [
        sys.executable,
        "-m",
        "rock_env.server",
        f"--listen={address}",
        "--workers=1",
        "--isolation=none",
        *options,
    ]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=ENVIRONMENT)
    assert process.stdout is not None
    assert process.stdout.readline()
    return process


@contextmanager
def killed_server(address: str, most: int, *options: str) -> Iterator[list[float]]:
    """Serve inside the block, and kill and start the server again, `most` times at most; yield how long each start took."""
    server, over, starts = start(address, *options), threading.Event(), list[float]()

    def kill() -> None:
        nonlocal server
        life_s = SHORTEST_LIFE_S
        while len(starts) < most and not over.wait(life_s):
            server.kill()
            server.communicate()
            began = time.monotonic()
            server = start(address, *options)
            starts.append(time.monotonic() - began)
            life_s = max(SHORTEST_LIFE_S, starts[-1])  # a slow machine needs longer to play as well

    killer = threading.Thread(target=kill)
    killer.start()
    try:
        yield starts
    finally:
        over.set()
        killer.join()
        server.terminate()
        server.communicate()


def train(folder: Path, address: str, *named: str, **settings: object) -> list[dict[str, float]]:
    """Train behind the server; return the metrics of each step."""
    words = [
        word
        for name, value in {**settings, "rollout.rock_address": address}.items()
        for word in ("-s", f"{name}={value}")
    ]
    done = subprocess.run(
        [sys.executable, "-m", "ale", "train", *named, "--run", str(folder), "--quiet", *words],
        cwd=folder.parent,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        env=ENVIRONMENT,
        check=False,
        timeout=300,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    rows = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    return [row for row in rows if row["kind"] == "train"]


@pytest.mark.turn(0)
def test_kills_of_the_server_cost_time_and_no_rollout(tmp_path: Path) -> None:
    named = ("--env", "frozen_lake", "--algo", "ipa", "--steps", str(STEPS), "--seed", "5")
    models = []
    for name, kills in (("calm", 0), ("disturbed", MOST_KILLS)):
        address = f"unix://{tmp_path}/s"
        with killed_server(address, kills) as starts:
            steps = train(tmp_path / name, address, *named, **SETTINGS)
        assert [step["failed"] for step in steps] == [0.0] * STEPS
        assert (len(starts) > 1) == bool(kills)
        models.append((tmp_path / name / "model" / "model.safetensors").read_bytes())
    assert models[0] == models[1]


OUTAGE = {
    **SETTINGS,
    "warmup.trajectories": 4,
    "warmup.epochs": 1,
    "eval.tasks": 4,
    "rollout.group_size": 4,
    "rollout.workers": 1,
    "rollout.engines": 1,
    "rollout.outage_s": 60,  # a rollout tries a call again for a tenth of it
}


@pytest.mark.turn(1)
def test_an_outage_is_waited_for_and_costs_no_rollout(tmp_path: Path) -> None:
    """The server is killed after a step, and started again when the run says that it is away."""
    address, models = f"unix://{tmp_path}/s", []
    words = ["--env", "frozen_lake", "--algo", "ipa", "--steps", "6", "--seed", "5"]
    for name, value in {**OUTAGE, "rollout.rock_address": address}.items():
        words += ["-s", f"{name}={value}"]
    for name in ("calm", "disturbed"):
        server = start(address)
        command = [sys.executable, "-m", "ale", "train", "--run", str(tmp_path / name), *words]
        with subprocess.Popen(
            command,
            cwd=tmp_path,
            stdin=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            env=ENVIRONMENT,
        ) as training:
            assert training.stderr is not None
            said = []
            for line in training.stderr:
                said.append(line)
                if name == "disturbed" and line.startswith("step 2/"):
                    server.kill()
                    server.communicate()
                if f"note: ROCK at {address} is away since" in line:
                    server = start(address)
        server.terminate()
        server.communicate()
        assert training.returncode == 0, "".join(said)
        models.append((tmp_path / name / "model" / "model.safetensors").read_bytes())
    assert [line.partition(" after ")[0].partition(" since ")[0] for line in said if "ROCK" in line] == [
        f"note: ROCK at {address} is away",
        f"note: ROCK at {address} is back",
    ]
    rows = [json.loads(line) for line in (tmp_path / "disturbed" / "metrics.jsonl").read_text().splitlines()]
    steps = [row for row in rows if row["kind"] == "train"]
    assert [step["failed"] for step in steps] == [0.0] * 6
    assert steps[-1]["outages/count"] == 1
    assert 1 <= steps[-1]["outages/s"] < 60
    assert models[0] == models[1]


BEHIND_AN_AGENT: dict[str, object] = {
    "env_args.source": '"handmade"',
    "rollout.groups_per_step": 2,
    "rollout.group_size": 4,
    "rollout.workers": 1,
    "rollout.engines": 1,
    "rollout.token_budget": 16,
    "eval.tasks": 1,
    "eval.every": 0,
    "engine_options.layers": 1,
    "engine_options.width": 16,
    "engine_options.heads": 2,
    "engine_options.max_context": 4096,
    "sampling.max_tokens": 6,
}


@pytest.mark.turn(2)
def test_kills_of_the_server_cost_no_rollout_of_an_agent(tmp_path: Path) -> None:
    (tmp_path / "own.yaml").write_text(own_agent_yaml("insist"))
    shelf = shelf_with_own_agent(tmp_path)
    address = f"unix://{tmp_path}/s"
    named = ("--env", "swe", "--agent", "own.yaml", "--algo", "ipa", "--model", "tiny", "--steps", "2")
    with killed_server(address, 3, f"--shelf={shelf}") as starts:
        steps = train(tmp_path / "run", address, *named, **BEHIND_AN_AGENT)
    assert len(starts) > 1
    assert [step["failed"] for step in steps] == [0.0, 0.0]
