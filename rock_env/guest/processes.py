"""The processes of the box, seen from its guest: who they are, and signals to many of them.

Used by `commands`, `sessions` and `init`. It reads /proc itself, since an image need not hold any program.
"""

# Importing contextlib or pathlib would cost too much.
# ruff: noqa: PTH123, PTH208, SIM105
from __future__ import annotations

import _signal as signal  # type: ignore[import-not-found]  # `signal` itself imports `enum`, for 10 ms
import os
from select import select

_GOING, _STOPPED = (b"R", b"S"), (b"T", b"t")
_LOOK_S = 0.001


def send_signal(pid: int, number: int) -> None:
    """Signal one process, if it still exists."""
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        pass  # it ended by itself


def send_group_signal(pid: int, number: int) -> None:
    """Signal a process group, if it still exists."""
    try:
        os.killpg(pid, number)
    except ProcessLookupError:
        pass


def kill_tree(pid: int) -> None:
    """Kill a process group's leader, its group, and what descends from it in sessions of their own."""
    below = descendants(pid)
    send_group_signal(pid, signal.SIGKILL)
    for other in below:
        send_signal(other, signal.SIGKILL)


def signal_all(number: int) -> None:
    """Signal every process of the box but this one."""
    if os.getpid() == 1:
        send_signal(-1, number)
    else:
        for pid in others():
            send_signal(pid, number)


def others() -> list[int]:
    """Return every process of the box but this one."""
    if os.getpid() == 1:
        return [int(name) for name in os.listdir("/proc") if name.isdigit() and name != "1"]
    return descendants(os.getpid())


def descendants(root: int) -> list[int]:
    """Return every process below `root`."""
    parents: dict[int, int] = {}
    for name in os.listdir("/proc"):
        if name.isdigit():
            fields = _stat(int(name))
            if fields:
                parents[int(name)] = int(fields[1])
    found = {root}
    while more := {pid for pid, parent in parents.items() if parent in found} - found:
        found |= more
    return sorted(found - {root})


class Halt:
    """All processes of the box standing still."""

    def __init__(self) -> None:
        self._halted: set[int] = set()

    def begin(self) -> None:
        """Stop every process of the box but this one, and wait until they stand still.

        `end` leaves alone what was stopped before. One in uninterruptible sleep is not waited for: such as the
        parent of a vfork whose child was stopped; it comes to nothing of its own before it stops, too.
        """
        while True:
            states = {pid: fields[0] for pid in others() if (fields := _stat(pid))}
            new = [pid for pid, state in states.items() if pid not in self._halted and state not in _STOPPED]
            if not new and not any(states.get(pid) in _GOING for pid in self._halted):
                return
            for pid in new:  # a process that was signalled starts no others: the last look finds nothing new
                self._halted.add(pid)
                send_signal(pid, signal.SIGSTOP)
            if not new:
                select((), (), (), _LOOK_S)

    def end(self) -> None:
        """Let go on what `begin` stopped."""
        for pid in self._halted.intersection(others()):
            send_signal(pid, signal.SIGCONT)
        self._halted.clear()


def _stat(pid: int) -> list[bytes]:
    """Return state, parent and so on, as in `man 5 proc`; nothing when the process ended while we looked."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            return file.read().rpartition(b")")[2].split(None, 3)
    except OSError:
        return []
