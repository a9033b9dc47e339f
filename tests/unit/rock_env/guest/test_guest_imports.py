"""The guest runs in boxes whose Python has nothing but its standard library; there its package is `guest`."""

from __future__ import annotations

import ast
import sys
from pathlib import Path

import rock_env.guest

FOLDER = Path(rock_env.guest.__file__).parent


def test_the_guest_imports_itself_and_the_standard_library():
    for path in FOLDER.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Import):
                names = [name.name for name in node.names]
            elif isinstance(node, ast.ImportFrom) and not node.level:
                names = [str(node.module)]
            else:
                continue
            for name in names:
                assert name.partition(".")[0] in {*sys.stdlib_module_names, "guest"}, (
                    f"{path.name} imports {name}"
                )
