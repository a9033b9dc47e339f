"""Whether this machine can fence the boxes of the process backend, for the tests that need them fenced."""

from __future__ import annotations

import asyncio
from functools import cache

from rock_env.backends.process.backend import why_not_fenced


@cache
def why_not_isolated() -> str:
    """Return what is missing, or an empty string. Not for a thread whose event loop runs, unless asked before."""
    return asyncio.run(why_not_fenced())
