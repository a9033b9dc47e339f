"""The scheduler on a thread of its own, asked from the loop's: it samples while the loop learns."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

from trainer.scheduler.sampling import Batch, Scheduler

__all__ = ["Beside"]

_Said = TypeVar("_Said")


class Beside:
    """A `Scheduler` that runs from the first batch that is asked for to `close`. Called on the loop's thread."""

    def __init__(self, make: Callable[[], Scheduler]) -> None:
        """`make` is called as it begins, on the scheduler's thread."""
        self._make = make
        self.has_begun = False

    def _begin(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="sampling", daemon=True)
        self._thread.start()
        try:
            self._sampling, self._running = self._ask(self._run())
        except BaseException:
            self._stop()
            raise
        self.has_begun = True

    async def _run(self) -> tuple[Scheduler, asyncio.Task[None]]:
        sampling = self._make()
        return sampling, asyncio.get_running_loop().create_task(sampling.run())

    def batch(self, step: int) -> Batch:
        """Wait for the batch of the step that comes next. Raise what its rollouts raised."""
        if not self.has_begun:
            self._begin()
        self.learned(step - 1)
        return self._ask(self._sampling.batch(step))

    def consumed(self, batch: Batch) -> None:
        """Take note that a step learned a batch."""

        async def note() -> None:
            self._sampling.consumed(batch)

        self._ask(note())

    def learned(self, version: int) -> None:
        """Take note that this version of the weights is there."""
        self._ask(self._sampling.learned(version))

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Have the samplers to oneself; a plan under way is waited for."""
        if not self.has_begun:
            yield
            return
        paused = self._sampling.paused()
        self._ask(paused.__aenter__())
        try:
            yield
        finally:
            self._ask(paused.__aexit__(None, None, None))

    def close(self) -> None:
        """End the scheduler; what it has under way is left."""
        if self.has_begun:
            self._ask(self._end())
            self._stop()

    def _stop(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    async def _end(self) -> None:
        self._running.cancel()
        await asyncio.gather(self._running, return_exceptions=True)
        self._sampling.close()

    def _ask(self, question: Coroutine[Any, Any, _Said]) -> _Said:
        return asyncio.run_coroutine_threadsafe(question, self._loop).result()
