"""Input that is on its way when a command ends: no call fails of it, and the command's end is told."""

from __future__ import annotations

import asyncio
from collections import Counter
from contextlib import suppress
from pathlib import Path

import grpc
from grpc._cython.cygrpc import ExecuteBatchError
from rest_servers import guarded_rest

from rock_env.proto.v1 import sandbox_pb2 as pb
from rock_env.proto.v1.sandbox_pb2_grpc import SandboxServiceStub
from rock_env.wire.channel import CLIENT_OPTIONS, target

COMMANDS = 120
AT_ONCE = 4


async def test_input_on_its_way_at_a_commands_end_fails_no_call(tmp_path: Path) -> None:
    answers: Counter[str] = Counter()
    with guarded_rest(tmp_path) as server:
        who = (("authorization", f"Bearer {server.key}"),)
        async with grpc.aio.insecure_channel(target(server.grpc), options=CLIENT_OPTIONS) as channel:
            stub = SandboxServiceStub(channel)
            box = (await stub.Create(pb.CreateSandboxRequest(), metadata=who)).id
            start = pb.ExecRequest(start=pb.ExecStart(sandbox_id=box, argv=["sh", "-c", "exit 7"]))

            async def run() -> None:
                call = stub.Exec(metadata=who)
                await call.write(start)
                ended = asyncio.Event()

                async def write() -> None:
                    with suppress(asyncio.InvalidStateError, grpc.aio.AioRpcError, ExecuteBatchError):
                        while not ended.is_set():
                            await call.write(pb.ExecRequest(stdin=b"more"))
                            await asyncio.sleep(0)
                        await call.done_writing()

                writing = asyncio.ensure_future(write())
                code = None
                try:
                    while (event := await call.read()) is not grpc.aio.EOF:
                        if event.HasField("exit"):
                            code = event.exit.exit_code
                            ended.set()
                    answers[f"exit {code}"] += 1
                except grpc.aio.AioRpcError as error:
                    answers[f"{error.code().name}: {error.details()}"] += 1
                ended.set()
                await writing

            for _ in range(COMMANDS // AT_ONCE):
                await asyncio.gather(*(run() for _ in range(AT_ONCE)))
    assert answers == {"exit 7": COMMANDS}


async def test_a_caller_that_never_says_it_is_done_is_not_waited_for_long(tmp_path: Path) -> None:
    with guarded_rest(tmp_path) as server:
        who = (("authorization", f"Bearer {server.key}"),)
        async with grpc.aio.insecure_channel(target(server.grpc), options=CLIENT_OPTIONS) as channel:
            stub = SandboxServiceStub(channel)
            box = (await stub.Create(pb.CreateSandboxRequest(), metadata=who)).id
            call = stub.Exec(metadata=who)
            await call.write(pb.ExecRequest(start=pb.ExecStart(sandbox_id=box, argv=["true"])))
            events = [event async for event in call]
            assert events[-1].exit.exit_code == 0
            assert await call.code() is grpc.StatusCode.OK
