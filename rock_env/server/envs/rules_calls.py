"""What a worker may ask during one call, carried out by the service: acts on the call's own boxes, each with a bound.

A handle stands for a box, a command, a stream or a grade's box. It is known to its call alone and ends with it.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from itertools import count
from typing import Any, NamedTuple

import msgspec

from rock_env.env import FreshBoxes
from rock_env.env_workers.rules_wire import CALLS, COMMANDS, MOST_BYTES, STREAMS, Wish, given
from rock_env.errors import InvalidArgument, NotFound, ResourceExhausted, Unimplemented
from rock_env.sandbox import Command, FileEntry, Sandbox
from rock_env.server.envs.byte_room import ByteRoom
from rock_env.server.own_tasks import logged

__all__ = ["RulesCall"]

_MOST_ASKS = 64
_MOST_HANDLES = 64
_OUTPUT = 1 << 20
"""What `Sandbox.exec` keeps of each output stream unless told otherwise."""
_LISTING = 4 << 20
"""Of a listing, about."""
_MOST_ENTRIES = 20_000
"""Of a listing: packing so many for the worker takes the event loop a tenth of a second."""


class _Held(NamedTuple):
    """What a handle stands for, and how it ends."""

    thing: Any
    end: Callable[[], Awaitable[object]]
    box: Sandbox | None


class RulesCall:
    """One call to a worker: its outcome, and what it uses meanwhile."""

    def __init__(self, box: Sandbox | None, fresh: FreshBoxes | None, room: ByteRoom) -> None:
        self.outcome: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._fresh, self._room = fresh, room
        self._held: dict[int, _Held] = {}
        self._handles = count(1)
        self._tasks: set[asyncio.Task[None]] = set()
        if box is not None:
            self._held[0] = _Held(box, _nothing, box)

    @property
    def full(self) -> bool:
        """Return whether so many wishes are worked on that a worker which asks more is not to be trusted."""
        return len(self._tasks) >= _MOST_ASKS

    def spawn(self, answering: Coroutine[Any, Any, None]) -> None:
        """Let an answer be worked on until the call ends."""
        task = asyncio.create_task(answering)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def end(self) -> None:
        """End what is still worked on and all that the worker left open, the newest first."""
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        while self._held:
            _, held = self._held.popitem()
            await logged(_ended(held))

    def failure(self, of: int) -> str:
        """Return why the box that a handle belongs to can no longer be used, or an empty string."""
        held = self._held.get(of)
        return held.box.failure if held is not None and held.box is not None else ""

    async def act(self, ask: Wish, answered: AsyncExitStack) -> Any:
        """Carry out one wish when there is room for what it may return, which is its own until `answered` closes.

        Raise the `RockError` it ends in, or `TypeError` for arguments that do not fit.
        """
        method = ask.method
        arguments, named = given(ask)
        await answered.enter_async_context(self._room.taken(self._cost(ask, named)))
        if method in ("pristine", "fork"):
            return await self._fresh_box(method)
        held = self._held.get(ask.of)
        if method == "take_over" and held is not None and held.box is not None and self._fresh is not None:
            runs, asked, workdir, image = _words(arguments)
            take_over = self._fresh.take_over
            return list(await take_over(held.box, runs=runs, asked=asked, workdir=workdir, image=image))
        if held is None:
            raise NotFound(f"this call has nothing with the handle {ask.of}")
        if method == "end" and ask.of:
            del self._held[ask.of]
            return await held.end()
        if isinstance(held.thing, AsyncGenerator):
            return await _next(held.thing) if method == "next" else _refuse(method)
        if ask.of and held.thing is not held.box:
            return await self._command(held.thing, method, arguments)
        return await self._box(held.thing, method, arguments, named)

    def _cost(self, ask: Wish, named: dict[str, Any]) -> int:
        """Return how many bytes the answer may have; 0 where they are few, so that nothing waits for a wait to end."""
        for name in ("max_output_bytes", "length", "log_bytes"):
            if ask.method in CALLS:
                _check_bytes(name, named.get(name) or 0)
        match ask.method:
            case "read_file":
                return MOST_BYTES
            case "read_range":
                return named.get("length") or 0
            case "exec":
                return 2 * (named.get("max_output_bytes") or _OUTPUT)
            case "list_files":
                return _LISTING
        held = self._held.get(ask.of)
        ends = ask.method == "result" and held is not None and isinstance(held.thing, _Running)
        return 2 * held.thing.most if held is not None and ends else 0

    async def _box(self, box: Sandbox, method: str, arguments: list[Any], named: dict[str, Any]) -> Any:
        if method == "read_file":
            return await _whole_file(box, *arguments)
        if method in ("upload", "write_stream"):
            path, content = arguments
            return await getattr(box, method)(path, _once(content), **named)
        if method == "list_files":
            return _few(await box.list_files(*arguments, **named))
        if method in CALLS:
            return await getattr(box, method)(*arguments, **named)
        if method in COMMANDS:
            command: Command = getattr(box, method)(*arguments, **named)
            await command.__aenter__()
            running = _Running(command, named.get("max_output_bytes") or _OUTPUT)
            return self._hold(running, lambda: command.__aexit__(None, None, None), box)
        if method in STREAMS:
            stream: AsyncGenerator[Any] = getattr(box, method)(*arguments, **named)
            return self._hold(stream, stream.aclose, box)
        return _refuse(method)

    async def _command(self, running: _Running, method: str, arguments: list[Any]) -> Any:
        command = running.command
        if method == "next":
            return await _next(running.events)
        if method == "result":
            _check_bytes("max_output_bytes", running.most)
            return await command.result()
        if method == "write_stdin":
            command.write_stdin(*arguments)
            return await command.drain()
        if method == "close_stdin":
            return command.close_stdin()
        if method == "kill":
            return command.kill(*arguments)
        return _refuse(method)

    async def _fresh_box(self, method: str) -> tuple[int, str]:
        if self._fresh is None:
            raise Unimplemented("boxes for a grade are there while one is made")
        lent: AbstractAsyncContextManager[Sandbox] = getattr(self._fresh, method)()
        box = await lent.__aenter__()
        return self._hold(box, lambda: lent.__aexit__(None, None, None), box), box.id

    def _hold(self, thing: Any, end: Callable[[], Awaitable[object]], box: Sandbox) -> int:
        if len(self._held) > _MOST_HANDLES:
            raise ResourceExhausted(
                f"one call of an environment uses at most {_MOST_HANDLES} commands, streams and boxes at once"
            )
        handle = next(self._handles)
        self._held[handle] = _Held(thing, end, box)
        return handle


class _Running:
    """A command and its events, which are one stream however often somebody asks."""

    def __init__(self, command: Command, most: int) -> None:
        self.command, self.events, self.most = command, command.events(), most


def _few(entries: list[FileEntry]) -> list[FileEntry]:
    if len(entries) > _MOST_ENTRIES:
        raise InvalidArgument(
            f"the folder has {len(entries)} entries, expected at most {_MOST_ENTRIES} where the rules of an environment "
            "list it. List it in parts, or in a command."
        )
    return entries


def _check_bytes(name: str, asked: object) -> None:
    if not isinstance(asked, int) or not 0 <= asked <= MOST_BYTES:
        raise InvalidArgument(
            f"{name} must be at most {MOST_BYTES} where the rules of an environment get all at once, got {asked}"
        )


def _words(arguments: list[Any]) -> tuple[list[str], list[str], str, dict[str, list[str]]]:
    """Return what `take_over` is told. Raise `InvalidArgument` for anything else."""
    try:
        return msgspec.convert(arguments, tuple[list[str], list[str], str, dict[str, list[str]]])
    except msgspec.ValidationError as error:
        raise InvalidArgument(
            f"take_over takes two lists of words, a folder and a table of lists: {error}"
        ) from error


async def _nothing() -> None:
    """End nothing: the environment's own box stays."""


async def _once(content: bytes) -> AsyncIterator[bytes]:
    yield content


async def _ended(held: _Held) -> None:
    await held.end()


async def _next(stream: AsyncGenerator[Any]) -> tuple[Any] | None:
    try:
        return (await anext(stream),)
    except StopAsyncIteration:
        return None


async def _whole_file(box: Sandbox, path: str) -> bytes:
    content = await box.read_range(path, offset=0, length=MOST_BYTES + 1)
    if len(content) > MOST_BYTES:
        raise InvalidArgument(
            f"{path!r} is larger than {MOST_BYTES} bytes, the most that the rules of an environment read at once"
        )
    return content


def _refuse(method: str) -> Any:
    raise Unimplemented(f"the rules of an environment cannot use {method!r} here")
