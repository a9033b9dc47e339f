"""Work of the server's own: it runs to its end whoever hangs up meanwhile.

Used by the sandbox core and its parts. It knows nothing of what the work is. While the store is away, who waits is told
so and the work waits for it: a change that was begun is finished, and asked for again with its key it is found.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine
from contextvars import ContextVar, copy_context
from typing import Any, TypeVar

from rock_env.errors import RockError

__all__ = ["OwnTasks", "logged"]

log = logging.getLogger(__name__)

T = TypeVar("T")
_within: ContextVar[bool] = ContextVar("within own work", default=False)


class OwnTasks:
    """The tasks in progress."""

    def __init__(self) -> None:
        self._running: set[asyncio.Task[Any]] = set()
        self._waiting: set[asyncio.Future[Any]] = set()
        """Those of callers: done when their task is, or when they are told that the store is away."""
        self._refusal: RockError | None = None

    async def run(self, act: Coroutine[Any, Any, T]) -> T:
        """Run `act` in a task of its own and wait for it; a cancelled caller leaves it running.

        Raise what `refuse` was told last, the task going on; where that was before the call, `act` is not begun.
        """
        if self._refusal is not None and not _within.get():
            act.close()
            raise type(self._refusal)(self._refusal.message, retry_after_s=self._refusal.retry_after_s)
        return await self.outcome(self.spawn(act))

    async def outcome(self, task: asyncio.Task[T]) -> T:
        """Wait for a task that goes on whatever becomes of the caller. Raise what `run` does."""
        # A caller that hung up does not ask for the outcome.
        task.add_done_callback(lambda done: None if done.cancelled() else done.exception() and None)
        waiting = asyncio.shield(task)
        if not _within.get():  # work that is part of other work must know how it ended
            self._waiting.add(waiting)
        try:
            return await waiting
        finally:
            self._waiting.discard(waiting)

    def refuse(self, why: RockError | None) -> None:
        """Tell all callers that wait, and those to come, that nothing can be changed now; None: it can again."""
        self._refusal = why
        for waiting in self._waiting:
            if why is not None and not waiting.done():
                waiting.set_exception(why)

    def spawn(self, act: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        """Start `act`; it must handle its own errors unless somebody awaits the task."""
        context = copy_context()
        context.run(_within.set, True)
        task = asyncio.get_running_loop().create_task(act, context=context)
        self._running.add(task)
        task.add_done_callback(self._running.discard)
        return task

    async def finish(self, within_s: float) -> None:
        """Give all tasks so long to end, then cancel those left."""
        if self._running and within_s != 0:
            await asyncio.wait(self._running, timeout=within_s)
        left = tuple(self._running)
        for task in left:
            task.cancel()
        await asyncio.gather(*left, return_exceptions=True)


async def logged(act: Coroutine[Any, Any, Any]) -> None:
    """Run `act`; an error of it is logged, for there is nobody to tell."""
    try:
        await act
    except RockError as error:
        log.error("a sandbox could not be changed: %s", error)
