"""`ale status`: what a run is busy with at this moment, or how it ended."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated, Any

import msgspec
import typer

from ale import completion
from ale.terminal import stdout
from ale.training import runs
from ale.training.reading import read_metrics
from trainer.errors import RunFolderError
from trainer.live.door import ask
from trainer.live.status import lasting, lines

__all__ = ["status"]


def status(
    run: Annotated[str, typer.Argument(metavar="RUN|FOLDER", autocompletion=completion.runs)],
    *,
    stacks: Annotated[
        bool, typer.Option("--stacks", help="And where each thread of its processes is.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="As one JSON object.")] = False,
) -> None:
    """Ask a run what it is busy with, and how long that has taken."""
    folder = runs.locate(run)
    if not (folder / runs.CONFIG).is_file():
        raise RunFolderError(f"{folder} holds no run: expected a folder of runs/, or a path with a /")
    found = ask(folder, whole=stacks)
    if as_json:
        told: dict[str, Any] = {
            "live": found is not None,
            **(msgspec.to_builtins(found) if found else _last(folder)),
        }
        typer.echo(msgspec.json.encode(told).decode())
        return
    for line in [*lines(found)] if found else _ended(folder):
        stdout().print(line, markup=False, highlight=False, soft_wrap=True)


def _last(folder: Path) -> dict[str, Any]:
    """Return what is on record of a run that nobody answers for."""
    rows = [row for row in read_metrics(folder) if row["kind"] == "train"] if _measured(folder) else []
    return {"step": rows[-1]["step"] if rows else 0, "finished": (folder / "summary.json").is_file()}


def _measured(folder: Path) -> bool:
    return (folder / "metrics.jsonl").is_file()


def _ended(folder: Path) -> list[str]:
    last = _last(folder)
    if last["finished"]:
        return [f"the run has finished after step {last['step']}"]
    age = ""
    if _measured(folder):
        written_s = (folder / "metrics.jsonl").stat().st_mtime
        age = f", {lasting(max(0.0, time.time() - written_s))} ago"
    return [
        f"nobody answers: the run does not go on here. Its last step on record is {last['step']}{age}. Continue with "
        "--resume. A run on another machine, in another container or of an older version is asked there, with its ALE."
    ]
