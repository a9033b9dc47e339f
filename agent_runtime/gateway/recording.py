"""Record what a model provider answers an agent, and replay it without the provider.

For debugging an agent offline: `Recorder` stands between agent and provider, `Replay` in the provider's place. Both are
ASGI applications for `http_server.serving`; neither samples, and neither makes a trajectory. The file is JSON Lines, one
answer a line. No header of a request is written, and what looks like a key is blanked out in every body.

A request finds its answer by what it asks: path, messages, tools, and whether it streams. Other fields (ids, dates in
headers, sampling parameters) may differ between runs. The nth time it is asked it gets the nth recorded answer, then
the last one.
"""

from __future__ import annotations

import base64
import hashlib
import re
import secrets
from collections import defaultdict
from contextlib import suppress
from pathlib import Path
from typing import Any

import httpx
import msgspec
import tenacity

from agent_runtime.chat import ChatRequest, Refusal, RefusalKind
from agent_runtime.dialects import DIALECTS, of_path
from agent_runtime.gateway.exchange import ClientGone, Exchange, Receive, Scope, Send
from agent_runtime.gateway.http_server import Limits
from agent_runtime.gateway.label_headers import CONVERSATION_HEADER, LABEL_HEADER

__all__ = ["Exchanged", "Recorder", "Replay", "redacted"]

ATTEMPTS = 4
"""To reach the provider. What it answers, errors included, goes to the agent as it is: agents have retries of their own. A
request that it may have had is sent once."""
LIMITS = httpx.Limits(max_connections=256, max_keepalive_connections=32)
TIMEOUT = httpx.Timeout(600.0, connect=10.0)
"""Seconds. A provider may think for minutes before its first byte."""
UNREACHED = (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout, httpx.ProxyError)
"""What says that the provider never had the request. After any other failure it may have answered, and that costs money."""
SHOWN = 120
"""Characters of a message in an error."""
_KEY = re.compile(r"\b(sk-|sk_|xai-|gsk_|AIza|ghp_|Bearer )[A-Za-z0-9_\-.]{12,}")
_KEPT = ("content-type", "retry-after", "request-id", "x-request-id")
"""Headers of an answer that are recorded and passed on."""
_HOP = frozenset(
    {
        *(
            "host",
            "connection",
            "content-length",
            "transfer-encoding",
            "keep-alive",
            "te",
            "upgrade",
            "expect",
        ),
        *(LABEL_HEADER, CONVERSATION_HEADER),
        *("authorization", "x-api-key", "cookie", "accept-encoding", "proxy-authorization"),
    }
)
"""Headers of a request that are not passed on: about one connection, said to a gateway, or secret."""


class Exchanged(msgspec.Struct, frozen=True, omit_defaults=True):
    """One request and its answer: a line of the file."""

    method: str
    path: str
    """With `/v1`."""
    name: str
    """Digest of what was asked."""
    request: str
    status: int
    headers: tuple[tuple[str, str], ...]
    body: str
    base64: bool = False
    """The body is no UTF-8."""
    cut: bool = False
    """The answer broke off here."""

    def content(self) -> bytes:
        """Return the answer's body."""
        return base64.b64decode(self.body) if self.base64 else self.body.encode()


def redacted(text: str, *keys: str) -> str:
    """Return `text` without the `keys` and without what looks like a key of a provider."""
    for key in filter(None, keys):
        text = text.replace(key, "<key>")
    return _KEY.sub(lambda found: f"{found[1]}<key>", text)


def _asked(exchange: Exchange, body: bytes) -> tuple[str, ChatRequest | None]:
    """Return the name of a request, and what it says if it asks the model."""
    request: ChatRequest | None = None
    dialect = DIALECTS.get(exchange.path)
    said: Any = body
    if dialect is not None and exchange.method == "POST":
        try:
            request = dialect.parse(body, exchange.headers)
            said = msgspec.json.encode((request.messages, request.tools, request.stream))
        except Refusal:
            said = body
    name = hashlib.blake2b(f"{exchange.method} {exchange.path} ".encode(), digest_size=16)
    name.update(said)
    return name.hexdigest(), request


class Recorder:
    """Passes requests on to a provider and writes down what it answers.

    `upstream` is the URL that stands for `/v1` (https://api.openai.com/v1), `upstream_key` the provider's. Agents use `key`,
    which is made here: who knows the address alone spends nobody's money.
    """

    def __init__(self, upstream: str, upstream_key: str, file: Path, *, limits: Limits | None = None) -> None:
        self.key = f"sk-ale-{secrets.token_urlsafe(24)}"
        self._upstream = upstream.rstrip("/")
        self._upstream_key = upstream_key
        self._file = file
        self._limits = limits or Limits()
        self._client = httpx.AsyncClient(limits=LIMITS, timeout=TIMEOUT)

    async def __aenter__(self) -> Recorder:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._client.aclose()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one HTTP request (ASGI)."""
        await _answer(Exchange(scope, receive, send, self._limits), self._relay)

    async def _relay(self, exchange: Exchange) -> None:
        if self.key not in exchange.named_keys():
            raise Refusal(
                RefusalKind.UNAUTHORIZED, "the key is not this recorder's. Give the agent `Recorder.key`."
            )
        if not exchange.path.startswith("/v1/"):
            raise Refusal(
                RefusalKind.NOT_FOUND, f"there is no {exchange.path}; only paths below /v1/ are passed on."
            )
        body = await exchange.body()
        gone = exchange.watch()
        reply = await self._send(exchange, body)
        parts: list[bytes] = []
        cut = True
        headers = tuple((name, reply.headers[name]) for name in _KEPT if name in reply.headers)
        try:
            await exchange.begin(reply.status_code, headers)
            async for part in reply.aiter_bytes():
                parts.append(part)
                await exchange.say(part)
            cut = False
        except httpx.TransportError:
            pass  # recorded as cut, and the agent's stream is cut too
        finally:
            await reply.aclose()
            if not gone.done():
                self._write(exchange, body, reply.status_code, headers, b"".join(parts), cut=cut)
        if not cut:
            await exchange.finish(b"")

    async def _send(self, exchange: Exchange, body: bytes) -> httpx.Response:
        """Ask the provider, a few times where it cannot be reached, but once if it may have been. Raise `Refusal`."""
        kept = {name: value for name, value in exchange.headers.items() if name not in _HOP}
        secret = {"authorization": f"Bearer {self._upstream_key}"}
        if "anthropic-version" in kept:
            secret = {"x-api-key": self._upstream_key}
        query = f"?{exchange.query.decode('latin-1')}" if exchange.query else ""
        url = f"{self._upstream}{exchange.path.removeprefix('/v1')}{query}"
        asked = self._client.build_request(
            exchange.method, url, headers={**kept, **secret, "accept-encoding": "identity"}, content=body
        )
        try:
            async for attempt in tenacity.AsyncRetrying(
                retry=tenacity.retry_if_exception_type(UNREACHED),
                stop=tenacity.stop_after_attempt(ATTEMPTS),
                wait=tenacity.wait_random_exponential(multiplier=0.5, max=8),
                reraise=True,
            ):
                with attempt:
                    return await self._client.send(asked, stream=True)
        except UNREACHED as error:
            raise Refusal(
                RefusalKind.UPSTREAM,
                f"{self._upstream} cannot be reached ({type(error).__name__}: {error}), tried {ATTEMPTS} times.",
                retry_after_s=1.0,
            ) from error
        except (httpx.UnsupportedProtocol, httpx.LocalProtocolError) as error:
            raise Refusal(
                RefusalKind.UPSTREAM, f"{self._upstream} was not asked ({type(error).__name__}: {error})."
            ) from error
        except httpx.TransportError as error:
            raise Refusal(
                RefusalKind.UPSTREAM,
                f"{self._upstream} gave no answer ({type(error).__name__}: {error}). It may have had the request, so that "
                "was not sent again: each time costs. Look at the provider's own log before you repeat it.",
            ) from error
        raise AssertionError("tenacity returned without an attempt")

    def _write(
        self,
        exchange: Exchange,
        asked: bytes,
        status: int,
        headers: tuple[tuple[str, str], ...],
        body: bytes,
        *,
        cut: bool,
    ) -> None:
        keys = (self.key, self._upstream_key)
        try:
            text, encoded = redacted(body.decode(), *keys), False
        except UnicodeDecodeError:
            text, encoded = base64.b64encode(body).decode(), True
        line = Exchanged(
            method=exchange.method,
            path=exchange.path,
            name=_asked(exchange, asked)[0],
            request=redacted(asked.decode(errors="replace"), *keys),
            status=status,
            headers=headers,
            body=text,
            base64=encoded,
            cut=cut,
        )
        with self._file.open("ab") as file:  # one write a line: what is there is whole
            file.write(msgspec.json.encode(line) + b"\n")


class Replay:
    """Answers from a recording. A request that is not in it gets 404, which no agent repeats, and says what differs."""

    def __init__(self, file: Path, *, limits: Limits | None = None) -> None:
        """Read the recording. Raise `ValueError` for a line that is none."""
        self._file = file
        self._limits = limits or Limits()
        self._answers: dict[str, list[Exchanged]] = defaultdict(list)
        self._next: dict[str, int] = defaultdict(int)
        for number, line in enumerate(file.read_bytes().splitlines(), start=1):
            try:
                found = msgspec.json.decode(line, type=Exchanged)
            except msgspec.MsgspecError as error:
                raise ValueError(
                    f"{file}, line {number} is no recorded answer: {error}. Expected what `Recorder` writes."
                ) from error
            self._answers[found.name].append(found)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one HTTP request (ASGI)."""
        await _answer(Exchange(scope, receive, send, self._limits), self._replay)

    async def _replay(self, exchange: Exchange) -> None:
        body = await exchange.body()
        name, request = _asked(exchange, body)
        answers = self._answers.get(name)
        if not answers:
            raise Refusal(RefusalKind.NOT_FOUND, self._unknown(exchange, request))
        turn = self._next[name]
        self._next[name] = min(turn + 1, len(answers) - 1)
        found = answers[turn]
        if not found.cut:
            await exchange.respond(found.status, found.headers, found.content())
            return
        await exchange.begin(found.status, found.headers)
        await exchange.say(found.content())  # and the connection is closed: nobody says that this was all

    def _unknown(self, exchange: Exchange, request: ChatRequest | None) -> str:
        """Say what was asked and how the nearest recorded request differs."""
        asked = f"{exchange.method} {exchange.path}"
        text = f"the recording {self._file.name} has no answer for {asked}"
        if request is None:
            return f"{text}. Record the agent again."
        best: tuple[int, str] = (-1, "the recording has no request of this kind")
        for answers in self._answers.values():
            theirs = _parsed(answers[0])
            if theirs is not None and answers[0].path == exchange.path:
                best = max(best, _difference(request, theirs), key=lambda found: found[0])
        return (
            f"{text} with {len(request.messages)} messages: {best[1]}. Record the agent again, or start it with the same "
            "task."
        )


def _parsed(line: Exchanged) -> ChatRequest | None:
    dialect = DIALECTS.get(line.path)
    if dialect is None or line.method != "POST":
        return None
    try:
        return dialect.parse(line.request.encode(), {})
    except Refusal:
        return None


def _difference(request: ChatRequest, recorded: ChatRequest) -> tuple[int, str]:
    """Return how many messages are equal, and what the first difference is."""
    pairs = zip(request.messages, recorded.messages, strict=False)
    for at, (ours, theirs) in enumerate(pairs):
        if ours != theirs:
            return at, f"message {at} is {_shown(ours.content)}, recorded was {_shown(theirs.content)}"
    at = min(len(request.messages), len(recorded.messages))
    if len(request.messages) != len(recorded.messages):
        return (
            at,
            f"the nearest recorded request has {len(recorded.messages)} messages, equal as far as they go",
        )
    if request.tools != recorded.tools:
        return at, "the messages are those of a recorded request, but the tools differ"
    return at, f"the messages are those of a recorded request, which had stream={recorded.stream}"


def _shown(text: str) -> str:
    return repr(text if len(text) <= SHOWN else f"{text[:SHOWN]}…")


async def _answer(exchange: Exchange, act: Any) -> None:
    """Let `act` answer, and tell a refusal in the words of the path's dialect."""
    try:
        await act(exchange)
    except Refusal as refusal:
        with suppress(ClientGone):
            await exchange.respond(*of_path(exchange.path).refuse(refusal))
    except ClientGone:
        return
    finally:
        await exchange.leave()
