"""Turns the calls that many coroutines make in one tick of the event loop into one batch RPC.

Used by `Client` and `AsyncEnv`. A call that is alone in its tick goes as a unary RPC. It knows neither what a call
means nor which sequence it carries; it only promises that every call is answered exactly once.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterable, Sequence
from enum import Enum
from typing import Any

import grpc
from opentelemetry.trace import SpanKind

from rock_env.client.retry import retrying, rock_error
from rock_env.errors import InfraError, RockError, Unavailable
from rock_env.proto.v1 import env_pb2 as pb
from rock_env.telemetry.tracing import span, trace_headers
from rock_env.wire.envs import error_of

__all__ = ["Call", "Coalescer", "Verb", "outcome"]

_SERVICE = pb.DESCRIPTOR.services_by_name["EnvService"].full_name
MAX_BATCH = 1024
"""Larger batches gain nothing and delay the first reply."""


class Verb(Enum):
    """What can be batched; the value is the unary RPC's name, and `…Many` the batch's."""

    MAKE = "Make"
    RESET = "Reset"
    STEP = "Step"
    EVALUATE = "Evaluate"
    CLOSE = "Close"


_MANY = {
    Verb.MAKE: pb.MakeManyRequest,
    Verb.RESET: pb.ResetManyRequest,
    Verb.STEP: pb.StepManyRequest,
    Verb.EVALUATE: pb.EvaluateManyRequest,
    Verb.CLOSE: pb.CloseManyRequest,
}


class Call:
    """One request on its way and the future of its answer, which is a reply message or a `RockError`."""

    __slots__ = ("answered", "env_id", "future", "in_doubt", "request", "succeeded")

    def __init__(self, env_id: str, request: Any, future: asyncio.Future[Any]) -> None:
        self.env_id = env_id
        self.request = request
        self.future = future
        self.answered = False
        self.in_doubt = False
        """Whether the connection failed for good, so nobody knows if the call took effect."""
        self.succeeded = False

    def answer(self, reply: Any) -> None:
        """Settle the call. Errors are values here, so an abandoned future never warns of an unread exception."""
        self.answered = True
        self.succeeded = not isinstance(reply, RockError)
        if not self.future.done():  # cancelled where the caller gave up
            self.future.set_result(reply)


def outcome(reply: Any) -> Any:
    """Return a call's reply, or raise the error that it is."""
    if isinstance(reply, RockError):
        raise reply
    return reply


class Coalescer:
    """Collects calls and sends them. Use on one event loop."""

    def __init__(
        self,
        stub: Any,
        *,
        address: str,
        retry_for_s: float,
        metadata: Sequence[tuple[str, str]] | None = None,
    ) -> None:
        self._stub = stub
        self._address = address
        self._metadata = metadata
        self._retry_for_s = retry_for_s
        self._queues: dict[tuple[Verb, float], list[Call]] = {}
        self._sending: set[asyncio.Task[None]] = set()
        self._loop = asyncio.get_running_loop()
        self._closed = False

    def submit(self, verb: Verb, call: Call, timeout_s: float) -> None:
        """Queue a call; `timeout_s` 0 leaves the deadline to the server."""
        if self._closed:
            call.answer(self._gone())
            return
        if not self._queues:  # the task starts after whatever else this tick still runs
            self._spawn(self._drain(), ())
        queue = self._queues.get((verb, timeout_s))
        if queue is None:
            self._queues[verb, timeout_s] = [call]
        else:
            queue.append(call)

    async def _drain(self) -> None:
        queues, self._queues = self._queues, {}
        batches = [
            (verb, calls[start : start + MAX_BATCH], timeout_s)
            for (verb, timeout_s), calls in queues.items()
            for start in range(0, len(calls), MAX_BATCH)
        ]
        for verb, calls, timeout_s in batches[1:]:
            self._spawn(self.send(verb, calls, timeout_s), calls)
        for verb, calls, timeout_s in batches[:1]:  # most often the only one: saves a task and a tick
            await self.send(verb, calls, timeout_s)

    def _spawn(self, work: Coroutine[Any, Any, None], calls: Sequence[Call]) -> None:
        task = self._loop.create_task(work)
        self._sending.add(task)

        def ended(task: asyncio.Task[None]) -> None:
            self._sending.discard(task)
            _give_up(calls, self._gone())  # cancelled before it ran at all

        task.add_done_callback(ended)

    def _gone(self) -> Unavailable:
        return Unavailable(f"the client of {self._address} closed before the answer came. Open a new one.")

    async def send(self, verb: Verb, calls: Sequence[Call], timeout_s: float) -> None:
        """Send calls now and return when all are answered, failures included."""
        if len(calls) == 1 and not timeout_s:
            await self.unary(verb.value, calls[0])
        else:
            with span(f"{_SERVICE}/{verb.value}Many", kind=SpanKind.CLIENT, items=len(calls)):
                await self._settle_all(calls, lambda: self._batch(verb, _open(calls), timeout_s))

    async def unary(self, rpc: str, call: Call) -> None:
        """Send one call now as the unary `rpc` and return when it is answered, failures included."""

        async def attempt() -> None:
            call.answer(await getattr(self._stub, rpc)(call.request, metadata=trace_headers(self._metadata)))

        with span(f"{_SERVICE}/{rpc}", kind=SpanKind.CLIENT, env_id=call.env_id):
            await self._settle_all([call], attempt)

    async def _settle_all(self, calls: Sequence[Call], rpc: Callable[[], Awaitable[None]]) -> None:
        async def attempt() -> None:
            try:
                await rpc()
            except grpc.aio.AioRpcError as failure:
                error, definite = rock_error(failure, self._address)
                if not definite:
                    # Its traceback holds gRPC's call, and that a closed channel that keeps connecting.
                    raise error from failure.with_traceback(None)
                for call in _open(calls):
                    call.answer(error)

        try:
            await retrying(attempt, for_s=self._retry_for_s)
        except RockError as error:
            _give_up(calls, error)
        except asyncio.CancelledError:
            _give_up(calls, self._gone())
            raise
        finally:  # a bug of ours ends the task with its traceback, and still nobody waits for ever
            _give_up(calls, InfraError("the ROCK client failed, see its traceback. Please report it."))

    async def _batch(self, verb: Verb, calls: list[Call], timeout_s: float) -> None:
        many: Any = _MANY[verb](items=[call.request for call in calls])
        if timeout_s:
            many.item_timeout_s = timeout_s
        stream: AsyncIterator[Any] = getattr(self._stub, f"{verb.value}Many")(
            many, metadata=trace_headers(self._metadata)
        )
        if verb is Verb.MAKE:
            async for chunk in stream:
                for index, reply in zip(chunk.indices, chunk.items, strict=True):
                    _settle(calls[index], reply)
        else:
            waiting = {call.env_id: call for call in calls}
            async for chunk in stream:
                for reply in chunk.items:
                    _settle(waiting[reply.env_id], reply)
        if any(not call.answered for call in calls):
            raise InfraError(
                f"the ROCK server at {self._address} left items of a batch unanswered. Please report it."
            )

    async def close(self) -> None:
        """Stop sending; calls in flight answer `Unavailable`."""
        self._closed = True
        for calls in self._queues.values():
            _give_up(calls, self._gone())
        self._queues = {}
        sending = list(self._sending)
        for task in sending:
            task.cancel()
        await asyncio.gather(*sending, return_exceptions=True)


def _settle(call: Call, reply: Any) -> None:
    call.answer(reply if not reply.HasField("error") else error_of(reply))


def _open(calls: Iterable[Call]) -> list[Call]:
    return [call for call in calls if not call.answered]


def _give_up(calls: Iterable[Call], error: RockError) -> None:
    for call in _open(calls):
        call.in_doubt = True
        call.answer(error)
