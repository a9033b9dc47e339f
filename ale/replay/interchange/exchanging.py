"""`ale replay export` and `ale replay import`."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from itertools import chain
from pathlib import Path

from agent_runtime.store import write_segment
from agent_runtime.types import Trajectory
from ale.errors import RecordError
from ale.replay.interchange.atif import decode_atif, encode_atif, rollout_of
from ale.replay.interchange.chat import decode_chat, encode_chat
from ale.replay.interchange.swe_agent import decode_swe_agent, encode_swe_agent
from ale.replay.places import new_records
from ale.replay.records import find, iterate
from ale.terminal import stdout
from rock_env.errors import InvalidArgument
from rock_env.foreign import budget

__all__ = ["export_command", "import_command", "read_foreign"]

_SUFFIXES = (".json", ".jsonl", ".traj")
_SIGNS = re.compile(r"[^A-Za-z0-9._-]")


_ENCODERS: dict[str, tuple[Callable[[Trajectory], bytes], str]] = {
    "atif": (encode_atif, ".atif.json"),
    "swe-agent": (encode_swe_agent, ".traj"),
}
"""Of the formats that have a file for each rollout."""


def export_command(where: str, identity: str | None, kind: str, out: Path) -> None:
    """Write a rollout, or all, to `out`: a folder of documents, or one file of lines. Raise `RecordError`, `OSError`."""
    chosen = (
        (trajectory for _, trajectory in iterate(where))
        if identity is None
        else iter([find(where, identity)])
    )
    if out.exists():
        raise RecordError(f"{out} is there already: expected a new file or folder. Choose another --out.")
    count = _write_lines(chosen, out) if kind == "chat" else _write_files(chosen, kind, out)
    stdout().print(f"{count} rollouts in {out}")


def _write_lines(chosen: Iterator[Trajectory], out: Path) -> int:
    out.parent.mkdir(parents=True, exist_ok=True)
    count = 0
    with out.open("xb") as file:
        for trajectory in chosen:
            file.write(encode_chat(trajectory))
            count += 1
    return count


def _write_files(chosen: Iterator[Trajectory], kind: str, out: Path) -> int:
    encode, suffix = _ENCODERS[kind]
    out.mkdir(parents=True)
    names: set[str] = set()
    for trajectory in chosen:
        name = _SIGNS.sub("-", trajectory.id)[:120]
        while name in names:  # an id that is there twice, as that of an evaluation is at every step
            name = f"{name}-{len(names)}"
        names.add(name)
        with (out / f"{name}{suffix}").open("xb") as file:
            file.write(encode(trajectory))
    return len(names)


def import_command(paths: Sequence[Path], out: Path) -> None:
    """Read files of others into `out`. What cannot be read is named at the end, after all else is kept."""
    path = new_records(out, "imported")
    files = [file for each in paths for file in _files(each)]
    problems: list[str] = []
    count = 0

    def readable() -> Iterator[Trajectory]:
        nonlocal count
        for file in files:
            try:
                for _ in read_foreign(
                    file
                ):  # a file is taken whole or not at all, and is never in memory as a whole
                    pass
                for trajectory in read_foreign(file):
                    count += 1
                    yield trajectory
            except RecordError as error:
                problems.append(str(error))

    found = readable()
    if (first := next(found, None)) is not None:
        write_segment(path, chain([first], found))
        stdout().print(f"{count} rollouts in {path}")
    if problems:
        kept = f"; {count} rollouts of others were kept" if count else ""
        raise RecordError(
            f"{len(problems)} of {len(files)} files cannot be read{kept}. The first: {problems[0]}"
        )


def _files(path: Path) -> list[Path]:
    if not path.is_dir():
        return [path]
    found = sorted(each for each in path.rglob("*") if each.suffix in _SUFFIXES and each.is_file())
    if not found:
        raise RecordError(f"no file of rollouts in {path}: expected {', '.join(_SUFFIXES)}.")
    return found


def read_foreign(file: Path) -> Iterator[Trajectory]:
    """Yield the rollouts of a file, told by its name and what is in it. Raise `RecordError`."""
    name = file.name
    try:
        if file.suffix == ".jsonl":
            yield from decode_chat(budget.lines(file, str(file)), name)
        elif file.suffix == ".traj":
            yield decode_swe_agent(budget.read_whole(file, str(file)), name)
        else:
            yield rollout_of(decode_atif(budget.read_whole(file, str(file)), name), name)
    except OSError as error:
        raise RecordError(f"{file} cannot be read: {error.strerror}.") from error
    except InvalidArgument as error:
        raise RecordError(str(error)) from error
