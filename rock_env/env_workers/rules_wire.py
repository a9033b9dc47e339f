"""The messages between the service and a worker that runs the rules of environments with a sandbox.

Each is a frame: four bytes with its length, then its body. What the service sends is pickled, since a worker trusts it. What
a worker sends is MessagePack of the types below and of nothing else, since a caller's parameters may lead its code.
"""

from __future__ import annotations

import asyncio
import struct
from math import isfinite
from typing import Any

import msgspec

from rock_env.errors import InvalidArgument, RockError, from_code

__all__ = [
    "CALLS",
    "COMMANDS",
    "MOST_BYTES",
    "MOST_FRAME",
    "STREAMS",
    "Done",
    "Failed",
    "FromWorker",
    "Wish",
    "failed",
    "framed",
    "given",
    "read_frame",
    "rebuilt",
]

MOST_BYTES = 64 << 20
"""Of a file, or of a command's output, in one answer."""
MOST_FRAME = MOST_BYTES + (1 << 20)
_LENGTH = struct.Struct("!I")

CALLS = frozenset(
    {
        *(
            "exec",
            "kill_all",
            "start_process",
            "signal_process",
            "processes",
            "open_session",
            "resize_session",
        ),
        *("close_session", "read_file", "read_range", "write_file", "stat", "list_files"),
    }
)
"""Methods of `Sandbox` with one answer. A box's life (pause, lease, close) is the service's."""
COMMANDS = frozenset({"start", "process_logs", "session", "session_command"})
"""Those that return a `Command`."""
STREAMS = frozenset({"download", "read_stream", "watch_files"})
"""Those that yield."""


class Wish(msgspec.Struct, frozen=True, array_like=True, tag="ask"):
    """A worker wants something of one of its call's boxes. `of` is a handle; 0 is the environment's own box."""

    call: int
    ask: int
    of: int
    method: str
    given: msgspec.Raw
    """The arguments and the named ones, which nobody reads before it is known that the call runs."""
    content: bytes | None = None
    """The one argument that is bytes: a file's content, or what a command reads."""
    content_name: str = ""
    """Its name; empty: it is the last of those without one."""


class Done(msgspec.Struct, frozen=True, array_like=True, tag="done"):
    """A call ended, with this value."""

    call: int
    value: msgspec.Raw
    """Read as the type that was asked for, and as no other."""


class Failed(msgspec.Struct, frozen=True, array_like=True, tag="failed"):
    """A call ended in an error."""

    call: int
    code: str
    message: str
    retry_after_s: float | None = None


FromWorker = Wish | Done | Failed
Argument = str | int | float | bool | None | list[str | int] | dict[str, str | list[str]]
_Given = tuple[list[Argument], dict[str, Argument]]
"""What a wish may say beside its content: no deeper than a command line, variables, or what an image says of itself."""
MOST_WORDS = 4 << 20
_words = msgspec.msgpack.Decoder(_Given).decode


def given(wish: Wish) -> tuple[list[Any], dict[str, Any]]:
    """Return a wish's arguments. Raise `InvalidArgument` for any that no method takes."""
    if len(wish.given) > MOST_WORDS:
        raise InvalidArgument(
            f"the arguments of {wish.method!r} have {len(wish.given)} bytes, expected at most {MOST_WORDS}"
        )
    try:
        arguments, named = _words(wish.given)
    except (msgspec.MsgspecError, RecursionError) as error:
        raise InvalidArgument(f"the arguments of {wish.method!r} are none: {error}") from error
    if any(isinstance(each, float) and not isfinite(each) for each in (*arguments, *named.values())):
        raise InvalidArgument(f"the numbers of {wish.method!r} must be finite")
    if wish.content is None:
        return list(arguments), dict(named)
    if wish.content_name:
        return list(arguments), {**named, wish.content_name: wish.content}
    return [*arguments, wish.content], dict(named)


def failed(call: int, error: RockError) -> Failed:
    """Return the message that a call ended in `error`."""
    return Failed(call, error.code, error.message, error.retry_after_s)


def rebuilt(error: Failed) -> RockError:
    """Return the error that a message tells."""
    return from_code(error.code, error.message, retry_after_s=error.retry_after_s)


def framed(body: bytes) -> bytes:
    """Return a frame. Raise `InvalidArgument` for a body that is too long."""
    if len(body) > MOST_FRAME:
        raise InvalidArgument(
            f"a message between the server and an environment's worker has {len(body)} bytes, expected at most "
            f"{MOST_FRAME}. Move less at once."
        )
    return _LENGTH.pack(len(body)) + body


async def read_frame(reader: asyncio.StreamReader) -> bytes:
    """Return the next body. Raise `IncompleteReadError` at the end, `ValueError` for one that is too long."""
    (length,) = _LENGTH.unpack(await reader.readexactly(_LENGTH.size))
    if length > MOST_FRAME:
        raise ValueError(f"a message of {length} bytes was announced, expected at most {MOST_FRAME}")
    return await reader.readexactly(length)
