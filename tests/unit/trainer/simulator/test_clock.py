"""The loop in virtual time: order, exactness, and an error instead of a hang."""

from __future__ import annotations

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainer.simulator.clock import Stalled, VirtualLoop, run_virtually


def test_time_is_what_was_slept_and_nothing_sleeps() -> None:
    async def day() -> float:
        await asyncio.sleep(3 * 86_400)
        return asyncio.get_running_loop().time()

    assert run_virtually(day()) == 3 * 86_400


@given(st.lists(st.floats(0, 1e8).map(lambda value: round(value, 3)), min_size=1, max_size=20))
def test_timers_come_in_order_at_their_time(delays: list[float]) -> None:
    seen: list[tuple[float, float]] = []

    async def one(delay: float) -> None:
        await asyncio.sleep(delay)
        seen.append((asyncio.get_running_loop().time(), delay))

    async def several() -> None:
        async with asyncio.TaskGroup() as group:
            for delay in delays:
                group.create_task(one(delay))

    run_virtually(several())
    assert [delay for _, delay in seen] == sorted(delays)
    assert all(abs(at - delay) <= 1e-6 for at, delay in seen)


def test_what_nobody_does_is_an_error_and_not_a_hang() -> None:
    async def waits() -> None:
        await asyncio.sleep(2)
        await asyncio.get_running_loop().create_future()

    with pytest.raises(Stalled, match=r"stands still at 2\.000 s"):
        run_virtually(waits())


def test_every_round_is_told_and_may_end_the_loop() -> None:
    class Ended(Exception):
        pass

    def end(turn: int) -> None:
        if turn == 5:
            raise Ended

    async def sleeps() -> None:
        for _ in range(9):
            await asyncio.sleep(1)

    loop = VirtualLoop(end)
    with pytest.raises(Ended):
        run_virtually(sleeps(), loop)
    assert loop.time() == 2  # a sleep takes a round for its timer, and one for who waits


def test_a_timeout_is_virtual_too() -> None:
    async def waits() -> float:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(600):
                await asyncio.sleep(601)
        return asyncio.get_running_loop().time()

    assert run_virtually(waits()) == 600


def test_time_can_go_on_where_a_loop_before_ended() -> None:
    async def later() -> float:
        await asyncio.sleep(2)
        return asyncio.get_running_loop().time()

    assert run_virtually(later(), VirtualLoop(begin_s=100)) == 102
