"""The tools over MCP: the official client, the real server process, a real sandbox."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from rock_env.client import AsyncSandbox, Client, Credentials
from rock_env.local import EmbeddedServer, start_embedded

mcp = pytest.importorskip("mcp", reason="the mcp package is not installed (extra mcp)")

SERVER = [sys.executable, "-m", "rock_env.tools.mcp"]
SOURCE = b"def add(a, b):\n    return a - b\n"


@pytest.fixture(scope="module")
def server() -> Iterator[EmbeddedServer]:
    with start_embedded(["--isolation=none"]) as started:
        yield started


@pytest.fixture
async def sandbox(server: EmbeddedServer) -> AsyncIterator[AsyncSandbox]:
    async with (
        Client(server.address, credentials=Credentials()) as client,
        await client.sandboxes.create() as made,
    ):
        await made.files.write("project/calc.py", SOURCE)
        yield made


@asynccontextmanager
async def session(server: EmbeddedServer, sandbox: AsyncSandbox, *more: str) -> AsyncIterator[Any]:
    """Start the server as an MCP client does, and yield the client's session."""
    words = [*SERVER[1:], "--sandbox", sandbox.id, "--rock", server.address, "--project", "project", *more]
    parameters = mcp.StdioServerParameters(command=SERVER[0], args=words)
    async with (
        mcp.stdio_client(parameters) as (incoming, outgoing),
        mcp.ClientSession(incoming, outgoing) as opened,
    ):
        await opened.initialize()
        yield opened


async def call(opened: Any, tool: str, **args: object) -> tuple[str, bool]:
    """Return what a tool replied and whether that is an error."""
    result = await opened.call_tool(tool, args)
    (content,) = result.content
    return content.text, result.is_error


async def test_a_task_is_played(server: EmbeddedServer, sandbox: AsyncSandbox) -> None:
    check = "python -c 'import calc; print(calc.add(1, 2))'"
    async with session(server, sandbox, "--test-command", check) as opened:
        listed = (await opened.list_tools()).tools
        assert [tool.name for tool in listed] == ["bash", "view", "edit", "undo", "run_tests", "submit"]
        assert listed[2].input_schema["required"] == ["path", "old", "new"]
        assert await call(opened, "bash", command="cd ..; export A=1; ls") == (
            "[exit code 0]\nproject",
            False,
        )
        assert await call(opened, "bash", command="echo $A $(ls)") == ("[exit code 0]\n1 project", False)
        assert await call(opened, "run_tests") == ("[exit code 0]\n-1", False)
        shown, _ = await call(opened, "view", path="calc.py", first=2)
        assert shown == "calc.py (lines 2-2 of 2)\n    return a - b"
        change = {"path": "calc.py", "old": "a - b", "new": "a + b"}
        assert await call(opened, "edit", **change) == ("Edited calc.py: lines 2-2.", False)
        assert await call(opened, "run_tests") == ("[exit code 0]\n3", False)
        again, failed = await call(opened, "edit", **change)
        assert failed
        assert "0 matches in calc.py" in again
        assert await call(opened, "undo") == ("Undone: calc.py is as before that edit.", False)
        assert await sandbox.files.read("project/calc.py") == SOURCE
        assert await call(opened, "submit") == ("Submitted.", False)
        assert await call(opened, "bash", command="ls") == ("[failed] the task has ended with submit.", True)


async def test_wrong_calls_are_results_that_name_the_field(
    server: EmbeddedServer, sandbox: AsyncSandbox
) -> None:
    async with session(server, sandbox) as opened:
        assert "run_tests" not in {tool.name for tool in (await opened.list_tools()).tools}
        assert await call(opened, "viw", path="calc.py") == (
            "[not run] name: no tool 'viw'; the tools are bash, view, edit, undo, run_tests, submit.",
            True,
        )
        wrong, failed = await call(opened, "view", path=3)
        assert failed
        assert "view: path: expected a string, got a number" in wrong


async def test_calls_sent_side_by_side_run_one_after_another(
    server: EmbeddedServer, sandbox: AsyncSandbox
) -> None:
    async with session(server, sandbox) as opened:
        step = "read n < count || n=0; sleep 0.05; echo $((n + 1)) > count; N=$((N + 1))"
        await asyncio.gather(*[call(opened, "bash", command=step) for _ in range(4)])
        assert await call(opened, "bash", command="cat count; echo $N") == ("[exit code 0]\n4\n4", False)


async def test_a_sandbox_that_is_gone_is_an_error_of_the_server(
    server: EmbeddedServer, sandbox: AsyncSandbox
) -> None:
    async with session(server, sandbox) as opened:
        await sandbox.delete()
        for tool, args in (("bash", {"command": "ls"}), ("view", {"path": "calc.py"})):
            with pytest.raises(mcp.MCPError, match="the sandbox cannot be used"):
                await opened.call_tool(tool, args)


def test_without_its_sandbox_or_server_it_says_so_and_ends(server: EmbeddedServer) -> None:
    def run(*words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run([*SERVER, *words], capture_output=True, text=True, check=False, timeout=60)

    unknown = run("--sandbox", "none", "--rock", server.address)
    assert unknown.returncode not in (0, 1)
    assert unknown.stderr.startswith("NotFound: ")
    assert len(unknown.stderr.splitlines()) == 1
    assert "--sandbox" in run("--rock", server.address).stderr


def test_without_the_package_it_says_what_to_install() -> None:
    absent = "import runpy, sys; sys.modules['mcp_types'] = None; "
    for act in ("runpy.run_module('rock_env.tools.mcp', run_name='__main__')", "import rock_env.tools.mcp"):
        ended = subprocess.run(
            [sys.executable, "-c", absent + act], capture_output=True, text=True, check=False, timeout=60
        )
        assert ended.returncode == 1
        assert "pip install 'ale-rl[mcp]'" in ended.stderr.splitlines()[-1]
        assert len(ended.stderr.splitlines()) == 1 or "import rock_env" in act
