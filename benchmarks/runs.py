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

_STOP_S = 20.0


def train(
    folder: Path,
    arguments: Sequence[str],
    *,
    environment: Mapping[str, str] | None = None,
    threads: int = 1,
    limit_s: float | None = None,
) -> bool:
    """Run `ale train ARGUMENTS`, keep the run in `folder` and return whether it ended by itself.

    At `limit_s` it is told to stop, and killed 20 s later. Raise `RuntimeError` with its output if it failed.
    """
    command = [sys.executable, "-m", "ale", "train", "--run", str(folder), "--quiet", *arguments]
    with subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": str(threads), **(environment or {})},
    ) as process:
        try:
            said = "\n".join(process.communicate(timeout=limit_s))
        except subprocess.TimeoutExpired:
            process.terminate()
            try:
                process.communicate(timeout=_STOP_S)  # reads on: a full pipe would keep it from ending
            except subprocess.TimeoutExpired:
                process.kill()
            return False
    if process.returncode != 0:
        raise RuntimeError(f"{' '.join(command)} exited with {process.returncode}:\n{said}")
    return True


def settings_words(settings: Mapping[str, object]) -> list[str]:
    """Return the arguments of `ale train` that set these."""
    return [word for name, value in settings.items() for word in ("-s", f"{name}={value}")]


def train_rows(folder: Path) -> list[dict[str, Any]]:
    """Return the metrics of each learning step of a run."""
    return [record for record in read_metrics(folder) if record["kind"] == "train"]


def run_training(
    arguments: Sequence[str],
    *,
    kept: Path | None = None,
    threads: int = 1,
    environment: Mapping[str, str] | None = None,
) -> dict[str, Any]:
    """Train and return its `summary.json`, with `curve`, its evaluations, and `steps`, those of learning.

    The run is in a folder that is deleted, or in `kept`; a run that has ended there is not trained again. Raise
    `RuntimeError` with its output if it failed.
    """
    with tempfile.TemporaryDirectory(prefix="ale-bench-") as folder:
        run = kept or Path(folder) / "run"
        if not (run / "summary.json").is_file():
            train(run, arguments, threads=threads, environment=environment)
        summary: dict[str, Any] = json.loads((run / "summary.json").read_text())
        summary["curve"] = [record for record in read_metrics(run) if record["kind"] == "eval"]
        summary["steps"] = train_rows(run)
        return summary
