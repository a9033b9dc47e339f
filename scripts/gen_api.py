"""Write the API reference, docs/api/*.md, from docstrings: `python scripts/gen_api.py [--check]`.

One page for each front module, with signatures, fields and docstrings of what `__all__` names. `--check` writes nothing.
"""

from __future__ import annotations

import argparse
import ast
import importlib
import inspect
import re
import sys
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from textwrap import indent
from types import ModuleType
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
OUT = ROOT / "docs" / "api"
MODULES = {
    "ale": "train from a program",
    "ale.api": "train and evaluate with resolved settings",
    "ale.config": "resolve settings as the command line does",
    "rock_env": "make an environment, connect to a server",
    "rock_env.client": "the asynchronous client of ROCK",
    "rock_env.env": "what an environment is",
    "rock_env.spec": "what an environment's package declares",
    "agent_runtime.types": "records of rollouts: turns and trajectories",
    "agent_runtime.store": "read and write recorded trajectories",
    "trainer.algo.base": "what an algorithm is",
    "trainer.protocols.engines": "what an engine is",
    "trainer.reward.base": "what a reward worker is",
}
Function = ast.FunctionDef | ast.AsyncFunctionDef


@cache
def _body(module: str) -> Sequence[ast.stmt]:
    return ast.parse(inspect.getsource(importlib.import_module(module))).body


def _find(module: ModuleType, name: str) -> tuple[ast.stmt | None, str]:
    """Return where a name is defined and what the source says below it, following re-exports."""
    home = getattr(getattr(module, name), "__module__", None) or module.__name__
    for place in dict.fromkeys((module.__name__, home)):
        if importlib.util.find_spec(place) is None:
            continue
        for node, text in _documented(_body(place)):
            if name in _names(node):
                return node, text
    return None, ""


def _names(node: ast.stmt) -> list[str]:
    if isinstance(node, Function | ast.ClassDef):
        return [node.name]
    targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
    return [target.id for target in targets if isinstance(target, ast.Name)]


def _documented(body: Sequence[ast.stmt]) -> Iterator[tuple[ast.stmt, str]]:
    """Yield each statement with its docstring, which for a field or a constant is the string below it."""
    for node, following in zip(body, [*body[1:], None], strict=True):
        if isinstance(node, Function | ast.ClassDef):
            yield node, ast.get_docstring(node) or ""
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            value = following.value if isinstance(following, ast.Expr) else None
            told = isinstance(value, ast.Constant) and isinstance(value.value, str)
            yield node, inspect.cleandoc(value.value) if told else ""


def _escaped(text: str) -> str:
    """Return prose in which `<` and `*` mean themselves, code spans left alone."""
    parts = re.split(r"(`[^`]*`)", text)
    return "".join(p if p.startswith("`") else p.replace("<", "&lt;").replace("*", "\\*") for p in parts)


def _signature(node: Function) -> str:
    arguments = re.sub(r"^(self|cls)(, )?", "", ast.unparse(node.args))
    returns = f" -> {ast.unparse(node.returns)}" if node.returns else ""
    prefix = "async " if isinstance(node, ast.AsyncFunctionDef) else ""
    return f"{prefix}{node.name}({arguments}){returns}"


def _class(node: ast.ClassDef) -> Iterator[str]:
    bases = ", ".join(map(ast.unparse, node.bases))
    yield f"```python\nclass {node.name}{f'({bases})' if bases else ''}\n```"
    yield _escaped(ast.get_docstring(node) or "")
    rows = []
    for member, text in _documented(node.body):
        (name,) = _names(member) or ("_",)
        if name.startswith("_"):
            continue
        shown = _signature(member) if isinstance(member, Function) else ast.unparse(member)
        if isinstance(member, Function) and any("property" in ast.unparse(d) for d in member.decorator_list):
            shown = shown.replace("()", "", 1)
        rows.append(f"- `{shown}`" + ("\n\n" + indent(_escaped(text), "  ") if text else ""))
    yield "\n".join(rows)


def _entry(module: ModuleType, name: str) -> str:
    node, text = _find(module, name)
    if isinstance(node, ast.ClassDef):
        parts = list(_class(node))
    elif isinstance(node, Function):
        parts = [f"```python\n{_signature(node)}\n```", _escaped(text)]
    else:
        parts = [f"```python\n{ast.unparse(node) if node else name}\n```", _escaped(text)]
    return "\n\n".join([f"## {name}", *filter(None, parts)])


def pages() -> dict[str, str]:
    """Return the text of every page by its file name."""
    note = "Made by `make docs` from the docstrings; do not edit.\n"
    rows = [f"| [`{name}`]({name}.md) | {purpose} |" for name, purpose in MODULES.items()]
    table = "\n".join(["| module | to |", "|---|---|", *rows])
    found = {
        "README.md": f"# API reference\n\n{note}\nThe modules that your programs import from.\n\n{table}\n"
    }
    for name in MODULES:
        module: Any = importlib.import_module(name)
        entries = [_entry(module, each) for each in module.__all__]
        about = f"{note}\n{_escaped(module.__doc__.strip())}"
        found[f"{name}.md"] = "\n\n".join([f"# {name}", about, *entries]) + "\n"
    return found


def main() -> int:
    """Write the pages, or compare them with what is committed."""
    parser = argparse.ArgumentParser(description="Write the API reference.")
    parser.add_argument("--check", action="store_true", help="write nothing, fail on a difference")
    check, made = parser.parse_args().check, pages()
    there = {path.name: path.read_text(encoding="utf-8") for path in OUT.glob("*.md")}
    if check:
        stale = sorted(name for name in made.keys() | there.keys() if made.get(name) != there.get(name))
        sys.stderr.writelines(f"docs/api/{name} is stale: run `make docs` and commit.\n" for name in stale)
        return 1 if stale else 0
    OUT.mkdir(exist_ok=True)
    for name in there.keys() - made.keys():
        (OUT / name).unlink()
    for name, text in made.items():
        (OUT / name).write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
