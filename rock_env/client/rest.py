"""The clients' other transport: a channel whose calls travel over REST instead of gRPC.

Opened by `Credentials.channel` for addresses that start with http:// or https://. The generated stubs work with it as
with a gRPC channel: same calls, same messages, same errors. Single requests are JSON, server streams are server-sent
events, streams of requests are bodies, and what goes both ways is a WebSocket.
"""

from __future__ import annotations

import asyncio
import json
import ssl
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Sequence
from contextlib import suppress
from typing import Any, Self
from urllib.parse import quote, urlencode

import grpc
import httpx
from google.protobuf import json_format
from google.protobuf.message import DecodeError
from grpc.aio import EOF, AioRpcError, Metadata
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, InvalidHandshake, InvalidStatus
from websockets.typing import Subprotocol

from rock_env.errors import CODES
from rock_env.wire.channel import is_local
from rock_env.wire.rest_routes import Method, methods

__all__ = ["RestChannel"]

_CONNECT_S = 10.0
_LATE_S = 1.0
"""How much longer than its deadline a call may take to be answered by the server that enforces it."""
_MAX_BYTES = 128 << 20
"""A message of 64 MiB as JSON."""
_PROTO = Subprotocol("rock.v1.proto")
_HEALTH = "/grpc.health.v1.Health/Check"

_UNREADABLE = (
    ValueError,
    LookupError,
    TypeError,
    AttributeError,
    RecursionError,
    json_format.Error,
    DecodeError,
)
"""What reading the words of another server raises."""

Headers = dict[str, str]


class RestChannel:
    """A connection to the REST face at `url`. Use it as a context manager, or close it."""

    def __init__(self, url: str, *, tls: ssl.SSLContext | None = None) -> None:
        self._url = url.rstrip("/")
        self._tls = tls
        self._methods = {method.grpc_path: method for method in methods()}
        self._http = httpx.AsyncClient(
            base_url=self._url,
            verify=tls if tls is not None else True,
            timeout=httpx.Timeout(None, connect=_CONNECT_S),
            limits=httpx.Limits(max_connections=None, max_keepalive_connections=100),
            trust_env=not is_local(url),
        )

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self, grace: float | None = None) -> None:
        """Close all connections."""
        await self._http.aclose()

    def unary_unary(self, path: str, **shape: Any) -> Callable[..., Any]:
        """Return a call with one request and one reply."""
        if path == _HEALTH:
            read = shape["response_deserializer"]
            return lambda request, *, timeout=None, **_: _Single(self._healthz(read, timeout))

        def call(request: Any, *, metadata: Any = None, timeout: float | None = None, **_: Any) -> _Single:
            method = self._method(path)
            return _Single(self._ask(method, request, _headers(metadata, timeout), timeout))

        return call

    def unary_stream(self, path: str, **_: Any) -> Callable[..., Any]:
        """Return a call with one request and many replies."""

        def call(request: Any, *, metadata: Any = None, timeout: float | None = None, **_: Any) -> _Stream:
            method = self._method(path)
            return _Stream(lambda call: self._events(method, request, _headers(metadata, timeout), call))

        return call

    def stream_unary(self, path: str, **_: Any) -> Callable[..., Any]:
        """Return a call with many requests and one reply."""

        def call(
            requests: Any = None, *, metadata: Any = None, timeout: float | None = None, **_: Any
        ) -> _Upload:
            method = self._method(path)
            return _Upload(requests, lambda source: self._upload(method, source, _headers(metadata, timeout)))

        return call

    def stream_stream(self, path: str, **_: Any) -> Callable[..., Any]:
        """Return a call with many requests and many replies."""

        def call(
            requests: Any = None, *, metadata: Any = None, timeout: float | None = None, **_: Any
        ) -> _Socket:
            method = self._method(path)
            return _Socket(requests, method, self._url, self._tls, _headers(metadata, None))

        return call

    # -- how they are carried

    def _method(self, path: str) -> Method:
        """Return a method as it is called: stubs hold more than is, such as Watch of the health."""
        if path not in self._methods:
            raise _failure("UNIMPLEMENTED", f"{path} is no call of the REST face", {})
        return self._methods[path]

    async def _send(self, request: httpx.Request, timeout: float | None) -> httpx.Response:
        """Return the reply to a request. Raise `AioRpcError`."""
        try:
            async with asyncio.timeout(None if timeout is None else timeout + _LATE_S):
                return await self._http.send(request)
        except TimeoutError:
            raise _failure("DEADLINE_EXCEEDED", f"no answer within {timeout} s", {}) from None
        except httpx.HTTPError as error:
            raise _lost(error) from error

    async def _healthz(self, read: Callable[[bytes], Any], timeout: float | None) -> Any:
        reply = await self._send(self._http.build_request("GET", "/healthz"), timeout)
        return read(b"\x08\x01" if reply.status_code == 200 else b"\x08\x02")  # SERVING or NOT_SERVING

    async def _ask(self, method: Method, request: Any, headers: Headers, timeout: float | None) -> Any:
        reply = await self._send(self._request(method, request, headers), timeout)
        if reply.status_code != 200:
            raise _problem(reply.content, reply.headers)
        return _reply(method, reply.content)

    async def _events(
        self, method: Method, request: Any, headers: Headers, call: _Stream
    ) -> AioRpcError | None:
        sent = self._request(method, request, {**headers, "accept": "text/event-stream"})
        try:
            reply = await self._http.send(sent, stream=True)
            try:
                if reply.status_code != 200:
                    return _problem(await reply.aread(), reply.headers)
                async for name, data in _server_sent(reply.aiter_lines()):
                    if name == "end":
                        return None
                    if name == "error":
                        return _problem(data.encode(), {"rock-error-code": "yes"})
                    await call.put(_reply(method, data))
                return _failure("UNAVAILABLE", "the stream broke off", {})
            finally:
                await reply.aclose()
        except httpx.HTTPError as error:
            return _lost(error)
        except AioRpcError as error:
            return error

    async def _upload(self, method: Method, source: AsyncIterator[Any], headers: Headers) -> Any:
        first = await anext(source, None)
        given = method.request() if first is None else first
        url, fields = _place(method, given)
        raw = method.route.raw

        async def body() -> AsyncIterator[bytes]:
            if raw:
                yield getattr(given, raw)
            elif first is not None:
                yield _json(first) + b"\n"
            async for message in source:
                yield getattr(message, raw) if raw else _json(message) + b"\n"

        if raw:
            url += "?" + urlencode(list(_query({**fields, raw: ""})))
        kind = "application/octet-stream" if raw else "application/x-ndjson"
        sent = self._http.build_request(
            method.route.verb, url, headers={**headers, "content-type": kind}, content=body()
        )
        try:
            reply = await self._http.send(sent)
        except httpx.HTTPError as error:
            raise _lost(error) from error
        if reply.status_code != 200:
            raise _problem(reply.content, reply.headers)
        return _reply(method, reply.content)

    def _request(self, method: Method, request: Any, headers: Headers) -> httpx.Request:
        url, fields = _place(method, request)
        if method.takes_body:
            body = json.dumps(fields).encode()
            headers = {**headers, "content-type": "application/json"}
            return self._http.build_request(method.route.verb, url, headers=headers, content=body)
        return self._http.build_request(
            method.route.verb, url, headers=headers, params=list(_query(fields)) or None
        )


class _Single:
    """A call with one reply, which is awaited."""

    def __init__(self, work: Coroutine[Any, Any, Any]) -> None:
        self._task = asyncio.ensure_future(work)
        self._task.add_done_callback(_seen)

    def __await__(self) -> Any:
        return self._task.__await__()

    def cancel(self) -> bool:
        return self._task.cancel()

    def done(self) -> bool:
        return self._task.done()


class _Writes(ABC):
    """The requests of a call: from an iterable, or as they are written."""

    def __init__(self, requests: Any) -> None:
        self._queue: asyncio.Queue[Any] = asyncio.Queue(1)
        self._requests = requests

    async def write(self, message: Any) -> None:
        if self.done():
            raise asyncio.InvalidStateError("the call is over")
        await self._queue.put(message)

    async def done_writing(self) -> None:
        if not self.done():
            await self._queue.put(EOF)

    @abstractmethod
    def done(self) -> bool:
        """Return whether the call is over."""

    async def _source(self) -> AsyncIterator[Any]:
        if self._requests is None:
            while (message := await self._queue.get()) is not EOF:
                yield message
        elif isinstance(self._requests, AsyncIterator) or hasattr(self._requests, "__aiter__"):
            async for message in self._requests:
                yield message
        else:
            for message in self._requests:
                yield message


class _Upload(_Writes):
    """A call with many requests and one reply, which is awaited."""

    def __init__(self, requests: Any, send: Callable[[AsyncIterator[Any]], Coroutine[Any, Any, Any]]) -> None:
        super().__init__(requests)
        self._reply = _Single(send(self._source()))

    def __await__(self) -> Any:
        return self._reply.__await__()

    def cancel(self) -> bool:
        return self._reply.cancel()

    def done(self) -> bool:
        return self._reply.done()


class _Stream:
    """A call with many replies: read them, or iterate. The next one is fetched when the last one was taken."""

    def __init__(self, receive: Callable[[Any], Coroutine[Any, Any, AioRpcError | None]]) -> None:
        self._replies: asyncio.Queue[Any] = asyncio.Queue(1)
        self._task = asyncio.ensure_future(receive(self))
        self._task.add_done_callback(_seen)

    async def put(self, message: Any) -> None:
        await self._replies.put(message)

    async def read(self) -> Any:
        """Return the next reply, or EOF. Raise `AioRpcError`."""
        get = asyncio.ensure_future(self._replies.get())
        try:
            await asyncio.wait({get, self._task}, return_when=asyncio.FIRST_COMPLETED)
            if get.done():
                return get.result()
        finally:
            get.cancel()
        error = self._task.result()  # raises CancelledError after a cancel
        if error is not None:
            raise error
        return EOF

    async def __aiter__(self) -> AsyncIterator[Any]:
        while (message := await self.read()) is not EOF:
            yield message

    def cancel(self) -> bool:
        return self._task.cancel()

    def done(self) -> bool:
        return self._task.done() and self._replies.empty()


class _Socket(_Stream, _Writes):
    """A call with messages both ways, over a WebSocket."""

    def __init__(
        self, requests: Any, method: Method, url: str, tls: ssl.SSLContext | None, headers: Headers
    ) -> None:
        _Writes.__init__(self, requests)
        self._method = method
        self._base = "ws" + url.removeprefix("http")
        self._tls = tls
        self._headers = headers
        _Stream.__init__(self, lambda _: self._carry())

    async def _carry(self) -> AioRpcError | None:
        source = self._source()
        first = await anext(source, None)
        path, _ = _place(self._method, self._method.request() if first is None else first)
        try:
            async with connect(
                self._base + path,
                subprotocols=[_PROTO],
                additional_headers=self._headers,
                max_size=_MAX_BYTES,
                max_queue=2,
                compression=None,
                ping_timeout=None,  # a server whose input is held back answers no ping
                open_timeout=_CONNECT_S,
                close_timeout=1.0,
                ssl=self._tls,
                proxy=None if is_local(self._base.replace("ws", "http", 1)) else True,
            ) as socket:
                pump = asyncio.ensure_future(self._pump(socket, first, source))
                try:
                    return await self._receive(socket)
                finally:
                    pump.cancel()
                    with suppress(asyncio.CancelledError):
                        await pump
        except InvalidStatus as refused:
            return _problem(bytes(refused.response.body or b""), dict(refused.response.headers.raw_items()))
        except (OSError, TimeoutError, InvalidHandshake) as error:
            return _failure("UNAVAILABLE", f"cannot open a WebSocket: {error}", {})

    async def _receive(self, socket: ClientConnection) -> AioRpcError | None:
        try:
            async for frame in socket:
                if isinstance(frame, str):
                    return _problem(
                        json.dumps(json.loads(frame)["error"]).encode(), {"rock-error-code": "yes"}
                    )
                await self.put(self._method.reply.FromString(frame))
        except ConnectionClosed as closed:
            return _failure("UNAVAILABLE", f"the connection was lost: {closed}", {})
        except _UNREADABLE:
            return _no_server(frame)
        return None

    async def _pump(self, socket: ClientConnection, first: Any, source: AsyncIterator[Any]) -> None:
        with suppress(ConnectionClosed):
            if first is not None:
                await socket.send(first.SerializeToString())
            async for message in source:
                await socket.send(message.SerializeToString())
            await socket.send("")


def _seen(task: asyncio.Task[Any]) -> None:
    if not task.cancelled():
        task.exception()  # who dropped the call does not ask for its outcome


def _headers(metadata: Sequence[tuple[str, str]] | None, timeout: float | None) -> Headers:
    headers = dict(metadata or ())
    return headers if timeout is None else {**headers, "rock-timeout-s": f"{timeout:g}"}


def _json(message: Any) -> bytes:
    return json.dumps(_fields(message)).encode()


def _fields(message: Any) -> dict[str, Any]:
    found: dict[str, Any] = json_format.MessageToDict(message, preserving_proto_field_name=True)
    return found


def _place(method: Method, request: Any) -> tuple[str, dict[str, Any]]:
    """Return the path of a request and the fields that are not in it. Raise `AioRpcError` where one is empty."""
    url = method.route.path
    fields = _fields(request)
    for path in method.path_fields:
        *parents, name = path.split(".")
        value, holder = request, fields
        for parent in parents:
            value, holder = getattr(value, parent), holder.get(parent, {})
        text = str(getattr(value, name))
        if not text:
            raise _failure("INVALID_ARGUMENT", f"{path} is empty", {"rock-error-code": "invalid_argument"})
        url = url.replace("{" + path + "}", quote(text, safe=""))
        holder.pop(name, None)
    return url, fields


def _query(fields: dict[str, Any], prefix: str = "") -> Iterable[tuple[str, str]]:
    for name, value in fields.items():
        if isinstance(value, dict):
            yield from _query(value, f"{prefix}{name}.")
            continue
        for item in value if isinstance(value, list) else [value]:
            if item != "":
                yield prefix + name, str(item).lower() if isinstance(item, bool) else str(item)


async def _server_sent(lines: AsyncIterator[str]) -> AsyncIterator[tuple[str, str]]:
    name, data = "message", ""
    async for line in lines:
        if line.startswith("data: "):
            data += line.removeprefix("data: ")
        elif line.startswith("event: "):
            name = line.removeprefix("event: ")
        elif not line and data:
            yield name, data
            name, data = "message", ""


def _problem(body: bytes, headers: Any) -> AioRpcError:
    """Return the error that a response stands for; `rock-error-code` says that the call itself answered."""
    try:
        said = json.loads(body)
        code, message = str(said["code"]), str(said["message"])
        retry_after_s = said.get("retry_after_s")
        later = {} if retry_after_s is None else {"rock-retry-after-s": f"{retry_after_s:g}"}
    except _UNREADABLE:
        return _no_server(body)
    kind = CODES.get(code)
    known = {"rock-error-code": code} if "rock-error-code" in headers else {}
    known |= later
    return _failure(kind.grpc if kind is not None else "INTERNAL", message, known)


def _reply(method: Method, content: bytes | str) -> Any:
    """Return the message that a response holds. Raise `AioRpcError` for the words of another server."""
    try:
        return json_format.Parse(content, method.reply())
    except _UNREADABLE:
        raise _no_server(content) from None


def _no_server(said: bytes | str) -> AioRpcError:
    return _failure("UNAVAILABLE", f"no ROCK server answered: {said[:200]!r}", {})


def _lost(error: httpx.HTTPError) -> AioRpcError:
    return _failure("UNAVAILABLE", f"{type(error).__name__}: {error}", {})


def _failure(status: str, details: str, trailing: dict[str, str]) -> AioRpcError:
    return AioRpcError(grpc.StatusCode[status], Metadata(), Metadata(*trailing.items()), details)
