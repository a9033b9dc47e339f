"""The process at the TCP port of a server with tokens: who shows none costs it a few KiB, and never reaches gRPC.

Started by `guard`, which answers its questions. It reads a connection's first call, with little memory and little time
for it, and asks who makes it. A caller with a token becomes a pipe to the server's own socket, which begins the
connection anew; everybody else is refused here. It parses no message and knows no token. It ends with its control
socket.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import signal
import socket
import ssl
import sys
from collections.abc import Iterable, Sequence
from typing import Any
from urllib.parse import quote

from hpack import Encoder

from rock_env.server.strangers.opening import HELLO, Asked, NotHttp2, Opening, farewell, refusal
from rock_env.wire.arrivals import Arrivals, raise_handles

__all__ = ["main"]

_SETTLES_S = 0.25
"""A refused call is answered when its peer has said all, or so much later: a client whose write is cut off reports
that, and not the answer."""
_LINGER_S = 1.0
"""For the last answer to reach a peer that still sends."""
_PRINTED = "".join(map(chr, range(0x20, 0x7F))).replace("%", "")
"""What stands as it is in a status message of gRPC; the rest goes as %XX."""
_SCRATCH = memoryview(bytearray(16 << 10))
_PIPE = memoryview(bytearray(256 << 10))
_HIGH_BYTES = 512 << 10
"""What a pipe holds of what its reader has not taken."""
_ENDING_S = 2.0


class _Front:
    """The listening socket, the strangers and the questions about them."""

    def __init__(self, listener: socket.socket, inner: str, context: ssl.SSLContext | None) -> None:
        self.inner = inner
        self.loop = asyncio.get_running_loop()
        self.pipes: set[_Outer] = set()
        self.arrivals = Arrivals(listener, lambda: _Outer(self), context)
        self._asked: dict[int, asyncio.Future[Any]] = {}
        self._count = 0
        self._control: asyncio.StreamWriter

    async def run(self, control: socket.socket) -> None:
        """Let connections in until the server closes the control socket; then let pipes run dry."""
        reader, self._control = await asyncio.open_connection(sock=control)
        self.arrivals.open()
        while line := await reader.readline():
            answer = json.loads(line)
            asked = self._asked.pop(answer["n"], None)
            if asked is not None and not asked.done():
                asked.set_result(answer)
        self.arrivals.close()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_ENDING_S):
                await asyncio.gather(*(pipe.closed.wait() for pipe in tuple(self.pipes)))

    async def ask(self, call: Asked, peer: str) -> Any:
        """Return what the server says about a call."""
        self._count += 1
        number = self._count
        asked = self._asked[number] = self.loop.create_future()
        question = {"n": number, "method": call.method, "authorization": call.authorization, "peer": peer}
        self._control.write(json.dumps(question).encode() + b"\n")
        try:
            return await asked
        finally:
            self._asked.pop(number, None)


class _End(asyncio.BufferedProtocol):
    """One end of a pipe."""

    transport: Any = None
    other: Any = None

    def __init__(self) -> None:
        self.closed = asyncio.Event()

    def get_buffer(self, sizehint: int) -> memoryview:
        return _PIPE

    def buffer_updated(self, count: int) -> None:
        if not self.other.is_closing():
            self.other.write(bytes(_PIPE[:count]))  # the transport may keep it, and the buffer is everybody's

    def pause_writing(self) -> None:
        if self.other is not None:
            self.other.pause_reading()

    def resume_writing(self) -> None:
        if self.other is not None:
            self.other.resume_reading()

    def connection_lost(self, error: Exception | None) -> None:
        self.closed.set()
        if self.other is not None:
            self.other.close()


class _Inner(_End):
    """The end at the server."""

    def __init__(self, outer: Any) -> None:
        super().__init__()
        self.other = outer

    def connection_made(self, transport: Any) -> None:
        self.transport = transport
        transport.set_write_buffer_limits(_HIGH_BYTES)


class _Outer(_End):
    """The end at a client, who is a stranger until a call of theirs is let in."""

    def __init__(self, front: _Front) -> None:
        super().__init__()
        self._front = front
        self._opening: Opening | None = Opening()
        self._encoder = Encoder()
        self._last = 0
        self._unanswered: dict[int, Any] = {}
        self._deciding: asyncio.Task[None] | None = None

    def end(self) -> None:
        """Send a stranger away."""
        if self.transport.is_closing():
            return
        self._answer(tuple(self._unanswered))
        self.transport.write(farewell(self._last))
        self.transport.close()
        self._front.loop.call_later(_LINGER_S, self.transport.abort)

    # -- the protocol

    def connection_made(self, transport: Any) -> None:
        self.transport = transport
        transport.set_write_buffer_limits(_HIGH_BYTES)
        transport.write(HELLO)

    def get_buffer(self, sizehint: int) -> memoryview:
        return _PIPE if self._opening is None else _SCRATCH

    def buffer_updated(self, count: int) -> None:
        if self._opening is None:
            super().buffer_updated(count)
            return
        try:
            self._opening.push(_SCRATCH[:count])
            if self.other is None:
                self._answer(self._opening.over & self._unanswered.keys())
                self._look()
            else:
                self._pass_on()
        except NotHttp2:
            self.end()

    def connection_lost(self, error: Exception | None) -> None:
        self._front.arrivals.settled(self)
        self._front.pipes.discard(self)
        if self._deciding is not None:
            self._deciding.cancel()
        super().connection_lost(error)
        self._opening = None

    # -- before a token was shown

    def _look(self) -> None:
        assert self._opening is not None
        call = self._opening.next_call()
        if call is not None:
            self.transport.pause_reading()
            self._deciding = asyncio.ensure_future(self._decide(call))

    async def _decide(self, call: Asked) -> None:
        if self._last:
            await self._front.arrivals.turn()
        answer = await self._front.ask(call, str(self.transport.get_extra_info("peername")))
        if answer.get("admitted"):
            if self._last:  # what was answered here must not begin anew there
                self.end()
            else:
                await self._pipe()
            return
        assert self._opening is not None
        self._opening.forget()
        self._last = call.stream
        self._unanswered[call.stream] = answer
        self._front.loop.call_later(_SETTLES_S, self._answer, [call.stream])
        self.transport.resume_reading()
        try:
            self._look()
            self._answer(self._opening.over & self._unanswered.keys())
        except NotHttp2:
            self.end()

    def _answer(self, streams: Iterable[int]) -> None:
        for stream in streams:
            answer = self._unanswered.pop(stream, None)
            if answer is None or self.transport.is_closing():
                continue
            trailers = [(name, quote(value, safe=_PRINTED)) for name, value in answer["trailers"]]
            # Only now: heads are packed by what the peer was sent before, in this order.
            self.transport.write(
                refusal(self._encoder, stream, trailers, bytes.fromhex(answer.get("message", "")))
            )

    # -- after

    async def _pipe(self) -> None:
        try:
            _, inner = await self._front.loop.create_unix_connection(
                lambda: _Inner(self.transport), self._front.inner
            )
        except OSError:  # the server is stopping
            self.end()
            return
        self._front.arrivals.settled(self)
        self._front.pipes.add(self)
        self.other, self._deciding = inner.transport, None
        self._pass_on()
        self.transport.resume_reading()

    def _pass_on(self) -> None:
        assert self._opening is not None
        self.other.write(self._opening.pass_on())
        if self._opening.settled:
            self._opening = None


def main(argv: Sequence[str]) -> None:
    """Serve the listening socket that was inherited, until the control socket closes."""
    told = json.loads(argv[0])
    raise_handles()
    context = None
    if told["cert"]:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(told["cert"], told["key"])
        context.set_alpn_protocols(["h2"])
        if told["client_ca"]:
            context.load_verify_locations(told["client_ca"])
            context.verify_mode = ssl.CERT_REQUIRED
    listener = socket.socket(fileno=told["listener"])
    listener.setblocking(False)
    control = socket.socket(fileno=told["control"])

    async def run() -> None:
        await _Front(listener, told["inner"], context).run(control)

    for number in (
        signal.SIGINT,
        signal.SIGTERM,
    ):  # of a terminal or a group; the server says when it is over
        signal.signal(number, signal.SIG_IGN)
    asyncio.run(run())


if __name__ == "__main__":
    main(sys.argv[1:])
