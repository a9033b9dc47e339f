"""`ByteRoom`: never more than its total, in order, and nothing lost by whoever gives up."""

from __future__ import annotations

import asyncio

from rock_env.server.envs.byte_room import ByteRoom


async def turns() -> None:
    """Let everything that can go on go on."""
    for _ in range(10):
        await asyncio.sleep(0)


async def test_who_wants_more_than_is_left_waits_and_the_first_comes_first() -> None:
    room, had, leave = ByteRoom(10), list[int](), asyncio.Event()

    async def want(size: int) -> None:
        async with room.taken(size):
            had.append(size)
            await leave.wait()

    wanting = [asyncio.create_task(want(size)) for size in (6, 7, 1, 0)]
    await turns()
    assert had == [6, 0]  # 1 would fit, and waits behind 7; nothing never waits
    leave.set()
    await asyncio.gather(*wanting)
    assert sorted(had) == [0, 1, 6, 7]


async def test_more_than_the_total_is_the_total() -> None:
    room = ByteRoom(10)
    async with room.taken(1000):
        waiting = asyncio.create_task(room.taken(1).__aenter__())
        await turns()
        assert not waiting.done()
    await waiting


async def test_who_gives_up_holds_up_nobody_and_loses_nothing() -> None:
    room = ByteRoom(10)
    async with room.taken(4):
        too_much = asyncio.create_task(room.taken(7).__aenter__())
        behind = room.taken(6)
        waiting = asyncio.create_task(behind.__aenter__())
        await turns()
        too_much.cancel()
        await waiting
        await behind.__aexit__(None, None, None)
    async with room.taken(10):
        late = asyncio.create_task(room.taken(6).__aenter__())
        await turns()
    late.cancel()  # its turn has come, and it does not know yet
    await asyncio.gather(late, return_exceptions=True)
    async with asyncio.timeout(30), room.taken(10):
        pass
