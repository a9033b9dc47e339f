"""The browser over MCP: an agent in the box solves tasks with it, and what it asks for wrongly is told."""

from __future__ import annotations

import base64
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from rock_env.errors import InfraError
from rock_env.sandbox import Command, OutputChunk, Sandbox
from rock_env.spec import TaskSpec
from sandboxes.browser import ENV
from sandboxes.browser.actions import Action, parse
from sandboxes.browser.box.mcp import TOOLS
from sandboxes.browser.catalog import BrowserTasks, scenario
from sandboxes.browser.env import BrowserEnv
from sandboxes.browser.params import BrowserParams
from sandboxes.browser.reply import Reply
from sandboxes.browser.view import render

pytestmark = pytest.mark.timeout(300)
PARAMS = BrowserParams()
SERVER = ["python3", "-m", "sandboxes.browser.box.mcp"]


class Session:
    """A client of the server that runs in a box."""

    def __init__(self, command: Command) -> None:
        self._command, self._events = command, command.events()
        self._unread, self._asked = b"", 0

    async def ask(self, method: str, **params: Any) -> dict[str, Any]:
        self._asked += 1
        request = {"jsonrpc": "2.0", "id": self._asked, "method": method, "params": params}
        self._command.write_stdin(json.dumps(request).encode() + b"\n")
        while b"\n" not in self._unread:
            event = await anext(self._events)
            assert isinstance(event, OutputChunk), event
            assert event.stream == "stdout", event.data
            self._unread += event.data
        line, _, self._unread = self._unread.partition(b"\n")
        reply: dict[str, Any] = json.loads(line)
        assert reply["id"] == self._asked
        return reply

    async def call(self, name: str, **arguments: Any) -> str:
        """Return a tool's text; it must have worked."""
        result = (await self.ask("tools/call", name=name, arguments=arguments))["result"]
        assert not result.get("isError"), result
        return str(result["content"][0]["text"])


@asynccontextmanager
async def served(box: Sandbox) -> AsyncIterator[Session]:
    async with box.start(SERVER, cwd="/tmp", timeout_s=120.0) as command:
        yield Session(command)


def as_seen(text: str) -> str:
    """Return a tool's text as the observation of the same page."""
    tree = text.partition("```yaml\n")[2].rpartition("\n```")[0]
    return render(Reply(tree, (("", ""),), 0, "", (), "", False, 0.0), "", 20_000)


def tool_for(action: Action) -> tuple[str, dict[str, Any]]:
    """Return the tool that does an action of the environment, and its arguments."""
    args = action.args
    match action.op:
        case "click":
            return "browser_click", {"element": "it", "ref": args["bid"]}
        case "fill":
            return "browser_type", {"ref": args["bid"], "text": args["value"]}
        case "check" | "uncheck":
            wanted = "true" if action.op == "check" else "false"
            field = {"name": "it", "type": "checkbox", "ref": args["bid"], "value": wanted}
            return "browser_fill_form", {"fields": [field]}
        case "select_option":
            return "browser_select_option", {"ref": args["bid"], "values": [args["options"]]}
        case "upload_file":
            return "browser_file_upload", {"ref": args["bid"], "paths": [args["file"]]}
        case "on_dialog":
            return "browser_handle_dialog", {"accept": args["answer"] == "accept"}
        case "send_msg_to_user":
            return "send_msg_to_user", {"text": args["text"]}
    raise AssertionError(f"no tool for {action.op}")


async def do(session: Session, action: Action) -> str:
    """Do what an action of the environment does by the tool for it."""
    name, arguments = tool_for(action)
    return await session.call(name, **arguments)


async def begun(box: Sandbox, payload: str) -> tuple[BrowserEnv, TaskSpec]:
    """Begin a task, named by its template and variant."""
    source = BrowserTasks(PARAMS)
    tasks = (source.get(split, index) for split in source.splits for index in range(22))
    task = next(each for each in tasks if each.payload == payload)
    env = BrowserEnv(PARAMS)
    await env.reset(box, task, 0)
    return env, task


@pytest.mark.parametrize(
    "payload", ["files-number/0", "files-clear/0", "files-upload/0", "signup-register/0"]
)
async def test_an_agent_in_the_box_solves_tasks_by_tools_alone(box: Sandbox, payload: str) -> None:
    env, task = await begun(box, payload)
    assert "sandboxes.browser.box.mcp" in task.brief
    assert "click(" not in task.brief
    oracle = ENV.oracle(PARAMS, task)
    async with served(box) as session:
        hello = await session.ask("initialize", protocolVersion="2025-06-18", capabilities={})
        assert hello["result"]["capabilities"] == {"tools": {}}
        seen, op = await session.call("browser_snapshot"), ""
        while op != "send_msg_to_user":
            action = parse(oracle(as_seen(seen)))
            seen, op = await do(session, action), action.op
    verdict = await env.evaluate(box)
    assert (verdict.reward, verdict.passed) == (1.0, True), verdict


async def test_tools_are_listed_and_what_is_wrong_is_told(box: Sandbox) -> None:
    await begun(box, "files-number/0")
    async with served(box) as session:
        listed = (await session.ask("tools/list"))["result"]["tools"]
        assert [tool["name"] for tool in listed] == list(TOOLS)
        assert (await session.ask("ping"))["result"] == {}
        assert (await session.ask("resources/list"))["error"]["code"] == -32601
        assert (await session.ask("tools/call", name="browser_evaluate"))["error"]["code"] == -32602
        for name, arguments, said in (
            ("browser_click", {}, "missing: ref"),
            ("browser_click", {"ref": 5}, "ref must be of the kind string"),
            ("browser_click", {"ref": "e1", "button": "up"}, "button is one of"),
            ("browser_click", {"ref": "e999"}, "no element 'e999'"),
            ("browser_navigate", {"url": "file:///etc/passwd"}, "is not of this site"),
            ("browser_wait_for", {"time": 1, "until": "x"}, "there is no argument 'until'"),
            ("browser_tabs", {"action": "select"}, "with an index"),
        ):
            result = (await session.ask("tools/call", name=name, arguments=arguments))["result"]
            assert result["isError"] is True
            assert said in result["content"][0]["text"]
        opened = await session.call("browser_tabs", action="new")
        assert "- 1: (current) []" in opened
        await session.call("browser_tabs", action="close", index=1)
        assert "Files: /" in await session.call("browser_navigate", url="http://files.test/at/")
        shot = await session.ask("tools/call", name="browser_take_screenshot", arguments={})
        (picture,) = shot["result"]["content"]
        assert picture["mimeType"] == "image/png"
        assert base64.b64decode(picture["data"]).startswith(b"\x89PNG\r\n")


async def test_there_is_nothing_to_use_before_the_episode(box: Sandbox) -> None:
    ended = await box.exec(SERVER, cwd="/tmp")
    assert ended.exit_code == 1
    assert b"no browser runs in this box" in ended.stderr


FORGE = """
import json, os, pathlib, sys
state = json.loads(sys.argv[1])
tried, opened = 0, []
for name in ("state.json", "message.txt", "browser/state.json", "browser/message.txt"):
    pathlib.Path(name).parent.mkdir(exist_ok=True)
    pathlib.Path(name).write_text(json.dumps(state))
for each in pathlib.Path("/proc").glob("[0-9]*"):
    try:
        line = (each / "cmdline").read_bytes()
    except OSError:
        continue
    if b"sandboxes.browser.box" in line and int(each.name) != os.getpid():
        for name in ("mem", "fd/0", "fd/1", "environ"):
            tried += 1
            try:
                os.close(os.open(each / name, os.O_RDWR if name == "mem" else os.O_RDONLY))
                opened.append(f"{each}/{name}")
            except OSError:
                pass
print(json.dumps([tried, opened]))
"""
END_SERVER = """
import os, pathlib, signal
for each in pathlib.Path("/proc").glob("[0-9]*"):
    if int(each.name) != os.getpid() and b"sandboxes.browser.box.server" in (each / "cmdline").read_bytes():
        os.kill(int(each.name), signal.SIGKILL)
"""
ASK_DRIVER = """
import json, socket, sys
from sandboxes.browser.box.driver import socket_path
with socket.socket(socket.AF_UNIX) as connection:
    connection.connect(socket_path())
    connection.sendall(json.dumps({"do": sys.argv[1], "site": "files", "folder": "/tmp"}).encode() + b"\\n")
    print(connection.makefile().readline())
"""


async def test_an_agent_in_the_box_cannot_write_what_is_graded(box: Sandbox) -> None:
    env, _ = await begun(box, "files-clear/0")
    wanted = scenario("files-clear/0")
    listed = {entry.path for entry in await box.list_files("browser", recursive=True)}
    assert listed == set(), "the state is in no file"
    done = {"tree": {}, **wanted.state}
    forged = await box.exec(["python3", "-c", FORGE, json.dumps(done)])
    tried, opened = json.loads(forged.stdout)
    assert tried >= 8, "a driver and a server were found"
    assert opened == []
    for asked in ("end", "start"):
        assert (await box.exec(["python3", "-c", ASK_DRIVER, asked])).stdout.strip() == b""
    verdict = await env.evaluate(box)
    assert (verdict.reward, verdict.passed) == (0.0, False)
    assert await env.evaluate(box) == verdict, "graded once"
    assert not [each for each in await box.processes() if each.end is None], "nothing runs any more"


async def test_a_server_that_was_ended_voids_the_episode(box: Sandbox) -> None:
    env, _ = await begun(box, "files-clear/0")
    assert (await box.exec(["python3", "-c", END_SERVER])).ok
    with pytest.raises(InfraError, match="cannot tell its state"):
        await env.evaluate(box)
