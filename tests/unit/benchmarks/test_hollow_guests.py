"""The guests of pods in which nothing runs speak the guest's protocol, each with the token of its pod."""

import pytest

from benchmarks.hollow import Guests
from rock_env.errors import InfraError
from rock_env.guest_host.link import GuestLink


async def test_each_address_is_the_guest_of_one_pod() -> None:
    guests = Guests()
    first, second = "127.1.0.1", "127.1.0.2"
    guests.tokens = {first: b"1" * 32, second: b"2" * 32}
    async with await guests.serve(port=0) as server:
        port = server.sockets[0].getsockname()[1]
        link = await GuestLink.reach(first, port, token=b"1" * 32)
        await link.configure({})
        await link.lease(60)
        assert await link.answers(10.0)
        assert not link.failure
        with pytest.raises(InfraError, match="does not know the token"):
            await GuestLink.reach(second, port, token=b"1" * 32)
        await link.close()
        assert await guests.ended.get() == first
        assert set(guests.reached_at) == {first, second}
