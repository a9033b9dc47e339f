"""Requests out of bodies: small ones at once, large ones in a process beside, so that nobody else waits for them.

    readers = Readers()
    found = await readers.read(dialect, headers, parts, most_chars)      raises `Refusal`
    await readers.close()

Used by `server`. A thread would not do: a parser of JSON holds the interpreter's lock from a body's first byte to its last.
A body above `LARGE_BYTES`, or one with many small values, goes to one of two processes, by its size, so that only the
largest wait for each other. `find` is what both sides do.
"""

from __future__ import annotations

import asyncio
import os
import struct
import sys
from collections.abc import Mapping, Sequence

import msgspec

from agent_runtime.calls.canonical import Canonical, canonical_items, marked_items, tools_digest
from agent_runtime.chat import ChatRequest, Refusal, RefusalKind
from agent_runtime.dialects import DIALECTS, Dialect
from agent_runtime.gateway.label_headers import labelled
from rock_env.telemetry.shown import output_of_children

__all__ = ["LARGE_BYTES", "Found", "Readers", "Refused", "check_chars", "find"]

LARGE_BYTES = 128 << 10
"""From here on a body is read in a process of its own. The slowest smaller one takes a few milliseconds."""
HUGE_BYTES = 2 << 20
"""From here on in the second one."""
MOST_BRACES, MOST_ESCAPES = 1000, 2000
"""So many objects or escapes take as long."""
READ_S = 60.0
"""For one body; 32 MiB of the smallest values that there are take a tenth of it."""
CHARS_PER_TOKEN = 32
"""No tokenizer's tokens are so long on average: from this, a history that cannot fit is known before it is tokenised."""
PIECE_BYTES = 256 << 10
FRAME = struct.Struct(">II")


class Found(msgspec.Struct, tag="found"):
    """A request, and the digests of its canonical form, each with its end among the messages."""

    request: ChatRequest
    marks: tuple[tuple[bytes, int], ...]
    tools: bytes


class Refused(msgspec.Struct, tag="refused"):
    """A `Refusal`, on its way between processes."""

    kind: RefusalKind
    message: str
    details: tuple[tuple[str, int], ...] = ()
    param: str = ""
    code: str = ""


def check_chars(request: ChatRequest, max_context: int) -> None:
    """Raise `Refusal` for a request with more text than so many tokens can be."""
    chars = sum(
        len(message.content)
        + len(message.reasoning)
        + sum(len(call.name) + len(call.arguments) for call in message.tool_calls)
        for message in request.messages
    )
    chars += sum(len(tool.name) + len(tool.description) + len(tool.parameters) for tool in request.tools)
    tokens = max(chars // CHARS_PER_TOKEN, len(request.messages))
    if tokens > max_context:
        raise Refusal(
            RefusalKind.CONTEXT_OVERFLOW,
            f"the prompt has more than {tokens} tokens ({chars} characters in {len(request.messages)} messages), but the "
            f"model's context is {max_context} tokens. Shorten the history.",
            details=(("limit", max_context), ("prompt", tokens), ("got", tokens)),
        )


def find(path: str, headers: Mapping[str, str], body: bytes, max_context: int) -> ChatRequest:
    """Return the request that a body of the dialect at `path` is. Raise `Refusal`."""
    try:
        request = labelled(DIALECTS[path].parse(body, headers), headers)
    except RecursionError as error:
        raise Refusal(
            RefusalKind.BAD_REQUEST, "the body is nested too deeply. Send a flatter one."
        ) from error
    # A character takes a byte at least, so that most bodies need no count.
    if max(len(body) // CHARS_PER_TOKEN, len(request.messages)) > max_context:
        check_chars(request, max_context)
    return request


def found(path: str, headers: Mapping[str, str], body: bytes, max_context: int) -> Found | Refused:
    """Return what the process beside answers to a body."""
    try:
        request = find(path, headers, body, max_context)
        marks = tuple((item.digest, item.end) for item in canonical_items(request.messages))
        return Found(request, marks, tools_digest(request.tools))
    except Refusal as refusal:
        return Refused(refusal.kind, refusal.message, refusal.details, refusal.param, refusal.code)
    except MemoryError:
        return Refused(RefusalKind.TOO_LARGE, "the body takes too much memory to read. Send fewer values.")


class Readers:
    """Two processes that read bodies, started when they are first needed. Of one event loop."""

    def __init__(self) -> None:
        self._large, self._huge = _Reader(), _Reader()

    async def read(
        self, dialect: Dialect, headers: Mapping[str, str], parts: Sequence[bytes], max_context: int
    ) -> tuple[ChatRequest, Canonical | None]:
        """Return a body's request, and its canonical form where that was found on the way. Raise `Refusal`."""
        size = sum(map(len, parts))
        if size <= LARGE_BYTES:
            body = b"".join(parts)
            if body.count(b"{") <= MOST_BRACES and body.count(b"\\") <= MOST_ESCAPES:
                return find(dialect.path, headers, body, max_context), None
        reader = self._large if size <= HUGE_BYTES else self._huge
        answer = await reader.read((dialect.path, dict(headers), max_context), parts)
        if isinstance(answer, Refused):
            raise Refusal(
                answer.kind, answer.message, details=answer.details, param=answer.param, code=answer.code
            )
        items = tuple(marked_items(answer.request.messages, answer.marks))
        return answer.request, Canonical(items, answer.tools)

    async def close(self) -> None:
        """End the processes. They start again if there is more to read."""
        await self._large.close()
        await self._huge.close()


class _Reader:
    """One process, which reads one body after the other, in the order of their coming."""

    def __init__(self) -> None:
        self._turn = asyncio.Lock()
        self._process: asyncio.subprocess.Process | None = None

    async def read(self, said: tuple[str, dict[str, str], int], parts: Sequence[bytes]) -> Found | Refused:
        """Return what a body is."""
        async with self._turn:
            try:
                async with asyncio.timeout(READ_S):
                    return await self._ask(said, parts)
            except TimeoutError:
                await self.close()
                return Refused(
                    RefusalKind.TOO_LARGE, f"the body takes more than {READ_S:g} s to read. Send less."
                )
            except (asyncio.IncompleteReadError, ConnectionError):
                await self.close()
                return Refused(
                    RefusalKind.TOO_LARGE, "the process that reads large bodies ended at this one. Send less."
                )
            except asyncio.CancelledError:
                await self.close()  # half an answer may be on its way
                raise

    async def _ask(self, said: tuple[str, dict[str, str], int], parts: Sequence[bytes]) -> Found | Refused:
        if self._process is None:
            self._process = await asyncio.create_subprocess_exec(
                sys.executable,
                *("-P", "-m", "agent_runtime.gateway.reader"),
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=output_of_children(),
                start_new_session=True,  # a terminal's Ctrl-C is its parent's
                env={**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"},
            )
        to, back = self._process.stdin, self._process.stdout
        assert to is not None
        assert back is not None
        head = msgspec.msgpack.encode(said)
        to.write(FRAME.pack(len(head), sum(map(len, parts))) + head)
        for part in parts:
            for start in range(0, len(part), PIECE_BYTES):
                to.write(part[start : start + PIECE_BYTES])
                await to.drain()
        (size, _) = FRAME.unpack(await back.readexactly(FRAME.size))
        answer: Found | Refused = _ANSWER.decode(await back.readexactly(size))
        return answer

    async def close(self) -> None:
        """End the process."""
        process, self._process = self._process, None
        if process is None:
            return
        if process.returncode is None:
            process.kill()
        if process.stdin is not None:
            process.stdin.close()
        await process.wait()


_ANSWER = msgspec.msgpack.Decoder(Found | Refused)
