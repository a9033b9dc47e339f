"""A CLI agent's life in a sandbox: told its task, led to the gateway, ended in time, and nothing of it left."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from command_line import ale

from agent_runtime.agents.cli_run import AgentRun, Ending, run_agent
from agent_runtime.agents.install import MANIFEST
from agent_runtime.agents.spec import AgentSpec, load_agent, read_spec
from rock_env.client import Client
from rock_env.client.sandbox.handle import AsyncSandbox
from rock_env.errors import FailedPrecondition, InvalidArgument
from rock_env.local import embedded
from rock_env.spec import SandboxSpec

AGENT = """
import json, os, subprocess, sys, time, urllib.request
what, home = sys.argv[1], os.environ["HOME"]
if what == "tell":
    asked = urllib.request.Request(os.environ["URL"], headers={"Authorization": os.environ["KEY"]})
    print(json.dumps({"said": urllib.request.urlopen(asked).read().decode(), "prompt": sys.argv[2],
                      "stdin": sys.stdin.read(), "cwd": os.getcwd(),
                      "config": open(home + "/.own/config").read()}))
    sys.exit(7)
subprocess.Popen(["sleep", "300"], start_new_session=True)  # detached from everything but its variables
if what == "stay":
    time.sleep(300)
"""


def agent_yaml(what: str, stdin: str = "nothing") -> str:
    prompt = '"{prompt}"' if stdin == "nothing" else '""'
    return f"""
        name: own
        version: "1"
        about: a test's
        dialect: chat
        install: {{pip: ["own==1.0"], program: "own:main"}}
        command: [{what}, {prompt}]
        env: {{URL: "{{base_url}}/x", KEY: "Bearer {{key}}"}}
        files: {{.own/config: "{{model}} {{context_tokens}} {{output_tokens}}"}}
        stdin: {stdin}
        """


def agent(what: str, stdin: str = "nothing") -> AgentSpec:
    return read_spec(agent_yaml(what, stdin), source="test")


@pytest.fixture
def shelf(tmp_path: Path) -> Path:
    """A shelf with the agent, as an install leaves it."""
    folder = tmp_path / "shelf" / agent("tell").folder
    folder.mkdir(parents=True)
    (folder / "start.py").write_text(AGENT)
    (folder / MANIFEST).write_text("{}")
    return tmp_path / "shelf"


@pytest.fixture
async def box(shelf: Path) -> AsyncIterator[AsyncSandbox]:
    """A sandbox whose server shows the shelf."""
    async with (
        embedded([f"--shelf={shelf}"]) as address,
        Client(address) as client,
        await client.sandboxes.create(spec=SandboxSpec()) as made,
    ):
        yield made


@pytest.fixture
async def gateway() -> AsyncIterator[tuple[str, int]]:
    """An HTTP server that says who asked."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        key = next(line for line in head.splitlines() if line.lower().startswith("authorization"))
        body = f"{head.split()[1]} {key.partition(': ')[2]}".encode()
        writer.write(
            b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body)
        )
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server:
        yield server.sockets[0].getsockname()[:2]


async def processes(box: AsyncSandbox) -> str:
    return (await box.exec(["sh", "-c", "grep -al 'sl[e]ep' /proc/[0-9]*/cmdline; true"])).stdout.decode()


@pytest.mark.first
async def test_an_agent_is_told_its_task_and_reaches_the_gateway(
    box: AsyncSandbox, gateway: tuple[str, int]
) -> None:
    run = AgentRun("fix {key} it", "k1", "m1", context_tokens=999)
    end = await run_agent(box, agent("tell"), run, gateway=gateway)
    assert (end.ending, end.exit_code, end.leftovers) == (Ending.EXITED, 7, 0), end.output.decode()
    assert json.loads(end.output) == {
        "said": "/x Bearer k1",
        "prompt": "fix {key} it",
        "stdin": "",
        "cwd": "/workspace",
        "config": "m1 999 4096",
    }


@pytest.mark.first
async def test_the_command_runs_an_agent_and_tells_it_of_its_model(
    shelf: Path, gateway: tuple[str, int], tmp_path: Path
) -> None:
    (tmp_path / "own.yaml").write_text(agent_yaml("tell"))
    where = ["--url", f"http://127.0.0.1:{gateway[1]}", "--shelf", str(shelf)]
    told = ["--key", "k1", "--model", "m1", "--context-tokens", "999", "--output-tokens", "77"]
    done = await asyncio.to_thread(ale, "agent", "run", "own.yaml", "fix it", *where, *told, cwd=tmp_path)
    assert done.returncode == 70, done.stderr
    assert "own.yaml failed: exited (exit code 7)" in done.stderr
    said = json.loads("".join(done.stdout.splitlines()))  # its lines are wrapped
    assert (said["said"], said["prompt"], said["config"]) == ("/x Bearer k1", "fix it", "m1 999 77")


async def test_a_prompt_too_long_for_an_argument_goes_through_stdin(
    box: AsyncSandbox, gateway: tuple[str, int]
) -> None:
    long = "x" * 200_000
    with pytest.raises(InvalidArgument, match="200000 bytes"):
        await run_agent(box, agent("tell"), AgentRun(long, "k"), gateway=gateway)
    end = await run_agent(box, agent("tell", stdin="prompt"), AgentRun(long, "k"), gateway=gateway)
    assert end.output.decode().count("x") > 60_000  # the end of what it wrote is kept, no more
    assert len(end.output) <= 64 << 10


async def test_what_an_agent_leaves_running_is_ended(box: AsyncSandbox, gateway: tuple[str, int]) -> None:
    end = await run_agent(box, agent("leave"), AgentRun("x", "k"), gateway=gateway)
    assert (end.ending, end.leftovers) == (Ending.EXITED, 1)
    assert not await processes(box)


async def test_an_agent_that_stays_is_ended_at_its_time(box: AsyncSandbox, gateway: tuple[str, int]) -> None:
    end = await run_agent(box, agent("stay"), AgentRun("x", "k", time_limit_s=3.0), gateway=gateway)
    assert end.ending is Ending.OUT_OF_TIME
    assert not await processes(box)


async def test_an_agent_is_stopped_when_its_session_ends(box: AsyncSandbox, gateway: tuple[str, int]) -> None:
    stop = asyncio.Event()
    asyncio.get_running_loop().call_later(2.0, stop.set)
    end = await run_agent(box, agent("stay"), AgentRun("x", "k"), gateway=gateway, stop=stop)
    assert end.ending is Ending.STOPPED
    assert not await processes(box)


async def test_an_agent_that_is_not_on_the_shelf_is_named(
    box: AsyncSandbox, gateway: tuple[str, int]
) -> None:
    with pytest.raises(FailedPrecondition, match="ale agent install codex"):
        await run_agent(box, load_agent("codex"), AgentRun("x", "k"), gateway=gateway)


async def test_the_shelf_cannot_be_written(box: AsyncSandbox) -> None:
    said = await box.exec(["sh", "-c", 'touch "$ROCK_SHELF/x"'])
    assert not said.ok
    assert b"ead-only" in said.stderr or b"ermission" in said.stderr


async def test_a_server_without_a_shelf_says_so(gateway: tuple[str, int]) -> None:
    async with (
        embedded() as address,
        Client(address) as client,
        await client.sandboxes.create(spec=SandboxSpec()) as made,
    ):
        with pytest.raises(FailedPrecondition, match="--shelf"):
            await run_agent(made, agent("tell"), AgentRun("x", "k"), gateway=gateway)
