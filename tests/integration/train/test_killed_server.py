"""A training run whose server is killed again and again: no rollout fails, and the same model comes out."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

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


def start(address: str) -> subprocess.Popen[str]:
    command = [
        sys.executable,
        "-m",
        "rock_env.server",
        f"--listen={address}",
        "--workers=1",
        "--isolation=none",
    ]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=ENVIRONMENT)
    assert process.stdout is not None
    assert process.stdout.readline()
    return process


def trained(folder: Path, *, kills: bool) -> int:
    """Train behind one server, or one after the other; return how many were killed."""
    address = f"unix://{folder.parent}/s"
    server, over, killed = start(address), threading.Event(), 0

    def kill() -> None:
        nonlocal server, killed
        life_s = SHORTEST_LIFE_S
        while killed < MOST_KILLS and not over.wait(life_s):
            server.kill()
            server.communicate()
            began = time.monotonic()
            server = start(address)
            life_s = max(
                SHORTEST_LIFE_S, time.monotonic() - began
            )  # a slow machine needs longer to play as well
            killed += 1

    killer = threading.Thread(target=kill)
    if kills:
        killer.start()
    try:
        chosen = {**SETTINGS, "rollout.rock_address": address}
        words = [word for name, value in chosen.items() for word in ("-s", f"{name}={value}")]
        named = ["--env", "frozen_lake", "--algo", "ipa", "--steps", str(STEPS), "--seed", "5"]
        done = subprocess.run(
            [sys.executable, "-m", "ale", "train", *named, "--run", str(folder), "--quiet", *words],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            env=ENVIRONMENT,
            check=False,
            timeout=300,
        )
        assert done.returncode == 0, done.stdout + done.stderr
    finally:
        over.set()
        if kills:
            killer.join()
        server.terminate()
        server.communicate()
    return killed


def test_kills_of_the_server_cost_time_and_no_rollout(tmp_path: Path) -> None:
    calm, disturbed = tmp_path / "calm", tmp_path / "disturbed"
    trained(calm, kills=False)
    assert trained(disturbed, kills=True) > 1
    rows = [json.loads(line) for line in (disturbed / "metrics.jsonl").read_text().splitlines()]
    steps = [row for row in rows if row["kind"] == "train"]
    assert [row["failed"] for row in steps] == [0.0] * STEPS
    models = [(folder / "model" / "model.safetensors").read_bytes() for folder in (calm, disturbed)]
    assert models[0] == models[1]
