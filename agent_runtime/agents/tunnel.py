"""How an agent in a sandbox without network reaches the gateway, and nothing else.

Used by `agents/cli_run`. A small program in the sandbox (`relay`) listens on its loopback; every connection to it is carried
over the standard input and output of that program, which are the one thing that any ROCK server, also a remote one, carries
for any backend. Here, outside, each becomes a connection to one fixed address. The sandbox names no address, so it can ask
for no other: what it reaches is what this was opened for.

The relay runs under a key, so it lives on when the server that carries it is gone, and another one carries it on. A sandbox
keeps only so much of what such a command writes; before that is used up another relay listens at the same port.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Coroutine, Sequence
from contextlib import aclosing, asynccontextmanager, suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol, Self

from agent_runtime.agents import relay
from agent_runtime.agents.relay import (
    BLOCK_BYTES,
    COUNT,
    CREDIT,
    DATA,
    END,
    HEADER,
    LISTENS,
    MAX_CONNECTIONS,
    OPEN,
    RESET,
    RETIRE,
    WINDOW_BYTES,
)
from rock_env.errors import InfraError, RockError
from rock_env.sandbox import OutputChunk

__all__ = ["BoxPython", "Target", "Tunnel", "TunnelBox", "TunnelCommand", "open_tunnel"]

Target = tuple[str, int] | Path
"""The gateway's address: host and port, or its unix socket."""
BoxPython = Sequence[str]
"""How the sandbox's own small Python is started; see `cli_run.box_python`."""

_READY_S = 120.0
"""How long the relay may take to start; a sandbox that shares a busy machine needs some of it."""
_LIFETIME_S = 7 * 86400.0
_SAID_BYTES = 2000
_MOST_BYTES = 16 << 20
"""That one relay may write or read: a sandbox keeps no more of a command that can be resumed, nor does a client."""
_RETIRED_AT = 8 << 20
_ENDED_AT = 15 << 20
"""Then connections of a retired relay break, and their agent asks again."""
_MOST_RETIRED = 4
"""Relays at once that another one follows, each with up to `_MOST_BYTES` kept here as well. Those of older ones break."""
_MOST_OPEN = 8 * MAX_CONNECTIONS
"""Connections of one relay, those included that it takes for ended before we do."""

log = logging.getLogger(__name__)


class TunnelCommand(Protocol):
    """A running command of a sandbox, as `rock_env.client`'s."""

    async def __aenter__(self) -> Self: ...

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...

    async def write(self, data: bytes) -> None: ...

    def output(self) -> AsyncGenerator[OutputChunk]: ...


class TunnelBox(Protocol):
    """What starts it."""

    id: str

    def start(
        self, argv: Sequence[str], *, timeout_s: float, max_output_bytes: int, resumable: bool
    ) -> TunnelCommand: ...


class _Tasks:
    """Tasks that end together."""

    def __init__(self) -> None:
        self._running: set[asyncio.Task[None]] = set()

    def spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.get_running_loop().create_task(work)
        self._running.add(task)
        task.add_done_callback(self._running.discard)
        return task

    async def end(self) -> None:
        for task in (running := tuple(self._running)):
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)


class Tunnel:
    """An open tunnel. Made by `open_tunnel`."""

    def __init__(self, start: Callable[[int], TunnelCommand], target: Target) -> None:
        """`start` starts a relay that listens at a port of the sandbox (0: any)."""
        self._start = start
        self._target = target
        self._relay: _Relay | None = None
        self._port = 0
        self._tasks = _Tasks()
        self._living: list[asyncio.Task[None]] = []
        """Of relays, the oldest first."""
        self.lost: asyncio.Future[RockError] = asyncio.get_running_loop().create_future()
        """Done, with the reason, once the tunnel carries nothing any more though nobody closed it."""

    @property
    def base_url(self) -> str:
        """Return the gateway's address as the agent sees it, without a path."""
        return f"http://127.0.0.1:{self._port}"

    async def begin(self) -> None:
        """Wait until the sandbox's end listens. Raise `InfraError` where it does not."""
        self._relay = relay = await self._listening(0)
        self._port = relay.port.result()

    async def close(self) -> None:
        """End every connection."""
        await self._tasks.end()

    async def _listening(self, port: int) -> _Relay:
        relay = _Relay(self._start(port), self._target, self._full)
        self._living.append(self._tasks.spawn(self._live(relay)))
        either: tuple[asyncio.Future[Any], ...] = (relay.port, relay.ended)
        await asyncio.wait(either, timeout=_READY_S, return_when=asyncio.FIRST_COMPLETED)
        if relay.ended.done():
            raise relay.ended.result()
        if not relay.port.done():
            raise InfraError(
                f"the relay in the sandbox did not listen within {_READY_S:g} s. Is the machine overloaded, or its Python "
                "another than ROCK's own?"
            )
        return relay

    async def _live(self, relay: _Relay) -> None:
        await relay.live()
        if relay is self._relay:
            self.lost.set_result(relay.ended.result())

    def _full(self, relay: _Relay) -> None:
        if relay is self._relay:
            self._tasks.spawn(self._replace(relay))

    async def _replace(self, relay: _Relay) -> None:
        """Let another relay listen in place of one that has carried much."""
        try:
            self._relay = await self._listening(self._port)
            self._living = [task for task in self._living if not task.done()]
            for task in self._living[: -_MOST_RETIRED - 1]:
                task.cancel()
            await relay.send(RETIRE, 0)
        except RockError as error:  # it carries what it can, and its end is the tunnel's
            log.warning("a tunnel has no second relay: %s", error)
        finally:
            relay.followed.set()


class _Relay:
    """One command in the sandbox, and the connections that it carries."""

    def __init__(self, command: TunnelCommand, target: Target, full: Callable[[_Relay], None]) -> None:
        self._command = command
        self._target = target
        self._full = full
        self._ends: dict[int, _End] = {}
        self._tasks = _Tasks()
        self._said = bytearray()
        self._carried = {"in": 0, "out": 0}
        loop = asyncio.get_running_loop()
        self.port: asyncio.Future[int] = loop.create_future()
        self.ended: asyncio.Future[RockError] = loop.create_future()
        """Done, with the reason, once it carries nothing any more."""
        self.followed = asyncio.Event()
        """Set once another one listens, or none can."""

    async def live(self) -> None:
        """Carry until the command ends, by itself or because it has carried what can be kept."""
        error: RockError = InfraError("the relay in the sandbox ended")
        try:
            async with self._command:
                await self._read()
        except RockError as failure:
            error = failure
        finally:
            await self._tasks.end()
        said = self._said.decode(errors="replace").strip()
        if said:
            error = InfraError(f"{error}; it said: {said.splitlines()[-1]}")
        self.ended.set_result(error)

    # -- frames

    async def _read(self) -> None:
        """Take the relay's frames. Nothing here waits for a connection: one that stalls holds up no other."""
        buffer = bytearray()
        async with aclosing(self._command.output()) as output:
            async for piece in output:
                if piece.stream == "stderr":
                    self._said = (self._said + piece.data)[-_SAID_BYTES:]
                    continue
                buffer += piece.data
                self._take(buffer)
                self._count("in", len(piece.data))
                if max(self._carried.values()) > _ENDED_AT:
                    await self.followed.wait()
                    return

    def _count(self, way: str, size: int) -> None:
        before, self._carried[way] = self._carried[way], self._carried[way] + size
        if before <= _RETIRED_AT < self._carried[way]:
            self._full(self)

    def _take(self, buffer: bytearray) -> None:
        at = 0
        while len(buffer) - at >= HEADER.size:
            kind, number, length = HEADER.unpack_from(buffer, at)
            if len(buffer) - at < HEADER.size + length:
                break
            payload = bytes(buffer[at + HEADER.size : at + HEADER.size + length])
            at += HEADER.size + length
            self._frame(kind, number, payload)
        del buffer[:at]

    def _frame(self, kind: int, number: int, payload: bytes) -> None:
        if kind == LISTENS and not self.port.done():
            self.port.set_result(COUNT.unpack(payload)[0])
        elif kind == OPEN and number not in self._ends:
            if len(self._ends) >= _MOST_OPEN:
                raise InfraError(
                    f"the relay in the sandbox opened more than {_MOST_OPEN} connections at once"
                )
            end = self._ends[number] = _End()
            self._tasks.spawn(self._carry(number, end))
        elif (known := self._ends.get(number)) is not None:
            known.frame(kind, payload)

    async def send(self, kind: int, number: int, payload: bytes = b"") -> None:
        """Write one frame to the relay; waits while the sandbox does not read."""
        await self._command.write(HEADER.pack(kind, number, len(payload)) + payload)
        self._count("out", HEADER.size + len(payload))

    # -- one connection

    async def _carry(self, number: int, end: _End) -> None:
        """Connect to the target and carry both ways until both have ended, or one breaks."""
        writer: asyncio.StreamWriter | None = None
        whole = False
        try:
            reader, writer = await self._connect()
            async with asyncio.TaskGroup() as group:
                group.create_task(self._inward(number, end, reader))
                group.create_task(self._outward(number, end, writer))
            writer.close()
            whole = True
        except* OSError as errors:
            log.debug("connection of a tunnel broke: %s", errors.exceptions[0])
            with suppress(RockError):
                await self.send(RESET, number)
        except* RockError:
            pass  # the relay is gone, which `ended` says
        finally:
            del self._ends[number]
            if writer is not None and not whole:
                writer.transport.abort()  # what it still holds nobody waits for

    async def _connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        if isinstance(self._target, Path):
            return await asyncio.open_unix_connection(self._target)
        return await asyncio.open_connection(*self._target)

    async def _inward(self, number: int, end: _End, reader: asyncio.StreamReader) -> None:
        """Carry the gateway's bytes to the agent, as far as the agent reads them."""
        while room := await end.room():
            data = await reader.read(min(room, BLOCK_BYTES))
            if not data:
                await self.send(END, number)
                return
            end.spent(len(data))
            await self.send(DATA, number, data)

    async def _outward(self, number: int, end: _End, writer: asyncio.StreamWriter) -> None:
        """Carry the agent's bytes to the gateway, as far as the gateway reads them."""
        while (data := await end.take()) is not None:
            writer.write(data)
            await writer.drain()
            await self.send(CREDIT, number, COUNT.pack(len(data)))
        if end.broken:
            raise ConnectionResetError("the agent broke the connection off")
        writer.write_eof()


class _End:
    """What is known of one connection: bytes that wait for the gateway, and how many may still go to the agent."""

    def __init__(self) -> None:
        self._waiting: asyncio.Queue[bytes | None] = asyncio.Queue()  # bounded by the credit the relay has
        self._room = WINDOW_BYTES
        self._has_room = asyncio.Event()
        self._has_room.set()
        self.broken = False

    def frame(self, kind: int, payload: bytes) -> None:
        if kind == DATA:
            self._waiting.put_nowait(payload)
        elif kind == CREDIT:
            self._room += COUNT.unpack(payload)[0]
            self._has_room.set()
        elif kind == END:
            self._waiting.put_nowait(None)
        elif kind == RESET:
            self.finish()

    def finish(self) -> None:
        """Break it off."""
        self.broken = True
        self._has_room.set()
        self._waiting.put_nowait(None)

    async def take(self) -> bytes | None:
        """Return the next bytes for the gateway; None at their end."""
        return await self._waiting.get()

    async def room(self) -> int:
        """Return how many bytes the agent has room for, at least one; 0 where the connection is broken."""
        await self._has_room.wait()
        return 0 if self.broken else self._room

    def spent(self, count: int) -> None:
        self._room -= count
        if self._room <= 0:
            self._has_room.clear()


@asynccontextmanager
async def open_tunnel(
    box: TunnelBox, target: Target, *, python: BoxPython = ("python3", "-I", "-S")
) -> AsyncIterator[Tunnel]:
    """Let programs of `box` reach `target` under the tunnel's `base_url`, for the time of the block.

    `python` starts the sandbox's interpreter. Raise `InfraError` where the relay does not start.
    """
    source = inspect.getsource(relay)

    def start(port: int) -> TunnelCommand:
        return box.start(
            [*python, "-c", source, str(port)],
            timeout_s=_LIFETIME_S,
            max_output_bytes=_MOST_BYTES,
            resumable=True,
        )

    tunnel = Tunnel(start, target)
    try:
        await tunnel.begin()
        yield tunnel
    finally:
        await tunnel.close()
