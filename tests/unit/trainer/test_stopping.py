"""What a run says where a stop would take longer than it is given."""

from pathlib import Path

import pytest

from trainer.errors import ConfigError
from trainer.stopping import GRACE, StopClock, too_slow


def test_a_stop_that_takes_longer_than_its_grace_is_said_with_what_to_set(tmp_path: Path) -> None:
    assert too_slow(tmp_path) == ""  # never saved
    clock = StopClock(tmp_path, lambda: True)
    with clock.saving() as saved:
        pass
    assert too_slow(tmp_path, {GRACE: "1e-9"}) == ""  # it is not on the disk yet
    saved()
    assert clock.asked()
    assert too_slow(tmp_path, {}) == ""
    said = too_slow(tmp_path, {GRACE: "1e-9"})
    assert "terminationGracePeriodSeconds" in said
    assert f"{GRACE}=10" in said


@pytest.mark.parametrize("said", ["soon", "0", "-3", "nan"])
def test_a_grace_is_a_number_of_seconds(said: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=f"{GRACE} .* got '{said}', expected a number above 0"):
        too_slow(tmp_path, {GRACE: said})
