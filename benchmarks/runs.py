"""Training runs for benchmarks: start `ale train` as a user would, read back `summary.json`. Imported by benchmarks only."""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ale.training.plots import read_metrics

__all__ = ["commit", "markdown_table", "run_training", "write_results"]


def run_training(
    arguments: Sequence[str], *, threads: int = 1, environment: Mapping[str, str] | None = None
) -> dict[str, Any]:
    """Run `ale train ARGUMENTS` in a fresh folder and return its `summary.json`, with `curve`: its evaluations in order.

    Raise `RuntimeError` with its output if it failed.
    """
    with tempfile.TemporaryDirectory(prefix="ale-bench-") as folder:
        run = Path(folder) / "run"
        command = [sys.executable, "-m", "ale", "train", "--run", str(run), "--quiet", *arguments]
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            env={**os.environ, "OMP_NUM_THREADS": str(threads), **(environment or {})},
            check=False,
        )
        if done.returncode != 0:
            raise RuntimeError(
                f"{' '.join(command)} exited with {done.returncode}:\n{done.stdout}\n{done.stderr}"
            )
        summary: dict[str, Any] = json.loads((run / "summary.json").read_text())
        summary["curve"] = [record for record in read_metrics(run) if record["kind"] == "eval"]
        return summary


def commit() -> str:
    """Return the commit measured, or "unknown" outside a checkout."""
    done = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=False
    )
    return done.stdout.strip() or "unknown"


def markdown_table(header: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """Return a Markdown table; floats get three decimals."""

    def cell(value: object) -> str:
        return f"{value:.3f}" if isinstance(value, float) else str(value)

    lines = ["| " + " | ".join(header) + " |", "|" + "---|" * len(header)]
    lines += ["| " + " | ".join(cell(value) for value in row) + " |" for row in rows]
    return "\n".join(lines)


def write_results(path: Path, title: str, command: str, body: str) -> None:
    """Write a results page that says how it came about."""
    machine = f"{os.cpu_count()} CPU cores, {platform.system()} {platform.machine()}, Python {platform.python_version()}"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"# {title}\n\n`{command}` at commit `{commit()}`, on {machine}.\n\n{body}\n")
