"""Episodes of programs that work in the sandbox itself: another server goes on with them when theirs is killed."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable

import pytest
from integration.replica_fleet import LEASE_S, Fleet, Server, running_fleet

from agent_runtime.agents.tunnel import open_tunnel
from agent_runtime.surviving import Surviving
from rock_env.client import Client
from rock_env.client.env import AsyncEnv
from rock_env.client.sandbox.handle import AsyncSandbox
from rock_env.env import Verdict
from rock_env.errors import FailedPrecondition, NotFound, RockError
from rock_env.plugins import env_params, load_env
from rock_env.proto.v1 import sandbox_pb2 as pb
from rock_env.sandbox import ExecResult

TASK = "train/0"


@pytest.fixture
async def fleet(new_database: Callable[[], str]) -> AsyncIterator[Fleet]:
    async with running_fleet(new_database()) as made:
        yield made


@contextlib.asynccontextmanager
async def client(server: Server) -> AsyncIterator[Client]:
    async with Client(server.address, retry_for_s=60.0) as made:
        yield made


async def run(box: AsyncSandbox, script: str, workdir: str = "") -> ExecResult:
    return await box.exec(["/bin/sh", "-c", script], cwd=workdir or None, timeout_s=60.0)


async def solve(box: AsyncSandbox, workdir: str) -> None:
    """Do in the sandbox what the oracle would do by actions."""
    spec = load_env("terminal")
    params = env_params(spec, "{}")
    oracle, seen = spec.oracle(params, spec.tasks(params).get("train", 0)), ""
    while (action := oracle(seen)).startswith("bash "):
        seen = (await run(box, action.removeprefix("bash "), workdir)).stdout.decode()


async def begun(rock: Client, env: str = "terminal") -> AsyncEnv:
    made = await rock.make(env)
    await made.reset(TASK, 0, durable=True)
    return made


async def live(server: Server) -> set[str]:
    states = [pb.SANDBOX_STATE_RUNNING, pb.SANDBOX_STATE_STARTING, pb.SANDBOX_STATE_DELETING]
    reply = await server.boxes.List(pb.ListSandboxesRequest(states=states), timeout=60)
    return {info.id for info in reply.sandboxes}


async def test_work_in_a_sandbox_is_graded_by_another_server(fleet: Fleet) -> None:
    first, second = await fleet.start(), await fleet.start()
    async with client(first) as rock, client(second) as other:
        env = await begun(rock)
        box = await other.sandboxes.attach(env.sandbox_id)
        async with box.start(["sleep", "617"], timeout_s=900.0):
            first.kill()
            await first.ended()
            await solve(box, env.workdir)
            assert "617" in (await run(box, "cat /proc/[0-9]*/cmdline")).stdout.decode(), "it runs on"
            taken = await _at(other, env.sandbox_id).take_over()
            assert (await taken.evaluate()).passed
            await taken.close()
        assert await live(second) == set()


ASK = """
import socket, sys
with socket.create_connection(("127.0.0.1", int(sys.argv[1]))) as sock:
    sock.sendall(b"first ")
    print(sock.recv(100).decode(), flush=True)
    input()
    sock.sendall(b"second")
    print(sock.recv(100).decode())
"""


async def test_an_agent_keeps_its_way_to_the_gateway(fleet: Fleet) -> None:
    async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(100):
            writer.write(data)
        writer.close()

    first, second = await fleet.start(), await fleet.start()
    gateway = await asyncio.start_server(echo, "127.0.0.1", 0)
    async with gateway, client(first) as rock, client(second) as other:
        env = await begun(rock)
        box = await other.sandboxes.attach(env.sandbox_id)
        async with open_tunnel(box, gateway.sockets[0].getsockname()[:2]) as tunnel:
            argv = ["python3", "-c", ASK, tunnel.base_url.rpartition(":")[2]]
            async with box.start(argv, timeout_s=300.0) as agent:
                output = agent.output()
                assert (await anext(output)).data == b"first \n"
                first.kill()
                await first.ended()
                await agent.write(b"\n")
                assert b"".join([piece.data async for piece in output]) == b"second\n"


def _at(rock: Client, sandbox_id: str) -> AsyncEnv:
    """Return what a client holds of an environment whose server is gone."""
    lost = AsyncEnv(rock, env_id="e00000000-1", name="terminal", version="", params_json="{}")
    lost.sandbox_id, lost.durable = sandbox_id, True
    return lost


async def test_a_rollout_goes_on_without_being_told(fleet: Fleet) -> None:
    first, second = await fleet.start(), await fleet.start()
    async with client(second) as rock:
        surviving = Surviving(_Elsewhere(rock, first), in_sandbox=True)
        env = await surviving.make("terminal", "{}")
        await env.reset(TASK, 0)
        box = await env.sandbox()
        await solve(box, env.workdir)
        first.kill()
        await first.ended()
        assert (await env.evaluate()).passed
        assert surviving.losses == 1
        await env.close()
        assert await live(second) == set()


async def test_a_rollout_that_is_given_up_leaves_no_sandbox(fleet: Fleet) -> None:
    first, second = await fleet.start(), await fleet.start()
    async with client(second) as rock:
        env = await Surviving(_Elsewhere(rock, first), in_sandbox=True).make("terminal", "{}")
        await env.reset(TASK, 0)
        await env.sandbox()
        first.kill()
        await first.ended()
        await env.close()
        assert await live(second) == set()


class _Elsewhere:
    """Makes environments at one server that are then driven through another."""

    def __init__(self, rock: Client, server: Server) -> None:
        self._rock, self._server = rock, server

    async def make(self, env: str, params_json: str) -> AsyncEnv:
        async with client(self._server) as there:
            made = await there.make(env, params_json)
        return AsyncEnv(
            self._rock, env_id=made.env_id, name=env, version=made.version, params_json=params_json
        )


async def test_what_the_living_server_had_is_left_to_the_new_environment(fleet: Fleet) -> None:
    first, second = await fleet.start(), await fleet.start()
    async with client(first) as rock, client(second) as other:
        env = await begun(rock)
        await solve(await env.sandbox(), env.workdir)
        lost = _at(other, env.sandbox_id)
        both = await asyncio.gather(lost.take_over(), lost.take_over(), return_exceptions=True)
        # Both are made, where the second was asked when the first had it: then the first is a former one, too.
        made = [it for it in both if isinstance(it, AsyncEnv)]
        assert all(isinstance(it, FailedPrecondition) for it in both if not isinstance(it, AsyncEnv))
        grades = await asyncio.gather(*(it.evaluate() for it in (env, *made)), return_exceptions=True)
        assert isinstance(grades[0], RockError)
        ((taken, grade),) = [
            (it, grade)
            for it, grade in zip(made, grades[1:], strict=True)
            if not isinstance(grade, RockError)
        ]
        assert isinstance(grade, Verdict)
        assert grade.passed
        for former in (env, *made):
            if former is not taken:
                with contextlib.suppress(RockError):
                    await former.close()
        assert await live(second) == {env.sandbox_id}, "the former environment's end is not the sandbox's"
        await taken.close()
        assert await live(second) == set()


async def test_an_episode_that_went_on_is_not_taken_over(fleet: Fleet) -> None:
    first = await fleet.start()
    async with client(first) as rock:
        env = await begun(rock)
        await env.step("bash true")
        with pytest.raises(FailedPrecondition, match="no episode"):
            await env.take_over()
        assert (await env.step("bash echo on")).observation, "and it is as it was"
        plain = await rock.make("terminal")
        await plain.reset(TASK, 0)
        assert not plain.durable
        with pytest.raises(FailedPrecondition, match="no episode"):
            await plain.take_over()
        mine = await rock.sandboxes.create()
        with pytest.raises(FailedPrecondition, match="no episode"):
            await _at(rock, mine.id).take_over()
        for unknown in ("sb-0123456789abcdef", "x", ""):
            with pytest.raises(NotFound):
                await _at(rock, unknown).take_over()


async def test_a_box_that_nobody_could_go_on_in_ends_with_its_server(fleet: Fleet) -> None:
    first, second = await fleet.start(), await fleet.start()
    async with client(first) as rock:
        stepped, kept = await begun(rock), await begun(rock)
        await stepped.step("bash true")
    first.kill()
    await first.ended()

    for _ in range(200):
        if await live(second) == {kept.sandbox_id}:
            return
        await asyncio.sleep(LEASE_S / 10)
    pytest.fail(f"they live on: {await live(second)}")


async def test_an_environment_whose_server_was_thought_dead_acts_no_more(fleet: Fleet) -> None:
    first, second = await fleet.start(), await fleet.start()
    async with client(first) as rock, client(second) as other:
        env = await begun(rock)
        first.process.send_signal(19)
        taken = await _at(other, env.sandbox_id).take_over()
        await solve(await taken.sandbox(), env.workdir)
        first.process.send_signal(18)
        with pytest.raises(RockError):
            await env.evaluate(timeout_s=30.0)
        with contextlib.suppress(RockError):
            await env.close()
        assert (await taken.evaluate()).passed
        await taken.close()
