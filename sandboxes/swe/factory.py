"""The built-in tasks: one planted bug each in a small package, as `tasks.json` lists them.

Which bugs make tasks was found by running the tests (`scripts/swe_tasks.py`); here they are only looked up, which runs
nothing and is the same everywhere. The index is read once, when the first task is asked for.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from sandboxes.swe.bugs.source import Bug, plant
from sandboxes.swe.data import Files, SweTask
from sandboxes.swe.expert import trajectory

__all__ = [
    "INDEX",
    "PACKAGES",
    "SPLITS",
    "Index",
    "Package",
    "Planted",
    "difficulty",
    "load",
    "package_digest",
    "read_index",
]

INDEX = Path(__file__).parent / "tasks.json"
PACKAGES = Path(__file__).parent / "packages"
SPLITS = ("train", "held_out", "held_out_family")
_FULL_LINES, _FULL_SITES, _FULL_FAILING, _FULL_FIX = 50, 30, 4, 4


@dataclass(frozen=True, slots=True)
class Package:
    """One package of the index."""

    digest: str
    """Of its files: an index made from others is stale."""
    hidden: tuple[str, ...]
    """All its hidden tests, as `test_file.py::test`."""


@dataclass(frozen=True, slots=True)
class Planted:
    """One task of the index."""

    package: str
    split: str
    file: str
    """Relative to the project."""
    family: str
    line: int
    old: str
    new: str
    fail_to_pass: tuple[str, ...]
    difficulty: float
    report: str
    slip: tuple[int, str, str] | None
    """A wrong attempt of the expert: line, old and new text in the file with the bug; None: the expert makes none."""

    @property
    def key(self) -> str:
        """Return the task's name, a digest of its bug: it stays the same while the package does."""
        text = json.dumps([self.file, self.line, self.new])
        return f"{self.package}-{hashlib.sha256(text.encode()).hexdigest()[:8]}"

    @property
    def bug(self) -> Bug:
        """Return the bug to plant."""
        return Bug(self.family, self.line, self.old, self.new, function="", what="")

    def row(self) -> list[Any]:
        """Return the values as the index holds them."""
        return [
            self.package,
            self.split,
            self.file,
            self.family,
            self.line,
            self.old,
            self.new,
            list(self.fail_to_pass),
            self.difficulty,
            self.report,
            None if self.slip is None else list(self.slip),
        ]


@dataclass(frozen=True, slots=True)
class Index:
    """All built-in tasks, each split's in its order."""

    packages: Mapping[str, Package]
    tasks: tuple[Planted, ...]
    by_key: Mapping[str, Planted]


def difficulty(*, lines: int, sites: int, failing: int, fix_lines: int) -> float:
    """Return how hard a task is, from 0 to 1, two decimals.

    Four shares of a quarter each: lines of the file (50 are full), places in it where the same family fits (30), how few
    visible tests fail (one is full, four or more none), lines that the fix's edit has to quote (one none, four full).
    """
    shares = (
        min(lines / _FULL_LINES, 1.0),
        min(sites / _FULL_SITES, 1.0),
        1.0 - min((failing - 1) / (_FULL_FAILING - 1), 1.0),
        min((fix_lines - 1) / (_FULL_FIX - 1), 1.0),
    )
    return round(sum(shares) / len(shares), 2)


@cache
def read_index() -> Index:
    """Read the committed index."""
    data = json.loads(INDEX.read_text())
    packages = {
        name: Package(entry["digest"], tuple(entry["hidden"])) for name, entry in data["packages"].items()
    }
    tasks = tuple(_planted(row) for row in data["tasks"])
    return Index(packages, tasks, {task.key: task for task in tasks})


def _planted(row: list[Any]) -> Planted:
    package, split, file, family, line, old, new, fails, hard, report, slip = row
    wrong = None if slip is None else (int(slip[0]), str(slip[1]), str(slip[2]))
    return Planted(package, split, file, family, line, old, new, tuple(fails), hard, report, wrong)


@cache
def package_files(name: str) -> Files:
    """Return all files of a package, sorted by path, hidden tests included."""
    folder = PACKAGES / name
    paths = (path for path in folder.rglob("*") if path.is_file() and "__pycache__" not in path.parts)
    return tuple(sorted((path.relative_to(folder).as_posix(), path.read_bytes()) for path in paths))


def package_digest(name: str) -> str:
    """Return a digest of a package's files, 16 hex digits."""
    digest = hashlib.sha256()
    for path, content in package_files(name):
        digest.update(f"{path}\0{len(content)}\0".encode() + content)
    return digest.hexdigest()[:16]


def load(key: str) -> SweTask:
    """Return a built-in task. Raise `KeyError` for an unknown one."""
    index = read_index()
    planted = index.by_key[key]
    files = package_files(planted.package)
    repo = []
    for path, content in files:
        if path == planted.file:
            content = plant(content.decode(), planted.bug).encode()
        if not path.startswith("hidden/"):
            repo.append((path, content))
    hidden = tuple((path.removeprefix("hidden/"), data) for path, data in files if path.startswith("hidden/"))
    every = index.packages[planted.package].hidden
    return SweTask(
        key=key,
        name=planted.package,
        report=planted.report,
        repo=tuple(repo),
        hidden=hidden,
        fail_to_pass=planted.fail_to_pass,
        pass_to_pass=tuple(test for test in every if test not in planted.fail_to_pass),
        solution=trajectory(
            key,
            file=planted.file,
            fix=(planted.new, planted.old),
            slip=None if planted.slip is None else planted.slip[1:],
            others=tuple(path for path, _ in repo if path.endswith(".py") and path != planted.file),
        ),
        by_values=True,
        family=planted.family,
        difficulty=planted.difficulty,
    )
