"""A worker's view of the boxes that its call may use: each act is asked of the service, which owns them.

Satisfies `Sandbox`, `Command` and `FreshBoxes` as far as rules need them. What a box's life is about is refused.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import Any, NamedTuple, Self, cast

from rock_env.env_workers.rules_wire import CALLS, COMMANDS, MOST_BYTES, STREAMS
from rock_env.errors import InvalidArgument, RockError, Unimplemented
from rock_env.sandbox import CommandEnd, ExecResult, OutputChunk, Sandbox

__all__ = ["Answer", "Asker", "RemoteFreshBoxes", "remote_box"]


class Answer(NamedTuple):
    """What the service answered."""

    value: Any
    failure: str
    """Of the box that was asked; empty while it works."""


Asker = Callable[..., Awaitable[Answer]]
"""(handle, method, *arguments, **named) -> answer. Raises the `RockError` the act ended in."""


def remote_box(asker: Asker, handle: int, box_id: str) -> Sandbox:
    """Return a box of the service."""
    return cast("Sandbox", _RemoteBox(asker, handle, box_id))


class _RemoteBox:
    def __init__(self, asker: Asker, handle: int, box_id: str) -> None:
        self._asker, self._handle, self.id, self.failure = asker, handle, box_id, ""

    async def _call(self, method: str, *arguments: Any, **named: Any) -> Any:
        answer = await self._asker(self._handle, method, *arguments, **named)
        self.failure = answer.failure
        return answer.value

    def __getattr__(self, name: str) -> Any:
        if name in CALLS:
            return partial(self._call, name)
        if name in COMMANDS:
            return lambda *arguments, **named: _RemoteCommand(
                self._asker, self._handle, name, arguments, named
            )
        if name in STREAMS:
            return lambda *arguments, **named: self._stream(name, arguments, named)
        if name.startswith("_"):
            raise AttributeError(name)
        raise Unimplemented(
            f"the rules of an environment cannot use {name} of its sandbox: its life is the server's."
        )

    async def write_stream(self, path: str, content: AsyncIterator[bytes | memoryview], **named: Any) -> Any:
        """Write a file whose content comes in pieces."""
        return await self._call("write_stream", path, await _gathered(content), **named)

    async def upload(self, path: str, tar: AsyncIterator[bytes | memoryview]) -> Any:
        """Unpack an archive below a folder."""
        return await self._call("upload", path, await _gathered(tar))

    async def _stream(
        self, name: str, arguments: tuple[Any, ...], named: dict[str, Any]
    ) -> AsyncGenerator[Any]:
        stream = (await self._asker(self._handle, name, *arguments, **named)).value
        try:
            while (found := (await self._asker(stream, "next")).value) is not None:
                yield found[0]
        finally:
            await self._asker(stream, "end")


class _RemoteCommand:
    """A command that begins where `async with` does."""

    def __init__(
        self, asker: Asker, box: int, method: str, arguments: tuple[Any, ...], named: dict[str, Any]
    ) -> None:
        self._asker, self._begin = asker, partial(asker, box, method, *arguments, **named)
        self._handle = 0
        self._unsent: deque[tuple[Any, ...]] = deque()
        self._sending: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        self._handle = (await self._begin()).value
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._sending is not None:
            self._sending.cancel()
        await self._asker(self._handle, "end")

    def write_stdin(self, data: bytes | memoryview) -> None:
        self._send("write_stdin", bytes(data))

    def close_stdin(self) -> None:
        self._send("close_stdin")

    def kill(self, number: int) -> None:
        self._send("kill", number)

    def _send(self, *act: Any) -> None:
        """Begin to send, one act after the other."""
        self._unsent.append(act)
        if self._sending is None or self._sending.done():
            self._sending = asyncio.create_task(self._send_all())

    async def _send_all(self) -> None:
        while self._unsent:
            try:
                await self._asker(self._handle, *self._unsent.popleft())
            except RockError:
                self._unsent.clear()  # the command ended, which its events tell

    async def drain(self) -> None:
        if self._sending is not None:
            await self._sending

    async def events(self) -> AsyncGenerator[OutputChunk | CommandEnd]:
        while (found := (await self._asker(self._handle, "next")).value) is not None:
            yield found[0]

    async def result(self) -> ExecResult:
        found: ExecResult = (await self._asker(self._handle, "result")).value
        return found


async def _gathered(pieces: AsyncIterator[bytes | memoryview]) -> bytes:
    whole = bytearray()
    async for piece in pieces:
        whole += piece
        if len(whole) > MOST_BYTES:
            raise InvalidArgument(
                f"the rules of an environment move at most {MOST_BYTES} bytes into a sandbox at once, got more"
            )
    return bytes(whole)


class RemoteFreshBoxes:
    """Boxes for a grade alone, on the service's side."""

    def __init__(self, asker: Asker) -> None:
        self._asker = asker
        self._lent: tuple[Sandbox, int] | None = None

    async def take_over(
        self,
        box: Sandbox,
        *,
        runs: Sequence[str] = (),
        asked: Sequence[str] = (),
        workdir: str = "",
        image: Mapping[str, Sequence[str]] | None = None,
    ) -> Sequence[str]:
        """Give a pristine box the agent's files but those that could steer the grade."""
        if self._lent is None or box is not self._lent[0]:
            raise InvalidArgument("only a pristine box of this grade takes the agent's files over")
        told = {name: list(said) for name, said in (image or {}).items()}
        asked_for = list(runs), list(asked), workdir, told
        left_out: list[str] = (await self._asker(self._lent[1], "take_over", *asked_for)).value
        return left_out

    @asynccontextmanager
    async def _box(self, method: str) -> AsyncIterator[Sandbox]:
        handle, box_id = (await self._asker(0, method)).value
        try:
            box = remote_box(self._asker, handle, box_id)
            self._lent = box, handle
            yield box
        finally:
            await self._asker(handle, "end")

    def pristine(self) -> Any:
        """Return a new box of the task's spec, with nothing of the agent in it."""
        return self._box("pristine")

    def fork(self) -> Any:
        """Return a box that begins with a copy of the agent's files, and with no process of it."""
        return self._box("fork")
