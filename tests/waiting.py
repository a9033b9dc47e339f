"""Waiting in a test for what nothing announces."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest


async def until(condition: Callable[[], bool], *, within_s: float = 30.0, every_s: float = 0.01) -> None:
    """Look again and again until it is so. Fail the test if that takes longer."""
    for _ in range(round(within_s / every_s)):
        if condition():
            return
        await asyncio.sleep(every_s)
    pytest.fail(f"not so after {within_s:g} s")
