"""For tests that run several commands in one process."""

from __future__ import annotations

import pytest

from ale.terminal import FITTED


@pytest.fixture(autouse=True)
def no_table_is_fitted() -> None:
    """Forget what a command whose options could not be read left behind; elsewhere its process ends then."""
    FITTED.set(False)
