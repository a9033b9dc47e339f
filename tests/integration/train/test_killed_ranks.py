"""A run whose learner has two ranks, killed with SIGKILL and resumed: the same model comes out, and no rank stays behind."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import psutil
import pytest
from random_llama import random_llama
from safetensors.numpy import load_file

pytestmark = [pytest.mark.ray, pytest.mark.turn(1), pytest.mark.timeout(600)]

SETTINGS = {
    "engine_options.lora_rank": 0,
    "engine_options.ranks": 2,
    "engine_options.device": "'cpu'",
    "warmup.trajectories": 4,
    "warmup.epochs": 1,
    "rollout.groups_per_step": 1,
    "rollout.group_size": 3,
    "rollout.workers": 1,
    "rollout.engines": 1,
    "sampling.max_tokens": 8,
    "eval.tasks": 2,
    "eval.every": 0,
    "checkpoint.every": 1,
    "optim.lr": 1e-3,
    "optim.microbatch_tokens": 1024,
    # With a KL term every token has a gradient, whatever its reward.
    "algo_options.kl_weight": 0.01,
}


def command(run: Path, *words: str, **settings: object) -> list[str]:
    chosen = [word for name, value in settings.items() for word in ("-s", f"{name}={value}")]
    return [sys.executable, "-m", "ale", "train", "--run", str(run), "--quiet", *words, *chosen]


def environment() -> dict[str, str]:
    return {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join(sys.path)}


def trained(run: Path, *words: str, **settings: object) -> None:
    done = subprocess.run(
        command(run, *words, **settings),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        env=environment(),
        check=False,
        timeout=300,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def ranks_under(process: int) -> list[psutil.Process]:
    """Return the learner's ranks, which are the processes that one of a run's started by `multiprocessing`."""
    found = psutil.Process(process).children(recursive=True)
    return [each for each in found if "multiprocessing.spawn" in " ".join(each.cmdline())]


def begun(run: Path, *words: str, **settings: object) -> tuple[subprocess.Popen[bytes], list[psutil.Process]]:
    """Let a run go on until its first step's checkpoint; return it, and the ranks that it has."""
    process = subprocess.Popen(
        command(run, *words, **settings),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env=environment(),
    )
    deadline = time.monotonic() + 240
    while not (run / "checkpoints" / "step-000001").exists():
        assert process.poll() is None, "the run ended before it could be killed"
        assert time.monotonic() < deadline, "the run took no step"
        time.sleep(0.01)
    return process, ranks_under(process.pid)


def weights(run: Path) -> dict[str, np.ndarray]:
    return load_file(run / "model" / "model.safetensors")


@pytest.mark.parametrize("name", ["fsdp2", "zero2"])
def test_two_ranks_that_are_killed_come_to_the_same_model(name: str, tmp_path: Path) -> None:
    """With the whole run, which is resumed, and one of them alone, in a run that goes on."""
    if name == "zero2" and find_spec("deepspeed") is None:
        pytest.skip("needs DeepSpeed: pip install 'ale-rl[deepspeed]'")
    model = random_llama(tmp_path / "llama", context=1024)
    settings = {**SETTINGS, "engine_options.parallelism": f"'{name}'"}
    words = ("--env", "frozen_lake", "--algo", "grpo", "--model", model, "--steps", "3", "--seed", "3")
    trained(tmp_path / "whole", *words, **settings)
    memory = json.loads((tmp_path / "whole" / "summary.json").read_text())["memory"]
    assert all(memory[role]["taken"] > 0 < memory[role]["estimated"] for role in ("learner", "sampler"))
    process, ranks = begun(tmp_path / "killed", *words, **settings)
    assert len(ranks) == 2
    process.send_signal(signal.SIGKILL)
    process.wait()
    trained(tmp_path / "killed", "--resume")
    process, others = begun(tmp_path / "lost", *words, **settings)
    others[0].kill()
    assert process.wait(timeout=240) == 0
    metrics = (tmp_path / "lost" / "metrics.jsonl").read_text().splitlines()
    assert [each["restarts"] for each in map(json.loads, metrics) if each["kind"] == "train"][-1] == 1
    one = weights(tmp_path / "whole")
    for run in ("killed", "lost"):
        other = weights(tmp_path / run)
        assert one.keys() == other.keys()
        assert max(float(np.abs(one[each] - other[each]).max()) for each in one) < 1e-5
    _, left = psutil.wait_procs([*ranks, *others], timeout=60)
    assert left == []
