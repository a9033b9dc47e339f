"""A disk that fills up under a run: one clear line, what was saved is intact, and the run goes on when there is space."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

SMALL = [
    *("-s", "warmup.trajectories=4", "-s", "warmup.epochs=1", "-s", "eval.tasks=4", "-s", "eval.every=0"),
    *("-s", "rollout.groups_per_step=2", "-s", "rollout.group_size=2", "-s", "checkpoint.every=1"),
    *("-s", "rollout.workers=1", "-s", "rollout.engines=1"),
]


def train(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "ale", "train", "--quiet", *words],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        check=False,
        timeout=200,
    )


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A disk of 4 MiB: a tiny model's checkpoint takes 2.5, so one fits."""
    folder = tmp_path / "disk"
    folder.mkdir()
    made = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=4m", "ale-test", str(folder)],
        capture_output=True,
        text=True,
        check=False,
    )
    if made.returncode != 0:
        pytest.skip(f"cannot mount a small disk, which needs root: {made.stderr.strip()}")
    yield folder
    subprocess.run(["umount", "--lazy", str(folder)], check=True)


@pytest.mark.ray
@pytest.mark.timeout(500)
def test_a_full_disk_stops_the_run_and_space_lets_it_go_on(disk: Path) -> None:
    run = disk / "run"
    stopped = train("--env", "frozen_lake", "--steps", "2", "--run", str(run), *SMALL)
    assert stopped.returncode == 73, stopped.stderr
    (line,) = stopped.stderr.strip().splitlines()
    assert "cannot write checkpoint 1" in line
    assert "No space left on device" in line
    assert "Free space, then continue with --resume" in line
    assert [path.name for path in (run / "checkpoints").iterdir()] == ["step-000000"]
    subprocess.run(["mount", "-o", "remount,size=64m", str(disk)], check=True)
    resumed = train("--resume", "--run", str(run))
    assert resumed.returncode == 0, resumed.stderr
    assert json.loads((run / "summary.json").read_text())["steps"] == 2
    steps = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    assert [record["step"] for record in steps if record["kind"] == "train"] == [1, 2]


def test_a_disk_that_is_full_from_the_start_leaves_nothing_in_the_way(disk: Path) -> None:
    filler = disk / "filler"
    with pytest.raises(OSError, match="No space left"):
        filler.write_bytes(bytes(8 << 20))
    run = disk / "run"
    refused = train("--env", "frozen_lake", "--run", str(run))
    assert refused.returncode == 73
    (line,) = refused.stderr.strip().splitlines()
    assert "cannot write the run folder" in line
    assert "No space left on device" in line
    assert not run.exists() or not list(run.iterdir())
