"""A `TokenSampler` over a synchronous batch that advances step by step: a thread of its own computes, an event loop waits.

The thread is the only one that touches the batch. What callers want done between two steps (submit, abort, load) is put to
it in order. It knows nothing of models.
"""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from typing import Any, Protocol, TypeVar, runtime_checkable

from agent_runtime.policy import PolicyError, SampleRequest
from trainer.protocols.token_sampler import PROTOCOL, Aborted, Sampled

__all__ = ["Closes", "Sleeps", "SteppedBatch", "ThreadedSampler"]

T = TypeVar("T")


@runtime_checkable
class SteppedBatch(Protocol):
    """What the thread drives."""

    stops: bool

    @property
    def busy(self) -> bool:
        """Return whether `step` has something to do."""
        ...

    def submit(self, request: SampleRequest) -> int:
        """Let a request wait for its turn; return its ticket. Raise `PolicyError`."""
        ...

    def abort(self, ticket: int) -> bool:
        """End a request: its outcome is `Aborted`. Return whether it was there."""
        ...

    def step(self) -> list[tuple[int, Sampled | PolicyError]]:
        """Do one round; return the outcomes of the requests that ended."""
        ...

    def ended(self) -> list[tuple[int, Sampled | PolicyError]]:
        """Return outcomes that are known without a step: those of aborted requests."""
        ...

    def load(self, weights: Mapping[str, Any], version: int) -> None:
        """Take new weights."""
        ...


@runtime_checkable
class Sleeps(Protocol):
    """An engine that can give memory back while nobody samples. What running requests computed is computed again."""

    def sleep(self) -> None:
        """Give back what memory it can do without, until `wake`; nothing is sampled meanwhile."""
        ...

    def wake(self) -> None:
        """Take the memory again."""
        ...


@runtime_checkable
class Closes(Protocol):
    """A batch that holds what is to be given back."""

    def close(self) -> None:
        """Give it back; nothing is asked of the batch afterwards."""
        ...


class ThreadedSampler:
    """Implements `TokenSampler`. The thread starts with the first call and ends with `close`."""

    protocol = PROTOCOL

    def __init__(self, batch: SteppedBatch) -> None:
        self._batch = batch
        self._wake = threading.Condition()
        self._wishes: deque[Callable[[], None]] = deque()
        self._answers: dict[int, Future[Sampled]] = {}
        self._session: dict[int, str] = {}
        self._paused = False
        self._closed = False
        self._thread: threading.Thread | None = None

    @property
    def stops(self) -> bool:
        """Return whether it can end an answer at a text."""
        return self._batch.stops

    async def sample(self, request: SampleRequest) -> Sampled:
        """Answer one request. Raise `PolicyError` where it failed, or what broke the batch."""
        answer: Future[Sampled] = Future()
        ticket: list[int] = []

        def begin() -> None:
            if not answer.set_running_or_notify_cancel():
                return
            try:
                ticket.append(self._batch.submit(request))
            except Exception as error:  # noqa: BLE001 - boundary: it is this request's failure
                answer.set_exception(error)
                return
            self._answers[ticket[0]], self._session[ticket[0]] = answer, request.rollout_id

        self._wish(begin)
        try:
            return await asyncio.wrap_future(answer)
        except asyncio.CancelledError:
            if not self._closed:
                self._wish(lambda: self._forget(ticket))
            raise

    async def abort(self, rollout_id: str) -> int:
        """End all requests of a rollout."""

        def end() -> int:
            mine = [ticket for ticket, session in self._session.items() if session == rollout_id]
            ended = sum(self._batch.abort(ticket) for ticket in mine)
            self._deliver(self._batch.ended())
            return ended

        return await self._ask(end)

    async def pause(self) -> None:
        """Return once nothing is computed any more."""

        def stop() -> None:
            self._paused = True

        await self._ask(stop)

    async def resume(self) -> None:
        """Go on after `pause`."""

        def go() -> None:
            self._paused = False

        await self._ask(go)

    async def sleep(self) -> None:
        """Compute nothing, and let the batch give back what memory it can."""

        def sleep() -> None:
            self._paused = True
            if isinstance(self._batch, Sleeps):
                self._batch.sleep()

        await self._ask(sleep)

    async def wake(self) -> None:
        """Go on after `sleep`."""

        def wake() -> None:
            if isinstance(self._batch, Sleeps):
                self._batch.wake()
            self._paused = False

        await self._ask(wake)

    async def load(self, weights: Mapping[str, Any], version: int) -> None:
        """Take new weights between two tokens."""
        await self._ask(lambda: self._batch.load(weights, version))

    async def call(self, what: Callable[[], T]) -> T:
        """Return what a function of the batch's owner gives when it is called between two tokens."""
        return await self._ask(what)

    async def close(self) -> None:
        """End every request and the thread."""
        if self._closed:
            return
        if self._thread is None:
            self._closed = True
            self._give_back()
            return

        def end() -> None:
            self._closed = True
            for answer in self._answers.values():
                answer.set_exception(Aborted("the sampler was closed. Start the rollout again elsewhere."))
            self._answers.clear()

        await self._ask(end)
        await asyncio.to_thread(self._thread.join)
        self._give_back()

    def _give_back(self) -> None:
        if isinstance(self._batch, Closes):
            self._batch.close()

    # -- inside -----------------------------------------------------------------------------------------------

    async def _ask(self, what: Callable[[], T]) -> T:
        """Return what the thread gets from a call between two steps."""
        done: Future[T] = Future()

        def do() -> None:
            try:
                result = what()
            except Exception as error:  # noqa: BLE001 - boundary: it is raised where it was asked for
                done.set_exception(error)
            else:
                done.set_result(result)

        self._wish(do)
        return await asyncio.shield(asyncio.wrap_future(done))

    def _wish(self, what: Callable[[], None]) -> None:
        with self._wake:
            if self._closed:
                raise Aborted("the sampler is closed. Start another one.")
            if self._thread is None:
                self._thread = threading.Thread(target=self._work, name="sampler", daemon=True)
                self._thread.start()
            self._wishes.append(what)
            self._wake.notify()

    def _work(self) -> None:
        while True:
            with self._wake:
                self._wake.wait_for(lambda: self._wishes or (self._batch.busy and not self._paused))
                wishes = list(self._wishes)
                self._wishes.clear()
            for wish in wishes:
                wish()
            if self._closed:
                return
            if not self._paused and self._batch.busy:
                self._advance()

    def _advance(self) -> None:
        try:
            self._deliver(self._batch.step())
        except Exception as error:  # noqa: BLE001 - boundary: the batch itself broke, so its requests did
            self._break(error)

    def _deliver(self, outcomes: list[tuple[int, Sampled | PolicyError]]) -> None:
        for ticket, outcome in outcomes:
            answer = self._answers.pop(ticket, None)
            self._session.pop(ticket, None)
            if answer is None:
                continue
            if isinstance(outcome, PolicyError):
                answer.set_exception(outcome)
            else:
                answer.set_result(outcome)

    def _break(self, error: Exception) -> None:
        """Fail every request in flight, and free the batch of them."""
        for ticket, answer in list(self._answers.items()):
            self._batch.abort(ticket)
            answer.set_exception(error)
        self._batch.ended()
        self._answers.clear()
        self._session.clear()

    def _forget(self, ticket: list[int]) -> None:
        if ticket and self._answers.pop(ticket[0], None) is not None:
            self._session.pop(ticket[0], None)
            self._batch.abort(ticket[0])
