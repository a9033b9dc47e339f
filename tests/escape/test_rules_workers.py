"""Rules of environments with a sandbox, on a server that others call: they run in a worker, which may do its worst."""

from __future__ import annotations

import asyncio
import json
import pickle
import socket
import subprocess
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import grpc
import msgspec
import pytest
from boxed_env import NOTHING
from fences import why_not_isolated
from rest_servers import RestServer, guarded_rest
from secure_servers import token

from rock_env.env_workers.rules_wire import MOST_BYTES, MOST_FRAME, Done, Wish, framed, read_frame
from rock_env.errors import EnvLost, InfraError, InvalidArgument, NotFound, Unimplemented
from rock_env.proto.v1 import env_pb2 as pb
from rock_env.proto.v1.env_pb2_grpc import EnvServiceStub
from rock_env.server.envs.rules_pool import RulesWorker, WorkerRules
from rock_env.wire.channel import CLIENT_OPTIONS, target

BOXED = Path(__file__).with_name("boxed_env.py")
SECRET = "a secret of the server"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RestServer]:
    folder = tmp_path_factory.mktemp("rules")
    (folder / "secret.pem").write_text(SECRET)
    if why_not_isolated():
        pytest.skip(f"no namespaces here: {why_not_isolated()}")
    more = [
        f"--env={BOXED}:BOXED",
        "--isolation=namespaces",
        "--worker-memory-gib=0.5",
        "--hang-grace-s=0.5",
        "--sandbox-timeout-s=60",
    ]
    with guarded_rest(folder, more) as running:
        yield running


class Player:
    """One tenant's episode."""

    def __init__(self, stub: Any, who: Any) -> None:
        self._stub, self._who, self._turn = stub, who, 0
        self.env_id = self.first = ""

    async def make(self, **params: Any) -> Player:
        made = await self._stub.Make(
            pb.MakeRequest(env="boxed", params_json=json.dumps(params)), metadata=self._who
        )
        self.env_id, self._turn = made.env_id, 1
        reset = pb.ResetRequest(env_id=self.env_id, sequence=1, idempotency_key="r", task_id="train/0")
        self.first = (await self._stub.Reset(reset, metadata=self._who)).observation
        return self

    async def ask(self, action: str, timeout_s: float | None = None) -> str:
        self._turn += 1
        step = pb.StepRequest(
            env_id=self.env_id, sequence=self._turn, idempotency_key=f"{self._turn}", action=action
        )
        return str((await self._stub.Step(step, metadata=self._who, timeout=timeout_s)).observation)

    async def refused(self, action: str) -> str:
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await self.ask(action)
        return str(refused.value.details())


@asynccontextmanager
async def playing(server: RestServer, key: str = "") -> AsyncIterator[Player]:
    who = (("authorization", f"Bearer {key or server.key}"),)
    async with grpc.aio.insecure_channel(target(server.grpc), options=CLIENT_OPTIONS) as channel:
        yield Player(EnvServiceStub(channel), who)


async def test_rules_see_nothing_of_the_host_and_run_in_another_process(server: RestServer) -> None:
    async with playing(server) as player:
        await player.make()
        assert int(player.first) != server.pid
        places = (
            f"{server.tokens}",
            f"{server.tokens.parent}/secret.pem",
            "/etc/passwd",
            f"/proc/{server.pid}/environ",
        )
        for place in (*places, "/proc/self/environ", str(BOXED.with_name("nosy_env.py"))):
            assert await player.ask(place) == NOTHING, place
        assert await player.ask("run echo in the box") == "in the box\n"


async def test_rules_end_no_sandbox_and_read_no_more_than_a_bound(server: RestServer) -> None:
    async with playing(server) as player:
        await player.make()
        assert "its life is the server's" in await player.refused("close")
        await player.make()
        assert "max_output_bytes must be at most" in await player.refused("big true")
        await player.make()
        await player.ask("run head -c 70000000 /dev/zero > large")
        assert "larger than 67108864 bytes" in await player.refused("file large")
        await player.make()
        both = "twice head -c 40000000 /dev/zero; head -c 40000000 /dev/zero >&2"
        assert "expected at most" in await player.refused(both)


async def test_rules_that_hold_their_worker_lose_it_and_hold_up_nobody_else(server: RestServer) -> None:
    green = token(server.tokens, "green", "sandbox", "env")
    async with playing(server) as player, playing(server, green) as neighbour:
        await neighbour.make()
        await player.make()
        holding = asyncio.create_task(player.ask("hold 600", timeout_s=1.0))
        assert await neighbour.ask("run echo meanwhile") == "meanwhile\n"
        with pytest.raises(grpc.aio.AioRpcError) as late:
            await holding
        assert late.value.code() is grpc.StatusCode.DEADLINE_EXCEEDED
        again = await player.make()  # in a new worker
        assert await again.ask("run echo again") == "again\n"
        assert await neighbour.ask("run echo still here") == "still here\n"


async def test_arguments_that_take_memory_are_refused_by_name(server: RestServer) -> None:
    async with playing(server) as player:
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await player.make(eats=4 << 30)
        assert refused.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
        assert "needed more memory than a worker" in str(refused.value.details())
        assert await (await player.make()).ask("run echo well") == "well\n"


# -- a worker that is not ours


class Box:
    """Enough of a sandbox for what a worker asks for."""

    id, failure = "box-1", ""

    async def stat(self, path: str) -> str:
        return f"stat of {path}"

    async def exec(self, argv: list[str], **_: object) -> None:
        await asyncio.sleep(3600)

    async def read_range(self, path: str, *, offset: int, length: int) -> bytes:
        return bytes(length - 1)

    async def list_files(self, path: str) -> list[str]:
        return ["x"] * 20_001


Wrong = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@asynccontextmanager
async def against(worker: Wrong) -> AsyncIterator[WorkerRules]:
    """Yield rules whose worker is `worker`, in the place of a process that does nothing."""
    ours, theirs = socket.socketpair()
    process = subprocess.Popen(["sleep", "3600"])  # noqa: ASYNC220
    reader, writer = await asyncio.open_connection(sock=ours)
    away = await asyncio.open_connection(sock=theirs)
    acting = asyncio.create_task(_acting(worker, *away))
    known = RulesWorker(process, reader, writer, give_up_s=0.05, room_bytes=2 * MOST_BYTES)
    try:
        yield WorkerRules(known, "e-1", "{}", *3 * [False])
    finally:
        acting.cancel()
        await asyncio.gather(acting, return_exceptions=True)
        away[1].close()
        await known.close()
        assert process.poll() is not None


async def _acting(worker: Wrong, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await worker(reader, writer)
    await reader.read()


async def told(reader: asyncio.StreamReader) -> Any:
    return pickle.loads(await read_frame(reader))


def say(writer: asyncio.StreamWriter, message: Any) -> None:
    writer.write(framed(msgspec.msgpack.encode(message)))


def wish(call: int, ask: int, of: int, method: str, arguments: list[Any], **named: Any) -> Wish:
    return Wish(call, ask, of, method, raw((arguments, named)))


def raw(value: Any) -> msgspec.Raw:
    return msgspec.Raw(msgspec.msgpack.encode(value))


async def garbage(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await told(reader)
    writer.write(framed(pickle.dumps(print)))


async def endless(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await told(reader)
    writer.write((MOST_FRAME + 1).to_bytes(4, "big") + b"x")


async def flood(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    call, _, _ = await told(reader)
    for number in range(1000):
        say(writer, wish(call, number, 0, "exec", [["true"]]))


async def bomb(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """End a call nobody made, with a million empty maps."""
    await told(reader)
    say(writer, Done(99, msgspec.Raw(b"\xdd\x00\x10\x00\x00" + b"\x80" * (1 << 20))))


async def deep(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await told(reader)
    writer.write(framed(b"\x91" * 100_000 + b"\x00"))


async def strays(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await told(reader)
    for _ in range(3):
        say(writer, wish(99, 1, 0, "stat", ["a"]))


async def silence(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await told(reader)
    writer.close()


@pytest.mark.parametrize("worker", [garbage, endless, flood, bomb, deep, strays, silence])
async def test_a_worker_that_says_what_no_worker_says_is_lost(worker: Wrong) -> None:
    async with against(worker) as rules:
        with pytest.raises(EnvLost, match="died"):
            await rules.step(Box(), "true")  # type: ignore[arg-type]
        with pytest.raises(EnvLost, match="died"):
            await rules.step(Box(), "true")  # type: ignore[arg-type]


async def test_wishes_beyond_the_calls_own_box_are_refused_one_by_one() -> None:
    answers: list[Any] = []
    wishes: list[Any] = [
        (7, "stat", ["a"]),
        (-1, "exec", [["true"]]),
        (0, "close", []),
        (0, "__class__", []),
        (0, "pristine", []),
        (0, "stat", [1, 2, 3]),
        (0, "end", []),
        (0, "stat", [{"a": {"b": 1}}]),
        (0, "exec", [["true"]], {"timeout_s": float("nan")}),
        (0, "exec", [["true"]], {"max_output_bytes": 1.5}),
        (0, "list_files", ["many"]),
        (0, "stat", ["a"]),
    ]

    async def curious(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        call, _, _ = await told(reader)
        for number, (of, method, arguments, *more) in enumerate(wishes):
            named = more[0] if more else {}
            say(writer, wish(call, number, of, method, arguments, **named))
            answers.append((await told(reader))[2])
        say(writer, Done(call, raw({"observation": "done"})))

    async with against(curious) as rules:
        assert (await rules.step(Box(), "true")).observation == "done"  # type: ignore[arg-type]
    codes = [error and error[0] for _, _, error, _ in answers]
    no, not_there, broken, bad = Unimplemented.code, NotFound.code, InfraError.code, InvalidArgument.code
    assert codes == [not_there, not_there, no, no, no, broken, no, bad, bad, bad, bad, None]
    assert answers[-1][1] == "stat of a"


async def test_a_value_of_another_kind_is_an_error_that_names_it() -> None:
    async def wrong(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        call, _, _ = await told(reader)
        say(writer, Done(call, raw({"observation": 7, "reward": "much"})))

    async with against(wrong) as rules:
        with pytest.raises(InfraError, match="returned what it should not"):
            await rules.step(Box(), "true")  # type: ignore[arg-type]


async def test_a_call_that_is_not_given_up_costs_the_worker_its_life() -> None:
    asked = asyncio.Event()

    async def stubborn(reader: asyncio.StreamReader, _: asyncio.StreamWriter) -> None:
        await told(reader)
        asked.set()

    async with against(stubborn) as rules:
        step = asyncio.create_task(rules.step(Box(), "true"))  # type: ignore[arg-type]
        await asked.wait()
        step.cancel()
        await asyncio.gather(step, return_exceptions=True)
        with pytest.raises(EnvLost, match="did not give up a call"):
            await asyncio.create_task(rules.step(Box(), "true"))  # type: ignore[arg-type]


async def test_a_worker_that_does_not_forget_holds_up_no_close() -> None:
    async def deaf(reader: asyncio.StreamReader, _: asyncio.StreamWriter) -> None:
        await told(reader)

    async with against(deaf) as rules:
        await asyncio.wait_for(rules.close(), 30)


async def test_answers_that_nobody_reads_wait_for_room() -> None:
    """Sixty-four reads of 64 MiB were carried out at once: 4 GiB waited for a worker that read nothing."""
    unread, most = 0, 0

    class Large(Box):
        async def read_range(self, path: str, *, offset: int, length: int) -> bytes:
            nonlocal unread, most
            unread += 1
            most = max(most, unread)
            return bytes(length - 1)

    async def slow(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal unread
        call, _, _ = await told(reader)
        for number in range(12):
            say(writer, wish(call, number, 0, "read_file", ["large"]))
        for _ in range(12):
            _, _, (_, value, error, _) = await told(reader)
            unread -= 1
            assert (len(value), error) == (MOST_BYTES, None)
        say(writer, Done(call, raw({"observation": "done"})))

    async with against(slow) as rules:
        assert (await rules.step(Large(), "true")).observation == "done"  # type: ignore[arg-type]
    assert most <= 3  # two in the room, and one that is read
