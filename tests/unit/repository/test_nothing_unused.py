"""Nothing stays in the product that only tests use: a name is used by the product, a program of ours, or a page's reader."""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Iterator

from unit.repository.test_size import ROOT, SOURCES

PROGRAMS = ("benchmarks/**/*.py", "examples/**/*", "scripts/**/*.py", "helm/**/*", "pyproject.toml")
PAGES = ("README.md", "docs/*.md", "docs/extend/*.md", "sandboxes/*/README.md")
"""Pages that tell a reader to use a name; the generated reference names all there are."""
ASKED = re.compile(r"__|pytest_|get_seq_length$|_(attachments|keeps_running)$")
"""Python, pytest, Transformers and the table of `rules_host` ask for these by name."""
PLAIN = {
    "asynccontextmanager",
    "cache",
    "cached_property",
    "classmethod",
    "contextmanager",
    "dataclass",
    "property",
    "staticmethod",
}
"""Decorators that hand their function to nobody; the others, of commands and of hooks, do."""
WORD = re.compile(r"\w+")
Definition = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.Assign | ast.AnnAssign


def definitions(tree: ast.Module) -> Iterator[tuple[str, Definition]]:
    """Yield what a module defines, and the methods of classes that take nothing from another."""
    for node in tree.body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield node.name, node
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
                if isinstance(target, ast.Name):
                    yield target.id, node
        if isinstance(node, ast.ClassDef) and not node.bases:
            for each in node.body:
                if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef):
                    yield each.name, each


def decorators(node: Definition) -> set[str]:
    """Return the names of what a definition is decorated with."""
    return {
        ast.unparse(each).partition("(")[0].rpartition(".")[2] for each in getattr(node, "decorator_list", ())
    }


def used(tree: ast.AST) -> Counter[str]:
    """Count what code reads by name, in strings too; neither docstrings nor `__all__` nor an import is a use."""
    found: Counter[str] = Counter()
    unread: set[int] = set()
    for node in ast.walk(tree):
        for each in getattr(node, "body", ()) if not isinstance(node, ast.Lambda | ast.IfExp) else ():
            if isinstance(each, ast.Expr) and isinstance(each.value, ast.Constant):
                unread.add(id(each.value))
            if isinstance(each, ast.Assign) and getattr(each.targets[0], "id", "") == "__all__":
                unread |= {id(name) for name in ast.walk(each.value)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load):
            found[node.id] += 1
        elif isinstance(node, ast.Attribute):
            found[node.attr] += 1
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in unread:
            found.update(WORD.findall(node.value))
    return found


def test_every_name_has_a_user_besides_tests() -> None:
    trees = {file: ast.parse(text) for file, text in SOURCES.items()}
    here = {file: used(tree) for file, tree in trees.items()}
    uses: Counter[str] = Counter()
    for found in here.values():
        uses.update(found)
    for pattern in (*PROGRAMS, *PAGES):
        for file in ROOT.glob(pattern):
            if file.is_file():
                uses.update(WORD.findall(file.read_text(encoding="utf-8")))
    unused = [
        f"{file.relative_to(ROOT)}:{node.lineno}: {name}"
        for file, tree in trees.items()
        for name, node in definitions(tree)
        if not ASKED.match(name) and decorators(node) <= PLAIN
        if uses[name] == here[file][name] <= used(node)[name]
    ]
    assert not unused, "nobody uses these but tests: remove them, or move them to the tests"
