"""Work of the server's own: it runs to its end whoever hangs up meanwhile.

Used by the sandbox core and its parts. It knows nothing of what the work is.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine
from typing import Any, TypeVar

from rock_env.errors import RockError

__all__ = ["OwnTasks", "logged"]

log = logging.getLogger(__name__)

T = TypeVar("T")


class OwnTasks:
    """The tasks in progress."""

    def __init__(self) -> None:
        self._running: set[asyncio.Task[Any]] = set()

    async def run(self, act: Coroutine[Any, Any, T]) -> T:
        """Run `act` in a task of its own and wait for it; a cancelled caller leaves it running."""
        task = self.spawn(act)
        # A caller that hung up does not ask for the outcome.
        task.add_done_callback(lambda done: None if done.cancelled() else done.exception() and None)
        return await asyncio.shield(task)

    def spawn(self, act: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        """Start `act`; it must handle its own errors unless somebody awaits the task."""
        task = asyncio.get_running_loop().create_task(act)
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
