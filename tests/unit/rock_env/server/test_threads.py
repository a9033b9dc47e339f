"""Threads of a server: a tenant's long work holds up nobody else's, and asyncio's own pool is used by nobody."""

from __future__ import annotations

import ast
import asyncio
import threading
from pathlib import Path

import pytest
from waiting import until

import rock_env
from rock_env.threads import for_callers, for_life

ROOT = Path(rock_env.__file__).parent
FILES = [file for folder in ("server", "backends", "store") for file in (ROOT / folder).rglob("*.py")]


async def test_a_tenant_has_a_share_of_the_threads() -> None:
    release, begun = threading.Event(), []

    def wait() -> None:
        begun.append(1)
        release.wait(60)

    greedy = [asyncio.ensure_future(for_callers("blue", wait)) for _ in range(20)]
    try:
        assert await for_callers("red", lambda: "done") == "done"
        assert await for_life(lambda: "alive") == "alive"
        await until(lambda: len(begun) >= 2)  # the second thread may take a while to begin
        assert len(begun) == 2
    finally:
        release.set()
        await asyncio.gather(*greedy)
    assert len(begun) == 20


async def test_who_gives_up_while_waiting_begins_nothing() -> None:
    release, begun = threading.Event(), []
    holding = [asyncio.ensure_future(for_callers("blue", release.wait, 60)) for _ in range(2)]
    await asyncio.sleep(0)
    waiting = asyncio.ensure_future(for_callers("blue", begun.append, 1))
    await asyncio.sleep(0)
    waiting.cancel()
    release.set()
    await asyncio.gather(*holding, waiting, return_exceptions=True)
    assert (await for_callers("blue", lambda: "free"), begun) == ("free", [])


@pytest.mark.parametrize("file", FILES, ids=lambda file: str(file.relative_to(ROOT)))
def test_nothing_runs_in_asyncios_own_pool(file: Path) -> None:
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            assert node.func.attr != "to_thread", f"{file}:{node.lineno}: use rock_env.threads"
            if node.func.attr == "run_in_executor":
                first = node.args[0]
                assert not (isinstance(first, ast.Constant) and first.value is None), f"{file}:{node.lineno}"
