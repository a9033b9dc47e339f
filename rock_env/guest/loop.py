"""The guest's event loop: file descriptors that became ready and moments that came, nothing else.

Used by every part of the guest. One thread; nothing it calls may wait.
"""

from __future__ import annotations

import select
from _heapq import heapify, heappop, heappush
from time import monotonic

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, NoReturn

READABLE, WRITABLE = select.EPOLLIN, select.EPOLLOUT
_MANY = 64


class Loop:
    """Calls back. A file descriptor has one handler, which gets the events that came."""

    def __init__(self) -> None:
        self._epoll = select.epoll()
        self._handlers: dict[int, tuple[int, Callable[[int], None]]] = {}
        self._timers: list[list[Any]] = []
        self._count = 0
        self._cancelled = 0

    def watch(self, fd: int, events: int, handler: Callable[[int], None]) -> None:
        """Call `handler` when `fd` is ready; again with other events changes what is waited for."""
        known = self._handlers.get(fd)
        if known is None:
            self._epoll.register(fd, events)
        elif known[0] != events:
            self._epoll.modify(fd, events)
        self._handlers[fd] = (events, handler)

    def forget(self, fd: int) -> None:
        """Stop watching `fd`, before it is closed; one that is not watched is left alone."""
        if self._handlers.pop(fd, None) is not None:
            self._epoll.unregister(fd)

    def at(self, when: float, call: Callable[[], None]) -> list[Any]:
        """Call once, at `when` by the monotonic clock, unless what is returned goes to `cancel` before."""
        self._count += 1
        timer = [when, self._count, call]
        heappush(self._timers, timer)
        return timer

    def cancel(self, timer: list[Any]) -> None:
        """Take back what `at` returned. What has been called already is left alone."""
        if timer[2] is None:
            return
        timer[2] = None
        self._cancelled += 1
        if self._cancelled > _MANY and self._cancelled * 2 > len(self._timers):
            self._timers[:] = [kept for kept in self._timers if kept[2] is not None]
            heapify(self._timers)
            self._cancelled = 0

    def run(self) -> NoReturn:
        """Call back until a handler ends the process."""
        poll, handlers, timers = self._epoll.poll, self._handlers, self._timers
        while True:
            wait = max(0.0, timers[0][0] - monotonic()) if timers else -1
            for fd, events in poll(wait):
                known = handlers.get(fd)
                if known is not None:  # an earlier handler of this round may have closed it
                    known[1](events)
            while timers and timers[0][0] <= monotonic():
                timer = heappop(timers)
                call, timer[2] = timer[2], None
                if call is None:
                    self._cancelled -= 1
                else:
                    call()
