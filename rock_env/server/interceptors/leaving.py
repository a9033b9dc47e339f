"""How a server stops without leaving a call in the dark: each ends with its result, or with UNAVAILABLE and a reason.

Installed by `server/app.py` as the outermost interceptor, and asked by it to stop the server;
`server/interceptors/revocation` has it end single calls. gRPC by itself ends with CANCELLED, which looks like the
caller's own doing, what it has received but not begun when a server closes its door. So the door is held first:
callers that wait for an answer send nothing new, and are answered when it is closed.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Any

import grpc

from rock_env.errors import RockError
from rock_env.server.calls import act_of, cut_off, fail, rpc_handler

__all__ = ["LeavingInterceptor"]

_QUIET_S = 0.05
_HOLD_S = 5.0
"""New calls are held until none came for so long, and no longer than so long."""
_FLUSH = "/rock.Leaving/Flush"
"""The server's call to itself: when it is begun, so is everything that was received before it."""
_DIRECT = [("grpc.enable_http_proxy", 0), ("grpc.use_local_subchannel_pool", 1)]
_ENDING_S = 2.0
"""How long calls that are cut off may take to say so; one whose caller does not read ends without words."""
_LAST_WORDS_S = 0.5
"""How long a call that lost its right to run may go on sending before it is answered."""
_TOO_LATE = (
    "the server is stopping and did not begin this call. Send it again: to another server, or to this one when it is "
    "back."
)
_CUT_OFF = (
    "the server is stopping and the time for running calls is over: this call was cut off and its outcome is unknown. "
    "Send it again with the same idempotency key; --drain-s gives running calls longer."
)

Handler = Any  # grpc.RpcMethodHandler is generic only in the stubs
Context = Any
Details = Any


class LeavingInterceptor(grpc.aio.ServerInterceptor):  # type: ignore[misc]  # grpc is not typed
    """Knows the calls of one server; the server is stopped through it."""

    def __init__(self) -> None:
        self._open: set[asyncio.Task[Any]] = set()
        self._cut: dict[asyncio.Task[Any], RockError | None] = {}
        """The calls that this server ends, each with its own error, or (None) because the server stops."""
        self._idle = asyncio.Event()
        self._idle.set()
        self._came = False
        self._holding = False
        self._closed = asyncio.Event()

    async def intercept_service(
        self, continuation: Callable[[Details], Awaitable[Handler]], handler_call_details: Details
    ) -> Handler:
        """Return the method's handler; when the server stops, one that holds the call and then refuses it."""
        if self._holding and handler_call_details.method == _FLUSH:
            return grpc.unary_unary_rpc_method_handler(_nothing)
        if self._holding:
            self._came = True
            # On the wire a stream fits every shape of call.
            return grpc.stream_stream_rpc_method_handler(self._hold)
        handler = await continuation(handler_call_details)
        return None if handler is None else self._known(handler)

    def end(self, task: asyncio.Task[Any], error: RockError) -> None:
        """End one running call with this error; `task` is its own."""
        if task in self._open:
            self._cut[task] = error
            task.cancel()

    async def stop(
        self, server: grpc.aio.Server, within_s: float, *, via: str, hurried: asyncio.Event
    ) -> None:
        """Refuse new calls, and let running ones finish within `within_s` or until somebody is in a hurry.

        Those that are left are cut off with UNAVAILABLE. `via` is an address of the server without TLS.
        """
        hurry = asyncio.ensure_future(hurried.wait())
        try:
            self._holding = True
            await self._quiet(via)
            stopping = asyncio.ensure_future(server.stop(within_s + 2 * _ENDING_S))
            await asyncio.sleep(0)  # into gRPC, which tells the clients to leave before the held calls end
            self._closed.set()
            idle = asyncio.ensure_future(self._idle.wait())
            await asyncio.wait((idle, hurry), timeout=within_s, return_when=asyncio.FIRST_COMPLETED)
            idle.cancel()
            await self._cut_off()
            await server.stop(None)  # nothing is left, but what did not end when it was cut off
            await stopping
        finally:
            hurry.cancel()

    async def _quiet(self, via: str) -> None:
        """Wait until nothing that came before is left at the door, and nothing has come for a moment."""
        try:
            async with asyncio.timeout(_HOLD_S), grpc.aio.insecure_channel(via, options=_DIRECT) as channel:
                while True:
                    self._came = False
                    await asyncio.sleep(_QUIET_S)
                    # gRPC hands calls out in the order in which they came.
                    await channel.unary_unary(_FLUSH)(b"")
                    if not self._came:
                        return
        except (TimeoutError, grpc.aio.AioRpcError):
            return  # callers that do not wait for answers, or nobody can connect: it must end all the same

    async def _hold(self, _: Any, context: Context) -> None:
        with self._noted():
            await self._closed.wait()
            await cut_off(context, _TOO_LATE)

    async def _cut_off(self) -> None:
        cut = set(self._open)
        self._cut |= dict.fromkeys(cut)
        for task in cut:
            task.cancel()
        if cut:
            await asyncio.wait(cut, timeout=_ENDING_S)

    @contextmanager
    def _noted(self) -> Iterator[asyncio.Task[Any]]:
        task = asyncio.current_task()
        assert task is not None  # gRPC makes one for each call
        self._open.add(task)
        self._idle.clear()
        try:
            yield task
        finally:
            self._open.discard(task)
            self._cut.pop(task, None)
            if not self._open:
                self._idle.set()

    async def _say_so(self, task: asyncio.Task[Any], context: Context) -> None:
        """Answer for a call that was cancelled, where it was this server that did so."""
        if task not in self._cut or context.done():
            return
        error = self._cut.pop(task)
        task.uncancel()
        if error is not None:
            await fail(context, error, drain_s=_LAST_WORDS_S)
        await cut_off(context, _CUT_OFF)

    def _known(self, handler: Handler) -> Handler:
        act = act_of(handler)
        known = self._generator(act) if inspect.isasyncgenfunction(act) else self._coroutine(act)
        streams = handler.request_streaming, handler.response_streaming
        return rpc_handler(streams, known, handler.request_deserializer, handler.response_serializer)

    def _coroutine(self, act: Callable[[Any, Context], Awaitable[Any]]) -> Any:
        async def known(request: Any, context: Context) -> Any:
            with self._noted() as task:
                try:
                    return await act(request, context)
                except asyncio.CancelledError:
                    await self._say_so(task, context)
                    raise

        return known

    def _generator(self, act: Callable[[Any, Context], AsyncIterator[Any]]) -> Any:
        async def known(request: Any, context: Context) -> AsyncIterator[Any]:
            with self._noted() as task:
                try:
                    async for reply in act(request, context):
                        yield reply
                except asyncio.CancelledError:
                    await self._say_so(task, context)
                    raise

        return known


async def _nothing(_: bytes, __: Context) -> bytes:
    return b""
