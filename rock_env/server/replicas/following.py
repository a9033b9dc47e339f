"""How a server keeps up with what others of its store change: told by a notification, and again where the store was away."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from contextlib import AbstractContextManager

from rock_env.errors import RockError

__all__ = ["follow"]

log = logging.getLogger(__name__)

_AGAIN_S = 5.0
"""When to read again after the database was away."""


async def follow(
    changes: AbstractContextManager[asyncio.Event], apply: Callable[[], Awaitable[None]], what: str
) -> None:
    """Call `apply` at the start and after each change, for as long as it runs; after a `RockError` of it, again later."""
    with changes as changed:
        while True:
            changed.clear()
            wait_s = None
            try:
                await apply()
            except RockError as error:
                log.warning("%s of other servers are not seen for now: %s", what, error)
                wait_s = _AGAIN_S
            try:
                async with asyncio.timeout(wait_s):
                    await changed.wait()
            except TimeoutError:
                continue
