"""Training runs for benchmarks: start `ale train` as a user would, and read what it wrote."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ale.training.reading import read_metrics

__all__ = ["run_training", "settings_words", "train", "train_rows"]


def train(
    folder: Path, arguments: Sequence[str], *, environment: Mapping[str, str] | None = None, threads: int = 1
) -> None:
    """Run `ale train ARGUMENTS` and keep the run in `folder`. Raise `RuntimeError` with its output if it failed."""
    command = [sys.executable, "-m", "ale", "train", "--run", str(folder), "--quiet", *arguments]
    done = subprocess.run(
        command,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": str(threads), **(environment or {})},
        check=False,
    )
    if done.returncode != 0:
        said = f"{done.stdout}\n{done.stderr}"
        raise RuntimeError(f"{' '.join(command)} exited with {done.returncode}:\n{said}")


def settings_words(settings: Mapping[str, object]) -> list[str]:
    """Return the arguments of `ale train` that set these."""
    return [word for name, value in settings.items() for word in ("-s", f"{name}={value}")]


def train_rows(folder: Path) -> list[dict[str, Any]]:
    """Return the metrics of each learning step of a run."""
    return [record for record in read_metrics(folder) if record["kind"] == "train"]


def run_training(
    arguments: Sequence[str], *, threads: int = 1, environment: Mapping[str, str] | None = None
) -> dict[str, Any]:
    """Train in a fresh folder and return its `summary.json`, with `curve`, its evaluations, and `steps`, those of learning.

    Raise `RuntimeError` with its output if it failed.
    """
    with tempfile.TemporaryDirectory(prefix="ale-bench-") as folder:
        run = Path(folder) / "run"
        train(run, arguments, threads=threads, environment=environment)
        summary: dict[str, Any] = json.loads((run / "summary.json").read_text())
        summary["curve"] = [record for record in read_metrics(run) if record["kind"] == "eval"]
        summary["steps"] = train_rows(run)
        return summary
