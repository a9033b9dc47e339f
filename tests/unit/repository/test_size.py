"""The product grows only where a change says so: lines of its Python, and of its largest parts, are bounded here."""

from __future__ import annotations

import ast
import re
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).parents[3]
PACKAGES = ("agent_runtime", "ale", "rock_env", "sandboxes", "trainer")
_NOT_OURS = re.compile(r"_pb2|sandboxes/[^/]+/(tasks|packages)/|/scaffold/")
"""Generated code, data of tasks, and what is written into the folders of users."""
MOST_LINES = 140_632
"""Lower it with every change that removes lines. A change that needs more raises it and says in its commit what for."""
MOST_IN_A_FILE, MOST_IN_A_FUNCTION, MOST_IN_A_FOLDER = 480, 60, 18

SOURCES = {
    file: file.read_text(encoding="utf-8")
    for package in PACKAGES
    for file in sorted((ROOT / package).rglob("*.py"))
    if not _NOT_OURS.search(file.relative_to(ROOT).as_posix())
}


def test_the_product_does_not_grow_unsaid() -> None:
    lines = sum(text.count("\n") for text in SOURCES.values())
    assert lines <= MOST_LINES, "remove as much, or raise MOST_LINES and say in the commit what it is for"
    assert lines > MOST_LINES - 1000, "the product became smaller: lower MOST_LINES, so that it stays so"


def test_files_functions_and_folders_can_be_read_at_once() -> None:
    long = {
        str(file.relative_to(ROOT)) for file, text in SOURCES.items() if text.count("\n") > MOST_IN_A_FILE
    }
    long |= {
        f"{file.relative_to(ROOT)}: {node.name}"
        for file, text in SOURCES.items()
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and (node.end_lineno or node.lineno) - node.lineno >= MOST_IN_A_FUNCTION
    }
    assert not long, "split them by what they are about"
    folders = Counter(file.parent for file in SOURCES if file.name != "__init__.py")
    full = [str(folder.relative_to(ROOT)) for folder, count in folders.items() if count > MOST_IN_A_FOLDER]
    assert not full, "make a room for modules that belong together"
