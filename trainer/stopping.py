"""How long a stop of a run takes, and whether whoever stops it waits that long.

A stop comes after the step or warm-up epoch under way, with its save; who sends SIGTERM sends SIGKILL after a grace.
Written by the run at each save, read by `ale.api` when it is resumed. It never stops anything.
"""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import msgspec

from rock_env.errors import InvalidArgument
from rock_env.foreign.files import read_regular
from rock_env.store.whole_file import write_whole
from trainer.errors import ConfigError

__all__ = ["GRACE", "StopClock", "too_slow"]

GRACE = "ALE_GRACE_S"
_GRACE_S = 30.0
"""What Kubernetes gives unless told otherwise."""
_FILE = "stopping.json"


class _Took(msgspec.Struct):
    """`stopping.json` of a run folder."""

    work_s: float
    """The longest time between two moments at which the run could stop, since it was started or resumed."""
    save_s: float
    """The longest save since then, up to where it was on the disk."""


class StopClock:
    """Asks whether the run is to stop, and keeps how long it had to wait for the question."""

    def __init__(self, folder: Path, asked: Callable[[], bool]) -> None:
        self._folder, self._asked = folder, asked
        self._last = time.monotonic()
        self._work_s = self._save_s = 0.0

    def asked(self) -> bool:
        """Return whether somebody wants the run to stop. Called wherever it can."""
        now = time.monotonic()
        self._work_s, self._last = max(self._work_s, now - self._last), now
        return self._asked()

    @contextmanager
    def saving(self) -> Iterator[Callable[[], None]]:
        """Give the body, in which the run saves, what to call on any thread once that is on the disk.

        It keeps how long that took, and raises `OSError` where it cannot write it.
        """
        self.asked()
        begun = self._last

        def saved() -> None:
            self._save_s = max(self._save_s, time.monotonic() - begun)  # what is saved already takes no time
            took = _Took(self._work_s, self._save_s)
            write_whole(self._folder / _FILE, lambda beside: beside.write_bytes(msgspec.json.encode(took)))

        yield saved
        self._last = time.monotonic()


def too_slow(folder: Path, environment: Mapping[str, str] = os.environ) -> str:
    """Say that a stop of the run would be cut short, and how to allow it; empty where it would not, or none is known of.

    Raise `ConfigError` for a grace that is no number of seconds.
    """
    grace_s = _grace_s(environment.get(GRACE, ""))
    try:
        took = msgspec.json.decode(read_regular(folder / _FILE), type=_Took)
    except (OSError, InvalidArgument, ValueError, RecursionError, msgspec.DecodeError):
        return ""
    total_s = took.work_s + took.save_s
    if total_s <= grace_s:
        return ""
    enough = math.ceil(total_s * 1.5 / 10) * 10
    return (
        f"a stop of this run took up to {total_s:.1f} s ({took.work_s:.1f} s for the step or warm-up epoch under way, "
        f"{took.save_s:.1f} s to save), and it is given {grace_s:g} s: killed then, it loses what it did since the last "
        f"save. Give it {enough} s (terminationGracePeriodSeconds of Kubernetes, TimeoutStopSec= of systemd, "
        f"--stop-timeout of Docker) and say so with {GRACE}={enough}."
    )


def _grace_s(said: str) -> float:
    if not said:
        return _GRACE_S
    try:
        grace_s = float(said)
    except ValueError:
        grace_s = math.nan
    if not grace_s > 0:
        raise ConfigError(
            f"{GRACE} is the grace of a stop in seconds: got {said!r}, expected a number above 0 such as 60."
        )
    return grace_s
