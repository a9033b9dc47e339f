"""A look for what an agent must not find: the tests that grade it and the solution, in files and in git's objects.

It tells of lines that were taken over as they are; a solution told in other words is not found.
"""

from __future__ import annotations

import posixpath
import re
import secrets
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from rock_env.errors import InfraError, InvalidArgument, NotFound
from rock_env.grading.history import GIT_ENV
from rock_env.grading.model import Task
from rock_env.sandbox import Sandbox

__all__ = ["Leak", "leaks"]

_LEAST_CHARS = 16
"""Shorter lines are in every program."""
_LEAST_LINES = 2
_SHARE = 0.4
"""So much of a secret's telling lines in one place is no coincidence."""
_LEAST_NAME = 4
_APART = ("/tests/", "/logs/", "/solution/", "/oracle/")
"""Where formats keep what is the grader's and the solution's: nothing there is a task's input."""
_IN_OBJECTS = "git objects of "
_PAST = re.compile(
    r"\b(?:git|commits?|committed|branch(?:es)?|histor(?:y|ies)|reflog|stash(?:ed)?|reset|rebased?|merged?)\b",
    re.IGNORECASE,
)
"""In an instruction: the task is about a repository's past, so that what lies there is its input."""
_HIDING = re.compile(
    r"\b(?:recover|restore|retrieve|extract|decrypt|decode|uncover|hidden|password|flag|lost|deleted)\b",
    re.IGNORECASE,
)
"""In an instruction: the answer is to be found somewhere in the box, so that its hiding place is the task's input."""
_PROGRAMS = (".py", ".sh", ".js", ".ts", ".rb", ".go", ".rs", ".c", ".cpp", ".java")
"""Endings of secrets that are no data: these are hidden from an agent in every task."""
_TIMEOUT_S = 300.0
_FIND = """
needles=$1; shift
find "$@" "$PWD" -xdev \\( -path /proc -o -path /sys -o -path /dev -o -name .git -o -name "$needles" \\) -prune -o \
  -type f -size -4096k -exec grep -lF -f "$needles" {} + 2>/dev/null | head -n 300
"""
_REPOSITORIES = """
shift
find "$@" "$PWD" -xdev \\( -path /proc -o -path /sys -o -path /dev \\) -prune -o -name HEAD -type f -print 2>/dev/null |
  while read -r head; do test -d "${head%/HEAD}/objects" && printf '%s\\n' "${head%/HEAD}"; done | sort -u
"""
_OBJECTS = """
git --git-dir "$2" cat-file --batch-all-objects --batch --buffer | grep -aF -f "$1" | sort -u | head -c 4000000
"""
_VISIBLE = """
git --git-dir "$2" ls-tree -r HEAD | cut -f1 | cut -d' ' -f3 | git --git-dir "$2" cat-file --batch --buffer |
  grep -aF -f "$1" | sort -u | head -c 4000000
"""


Secrets = Mapping[str, frozenset[str]]
"""The telling lines of each secret, by its name."""


@dataclass(frozen=True, slots=True)
class Leak:
    """One place where an agent could find a secret."""

    where: str
    """A file, or `git objects of FOLDER`."""
    secret: str
    """Path of the verifier's or the solution's file, or `solution` for its actions."""
    lines: int
    """How many of its telling lines are there."""
    is_input: bool = False
    """The task gives the agent this file: its instruction names it or its folder, or it is a file of the project itself."""


async def leaks(box: Sandbox, task: Task, *, roots: Sequence[str] = ("/",)) -> tuple[Leak, ...]:
    """Return where the task's verifier files and solution can be found in `box`, in which the task was prepared.

    Looks at the folders `roots` and the working folder, each within its own file system. Lines that the agent is given
    anyway do not count: those of the instruction, of the task's own files and of an older version at the same path.
    """
    hidden, given = await _secrets(box, task)
    if not hidden:
        return _judged(task, given)
    needles = f".{secrets.token_hex(8)}"
    await box.write_file(needles, "\n".join(sorted(set().union(*hidden.values()))).encode() + b"\n")
    try:
        in_files = await _in_files(box, hidden, (needles, *roots))
        return _judged(task, (*given, *in_files, *await _in_objects(box, hidden, (needles, *roots))))
    finally:
        await box.exec(["rm", "-f", needles])


def _judged(task: Task, found: Iterable[Leak]) -> tuple[Leak, ...]:
    return tuple(replace(leak, is_input=_is_input(task, leak)) for leak in found)


def _is_input(task: Task, leak: Leak) -> bool:
    """Return whether the task itself gives the agent the file; a grader's file by another path is never its folder's."""
    if not posixpath.isabs(
        leak.where
    ):  # in git objects: a task about a repository's past hides its answer there
        folder = leak.where.removeprefix(_IN_OBJECTS)
        named = _names(task.instruction, folder) or _names(task.instruction, posixpath.basename(folder))
        return (
            "repo" not in dict(task.labels)
            and (named or folder == task.workdir)
            and bool(_PAST.search(task.instruction))
        )
    if "repo" in dict(task.labels) and leak.where.startswith(f"{task.workdir}/"):
        return True  # of SWE-bench and its kin: the project as it was before, without the tests
    if leak.where == leak.secret:
        return not leak.where.startswith(_APART)
    name = posixpath.basename(leak.where)
    if len(name) >= _LEAST_NAME and _names(task.instruction, name):
        return True
    if name in {posixpath.basename(file.path) for file in (*task.verifier.files, *task.solution_files)}:
        return False
    if (
        posixpath.splitext(leak.secret)[1] not in _PROGRAMS
        and leak.secret != "solution"
        and _HIDING.search(task.instruction)
    ):
        return True
    folders, folder = [], posixpath.dirname(leak.where)
    while folder != "/":
        folders.append(folder)
        folder = posixpath.dirname(folder)
    return any(_names(task.instruction, folder) for folder in folders)


def _names(text: str, name: str) -> bool:
    return re.search(rf"(?<![\w.-]){re.escape(name)}(?![\w-])", text) is not None


async def _in_files(box: Sandbox, hidden: Secrets, arguments: Sequence[str]) -> list[Leak]:
    found = []
    for path in dict.fromkeys(await _lines(box, _FIND, *arguments)):
        try:
            content = await box.read_range(path, offset=0, length=4 << 20)
        except (NotFound, InvalidArgument):
            continue
        found += _matches(path, _stripped(content), hidden)
    return found


async def _in_objects(box: Sandbox, hidden: Secrets, arguments: Sequence[str]) -> list[Leak]:
    found, needles = [], arguments[0]
    for repository in await _lines(box, _REPOSITORIES, *arguments):
        visible = set(await _lines(box, _VISIBLE, needles, repository))
        lines = set(await _lines(box, _OBJECTS, needles, repository)) - visible
        unseen = {name: texts - visible for name, texts in hidden.items()}
        found += _matches(f"{_IN_OBJECTS}{posixpath.dirname(repository)}", lines, unseen)
    return found


async def _secrets(box: Sandbox, task: Task) -> tuple[Secrets, tuple[Leak, ...]]:
    """Return what must not be found, and which of it lies in its own place already."""
    known = _telling([task.instruction.encode(), *(file.content for file in task.files)])
    hidden: dict[str, frozenset[str]] = {}
    given = []
    for file in (*task.verifier.files, *task.solution_files):
        try:
            older = await box.read_range(file.path, offset=0, length=4 << 20)
        except (NotFound, InvalidArgument):
            older = b""
        lines = _telling([file.content])
        if lines and older == file.content:
            given.append(Leak(file.path, file.path, len(lines)))
        hidden[file.path] = lines - known - _telling([older])
    hidden["solution"] = _telling([action.encode() for action in task.solution]) - known
    return {name: lines for name, lines in hidden.items() if lines}, tuple(given)


def _stripped(content: bytes) -> set[str]:
    return {line.strip() for line in content.decode(errors="replace").splitlines()}


def _telling(contents: Iterable[bytes]) -> frozenset[str]:
    """Return the lines that say something of their own."""
    lines = set().union(*map(_stripped, contents))
    return frozenset(
        line
        for line in lines
        if len(line) >= _LEAST_CHARS
        and not line.startswith(("import ", "from ", "#!", "#include", "package "))
    )


def _matches(where: str, lines: set[str], hidden: Secrets) -> list[Leak]:
    found = []
    for name, texts in hidden.items():
        count = len(texts & lines)
        if count and count >= min(len(texts), max(_LEAST_LINES, _SHARE * len(texts))):
            found.append(Leak(where, name, count))
    return found


async def _lines(box: Sandbox, script: str, *arguments: str) -> list[str]:
    result = await box.exec(
        ["sh", "-c", script, "sh", *arguments], env=GIT_ENV, timeout_s=_TIMEOUT_S, max_output_bytes=8 << 20
    )
    if result.infra_error or result.timed_out or result.exit_code in (126, 127):
        said = result.infra_error or result.stderr.decode(errors="replace").strip()[-300:]
        raise InfraError(f"cannot look for leaks in this box: {said or 'it took too long'}")
    return [line.strip() for line in result.stdout.decode(errors="replace").splitlines()]
