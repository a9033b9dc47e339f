"""Reads tasks from wherever they lie: the format is told by what is there.

The only door to the readers that others need.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from rock_env.errors import InvalidArgument, nearest
from rock_env.foreign.folder import place_inside
from rock_env.grading.model import Task, Unread
from rock_env.tasksets.harbor import HarborOptions, is_harbor, read_harbor
from rock_env.tasksets.options import ReadOptions, options_of
from rock_env.tasksets.rows import SUFFIXES, read_rows
from rock_env.tasksets.swe_bench import SweBenchOptions, is_swe_bench, read_swe_bench
from rock_env.tasksets.terminal_bench import TerminalBenchOptions, is_terminal_bench, read_terminal_bench

__all__ = ["format_of", "read_each", "read_tasks"]

_KINDS: dict[str, type[ReadOptions]] = {
    "harbor": HarborOptions,
    "swe-bench": SweBenchOptions,
    "terminal-bench": TerminalBenchOptions,
}
_FORMATS = (
    "a Harbor folder (task.toml), a Terminal-Bench folder (task.yaml), a folder of such folders, or a file of SWE-bench "
    f"instances ({', '.join(SUFFIXES)})"
)


def format_of(path: Path) -> str:
    """Return the format of one task's folder or of an instance file; empty for anything else."""
    if path.is_dir():
        return "harbor" if is_harbor(path) else "terminal-bench" if is_terminal_bench(path) else ""
    return "swe-bench" if path.is_file() and path.suffix in SUFFIXES else ""


def read_tasks(path: Path, **options: Any) -> list[Task]:
    """Read one task, a folder of tasks (of several formats, too) or a file of instances, in the order of their names.

    Raise `InvalidArgument` that says of every task that cannot be read what is wrong with it, and as `read_each` does.
    """
    tasks: list[Task] = []
    problems: list[str] = []
    for found in read_each(path, **options):
        if isinstance(found, Unread):
            problems.append(found.why)
        else:
            tasks.append(found)
    if problems:
        raise InvalidArgument("\n".join(problems))
    return tasks


def read_each(path: Path, **options: Any) -> list[Task | Unread]:
    """Read what lies there, each task by itself: one that cannot be read stands as such in its place, as does a second of a
    name.

    Each option must be one of a format that is there. Raise `InvalidArgument` if there is nothing or for an option's value,
    `UnknownName` for an unknown option.
    """
    path = Path(path).absolute()
    if not path.exists():
        raise InvalidArgument(f"{path} does not exist. Expected {_FORMATS}.")
    places = [path] if format_of(path) else _places(path, path)
    if not places:
        raise InvalidArgument(f"{path} holds no task in a format that is known here. Expected {_FORMATS}.")
    formats = {place: format_of(place) for place in places}
    known = {name for format_ in formats.values() for name in _KINDS[format_].model_fields}
    for name in options:
        if name not in known:
            raise nearest(f"option of {', '.join(sorted(set(formats.values())))} tasks", name, known)
    found: list[Task | Unread] = []
    for place, format_ in formats.items():
        kind = _KINDS[format_]
        own = options_of(kind, {name: value for name, value in options.items() if name in kind.model_fields})
        try:
            if place != path:
                place_inside(path, place)
            found += _READ[format_](place, own)
        except InvalidArgument as error:
            found.append(Unread(place.name, error.message))
    _need_tasks(options.get("grade_in"), found)
    return _of_one_name_once(found)


def _need_tasks(grade_in: object, found: list[Task | Unread]) -> None:
    """Raise `UnknownName` where `grade_in` names a task that is not there."""
    if isinstance(grade_in, str):
        grade_in = {part.rpartition("=")[0].strip(): "" for part in grade_in.split(",")}
    known = {each.name for each in found}
    for name in grade_in if isinstance(grade_in, Mapping) else ():
        if name and name not in known:
            raise nearest("task in the option grade_in", str(name), known)


def _of_one_name_once(found: list[Task | Unread]) -> list[Task | Unread]:
    """Return what was read, with each task whose name an earlier one has as one that cannot be read."""
    first: dict[str, Task] = {}
    told: list[Task | Unread] = []
    for task in found:
        if isinstance(task, Task) and first.setdefault(task.name, task) is not task:
            why = f"the name {task.name!r} is that of {first[task.name].source}, too. Each task needs a name of its own."
            told.append(Unread(task.source, f"{task.source}: {why}"))
        else:
            told.append(task)
    return told


def _places(folder: Path, root: Path) -> list[Path]:
    """Return the task folders and instance files right below a folder, or below its folder `tasks`.

    One that a link out of `root` leads to is among them, unread: the user is told of it.
    """
    if not folder.is_dir():
        return []
    told = {place: _is_task(place, root) for place in folder.iterdir() if place.name[0] != "."}
    found = [place for place, is_task in told.items() if is_task]
    if not found and folder.name != "tasks":
        found = _places(folder / "tasks", root)
    return sorted([*found, *(place for place, is_task in told.items() if is_task is None)])


def _is_task(place: Path, root: Path) -> bool | None:
    """Return whether tasks lie there; None for a file of which nothing can be read, as its reader says."""
    format_ = format_of(place)
    if format_ != "swe-bench":
        return bool(format_)
    try:
        place_inside(root, place)
        rows = [row for row in read_rows(place) if not isinstance(row, Unread)]
    except InvalidArgument:
        return None
    return is_swe_bench(rows) if rows else None


def _harbor(path: Path, options: ReadOptions) -> list[Task | Unread]:
    assert isinstance(options, HarborOptions)  # by `_KINDS`
    return [read_harbor(path, options)]


def _terminal_bench(path: Path, options: ReadOptions) -> list[Task | Unread]:
    assert isinstance(options, TerminalBenchOptions)  # by `_KINDS`
    return [read_terminal_bench(path, options)]


def _swe_bench(path: Path, options: ReadOptions) -> list[Task | Unread]:
    assert isinstance(options, SweBenchOptions)  # by `_KINDS`
    return read_swe_bench(path, options)


_READ: dict[str, Callable[[Path, ReadOptions], list[Task | Unread]]] = {
    "harbor": _harbor,
    "swe-bench": _swe_bench,
    "terminal-bench": _terminal_bench,
}
