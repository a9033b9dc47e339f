"""Where a run's processor time goes: the policy, the sandboxes' own commands and tests, or the service between them.
And the most memory that its processes had.

Reads `/proc`; where there is none, or the processes are on other machines, it knows nothing and says so by an empty
account. What is left of the machine's time is idle, or somebody else's.
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

__all__ = ["Accounts", "most_bytes", "processor_s"]

_TICK_S = 1.0 / os.sysconf("SC_CLK_TCK")


class Accounts:
    """Shares of the machine's time since the account was opened."""

    def __init__(self) -> None:
        self._began_s = time.monotonic()
        self._cpus = len(os.sched_getaffinity(0))
        self._first: dict[str, float] = {}

    def shares(self, seconds: Mapping[str, float]) -> dict[str, float]:
        """Return each part's share of all processors' time since the first call, and `idle`; empty at the first."""
        now_s = time.monotonic()
        if not self._first:
            self._first, self._began_s = dict(seconds), now_s
            return {}
        whole_s = (now_s - self._began_s) * self._cpus
        spent = {name: max(0.0, value - self._first.get(name, 0.0)) for name, value in seconds.items()}
        shares = {name: value / whole_s for name, value in spent.items()}
        return {**shares, "idle": max(0.0, 1.0 - sum(shares.values()))}


def processor_s(*, policy: Sequence[int], service: Sequence[int], server: int | None) -> dict[str, float]:
    """Return seconds of processor time so far of the policy's and the service's processes, and of the server's boxes.

    What the server started counts as `sandboxes`, the boxes' own guests included. Raise `OSError` where `/proc` does not
    tell.
    """
    parts = {"policy": sum(map(_own_s, policy)), "service": sum(map(_own_s, service))}
    if server is not None:
        parts["service"] += _own_s(server)
        parts["sandboxes"] = sum(_family_s(server))
    return parts


def most_bytes(pids: Sequence[int]) -> int:
    """Return the largest resident memory that one of these processes, or one below them, had so far (bytes).

    Raise `OSError` where `/proc` does not tell.
    """
    parents = _parents()
    most = max(map(_peak, pids))
    for pid in {below for root in pids for below in _family(root, parents)}:
        with suppress(OSError):  # it has just ended
            most = max(most, _peak(pid))
    return most


def _peak(pid: int) -> int:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM:")), 0)


def _parents() -> dict[int, int]:
    """Return the parent of every process."""
    found = {}
    for entry in os.scandir("/proc"):
        if entry.name.isdigit():
            try:
                found[int(entry.name)] = int(_stat(entry.name)[1])
            except OSError:
                continue  # it has just ended
    return found


def _family(root: int, parents: Mapping[int, int]) -> set[int]:
    """Return a process and all below it."""
    family = {root}
    while more := {pid for pid, parent in parents.items() if parent in family} - family:
        family |= more
    return family


def _stat(pid: int | str) -> list[str]:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()


def _own_s(pid: int) -> float:
    fields = _stat(pid)
    return (int(fields[11]) + int(fields[12])) * _TICK_S


def _family_s(root: int) -> list[float]:
    """Return the time of each process below `root`, with that of the ended ones that it or `root` waited for."""
    parents: dict[int, int] = {}
    spent: dict[int, float] = {}
    ended_s = 0.0
    for entry in os.scandir("/proc"):
        if entry.name.isdigit():
            try:
                fields = _stat(entry.name)
            except OSError:
                continue  # it has just ended; whoever waits for it counts it
            pid = int(entry.name)
            parents[pid] = int(fields[1])
            spent[pid] = sum(int(value) for value in fields[11:15]) * _TICK_S
            if pid == root:
                ended_s = sum(int(value) for value in fields[13:15]) * _TICK_S
    return [ended_s, *(spent[pid] for pid in _family(root, parents) - {root})]
