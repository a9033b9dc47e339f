"""SIGTERM and Ctrl-C in every phase of a run, one after another: each saves, and the run ends as an undisturbed one."""

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from safetensors.numpy import load_file
from waiting import until

SMALL = [
    *("--env", "frozen_lake", "--steps", "3", "--seed", "5"),
    *("-s", "warmup.trajectories=6", "-s", "warmup.epochs=150", "-s", "eval.tasks=6", "-s", "eval.every=0"),
    *("-s", "rollout.groups_per_step=2", "-s", "rollout.group_size=2", "-s", "checkpoint.every=1000"),
    *("-s", "rollout.workers=1", "-s", "rollout.engines=1"),
]


def started(folder: Path, *words: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "ale", "train", "--run", "./run", *words],
        cwd=folder,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        start_new_session=True,
    )


def to_one(process: subprocess.Popen[str], number: int) -> None:
    process.send_signal(number)


def to_all(process: subprocess.Popen[str], number: int) -> None:
    os.killpg(process.pid, number)


def stopped(folder: Path, line: str, number: int, send: Callable[..., None], *words: str) -> str:
    """Signal the run where it says `line`; return what it said after."""
    with started(folder, *words) as process:
        assert process.stdout is not None
        before = []
        for said in process.stdout:
            before.append(said)
            if said.startswith(line):
                break
        if line == "-- warm-up":
            metrics = folder / "run" / "metrics.jsonl"
            while '"warmup"' not in metrics.read_text():  # one epoch of many is done
                assert process.poll() is None
        send(process, number)
        after = process.stdout.read()
        assert process.wait(timeout=200) == 130, "".join(before) + after
    assert "Continue with: ale train --resume --run ./run" in after
    assert "Traceback" not in after
    return after


def weights(folder: Path) -> dict[str, bytes]:
    (path,) = (folder / "run" / "model").glob("*.safetensors")
    return {name: value.tobytes() for name, value in load_file(path).items()}


@pytest.mark.ray
@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.turn(1)
def test_signals_in_every_phase_save_and_the_run_ends_as_undisturbed(tmp_path: Path) -> None:
    for name in ("whole", "stopped"):
        (tmp_path / name).mkdir()
    with started(tmp_path / "whole", *SMALL) as process:
        said = process.communicate()[0]
    assert process.returncode == 0, said
    folder = tmp_path / "stopped"
    saved = folder / "run" / "checkpoints"
    said = stopped(folder, "-- start", signal.SIGTERM, to_all, *SMALL)
    assert "Stopped before there was anything to save" in said
    assert not saved.exists()
    stopped(folder, "-- experts", signal.SIGTERM, to_one, "--resume")
    assert [path.name for path in saved.iterdir()] == ["warmup-000150"]
    stopped(folder, "-- warm-up", signal.SIGTERM, to_all, "--resume")
    (epoch,) = (path.name for path in saved.iterdir() if path.name != "warmup-000150")
    assert "warmup-000001" <= epoch <= "warmup-000149"
    stopped(folder, "-- evaluate", signal.SIGTERM, to_all, "--resume")
    stopped(folder, "-- rollout", signal.SIGTERM, to_one, "--resume")
    stopped(folder, "-- learn", signal.SIGTERM, to_all, "--resume")
    assert {"step-000000", "step-000001", "step-000002"} == {path.name for path in saved.iterdir()}
    with started(folder, "--resume") as process:
        said = process.communicate()[0]
    assert process.returncode == 0, said
    assert weights(folder) == weights(tmp_path / "whole")
    with started(folder, "--resume") as process:
        said = process.communicate()[0]
    assert process.returncode == 0, said
    assert "has finished, nothing is left to do" in said
    assert "-- start" not in said


async def test_sigterm_as_libraries_load_ends_a_run_that_has_not_begun(tmp_path: Path) -> None:
    with started(tmp_path, *SMALL) as process:
        mapped = Path(f"/proc/{process.pid}/maps")
        await until(lambda: "libtorch" in mapped.read_text())
        process.send_signal(signal.SIGTERM)
        said = process.communicate()[0]
    assert process.returncode == 130, said
    assert "Traceback" not in said
