"""The model provider that agents believe they talk to: HTTP requests in, answers of a session's policy out.

    gateway = Gateway()
    async with gateway.serving() as url:
        session = gateway.open(request, sampler=sampler, template=template)
        ...  # run the agent with `gateway.address(session)` and `session.key`
        await gateway.close(session)

Used by rollout code in the same event loop; there is nothing to administer over HTTP. A session is found by its key: the
path's (`/s/KEY/v1/...`, for agents that lose headers), or that of `Authorization: Bearer` or `x-api-key`. The gateway
knows paths, keys, streams and limits; bodies belong to `dialects`, answers to `session`.
"""

from __future__ import annotations

import asyncio
import hashlib
import secrets
from collections import OrderedDict
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, nullcontext, suppress
from pathlib import Path

from agent_runtime.calls.canonical import Canonical
from agent_runtime.chat import ChatRequest, Refusal, RefusalKind, ToolTemplate
from agent_runtime.dialects import (
    COUNT_TOKENS,
    DIALECTS,
    JSON_HEADERS,
    MESSAGES,
    MODELS,
    STREAM_HEADERS,
    Dialect,
    model_body,
    models_body,
    of_path,
)
from agent_runtime.gateway.exchange import ClientGone, Exchange, Receive, Scope, Send
from agent_runtime.gateway.http_server import Limits, serving
from agent_runtime.gateway.pending import PendingReply
from agent_runtime.gateway.reading import LARGE_BYTES, Readers
from agent_runtime.gateway.session import Budget, Session, SessionEnd
from agent_runtime.policy import Sampler
from agent_runtime.types import RolloutRequest

__all__ = ["Gateway"]

MODEL = "policy"
"""What the one model is called; agents may call it what they like."""
KEY_BYTES = 24
REMEMBERED = 4096
"""Keys of ended sessions that are still told so; later a wrong key is a wrong key."""


class Gateway:
    """Sessions by their keys, and the ASGI application that agents reach them through."""

    def __init__(self, *, limits: Limits | None = None) -> None:
        self.limits = limits or Limits()
        self._sessions: dict[str, Session] = {}
        self._ended: OrderedDict[bytes, SessionEnd] = OrderedDict()
        self._url = ""
        self._readers = Readers()

    # -- for rollout code

    def open(
        self,
        request: RolloutRequest,
        *,
        sampler: Sampler,
        template: ToolTemplate,
        budget: Budget | None = None,
    ) -> Session:
        """Open a session for one agent; without a budget, that of the request's agent and time."""
        key = f"sk-ale-{secrets.token_urlsafe(KEY_BYTES)}"
        own = Budget(turns=request.agent.max_turns, time_s=request.time_limit_s)
        session = Session(key, request, sampler=sampler, template=template, budget=budget or own)
        self._sessions[key] = session
        return session

    async def close(self, session: Session, end: SessionEnd | None = None) -> SessionEnd:
        """End a session and forget it; return why it ended (see `Session.close`)."""
        ended = await session.close(end)
        if self._sessions.pop(session.key, None) is not None:
            self._ended[_digest(session.key)] = ended
            if len(self._ended) > REMEMBERED:
                self._ended.popitem(last=False)
        return ended

    def address(self, session: Session, url: str = "") -> str:
        """Return a session's own root URL: paths `/v1/...` below it need no key. `url` is that of a tunnel, if any."""
        return f"{url or self._url}/s/{session.key}"

    @asynccontextmanager
    async def serving(self, address: str | Path = "127.0.0.1:0") -> AsyncIterator[str]:
        """Serve agents for the time of the block; yield the URL, or the path of the unix socket.

        At the end every session is closed, answers under way get `Limits.stop_s`, and no connection is left.
        """
        async with serving(self, address, limits=self.limits, keyed=True) as url:
            self._url = self._url or url
            try:
                yield url
            finally:
                for session in list(self._sessions.values()):
                    await self.close(session)
                self._url = ""
        await self._readers.close()

    # -- for agents

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one HTTP request (ASGI)."""
        if scope["type"] != "http":
            return
        exchange = Exchange(scope, receive, send, self.limits)
        dialect = of_path(exchange.path)
        try:
            await self._route(exchange, dialect)
        except Refusal as refusal:
            with suppress(ClientGone):
                await exchange.respond(*dialect.refuse(refusal))
        except ClientGone:
            return
        finally:
            await exchange.leave()

    async def _route(self, exchange: Exchange, dialect: Dialect) -> None:
        verb, path = exchange.method, exchange.path
        if verb == "POST" and path == dialect.path:
            await self._answer(exchange, dialect, self._session(exchange))
        elif verb == "POST" and path == COUNT_TOKENS:
            session = self._session(exchange)
            request, canonical = await self._read(MESSAGES, exchange, session)
            await exchange.respond(200, JSON_HEADERS, MESSAGES.count(await session.count(request, canonical)))
        elif verb == "GET" and path == MODELS:
            context = self._session(exchange).max_context
            await exchange.respond(200, JSON_HEADERS, models_body((MODEL,), exchange.headers, context))
        elif verb == "GET" and path.startswith(f"{MODELS}/"):
            context = self._session(exchange).max_context
            name = path.removeprefix(f"{MODELS}/")
            await exchange.respond(200, JSON_HEADERS, model_body(name, exchange.headers, context))
        elif verb in ("GET", "HEAD") and path == "/":
            await exchange.respond(200, (("content-type", "text/plain"),), b"ALE gateway\n")
        else:
            raise Refusal(
                RefusalKind.NOT_FOUND,
                f"there is no {verb} {path}. There are POST {', '.join(DIALECTS)}, POST {COUNT_TOKENS} and GET {MODELS}.",
            )

    async def _answer(self, exchange: Exchange, dialect: Dialect, session: Session) -> None:
        """Answer a request to the model: wait, with signs of life in a stream, then send it whole."""
        try:
            request, canonical = await self._read(dialect, exchange, session)
        except Refusal as refusal:
            session.refused(refusal.kind)
            raise
        asked = session.ask(request, canonical)
        try:
            opened = await self._wait(exchange, dialect, asked, request)
            outcome = asked.outcome.result()
            if isinstance(outcome, Refusal):
                if not opened:
                    raise outcome
                await exchange.finish(dialect.refuse_mid_stream(outcome, opened))
                return
            if opened:
                await exchange.finish(b"".join(dialect.stream(outcome, request, opened)))
            elif request.stream:
                await exchange.respond(200, STREAM_HEADERS, b"".join(dialect.stream(outcome, request)))
            else:
                await exchange.respond(200, JSON_HEADERS, dialect.reply(outcome, request))
        except (ClientGone, asyncio.CancelledError):
            session.lost(asked, broken=exchange.answering)
            raise
        session.delivered(asked)

    async def _read(
        self, dialect: Dialect, exchange: Exchange, session: Session
    ) -> tuple[ChatRequest, Canonical | None]:
        """Read a request's body; of large ones only few of a session's are held at once. Raise `Refusal`, `ClientGone`."""
        short = exchange.is_short(LARGE_BYTES)
        async with nullcontext() if short else session.reading:
            parts = await exchange.body_parts()
            return await self._readers.read(dialect, exchange.headers, parts, session.max_context)

    async def _wait(
        self, exchange: Exchange, dialect: Dialect, asked: PendingReply, request: ChatRequest
    ) -> str:
        """Wait for an outcome; return the id of the stream that was opened meanwhile, if any. Raise `ClientGone`."""
        gone = exchange.watch()
        opened = ""
        while True:
            await asyncio.wait(
                (asked.outcome, gone),
                timeout=self.limits.sign_of_life_s if request.stream else None,
                return_when=asyncio.FIRST_COMPLETED,
            )
            if asked.outcome.done():
                return opened
            if opened or gone.done():
                await exchange.say(dialect.keep_alive(request, opened))
            else:
                opened = secrets.token_hex(12)
                await exchange.begin(200, STREAM_HEADERS)
                await exchange.say(dialect.opening(request, opened))

    def _session(self, exchange: Exchange) -> Session:
        """Return the session whose key a request has. Raise `Refusal`."""
        found: Session | None = None
        for key in exchange.named_keys():
            session = self._sessions.get(key)
            if session is None and _digest(key) in self._ended:
                raise Refusal(
                    RefusalKind.CLOSED,
                    f"this session has ended ({self._ended[_digest(key)]}). Nothing more is answered.",
                )
            if found is not None and session is not None and session is not found:
                raise Refusal(
                    RefusalKind.UNAUTHORIZED,
                    "the request names the keys of two sessions, expected one. Send one key.",
                )
            found = found or session
            if found is None and key == exchange.path_key:
                break
        if found is None:
            raise Refusal(
                RefusalKind.UNAUTHORIZED,
                "the key is no session's. Send the session's key as `Authorization: Bearer KEY` or `x-api-key: KEY`, or in "
                "the path: /s/KEY/v1/...",
            )
        exchange.settle()
        return found


def _digest(key: str) -> bytes:
    return hashlib.blake2b(key.encode(), digest_size=8).digest()
