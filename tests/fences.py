"""Whether this machine can fence the boxes of the process backend, for the tests that need them fenced."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from functools import cache

from rock_env.backends.process.backend import why_not_fenced


@cache
def why_not_isolated() -> str:
    """Return what is missing, or an empty string. A thread of its own asks, since an event loop may run in this one."""
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(lambda: asyncio.run(why_not_fenced())).result()
