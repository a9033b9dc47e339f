"""One call to a box or its backend while its sandbox is locked: bounded in time, and failing by name.

Used by the parts of the sandbox core. A guest or an engine that hangs must not keep a sandbox from being deleted.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from rock_env.errors import InfraError, plugin_call

__all__ = ["COPY_S", "QUICK_S", "box_call"]

QUICK_S = 60.0
"""For what takes milliseconds on a machine that is not overloaded: pausing, leases, connecting, destroying."""
COPY_S = 600.0
"""For what copies a box's files."""


@asynccontextmanager
async def box_call(doing: str, *, within_s: float | None = None) -> AsyncIterator[None]:
    """Raise what the call raises as a `RockError`, and `InfraError` when it takes longer (None: than `QUICK_S`)."""
    within_s = QUICK_S if within_s is None else within_s
    try:
        async with asyncio.timeout(within_s) as limit:
            with plugin_call(doing):
                yield
    except TimeoutError as error:
        if not limit.expired():
            raise
        raise InfraError(
            f"{doing} took longer than {within_s:g} s. Does the box hang, or is its machine overloaded?"
        ) from error
