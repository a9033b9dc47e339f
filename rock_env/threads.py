"""Threads of a server, in two pools that cannot hold each other up; asyncio's own pool stays empty.

`for_life` is for the life of sandboxes and of the server: folders made and removed, processes waited for. `for_callers` is
for work whose length a caller chooses. A tenant has a share of it: who sends many archives delays nobody else.
`completed` is for programs: it waits for a coroutine.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from functools import partial
from typing import Any, ParamSpec, TypeVar
from weakref import WeakValueDictionary

__all__ = ["completed", "for_callers", "for_life"]

_LIFE = ThreadPoolExecutor(16, thread_name_prefix="rock-life")
_CALLERS = ThreadPoolExecutor(8, thread_name_prefix="rock-callers")
_SHARE = 2
"""Threads that one tenant may hold at once."""
_shares: WeakValueDictionary[tuple[int, str], asyncio.Semaphore] = WeakValueDictionary()
"""By event loop and tenant; gone when nobody of the tenant waits."""

P = ParamSpec("P")
T = TypeVar("T")


async def for_life(act: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Return what `act` returns, in a thread for the life of sandboxes and the server."""
    return await asyncio.get_running_loop().run_in_executor(_LIFE, partial(act, *args, **kwargs))


async def for_callers(tenant: str, act: Callable[..., T], *args: Any, **kwargs: Any) -> T:
    """Return what `act` returns, in a thread of the tenant's share. Who gives up first does not begin it."""
    loop = asyncio.get_running_loop()
    key = (id(loop), tenant)
    share = _shares.get(key)
    if share is None:
        share = _shares[key] = asyncio.Semaphore(_SHARE)
    async with share:
        return await loop.run_in_executor(_CALLERS, partial(act, *args, **kwargs))


def completed(work: Coroutine[Any, Any, T]) -> T:
    """Return what a coroutine returns, as `asyncio.run` does, also where a loop runs already, as in a notebook."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(work)
    with ThreadPoolExecutor(1, thread_name_prefix="rock-completed") as thread:
        return thread.submit(copy_context().run, asyncio.run, work).result()
