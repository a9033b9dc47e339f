"""Virtual hours in which everything breaks, in all modes: every update, nothing lost or twice, a true account."""

import pytest

from benchmarks.simulated_week import KINDS, STEPS_AN_HOUR, week


@pytest.mark.parametrize("mode", sorted(STEPS_AN_HOUR))
def test_hours_in_which_everything_breaks_lose_nothing(mode: str) -> None:
    found = week(mode, hours=2)
    assert found["updates"] == found["updates_expected"] == 2 * STEPS_AN_HOUR[mode]
    assert found["faults"].keys() == set(KINDS)
    assert [found[name] for name in ("lost", "twice", "over_lag", "differ")] == [0, 0, 0, 0]
    assert found["learned"] == found["updates"] * 16
    assert found["again"] == found["sampled"] - found["learned"] - found["set_aside"] > 0
