"""How long the client sends a lost call again: for a time, and not for a number of attempts."""

from __future__ import annotations

import pytest
from tenacity import wait_fixed, wait_none

from rock_env.client import retry
from rock_env.client.retry import Backoff, retrying
from rock_env.errors import Unavailable

ATTEMPTS = 40


async def test_any_number_of_attempts_fits_into_the_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retry, "_WAIT", wait_none())
    made = 0

    async def attempt() -> None:
        nonlocal made
        made += 1
        if made < ATTEMPTS:
            raise Unavailable("starting")

    await retrying(attempt, for_s=600.0)
    assert made == ATTEMPTS


async def test_no_attempt_begins_after_the_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retry, "_WAIT", wait_fixed(700.0))
    made = 0

    async def attempt() -> None:
        nonlocal made
        made += 1
        raise Unavailable(f"attempt {made}")

    with pytest.raises(Unavailable, match="attempt 2") as caught:
        await retrying(attempt, for_s=600.0)
    assert "attempt 1" in str(caught.value.__cause__)


async def test_a_stream_is_taken_up_for_the_time(monkeypatch: pytest.MonkeyPatch) -> None:
    async def no_wait(_: float) -> None: ...

    monkeypatch.setattr(retry.asyncio, "sleep", no_wait)
    backoff = Backoff(600.0)
    for _ in range(ATTEMPTS):
        await backoff.failure(Unavailable("away"))
    with pytest.raises(Unavailable, match="away"):
        await Backoff(0.0).failure(Unavailable("away"))
