"""Find docstrings that name what does not exist, and tests that skip where their claim fails: part of `make lint`.

    python scripts/check_claims.py

A word of a docstring in backticks must be there if it is a path or dotted name that begins with a package of ours, or if it
says who uses a module. Pages are read by `tests/unit/docs/test_names.py`. A test may skip for what it looks up before it
acts; one that skips by the outcome of an act, or for an error of ours, hides the failure that it is to show.
"""

from __future__ import annotations

import ast
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
PACKAGES = ("agent_runtime", "ale", "benchmarks", "rock_env", "sandboxes", "trainer")
OF_TASKS = re.compile(r"sandboxes/[^/]+/(tasks|packages)/|.*_pb2")
GROUPS = "agents|algorithms|backends|box_code|engines|envs|libraries|observers|parallelisms|rewards|scans"
NO_NAME = re.compile(rf"ale\.({GROUPS})|.*[A-Z]{{2}}.*")
"""Groups of entry points, and names of which a part stands for any."""
WORD = re.compile(r"`([A-Za-z_][\w./]+)(?:\(\))?`")
USERS = re.compile(r"\b(?:Called|Implemented|Made|Opened|Read|Started|Used) by ((?:`[^`]*`|[^.;:`])*)")
LOOKS = {"to_thread", "why_not_fenced"}
"""What a test may wait for before it skips: it looks at the machine."""


def main() -> int:
    """Print each finding as FILE:LINE and return 1 if there is any."""
    command = ["git", "-C", str(ROOT), "ls-files", "-co", "--exclude-standard"]
    listed = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
    there = [name for name in listed if (ROOT / name).exists()]
    files = {name: (ROOT / name).read_text() if name.endswith(".py") else "" for name in there}
    product = {name for name in files if name.split("/")[0] in PACKAGES and not OF_TASKS.match(name)}
    known = Known()
    for name, source in files.items():
        known.add(name, source if name in product else "")
    found = [f"{place}: `{word}` is not there" for place, word in known.stale()]
    for name in (each for each in files if each.startswith("tests/")):
        found += [f"{name}:{line}: {what}" for line, what in hiding_skips(files[name])]
    print("".join(f"{line}\n" for line in found), end="")
    return 1 if found else 0


class Known:
    """What there is: by the dotted end of each path, of a folder or file, what the file defines."""

    def __init__(self) -> None:
        self.names: dict[str, set[str]] = {}
        self.defined: set[str] = set()
        self.texts: list[tuple[str, str]] = []
        """Docstrings, each behind its place."""

    def add(self, file: str, source: str) -> None:
        """Note a file and its docstrings, and what it defines, imports or gives an attribute."""
        names: set[str] = set()
        for node in ast.walk(ast.parse(source)):
            match node:
                case ast.ClassDef(name=name) | ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
                    names.add(name)
                case ast.Name(id=name, ctx=ast.Store()) | ast.Attribute(attr=name, ctx=ast.Store()):
                    names.add(name)
                case ast.alias():
                    names.add(node.asname or node.name)
                case ast.Expr(value=ast.Constant(value=str(text))):
                    self.texts.append((f"{file}:{node.lineno}", text))
        self.defined |= names
        parts = file.removesuffix(".py").removesuffix("/__init__").split("/")
        for end in range(1, len(parts) + 1):
            for begin in range(end):
                found = self.names.setdefault(".".join(parts[begin:end]), set())
                found.update(names if end == len(parts) else ())
        self.names.setdefault(file.replace("/", "."), set())

    def stale(self) -> Iterator[tuple[str, str]]:
        """Yield each place and word of a docstring that stands for nothing."""
        for place, text in self.texts:
            users = WORD.findall(" ".join(USERS.findall(text)))
            yield from ((place, word) for word in WORD.findall(text) if not self.has(word, word in users))

    def has(self, word: str, user: bool) -> bool:
        """Return whether a word stands for something that is there, or for nothing of ours; a `user` is ours."""
        parts = re.split(r"[./]", word.strip("/").removesuffix(".py"))
        if NO_NAME.fullmatch(word) or not ((whole := parts[0] in PACKAGES and len(parts) > 1) or user):
            return True
        for end in range(len(parts), 0, -1):
            if (begin := ".".join(parts[:end])) in self.names and self.names[begin].issuperset(parts[end:]):
                return True
        return not whole and parts[-1] in self.defined


def hiding_skips(source: str) -> Iterator[tuple[int, str]]:
    """Yield each skip of a test file that may hide a failure."""
    nodes = list(ast.walk(ast.parse(source))) if "skip(" in source else []
    errors = [node for node in nodes if isinstance(node, ast.ImportFrom) and "errors" in str(node.module)]
    ours = {"Exception", *(alias.asname or alias.name for node in errors for alias in node.names)}
    for node in nodes:
        if not isinstance(node, ast.ExceptHandler | ast.AsyncFunctionDef):
            continue
        skips = [
            each.lineno for each in ast.walk(node) if isinstance(each, ast.Attribute) and each.attr == "skip"
        ]
        if isinstance(node, ast.ExceptHandler) and node.type and not ours.isdisjoint(_words(node.type)):
            yield from ((line, "skips for an error of ours: look up what is missing") for line in skips)
        if isinstance(node, ast.AsyncFunctionDef) and node.name.startswith("test_"):
            waits = [each for each in ast.walk(node) if isinstance(each, ast.Await)]
            acts = [each.lineno for each in waits if LOOKS.isdisjoint(_words(each.value))]
            late = [line for line in skips if any(act < line for act in acts)]
            yield from ((line, "skips after it has acted: look up first, then fail") for line in late)


def _words(tree: ast.AST) -> list[str]:
    nodes = [node for node in ast.walk(tree) if isinstance(node, ast.Name | ast.Attribute)]
    return [node.id if isinstance(node, ast.Name) else node.attr for node in nodes]


if __name__ == "__main__":
    raise SystemExit(main())
