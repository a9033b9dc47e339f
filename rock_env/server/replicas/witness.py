"""Knows at once when another replica of this node has died, without waiting for its lease.

Used by `server/replicas/member`. Each replica holds a lock on a file of its own for as long as it lives, which the
system lets go of however it ends: who can take that lock has proof. The file names the process, whose end the system
tells. Where either cannot be seen, such as in another container, the lease decides.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
from pathlib import Path

__all__ = ["Witness"]


class Witness:
    """The lock files of one node, in the folder its replicas share. Close it on the event loop it was used on."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._own: dict[Path, int] = {}
        self._watched: dict[str, int] = {}

    def testify(self, replica_id: str) -> None:
        """Show that this replica lives, from before it becomes a member until `close` or the end of the process."""
        path = self._path(replica_id)
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        fcntl.flock(fd, fcntl.LOCK_EX)
        os.write(fd, str(os.getpid()).encode())
        self._own[path] = fd

    def withdraw(self, replica_id: str) -> None:
        """Testify no more that this replica lives, which became no member."""
        self._withdraw(self._path(replica_id))

    def dead(self, replica_id: str) -> bool:
        """Return whether there is proof that the replica has died."""
        return _free(self._path(replica_id))

    def watch(self, replica_id: str, ended: asyncio.Event) -> None:
        """Set the event when the replica's process ends, if that can be seen; only the first call per replica counts."""
        if replica_id in self._watched:
            return
        try:
            handle = os.pidfd_open(int(self._path(replica_id).read_text()))
        except (OSError, ValueError):
            return
        self._watched[replica_id] = handle

        def over() -> None:
            self._forget(replica_id)
            ended.set()

        asyncio.get_running_loop().add_reader(handle, over)

    def close(self) -> None:
        """Watch nobody any more, and testify no more."""
        for replica_id in tuple(self._watched):
            self._forget(replica_id)
        for path in tuple(self._own):
            self._withdraw(path)

    def _forget(self, replica_id: str) -> None:
        handle = self._watched.pop(replica_id)
        asyncio.get_running_loop().remove_reader(handle)
        os.close(handle)

    def _withdraw(self, path: Path) -> None:
        path.unlink(missing_ok=True)
        os.close(self._own.pop(path))

    def _path(self, replica_id: str) -> Path:
        return self._folder / f"{replica_id.rpartition(':')[2]}.lock"

    def sweep(self) -> None:
        """Remove the files of the dead. Before, declare dead those of them that are members: the files are the proof."""
        for left in self._folder.glob("*.lock"):
            if left not in self._own and left.stat().st_size and _free(left):
                left.unlink(missing_ok=True)


def _free(path: Path) -> bool:
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    try:
        with contextlib.suppress(BlockingIOError):
            fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
            return True
        return False
    finally:
        os.close(fd)
