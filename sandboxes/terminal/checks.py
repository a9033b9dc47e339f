"""What is checked of a task: where the probe looks, and the judgement of what it saw, which is made on the host.

Used by the templates (to say what is right) and by `grade`. Each check is pure.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

__all__ = [
    "Check",
    "absent",
    "archive_holds",
    "git_changed",
    "git_ignores",
    "git_says",
    "json_is",
    "keeps",
    "modes_are",
    "names_are",
    "prints",
    "text_is",
    "tree_is",
]

Look = Mapping[str, Any]
Judge = Callable[[Any], str]


@dataclass(frozen=True, slots=True)
class Check:
    """One thing that must be so."""

    name: str
    look: Look
    """What `probe` is told to look at."""
    judge: Judge
    """Return what is wrong with what was seen (None: absent or unreadable), or an empty string."""
    guard: bool = False
    """True from the beginning: the agent must not spoil it. It earns nothing."""


def _digest(content: bytes) -> str:
    return f"file {hashlib.sha256(content).hexdigest()}"


def _text(seen: Any) -> tuple[str, str]:
    """Return (text, "") of a regular file or a link to one in the task's folder, or what it is instead."""
    if seen is None:
        return "", "there is no such file"
    if seen.get("leads_to", seen["type"]) != "file":
        return "", f"it is a {seen['type']}, not a file"
    return seen["text"], ""


def text_is(path: str, expected: str, *others: str, guard: bool = False) -> Check:
    """Expect a file with this text, or one of the others; a missing or surplus newline at its end is forgiven."""

    def judge(seen: Any) -> str:
        text, problem = _text(seen)
        if problem:
            return problem
        got = text.rstrip("\n").split("\n")
        if any(got == allowed.rstrip("\n").split("\n") for allowed in (expected, *others)):
            return ""
        wanted = expected.rstrip("\n").split("\n")
        pairs = enumerate(zip(got, wanted, strict=False), 1)
        line = next((number for number, (a, b) in pairs if a != b), min(len(got), len(wanted)) + 1)
        return f"line {line} is wrong ({len(got)} lines, expected {len(wanted)})"

    return Check(path, {"kind": "file", "path": path}, judge, guard)


def json_is(path: str, expected: object) -> Check:
    """Expect a JSON file with this value, however it is laid out."""

    def judge(seen: Any) -> str:
        text, problem = _text(seen)
        if problem:
            return problem
        try:
            value = json.loads(text)
        except ValueError as error:
            return f"not JSON: {error}"
        return "" if _same(value, expected) else "its value is wrong"

    return Check(path, {"kind": "file", "path": path}, judge)


def _same(value: Any, expected: Any) -> bool:
    """Return whether two JSON values are equal; 1 and true are not, 1 and 1.0 are."""
    if isinstance(value, bool) or isinstance(expected, bool):
        return value is expected
    if isinstance(value, dict) and isinstance(expected, dict):
        return value.keys() == expected.keys() and all(_same(value[key], expected[key]) for key in value)
    if isinstance(value, list) and isinstance(expected, list):
        return len(value) == len(expected) and all(map(_same, value, expected))
    return bool(value == expected)


def absent(path: str, *, guard: bool = False) -> Check:
    """Expect nothing at `path`."""
    judge = lambda seen: "" if seen is None else "it is there"  # noqa: E731
    return Check(f"no {path}", {"kind": "file", "path": path}, judge, guard)


def tree_is(path: str, expected: Mapping[str, bytes | str], *, guard: bool = False) -> Check:
    """Expect exactly these files below a folder: content as bytes, or a link's target as str. Empty folders do not count."""

    def judge(seen: Any) -> str:
        if seen is None:
            return "there is no such folder"
        wanted = {
            name: f"link {content}" if isinstance(content, str) else _digest(content)
            for name, content in expected.items()
        }
        got = {name: what for name, (what, _) in seen.items()}
        return _difference(got, wanted)

    return Check(f"{path}/", {"kind": "tree", "path": path}, judge, guard)


def names_are(path: str, names: Sequence[str]) -> Check:
    """Expect files with exactly these paths below a folder, whatever is in them."""

    def judge(seen: Any) -> str:
        return _difference(dict.fromkeys(seen or (), ""), dict.fromkeys(names, ""))

    return Check(f"names in {path}", {"kind": "tree", "path": path}, judge)


def _difference(got: Mapping[str, str], wanted: Mapping[str, str]) -> str:
    for kind, names in (
        ("missing", wanted.keys() - got.keys()),
        ("not wanted", got.keys() - wanted.keys()),
        ("wrong content", {name for name in wanted.keys() & got.keys() if wanted[name] != got[name]}),
    ):
        if names:
            return f"{kind}: {', '.join(sorted(names)[:3])}"
    return ""


def keeps(
    files: Mapping[str, bytes], path: str = ".", *, label: str = "other files are as they were"
) -> Check:
    """Expect these files to be unchanged, whatever else is there."""

    def judge(seen: Any) -> str:
        wanted = {name: _digest(content) for name, content in files.items()}
        got = {name: what for name, (what, _) in (seen or {}).items() if name in wanted}
        return _difference(got, wanted)

    return Check(label, {"kind": "tree", "path": path}, judge, guard=True)


def modes_are(path: str, expected: Mapping[str, int]) -> Check:
    """Expect these permissions of files below a folder."""

    def judge(seen: Any) -> str:
        for name, mode in sorted(expected.items()):
            if seen is None or name not in seen:
                return f"missing: {name}"
            if seen[name][1] != mode:
                return f"{name} has {seen[name][1]:o}"
        return ""

    return Check(f"permissions in {path}", {"kind": "tree", "path": path}, judge)


def archive_holds(path: str, kind: str, expected: Mapping[str, bytes], *, guard: bool = False) -> Check:
    """Expect an archive with exactly these files. `kind` is `tar`, `tar.gz`, `zip`, or `gz` with one member named ""."""

    def judge(seen: Any) -> str:
        if seen is None:
            return "there is no readable archive"
        if seen["format"] != kind:
            return f"its format is {seen['format'] or 'unknown'}"
        return _difference(seen["members"], {name: _digest(content) for name, content in expected.items()})

    return Check(path, {"kind": "archive", "path": path}, judge, guard)


def prints(
    name: str, argv: Sequence[str], expected: str, *, folder: str = ".", status: int = 0, guard: bool = False
) -> Check:
    """Expect a command to print this and to exit with `status`. It runs after all files were looked at."""
    look = {"kind": "run", "argv": list(argv), "path": folder}
    return Check(name, look, _printed(expected, status), guard)


def _printed(expected: str, status: int) -> Judge:
    def judge(seen: Any) -> str:
        if seen is None:
            return "it did not end"
        if seen["exit"] != status:
            return f"it exited with {seen['exit']}"
        return "" if seen["out"].strip() == expected.strip() else "its output is wrong"

    return judge


def git_says(
    name: str,
    words: Sequence[str],
    expected: str,
    *,
    folder: str = ".",
    status: int = 0,
    guard: bool = False,
    named_in: str = "",
) -> Check:
    """Expect a git command to print this of the commits in a repository, with no setting of the agent's.

    Its last word is, where `named_in` is given, the whole hash that this file holds.
    """
    look = {"kind": "git", "words": list(words), "path": folder} | (
        {"named_in": named_in} if named_in else {}
    )
    return Check(name, look, _printed(expected, status), guard)


def git_ignores(paths: Sequence[str], expected: Sequence[str], *, folder: str) -> Check:
    """Expect that of these paths the committed files `.gitignore` have git ignore those."""
    judge = lambda seen: "" if seen == list(expected) else "other files are ignored"  # noqa: E731
    return Check("what is ignored", {"kind": "git", "ignored": list(paths), "path": folder}, judge)


def git_changed(name: str, judge: Callable[[list[str]], bool], *, folder: str, guard: bool = True) -> Check:
    """Expect of the paths that differ from HEAD, in the work tree or (`index`) in the index, that `judge` returns True."""

    def say(seen: Any) -> str:
        if seen is None:
            return "it is no whole repository"
        return "" if judge(seen) else f"not as HEAD has it: {', '.join(seen[:3]) or 'nothing'}"

    return Check(name, {"kind": "git", "path": folder}, say, guard)
