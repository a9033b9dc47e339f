"""The host's end of one box: frames to and from the guest, running commands and file requests.

Used by `guest_host/box` and by backends, which connect it. Knows nothing of namespaces or work trees and never
decides lifecycle; when the guest is gone, every request in progress is told so and nothing waits for ever. The
guest's bytes are untrusted.
"""

from __future__ import annotations

import asyncio
import contextlib
import hmac
import itertools
import marshal
import os
import socket
import struct
from collections.abc import Awaitable, Callable, Iterator, Mapping
from pathlib import Path
from typing import Protocol, TypeVar

from rock_env.errors import FailedPrecondition, InfraError, RockError, Unavailable, lost_box
from rock_env.guest import protocol as guest
from rock_env.guest_host.forms import refusal
from rock_env.threads import for_life

__all__ = ["GuestLink", "Sink", "listen"]

KILL_GRACE_S = 10.0
"""How long the guest may take to answer, or to end, before the box counts as broken."""
_CONNECT_S = 30.0
PING_S = 5.0
"""How long a guest on a network may be silent before it is asked whether it is there."""
SILENT_S = 15.0
"""How long before it counts as lost: no system tells of a network that drops everything."""
_SO_SNDBUFFORCE = 32
_SEND_BUFFER_BYTES = 2 << 20
_TURNS = 8
"""Reads from one box before others get their turn, while it sends more than fits one."""
_MAX_ANSWER_BYTES = 64 << 20
_IOV = 64

S = TypeVar("S", bound="Sink")


class Sink(Protocol):
    """A request in progress: who gets the frames about it, the guest's refusal, or the news that the box is gone."""

    def frame(self, kind: int, payload: bytes | bytearray) -> None: ...
    def refused(self, error: RockError) -> None: ...
    def lost(self, reason: str) -> None: ...


class _Reply:
    """A request that is answered once: the bytes of its DATA frames, or an error."""

    def __init__(self) -> None:
        self.blocks: list[bytes | bytearray] = []
        self._size = 0
        self.done: asyncio.Future[list[bytes | bytearray]] = asyncio.get_running_loop().create_future()

    def frame(self, kind: int, payload: bytes | bytearray) -> None:
        if self.done.done():
            return
        if kind == guest.DATA:
            self.blocks.append(payload)
            self._size += len(payload)
            if self._size > _MAX_ANSWER_BYTES:
                raise guest.BadFrame("an answer without end")
        else:
            self.done.set_result(self.blocks)

    def refused(self, error: RockError) -> None:
        if not self.done.done():
            self.done.set_exception(error)

    def lost(self, reason: str) -> None:
        self.refused(lost_box(reason))


class _Greeting(_Reply):
    """The answer to HELLO, with the version of the guest's protocol."""

    version = guest.PREVIOUS

    def frame(self, kind: int, payload: bytes | bytearray) -> None:
        if kind == guest.READY and len(payload) > 1:
            (self.version,) = guest.VERSION_SIZE.unpack_from(payload, 1)
        super().frame(kind, payload)


class _Challenge(_Reply):
    """The answer to HELLO of a guest that shows first that it knows the token."""

    def frame(self, kind: int, payload: bytes | bytearray) -> None:
        if kind != guest.CHALLENGE or len(payload) != 2 * guest.TOKEN_BYTES:
            raise guest.BadFrame("an answer to HELLO that is no challenge")
        self.blocks.append(payload)
        if not self.done.done():
            self.done.set_result(self.blocks)


class GuestLink:
    """The connection to the guest of one box over any stream, seen from the host's event loop."""

    def __init__(self, sock: socket.socket, explain: Callable[[], Awaitable[str]] | None) -> None:
        self._sock = sock
        self._explain = explain
        self._loop = asyncio.get_running_loop()
        self._reader = guest.FrameReader()
        self._out: list[memoryview | bytes] = []
        self._requests = itertools.count(1)
        self._sinks: dict[int, Sink] = {}
        self._closing = ""
        self._let_go = False
        self._ending: asyncio.Task[None] | None = None
        self._hung_up: asyncio.Future[None] = self._loop.create_future()
        self._heard = self._loop.time()
        self._listening: asyncio.TimerHandle | None = None
        self._asking: asyncio.Task[None] | None = None
        """Whether the guest is there: whoever wants to know at the same time shares one question."""
        self.silent = False
        """The guest was told to end and did not."""
        self.lost: asyncio.Future[str] = self._loop.create_future()
        """Why the box can no longer be used, from then on."""
        self.version = guest.PREVIOUS
        """Of the protocol that the guest speaks."""

    @classmethod
    async def connect(
        cls, path: Path, *, token: bytes, explain: Callable[[], Awaitable[str]] | None = None
    ) -> GuestLink:
        """Connect to the guest that listens at `path` and show it the token.

        The first token a guest ever sees becomes its own. `explain` is asked for the reason when the guest hangs up, and
        may wait for it. Raise `InfraError` when there is no guest or it does not know the token, and `FailedPrecondition`
        for one whose protocol this server does not speak; it is left as it was.
        """
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        sock.setblocking(False)
        try:
            with _short(path) as address:
                try:
                    sock.connect(address)
                except (
                    BlockingIOError
                ):  # its queue is full; the loop cannot wait for room in it, a thread can
                    sock.settimeout(_CONNECT_S)
                    await for_life(sock.connect, address)
                    sock.setblocking(False)
        except OSError as error:
            sock.close()
            raise await _unreached(f"at {path}", explain, str(error)) from error
        return await cls._over(sock, f"at {path}", token, explain, network=False)

    @classmethod
    async def reach(
        cls, host: str, port: int, *, token: bytes, explain: Callable[[], Awaitable[str]] | None = None
    ) -> GuestLink:
        """Connect to the guest that listens on TCP, as `connect` does, and prove to each other that both know the token.

        A guest that is silent for `SILENT_S` is lost. What is sent can be read on the way, but not the token.
        """
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(_CONNECT_S):
                sock = await _tcp(loop, host, port)
        except (OSError, TimeoutError) as error:
            reason = str(error) or f"no answer within {_CONNECT_S:g} s"
            raise await _unreached(f"at {host}:{port}", explain, reason) from error
        return await cls._over(sock, f"at {host}:{port}", token, explain, network=True)

    @classmethod
    async def _over(
        cls,
        sock: socket.socket,
        where: str,
        token: bytes,
        explain: Callable[[], Awaitable[str]] | None,
        *,
        network: bool,
    ) -> GuestLink:
        """Greet the guest at the other end of a connected socket that never blocks."""
        with contextlib.suppress(PermissionError):  # for root alone; bulk transfer then takes fewer turns
            sock.setsockopt(socket.SOL_SOCKET, _SO_SNDBUFFORCE, _SEND_BUFFER_BYTES)
        link = cls(sock, explain)
        link._loop.add_reader(sock.fileno(), link._readable)
        try:
            async with asyncio.timeout(_CONNECT_S):
                await link._greet(await link._prove(token, where) if network else token, network=network)
        except TimeoutError as error:
            await link.close(end=False)
            raise InfraError(f"the guest {where} did not answer within {_CONNECT_S:g} s") from error
        except BaseException:
            await link.close(end=False)
            raise
        if network:
            link._listen()
        return link

    async def _prove(self, token: bytes, where: str) -> bytes:
        """Return the proof for a guest that has given its own. Raise `InfraError` for one that does not know the token."""
        mine = os.urandom(guest.TOKEN_BYTES)
        (answer,) = await self._asked(guest.HELLO, _Challenge(), mine)
        nonces, shown = mine + answer[: guest.TOKEN_BYTES], bytes(answer[guest.TOKEN_BYTES :])
        if not hmac.compare_digest(shown, guest.proof(token, b"guest", nonces)):
            raise InfraError(
                f"what listens {where} does not know the token of the sandbox: it is another one's guest, or none. "
                "It was told nothing."
            )
        return guest.proof(token, b"server", nonces)

    async def _greet(self, shown: bytes, *, network: bool) -> None:
        greeting = _Greeting()
        await self._asked(guest.PROOF if network else guest.HELLO, greeting, shown)
        self.version = greeting.version
        if self.version not in (guest.PREVIOUS, guest.VERSION):
            raise FailedPrecondition(
                f"the sandbox's guest speaks version {self.version} of the protocol, this server {guest.PREVIOUS} and "
                f"{guest.VERSION}. The sandbox goes on: take it up with the version of ROCK that made it, or the next one."
            )

    async def _asked(self, kind: int, reply: _Reply, payload: bytes) -> list[bytes | bytearray]:
        request = guest.hello_request(guest.VERSION)
        self._sinks[request] = reply
        self.send(kind, request, payload)
        try:
            return await reply.done
        finally:
            self.forget(request)

    def _listen(self) -> None:
        """Ask a guest that has been silent for a while whether it is there; give up one that stays silent."""
        silent_s = self._loop.time() - self._heard
        if self._hung_up.done():
            return
        if silent_s >= SILENT_S:
            self.fail(f"the sandbox was lost: nothing was heard of it for {silent_s:.0f} s")
            return
        if silent_s >= PING_S:
            self.send(guest.PING, 0)  # whoever answers was heard; nobody waits for the answer itself
        self._listening = self._loop.call_later(max(PING_S - silent_s, 1.0), self._listen)

    async def configure(self, config: Mapping[str, object]) -> None:
        """Set the box up; once in its life, by the server that made it."""
        await self.ask(guest.CONFIG, marshal.dumps(dict(config), 2))

    async def lease(self, seconds: float) -> None:
        """Let the guest end the box by itself so long from now, unless this is called again before."""
        await self.ask(guest.LEASE, guest.SECONDS.pack(seconds))

    @property
    def failure(self) -> str:
        """Return why the box can no longer be used; empty while it can."""
        return self.lost.result() if self.lost.done() else ""

    def send(self, kind: int, request: int, payload: bytes | memoryview = b"") -> None:
        """Write one frame; to a box that is gone, nothing."""
        if self._hung_up.done():
            return
        blocks: list[memoryview | bytes] = [guest.HEADER.pack(kind, request, len(payload)), payload]
        if self._out:
            self._out += blocks
            return
        self._out = blocks
        self._flush()

    async def ask(self, kind: int, payload: bytes = b"") -> list[bytes | bytearray]:
        """Send a request and return the blocks of its answer. Raise what the guest refused it with."""
        numbers = []

        def make(request: int) -> _Reply:
            numbers.append(request)
            return _Reply()

        reply = self.begin(make, kind, payload)
        try:
            return await reply.done
        finally:
            self.forget(numbers[0])

    def begin(self, make: Callable[[int], S], kind: int, payload: bytes) -> S:
        """Send a request whose answer goes to the sink that `make` returns for its number, until `forget`."""
        if self.failure:
            raise lost_box(self.failure)
        request = next(self._requests)
        sink = self._sinks[request] = make(request)
        self.send(kind, request, payload)
        return sink

    async def answers(self, within_s: float) -> bool:
        """Return whether the guest answers in time. One that stays silent for `KILL_GRACE_S` is given up, box and all."""
        if self._asking is None or self._asking.done():
            self._asking = self._loop.create_task(self._check())
        done, _ = await asyncio.wait([self._asking], timeout=within_s)
        return bool(done)

    async def _check(self) -> None:
        try:
            async with asyncio.timeout(KILL_GRACE_S):
                await self.ask(guest.PING)
        except TimeoutError:
            self.fail(f"the sandbox did not answer within {KILL_GRACE_S:g} s")
        except (InfraError, Unavailable):
            pass  # it is given up, or let go of, already

    def forget(self, request: int) -> None:
        self._sinks.pop(request, None)

    def fail(self, reason: str) -> None:
        """Give the box up: hang up and end every request in progress with `reason`."""
        self._hang_up()
        if not self.lost.done():
            self.lost.set_result(reason)
        for sink in tuple(self._sinks.values()):
            if self._let_go:
                sink.refused(
                    Unavailable("the server let go of the sandbox. Try again: with a key, nothing is lost.")
                )
            else:
                sink.lost(self.failure)

    async def close(self, *, end: bool = True) -> None:
        """Let go of the box, after ending it and everything in it where `end` is set.

        A guest that does not end within `KILL_GRACE_S` is left to the backend, which can kill what holds it.
        """
        self._let_go = not end
        self._closing = "the sandbox was closed" if end else "the server let go of the sandbox"
        if end and not self._hung_up.done():
            self.send(guest.END, 0)
            await asyncio.wait([self._hung_up], timeout=KILL_GRACE_S)
            self.silent = not self._hung_up.done()
        self.fail(self._closing)
        if self._ending is not None:
            await self._ending

    def _flush(self) -> None:
        out = self._out
        try:
            while out:
                sent = self._sock.sendmsg(out[:_IOV])
                done = 0
                while done < len(out) and sent >= len(out[done]):
                    sent -= len(out[done])
                    done += 1
                del out[:done]
                if sent:
                    out[0] = memoryview(out[0])[sent:]
        except BlockingIOError:
            self._loop.add_writer(self._sock.fileno(), self._flush)
            return
        except OSError:
            out.clear()  # the reading side learns that the guest is gone, and why
        self._loop.remove_writer(self._sock.fileno())

    def _readable(self) -> None:
        for _ in range(_TURNS):
            space = self._reader.space()
            try:
                count = self._sock.recv_into(space)
                frames = self._reader.filled(count) if count else []
            except BlockingIOError:
                return
            except guest.BadFrame as error:
                self.fail(f"the sandbox sent {error}")
                return
            except OSError:
                count, frames = 0, []
            if not count:
                self._gone()
                return
            self._heard = self._loop.time()
            self._pass_on(frames)
            if self._hung_up.done() or not self._reader.within:
                return

    def _pass_on(self, frames: list[tuple[int, int, bytes | bytearray]]) -> None:
        for kind, request, payload in frames:
            sink = self._sinks.get(request)
            if sink is None:
                continue
            if kind == guest.REFUSED:
                sink.refused(refusal(payload))
                continue
            try:
                sink.frame(kind, payload)
            except (struct.error, IndexError, UnicodeDecodeError) as error:
                self.fail(f"the sandbox sent a frame of kind {kind} that cannot be read: {error}")
                return
            except guest.BadFrame as error:
                self.fail(f"the sandbox sent {error}")
                return

    def _gone(self) -> None:
        self._hang_up()
        if self._closing or self._explain is None:
            self.fail(self._closing or "the sandbox ended")
        else:
            self._ending = self._loop.create_task(self._tell_why(self._explain))

    async def _tell_why(self, explain: Callable[[], Awaitable[str]]) -> None:
        reason = "the sandbox ended"
        try:
            reason = await explain() or reason
        finally:
            self.fail(self._closing or reason)

    def _hang_up(self) -> None:
        if not self._hung_up.done():
            self._hung_up.set_result(None)
            if self._listening is not None:
                self._listening.cancel()
            self._loop.remove_reader(self._sock.fileno())
            self._loop.remove_writer(self._sock.fileno())
            self._sock.close()
            self._out = []


async def _unreached(where: str, explain: Callable[[], Awaitable[str]] | None, reason: str) -> InfraError:
    """Return the error for a guest that cannot be connected to, with what the backend knows of it rather than `reason`."""
    said = await explain() if explain is not None else ""
    return InfraError(f"cannot connect to the guest of a sandbox {where}: {said or reason}")


async def _tcp(loop: asyncio.AbstractEventLoop, host: str, port: int) -> socket.socket:
    """Return a connected socket that sends small frames at once."""
    sock = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_STREAM)
    try:
        sock.setblocking(False)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        await loop.sock_connect(sock, (host, port))
    except BaseException:
        sock.close()
        raise
    return sock


def listen(path: Path) -> socket.socket:
    """Return a listening socket at `path`, for a guest that inherits it; only this user can connect."""
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        with _short(path) as address:
            sock.bind(address)
        path.chmod(0o600)
        sock.listen(64)
    except BaseException:
        sock.close()
        raise
    return sock


@contextlib.contextmanager
def _short(path: Path) -> Iterator[str]:
    """Give a name for `path` that fits a socket address, whose room is 107 bytes."""
    folder = os.open(path.parent, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield f"/proc/self/fd/{folder}/{path.name}"
    finally:
        os.close(folder)
