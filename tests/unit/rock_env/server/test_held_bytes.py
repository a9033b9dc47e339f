"""Large messages that calls hold at once: bounded for a tenant and for all, and given back."""

from __future__ import annotations

import pytest

from rock_env.errors import ResourceExhausted
from rock_env.server.interceptors.held import HeldBytes

MIB = 1 << 20


async def test_a_tenant_holds_so_much_and_others_are_served() -> None:
    held = HeldBytes(most_of_one=8 * MIB, most=100 * MIB)
    with held.share("red") as first, held.share("red") as second, held.share("green") as other:
        first.hold(6 * MIB)
        with pytest.raises(ResourceExhausted, match="your calls would hold 9437184 bytes") as refused:
            second.hold(3 * MIB)
        assert refused.value.retry_after_s
        other.hold(8 * MIB)
        first.hold(0)
        second.hold(3 * MIB)
    assert not held.by_tenant


async def test_all_together_are_bounded_and_nobody_is_kept_from_a_first_message() -> None:
    held = HeldBytes(most_of_one=8 * MIB, most=10 * MIB)
    with held.share("red") as red, held.share("green") as green, held.share("green") as more:
        red.hold(8 * MIB)
        green.hold(4 * MIB)
        with pytest.raises(ResourceExhausted, match="all calls would hold"):
            more.hold(2 * MIB)


async def test_one_call_holds_its_latest_message_and_small_ones_do_not_count() -> None:
    held = HeldBytes(most_of_one=8 * MIB, most=8 * MIB)
    with held.share("red") as stream, held.share("red") as small:
        for _ in range(10):
            stream.hold(7 * MIB)
        small.hold(MIB)
        assert held.by_tenant == {"red": 7 * MIB}
    assert not held.by_tenant
