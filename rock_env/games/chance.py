"""The global random generators as one episode left them. Libraries draw from them; episodes share a process."""

from __future__ import annotations

import random
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

__all__ = ["OwnChance"]

_MOST = 1 << 32  # numpy's global generator takes no larger seed
_lock = threading.Lock()


class OwnChance:
    """The state of Python's and numpy's global generators, put in place around each call of a library."""

    def __init__(self) -> None:
        self._states: tuple[Any, Any] | None = None

    @contextmanager
    def held(self, seed: int | None = None) -> Iterator[None]:
        """Run the block with this episode's states, or with those of a seed, and restore the process's afterwards."""
        with _lock:
            outside = _states()
            if seed is not None:
                random.seed(seed)
                np.random.seed(seed % _MOST)
            elif self._states is not None:
                _put(self._states)
            try:
                yield
            finally:
                self._states = _states()
                _put(outside)


def _states() -> tuple[Any, Any]:
    return random.getstate(), np.random.get_state(legacy=False)


def _put(states: tuple[Any, Any]) -> None:
    random.setstate(states[0])
    np.random.set_state(states[1])
