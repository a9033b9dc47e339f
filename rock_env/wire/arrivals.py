"""Lets connections in at a listening TCP socket, and bounds those that have not shown a token.

Used by the process at gRPC's port and by the REST face. A stranger has a time to show a token, its handshake included, and
there is room for so many at once. One more costs the oldest its place: who has a token shows it at once, so nobody
keeps others out by coming first. It parses nothing.
"""

from __future__ import annotations

import asyncio
import asyncio.sslproto
import contextlib
import math
import resource
import socket
import ssl
from collections import Counter
from collections.abc import Callable
from typing import Any, Protocol

__all__ = ["SETTLED", "STRANGER_S", "Arrivals", "Newcomer", "raise_handles", "sip"]

STRANGER_S = 10.0
"""From a connection's first byte of TCP to its first call with a token."""
SETTLED = "rock.settled"
"""In the state of a request of HTTP: what to call when it has shown a token."""
_STRANGERS, _PER_ADDRESS = 512, 256
"""At once, of all addresses and of one."""
_ACCEPTS, _APART_S, _CROWD, _CROWD_APART_S = 2, 0.000625, 64, 0.0025
"""So many connections in a turn of the loop, so far apart in the long run, and farther where there is a crowd of strangers:
whoever opens and closes connections leaves the event loop to those that have one."""
_AT_ONCE = 32
"""So many need no distance after a rest, where there is no crowd: clients that start together do not wait for each other."""
_TURN_S = 0.002
"""Between two calls of strangers that were refused before, and two pieces of what strangers send, of all connections."""
_TLS_BYTES = 32 << 10
_SIP_BYTES = 16 << 10


class Newcomer(Protocol):
    """A connection's protocol for asyncio."""

    def end(self) -> None:
        """Close the connection of a stranger whose time is over or whose place is needed."""
        ...


class _Guest:
    """A stranger, and what is on its way for it."""

    def __init__(self, host: str) -> None:
        self.host = host
        self.timer: asyncio.TimerHandle
        self.handshake: asyncio.Task[None]


class Arrivals:
    """One listening socket, which stays its owner's; `make` makes the protocol of each connection."""

    def __init__(
        self, listener: socket.socket, make: Callable[[], Any], context: ssl.SSLContext | None = None
    ) -> None:
        self._listener = listener
        self._make = make
        self._tls: dict[str, Any] = {"ssl": context, "ssl_handshake_timeout": STRANGER_S} if context else {}
        self._loop = asyncio.get_running_loop()
        self._guests: dict[Newcomer, _Guest] = {}
        self._hosts: Counter[str] = Counter()
        self._paused: asyncio.TimerHandle | None = None
        self._next = self._next_read = 0.0
        self._next_accept = -math.inf
        if context:
            # Python gives each connection of TLS 256 KiB at once, for hundreds of handshakes that never end, too.
            asyncio.sslproto.SSLProtocol.max_size = _TLS_BYTES

    def open(self) -> None:
        """Begin to let connections in, or go on."""
        self._paused = None
        self._loop.add_reader(self._listener, self._accept)

    def close(self) -> None:
        """Let nobody in any more, and end the strangers."""
        if self._paused is not None:
            self._paused.cancel()
        self._loop.remove_reader(self._listener)
        for newcomer in tuple(self._guests):
            self._end(newcomer)

    def settled(self, newcomer: Newcomer) -> None:
        """Note that a connection has shown a token, or is gone; safe to call again."""
        guest = self._guests.pop(newcomer, None)
        if guest is None:
            return
        guest.timer.cancel()
        self._hosts[guest.host] -= 1
        if not self._hosts[guest.host]:
            del self._hosts[guest.host]

    async def turn(self) -> None:
        """Wait until one more call of a stranger's may be looked at who was refused before."""
        self._next = self._turn_after(self._next)
        await asyncio.sleep(self._next - self._loop.time())

    def at_turn(self, act: Callable[[], None]) -> asyncio.TimerHandle:
        """Call `act` when one more piece of what strangers send may be read."""
        self._next_read = self._turn_after(self._next_read)
        return self._loop.call_at(self._next_read, act)

    def _turn_after(self, last_s: float) -> float:
        return max(last_s, self._loop.time()) + _TURN_S

    def _accept(self) -> None:
        crowded, now = len(self._guests) >= _CROWD, self._loop.time()
        apart_s = _CROWD_APART_S if crowded else _APART_S
        self._next_accept = max(self._next_accept, now - (0 if crowded else (_AT_ONCE - 1) * apart_s))
        for _ in range(_ACCEPTS):
            try:
                accepted, where = self._listener.accept()
            except (BlockingIOError, ConnectionAbortedError):
                return
            except OSError:  # out of handles: what a stranger holds is free at once
                self._end_oldest()
                self._pause(now + _CROWD_APART_S)
                return
            accepted.setblocking(False)
            self._came(accepted, str(where[0]))
            self._next_accept += apart_s
            if self._next_accept > now:
                self._pause(self._next_accept)
                return

    def _pause(self, until_s: float) -> None:
        self._loop.remove_reader(self._listener)
        self._paused = self._loop.call_at(until_s, self.open)

    def _came(self, accepted: socket.socket, host: str) -> None:
        newcomer, guest = self._make(), _Guest(host)
        self._guests[newcomer] = guest
        self._hosts[host] += 1
        guest.timer = self._loop.call_later(STRANGER_S, self._end, newcomer)
        guest.handshake = self._loop.create_task(self._connect(newcomer, accepted))
        # One that is cancelled before it begins has no line that runs.
        guest.handshake.add_done_callback(lambda task: accepted.close() if task.cancelled() else None)
        if self._hosts[host] > _PER_ADDRESS:
            self._end_oldest(host)
        elif len(self._guests) > _STRANGERS:
            self._end_oldest()

    async def _connect(self, newcomer: Newcomer, accepted: socket.socket) -> None:
        try:
            await self._loop.connect_accepted_socket(lambda: newcomer, accepted, **self._tls)  # type: ignore[type-var]
        except OSError:
            accepted.close()
            self.settled(newcomer)

    def _end_oldest(self, host: str = "") -> None:
        for newcomer, guest in self._guests.items():
            if not host or guest.host == host:
                self._end(newcomer)
                return

    def _end(self, newcomer: Newcomer) -> None:
        guest = self._guests[newcomer]
        self.settled(newcomer)
        if guest.handshake.done():
            newcomer.end()
        else:
            guest.handshake.cancel()


def sip(transport: Any, *, ends: bool = False) -> None:
    """Read little at a time from a stranger's connection: by itself asyncio takes 256 KiB, from each. It `ends` once."""
    transport = getattr(transport, "inner", transport)  # of asyncio, which reads
    if not ends:
        transport.max_size = _SIP_BYTES
    elif "max_size" in vars(transport):
        del transport.max_size


def raise_handles() -> None:
    """Let this process hold as many connections as the machine lets it."""
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    with contextlib.suppress(ValueError, OSError):  # macOS names more than it gives
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
