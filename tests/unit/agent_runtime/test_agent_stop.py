"""An agent that is told to end just as it ends by itself; only a fake command meets that moment surely."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from types import TracebackType
from typing import Self

import pytest

from agent_runtime.agents import cli_run
from agent_runtime.agents.cli_run import AgentRun
from agent_runtime.agents.spec import load_agent
from rock_env.errors import RockError, Unavailable
from rock_env.sandbox import ExecResult, OutputChunk


class EndingCommand:
    """A command whose connection is gone when the signal is written; its reader sees `end`."""

    def __init__(self, end: ExecResult | RockError) -> None:
        self._end = end
        self._ended = asyncio.Event()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...

    async def write(self, data: bytes) -> None: ...

    async def close_stdin(self) -> None: ...

    async def signal(self, number: int) -> None:
        self._ended.set()
        raise Unavailable("the connection broke while a command's input was written")

    async def output(self) -> AsyncGenerator[OutputChunk]:
        await self._ended.wait()
        if isinstance(self._end, RockError):
            raise self._end
        yield OutputChunk("stdout", b"done")

    async def wait(self) -> ExecResult:
        assert isinstance(self._end, ExecResult)
        return self._end


async def stopped(end: ExecResult | RockError) -> tuple[ExecResult, bytearray, bool]:
    stop = asyncio.Event()
    stop.set()
    lost = asyncio.get_running_loop().create_future()
    run = AgentRun("fix it", "key")
    return await cli_run._watch(EndingCommand(end), load_agent("pi"), run, lost, stop)


async def test_one_that_has_just_ended_by_itself_ended_well() -> None:
    whole = ExecResult(0, None, b"", b"", 1.0)
    assert await stopped(whole) == (whole, bytearray(b"done"), True)


async def test_a_broken_connection_is_told_by_whoever_reads() -> None:
    with pytest.raises(Unavailable, match="the server is gone"):
        await stopped(Unavailable("the server is gone"))
