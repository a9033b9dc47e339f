"""Where a run's processor time goes: the policy, the sandboxes' own commands and tests, or the service between them.

Reads `/proc`; where there is none, or the processes are on other machines, it knows nothing and says so by an empty
account. What is left of the machine's time is idle, or somebody else's.
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

__all__ = ["Accounts", "processor_s"]

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
    family = {root}
    while more := {pid for pid, parent in parents.items() if parent in family} - family:
        family |= more
    return [ended_s, *(spent[pid] for pid in family - {root})]
