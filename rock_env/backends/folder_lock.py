"""The lock of a state folder that replicas of one store share: all of them together, and nobody else.

Used by the backends' state folders, off the event loop. A server that shares with nobody takes the plain exclusive lock,
which keeps the others out, and is kept out by them.
"""

from __future__ import annotations

import fcntl
import os
import time
from pathlib import Path

from rock_env.errors import FailedPrecondition

__all__ = ["begin_shared", "end_start"]

_START_S = 10.0
"""How long another replica may take to set the folder up."""
_LOOK_S = 0.02


def begin_shared(folder: Path) -> tuple[int, bool]:
    """Lock the folder with other replicas; return the lock, and whether there are none of them.

    Who is alone holds it exclusively until `end_start`, so that two cannot set it up at the same time. Raise
    `FailedPrecondition` if a server that is no replica has it.
    """
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    give_up_at = time.monotonic() + _START_S
    while True:
        for kind in (fcntl.LOCK_EX, fcntl.LOCK_SH):
            try:
                fcntl.flock(fd, kind | fcntl.LOCK_NB)
            except BlockingIOError:
                continue
            return fd, kind == fcntl.LOCK_EX
        if time.monotonic() > give_up_at:
            os.close(fd)
            raise FailedPrecondition(
                f"a server that is no replica keeps its sandboxes in {str(folder)!r}; stop it, or give this one another "
                "folder (--state)"
            )
        time.sleep(_LOOK_S)


def end_start(lock: int) -> None:
    """Let other replicas in."""
    fcntl.flock(lock, fcntl.LOCK_SH)
