"""A Python file that bugs are planted into: its tree, and edits by exact text position.

Used by the bug families. An edit replaces whole lines; the rest of the file stays as it is, byte by byte. Only code on
plain ASCII lines is touched, since `ast` counts columns in bytes, and nothing inside an f-string, where Python 3.11
counts wrongly.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass

__all__ = ["Bug", "Function", "Source", "plant"]


@dataclass(frozen=True, slots=True)
class Bug:
    """One bug that can be planted: the lines `old` from `line` on become `new`; the fix is the same edit backwards."""

    family: str
    line: int
    """Number of the first line of `old`, from 1."""
    old: str
    """Whole lines of the original, without the last newline; unique in it."""
    new: str
    """What stands there with the bug; unique in the file with the bug."""
    function: str
    """The function it is in, with its class."""
    what: str
    """What was done, in a few words."""


@dataclass(frozen=True, slots=True)
class Function:
    """One function of the file."""

    name: str
    """With its class, as in `Stack.pop`."""
    node: ast.FunctionDef
    attributes: tuple[str, ...]
    """What its class sets on `self`, in the order of appearance."""

    def walk(self) -> Iterator[ast.AST]:
        """Yield the nodes of its body in source order, without those of inner functions and f-strings."""
        for statement in self.node.body:
            yield from _inner(statement)

    def parameters(self) -> tuple[str, ...]:
        """Return the names of its parameters without `self` and `cls`."""
        given = self.node.args
        every = [*given.posonlyargs, *given.args, *given.kwonlyargs]
        return tuple(argument.arg for argument in every if argument.arg not in ("self", "cls"))

    def blocks(self) -> Iterator[list[ast.stmt]]:
        """Yield every list of statements: the body and what is nested in it."""
        yield self.node.body
        for node in self.walk():
            for field in ("body", "orelse", "finalbody"):
                block = getattr(node, field, None)
                if isinstance(block, list) and block:
                    yield block


class Source:
    """One file, parsed. Raise `SyntaxError` for what is no Python."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.lines = text.split("\n")
        self.tree = ast.parse(text)
        self.functions = tuple(_functions(self.tree, "", ()))

    def segment(self, node: ast.expr | ast.stmt) -> str:
        """Return the text of a node on one line, else an empty string."""
        if node.lineno != node.end_lineno or not self.lines[node.lineno - 1].isascii():
            return ""
        return self.lines[node.lineno - 1][node.col_offset : node.end_col_offset]

    def between(self, left: ast.expr, right: ast.expr) -> str:
        """Return the text between two nodes on one line, such as an operator; else an empty string."""
        if left.end_lineno != right.lineno or not self.lines[right.lineno - 1].isascii():
            return ""
        return self.lines[right.lineno - 1][left.end_col_offset : right.col_offset]

    def indent(self, node: ast.stmt) -> str:
        """Return the white space that a statement's line begins with."""
        line = self.lines[node.lineno - 1]
        return line[: len(line) - len(line.lstrip())]

    def cut(self, line: int, start: int, end: int, replacement: str) -> tuple[int, list[str], list[str]]:
        """Return the change of columns `start` to `end` of one line."""
        text = self.lines[line - 1]
        return line, [text], [text[:start] + replacement + text[end:]]

    def swap(self, node: ast.expr, replacement: str) -> tuple[int, list[str], list[str]]:
        """Return the change of a one-line node to other text."""
        return self.cut(node.lineno, node.col_offset, node.end_col_offset or 0, replacement)

    def remove(self, node: ast.stmt) -> tuple[int, list[str], list[str]]:
        """Return the removal of a statement's lines."""
        last = node.end_lineno or node.lineno
        return node.lineno, self.lines[node.lineno - 1 : last], []

    def bug(
        self, family: str, function: Function, change: tuple[int, list[str], list[str]], what: str
    ) -> Bug | None:
        """Return the bug if it is one exact-match edit, in both directions, that leaves valid Python; else None.

        Where the changed lines alone are not unique, or none are left, a neighbouring line goes with them.
        """
        line, old, new = change
        end = line - 1 + len(old)
        for before, after in ((0, 0), (0, 1), (1, 0), (1, 1)):
            if line - 1 - before < 0 or end + after > len(self.lines):
                continue
            head, tail = self.lines[line - 1 - before : line - 1], self.lines[end : end + after]
            whole = Bug(
                family,
                line - before,
                "\n".join([*head, *old, *tail]),
                "\n".join([*head, *new, *tail]),
                function.name,
                what,
            )
            if whole.old == whole.new or not whole.new.strip() or not whole.old.strip():
                continue
            broken = plant(self.text, whole)
            if broken.count(whole.new) == 1 and self.text.count(whole.old) == 1:
                return whole if _parses(broken) else None
        return None


def plant(text: str, bug: Bug) -> str:
    """Return `text` with the bug. Raise `ValueError` where its lines are not those the bug was made for."""
    lines = text.split("\n")
    count = bug.old.count("\n") + 1
    found = "\n".join(lines[bug.line - 1 : bug.line - 1 + count])
    if found != bug.old:
        raise ValueError(f"line {bug.line} has {found!r}, but the bug was made for {bug.old!r}")
    return "\n".join([*lines[: bug.line - 1], *bug.new.split("\n"), *lines[bug.line - 1 + count :]])


def _parses(text: str) -> bool:
    try:
        compile(text, "mutant", "exec", dont_inherit=True)
    except (SyntaxError, ValueError):
        return False
    return True


def _functions(node: ast.AST, prefix: str, attributes: tuple[str, ...]) -> Iterator[Function]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.ClassDef):
            yield from _functions(child, f"{prefix}{child.name}.", _attributes(child))
        elif isinstance(child, ast.FunctionDef):
            yield Function(prefix + child.name, child, attributes)
            yield from _functions(child, f"{prefix}{child.name}.", attributes)
        elif isinstance(child, ast.stmt):
            yield from _functions(child, prefix, attributes)


def _attributes(owner: ast.ClassDef) -> tuple[str, ...]:
    found = [
        node.attr
        for node in ast.walk(owner)
        if isinstance(node, ast.Attribute)
        and isinstance(node.ctx, ast.Store)
        and isinstance(node.value, ast.Name)
        and node.value.id == "self"
    ]
    return tuple(dict.fromkeys(found))


def _inner(node: ast.AST) -> Iterator[ast.AST]:
    if isinstance(node, ast.FunctionDef | ast.ClassDef | ast.Lambda | ast.JoinedStr):
        return
    yield node
    for child in ast.iter_child_nodes(node):
        yield from _inner(child)
