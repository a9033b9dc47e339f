"""One HTTP request and its answer over ASGI: path, keys, a bounded body, and whether the client is still there.

Made by `server` and `recording` for each request. It knows no dialect and no session, and waits for nothing without a bound.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, MutableMapping, Sequence
from typing import Any

from agent_runtime.chat import Refusal, RefusalKind
from agent_runtime.gateway.http_server import SETTLED, Limits

__all__ = ["ClientGone", "Exchange", "Headers", "Receive", "Scope", "Send"]

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
Headers = Sequence[tuple[str, str]]

_PIECE_BYTES = 64 << 10
"""An answer leaves in such pieces, so that one nobody reads is noticed and never copied whole into a socket's buffer."""
_SPILL_BYTES, _SPILL_S = 64 << 20, 5.0
"""So much of a refused body is read and thrown away, since many clients listen only after they have sent all. It is less
than the time that a connection without a key has."""


class ClientGone(Exception):
    """The client hung up before its answer was complete."""


class Exchange:
    """A request. Nothing of it is read or sent before it is asked for."""

    def __init__(self, scope: Scope, receive: Receive, send: Send, limits: Limits) -> None:
        self.method: str = scope["method"]
        path: str = scope["path"]
        self.path_key = ""
        if path.startswith("/s/"):
            self.path_key, slash, rest = path[3:].partition("/")
            path = slash + rest
        self.path = path or "/"
        """Without the key that may stand before it."""
        self.headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}
        self.query: bytes = scope["query_string"]
        self.settle: Callable[[], None] = scope.get("state", {}).get(SETTLED, lambda: None)
        """To be called where a key of ours was shown: the connection is no stranger's."""
        self._receive = receive
        self._send = send
        self._limits = limits
        self._read = self.method in ("GET", "HEAD")
        self.answering = False
        """Part of the body that `finish` sends has left."""
        self._gone: asyncio.Task[None] | None = None

    def named_keys(self) -> list[str]:
        """Return the keys that the request names, that of the path first; no other header is looked at."""
        scheme, _, token = self.headers.get("authorization", "").partition(" ")
        bearer = token.strip() if scheme.lower() == "bearer" else ""
        return [key for key in (self.path_key, bearer, self.headers.get("x-api-key", "").strip()) if key]

    # -- the request

    async def body(self) -> bytes:
        """Read the body. Raise `Refusal` for one too large, too slow or encoded, `ClientGone`."""
        return b"".join(await self.body_parts())

    def is_short(self, most: int) -> bool:
        """Return whether the body is announced to have at most so many bytes."""
        return int(self.headers.get("content-length", most + 1)) <= most

    async def body_parts(self) -> list[bytes]:
        """Read the body, as it comes. Raise as `body` does."""
        limit = self._limits.body_bytes
        encoding = self.headers.get("content-encoding", "identity")
        if encoding != "identity":
            raise Refusal(
                RefusalKind.BAD_REQUEST,
                f"the body is encoded as {encoding!r}, expected plain JSON. Switch the client's compression off.",
            )
        if int(self.headers.get("content-length", 0)) > limit:
            raise self._too_large()
        parts: list[bytes] = []
        size = 0
        try:
            async with asyncio.timeout(self._limits.body_s):
                async for part in self._parts():
                    size += len(part)
                    if size > limit:
                        raise self._too_large()
                    parts.append(part)
        except TimeoutError as error:
            raise Refusal(
                RefusalKind.BAD_REQUEST,
                f"the body did not arrive: got {size} bytes within {self._limits.body_s:g} s. Send it faster.",
            ) from error
        return parts

    async def _parts(self) -> Any:
        while not self._read:
            message = await self._receive()
            if message["type"] == "http.disconnect":
                raise ClientGone
            self._read = not message.get("more_body", False)
            yield message.get("body", b"")

    def _too_large(self) -> Refusal:
        limit = self._limits.body_bytes
        return Refusal(
            RefusalKind.TOO_LARGE,
            f"the body is larger than {limit} bytes. Shorten the history, or raise Limits.body_bytes.",
            details=(("limit", limit),),
        )

    async def _spill(self) -> None:
        """Throw away what is still coming of the body, a bounded part of it, so that the refusal is heard."""
        left = _SPILL_BYTES
        try:
            async with asyncio.timeout(_SPILL_S):
                async for part in self._parts():
                    left -= len(part)
                    if left < 0:
                        return
        except TimeoutError:
            return

    # -- the answer

    async def respond(self, status: int, headers: Headers, body: bytes) -> None:
        """Send a whole answer. Raise `ClientGone`."""
        if not self._read:
            await self._spill()
        last = () if self._read else (("connection", "close"),)
        await self.begin(status, (*headers, ("content-length", str(len(body))), *last))
        await self.finish(body)

    async def begin(self, status: int, headers: Iterable[tuple[str, str]]) -> None:
        """Send the head of an answer."""
        encoded = [(name.encode("latin-1"), value.encode("latin-1")) for name, value in headers]
        await self._send({"type": "http.response.start", "status": status, "headers": encoded})

    async def say(self, part: bytes) -> None:
        """Send a part of the body; more will follow. Raise `ClientGone`."""
        if self.is_gone():
            raise ClientGone
        await self._send({"type": "http.response.body", "body": part, "more_body": True})

    async def finish(self, body: bytes) -> None:
        """Send the rest of the body. Raise `ClientGone` where the client left before its last piece."""
        for start in range(0, len(body) - _PIECE_BYTES, _PIECE_BYTES):
            await self.say(body[start : start + _PIECE_BYTES])
            self.answering = True
            await asyncio.sleep(0)  # lets a hang-up be seen
        rest = len(body) % _PIECE_BYTES or min(len(body), _PIECE_BYTES)
        if self.is_gone():
            raise ClientGone
        await self._send({"type": "http.response.body", "body": body[len(body) - rest :]})

    # -- the client

    def is_gone(self) -> bool:
        """Return whether the client was seen to hang up; only with `watch`."""
        return self._gone is not None and self._gone.done()

    def watch(self) -> asyncio.Task[None]:
        """Return what is done once the client hangs up, or has its answer. The body must have been read."""
        if self._gone is None:
            self._gone = asyncio.get_running_loop().create_task(self._hang_up())
        return self._gone

    async def _hang_up(self) -> None:
        while (await self._receive())["type"] != "http.disconnect":
            pass

    async def leave(self) -> None:
        """End the watch."""
        if self._gone is not None:
            self._gone.cancel()
            await asyncio.wait((self._gone,))
