"""Find what is written to a terminal round `rock_env.telemetry.shown`: part of `make lint`.

    python scripts/check_printing.py [FILE...]

In `ale` standard output and error are its streams, so `print` and `sys.stderr.write` pass through it; what reaches behind
them does not: descriptors, `buffer`, a console of rich's own, a child that inherits them. The libraries below print nothing
at all. A file that must is listed in `ALLOWED`, with the reason.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
PACKAGES = ("ale", "trainer", "agent_runtime", "rock_env")
ALLOWED = {
    # raw by contract: bytes of a sandbox for a program or for a terminal that stands in it
    "ale/terminal.py": "makes the consoles, and writes a sandbox's bytes raw to a pipe or file",
    "ale/rock/terminal.py": "`ale rock shell` and `exec -t`: the sandbox's program owns the terminal",
    # constants
    "ale/training/stop.py": "a signal handler writes a constant: streams cannot be entered twice",
    "rock_env/security/kubeconfig.py": "the user's own program that signs in, as kubectl runs it",
    # the function's own module, and processes whose output is not a terminal's
    "rock_env/telemetry/shown.py": "puts the streams in place",
    "rock_env/telemetry/logs.py": "logs to sys.stderr, which the server's main has replaced",
    "rock_env/server/app.py": "the server's main, after it has replaced the streams",
    "rock_env/local.py": "the child is a server, whose main replaces its streams",
    "rock_env/env_workers/worker_fence.py": "a worker, whose output is output_of_children",
    "rock_env/tools/mcp.py": "a program inside a sandbox",
    "rock_env/guest_host/image_probe.py": "a program inside a sandbox",
    "rock_env/guest_host/guard/rock_judges.py": "a module inside a sandbox",
    "rock_env/guest_host/guard/main_rock.py": "a program inside a sandbox",
    "rock_env/guest_host/guard/watch_rock.py": "a module inside a sandbox",
    "rock_env/grading/apart.py": "answers its parent through pipes",
    "agent_runtime/gateway/reader.py": "answers its parent through pipes",
    "trainer/observers/process.py": "answers its parent through pipes",
    "agent_runtime/agents/relay.py": "a program inside a sandbox",
}
INSIDE = ("rock_env/guest/",)
"""Runs in sandboxes only: its descriptors are pipes to the guest."""
STREAMS = ("stdout", "stderr", "__stdout__", "__stderr__")
SPAWNS = ("run", "Popen", "call", "check_call", "check_output")
ECHOES = ("echo", "secho", "echo_via_pager")


def main(files: list[str]) -> int:
    """Print each finding as FILE:LINE and return 1 if there is any."""
    paths = [Path(file).resolve() for file in files] or [
        path for package in PACKAGES for path in sorted((ROOT / package).rglob("*.py"))
    ]
    found = [f"{path}:{line}: {what}" for path in paths for line, what in findings(path)]
    print("".join(f"{line}\n" for line in found), end="")
    return 1 if found else 0


def findings(path: Path) -> Iterator[tuple[int, str]]:
    """Yield the line and the kind of each write that goes round the function, or could."""
    name = str(path.relative_to(ROOT)) if path.is_relative_to(ROOT) else ""
    if name not in ALLOWED and not name.startswith(INSIDE):
        yield from writes(path.read_text(), command=name.startswith("ale/"))


def writes(source: str, *, command: bool) -> Iterator[tuple[int, str]]:
    """Yield them of one file, which belongs to `ale` or to a library."""
    for node in ast.walk(ast.parse(source)):
        if what := _round(node) or ("" if command else _prints(node)):
            yield node.lineno, f"{what}: use ale.terminal, or list the file in scripts/check_printing.py"  # type: ignore[attr-defined]


def _round(node: ast.AST) -> str:
    """Say how a node reaches a terminal behind the streams; "" if it does not."""
    if isinstance(node, ast.Attribute):
        if node.attr.startswith("__std") and _is(node.value, "sys"):
            return f"sys.{node.attr}"
        if node.attr in ("buffer", "fileno", "detach") and _stream(node.value):
            return f"sys.{node.value.attr}.{node.attr}"  # type: ignore[attr-defined]
    if isinstance(node, ast.ImportFrom) and node.module in ("sys", "rich"):
        return next(
            (f"from {node.module} import {n.name}" for n in node.names if n.name in (*STREAMS, "print")), ""
        )
    if isinstance(node, ast.Constant) and node.value == "/dev/tty":
        return "/dev/tty"
    if not isinstance(node, ast.Call):
        return ""
    called = getattr(node.func, "attr", getattr(node.func, "id", ""))
    if called == "Console":
        return "a console of rich's own"
    if _is(node.func, "raw"):
        return "a stream behind ours"
    first = node.args[0] if node.args else None
    if called in ("write", "fdopen", "open") and isinstance(first, ast.Constant) and first.value in (1, 2):
        return f"{called}({first.value}, ...)"
    where = getattr(node.func, "value", None)
    if (called in SPAWNS and _is(where, "subprocess")) or called.startswith("create_subprocess_"):
        given = {word.arg for word in node.keywords}
        apart = {"stdout", "stderr"} <= given and not any(
            _stream(word.value) or _is_terminal(word.value) for word in node.keywords if word.arg in STREAMS
        )
        if not apart and "capture_output" not in given and None not in given:
            return f"{called} of a child that inherits standard output or error"
    return ""


def _prints(node: ast.AST) -> str:
    """Say how a node of a library prints; "" if it does not."""
    if _stream(node):
        return f"sys.{node.attr}"  # type: ignore[attr-defined]
    if isinstance(node, ast.Call):
        if _is(node.func, "print"):
            return "print"
        if getattr(node.func, "attr", "") in ECHOES and _is(
            getattr(node.func, "value", None), "typer", "click"
        ):
            return "echo"
    return ""


def _is_terminal(node: ast.AST) -> bool:
    return isinstance(node, ast.Constant) and node.value in (None, 1, 2)


def _stream(node: ast.AST) -> bool:
    return isinstance(node, ast.Attribute) and node.attr in STREAMS and _is(node.value, "sys")


def _is(node: ast.AST | None, *names: str) -> bool:
    return isinstance(node, ast.Name) and node.id in names


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
