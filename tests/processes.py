"""Looking at this machine's processes, any of which may end while one looks."""

from __future__ import annotations

from contextlib import suppress

import psutil


def below(root: psutil.Process | None = None) -> set[psutil.Process]:
    """Return what descends from a process, by default this one; nothing where it has ended."""
    with suppress(psutil.NoSuchProcess):
        return set((root or psutil.Process()).children(recursive=True))
    return set()


def name_of(process: psutil.Process) -> str:
    """Return the program's name, or "" where it has ended."""
    with suppress(psutil.NoSuchProcess):
        return process.name()
    return ""


def command_line(process: psutil.Process) -> str:
    """Return the words of the command, or "" where it has ended."""
    with suppress(psutil.NoSuchProcess):
        return " ".join(process.cmdline())
    return ""


def parent_of(process: psutil.Process) -> int:
    """Return the pid of the parent, or 0 where the process has ended."""
    with suppress(psutil.NoSuchProcess):
        return process.ppid()
    return 0
