"""The folder in which a process backend keeps its boxes and layers: of one server, or of replicas with one store.

Used by `backends/process/backend`. Given by the operator it lasts, and so can boxes; without one it is a temporary
folder that ends with the server, and what killed servers left of theirs is removed by the next.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import logging
import os
import secrets
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from rock_env.backends.folder_lock import begin_shared, end_start
from rock_env.backends.process import cgroups
from rock_env.backends.process.layers import remove_tree
from rock_env.errors import FailedPrecondition, InfraError, RockError

__all__ = ["ProcessStateFolder", "on_disk"]

PREFIX = "rock-boxes-"
_TOOLS = ".tools-"
_ABANDONED_S = 60.0
"""A younger folder may belong to a server that has not locked it yet."""

_GET_FLAGS, _SET_FLAGS, _TOPDIR = 0x80086601, 0x40086602, 0x20000  # linux/fs.h: FS_IOC_GETFLAGS and so on

log = logging.getLogger(__name__)


def spread(folder: Path) -> int:
    """Let ext4 put each folder made in this one in a part of the disk of its own, as it does with home folders.

    ext4 gives away no inode that was freed within the last minutes and, for every new file, goes through all of those in
    its part of the disk: where boxes and layers come and go in one part, copying a thousand files takes 0.7 s instead of
    0.1. Returns the folder's flags (`man 2 ioctl_iflags`); 0 where the file system has none such, and nothing changes.
    """
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        flags = int.from_bytes(fcntl.ioctl(fd, _GET_FLAGS, bytes(8)), sys.byteorder) | _TOPDIR
        fcntl.ioctl(fd, _SET_FLAGS, flags.to_bytes(8, sys.byteorder))
        return int.from_bytes(fcntl.ioctl(fd, _GET_FLAGS, bytes(8)), sys.byteorder)
    except OSError:
        return 0
    finally:
        os.close(fd)


class ProcessStateFolder:
    """One locked folder. Made by `take`, ended by `release`."""

    def __init__(
        self, path: Path, lock: int, *, lasting: bool, shared: bool = False, sole: bool = True
    ) -> None:
        self.path = path
        self.lasting = lasting
        self.shared = shared
        self.sole = sole
        """No other server used the folder when it was taken: what is half done in it is nobody's."""
        self.boxes = path / "boxes"
        self.layers = path / "layers"
        self.tools = path / f"{_TOOLS}{secrets.token_hex(4)}"
        self.mount_point = path / ".base"
        self._lock = lock
        self._groups: list[cgroups.Places] = []
        """Every place this folder's boxes had control groups in; a restarted server may be in another group."""

    @classmethod
    def take(cls, path: Path | None, *, shared: bool = False) -> ProcessStateFolder:
        """Lock the folder, making it if needed. Raise `FailedPrecondition` if another server has it.

        `shared`: servers that take it so, too, may have it at the same time.
        """
        if path is None:
            parent = Path(tempfile.gettempdir())
            made = Path(tempfile.mkdtemp(prefix=PREFIX, dir=parent)).resolve()
            state = cls(made, _lock(made), lasting=False)
            for other in parent.glob(f"{PREFIX}*"):
                if other.resolve() != made and not other.is_symlink():
                    with contextlib.suppress(FileNotFoundError):  # another server may be at it, too
                        _remove_if_abandoned(other)
        else:
            path.mkdir(mode=0o700, parents=True, exist_ok=True)
            lock, sole = begin_shared(path) if shared else (_lock(path), True)
            state = cls(path.resolve(), lock, lasting=True, shared=shared, sole=sole)
        for folder in (state.boxes, state.layers, state.mount_point):
            folder.mkdir(mode=0o700, exist_ok=True)
        for folder in (state.boxes, state.layers):
            spread(folder)
        if state.sole and not any(state.boxes.iterdir()):  # boxes go on using the tools they were made with
            for left in state.path.glob(f"{_TOOLS}*"):
                remove_tree(left)
        state._groups = state._recorded_groups()
        if shared and state.sole:
            end_start(lock)
        return state

    def find_groups(self) -> cgroups.Places:
        """Return where boxes get their control groups now. Raise `OSError` where they can have none."""
        self._groups = self._all_groups()
        for known in self._groups:
            cgroups.sweep(known, older_than_s=_ABANDONED_S)
        places = cgroups.find()
        cgroups.sweep(places, older_than_s=_ABANDONED_S)
        if places not in self._groups:
            self._groups.append(places)
            self._groups_file.write_text(json.dumps(self._groups))
        return places

    def group(self, box: str) -> str:
        """Return the name of a box's control groups; servers with other folders may have boxes of the same id."""
        return f"{hashlib.sha256(os.fsencode(self.path)).hexdigest()[:12]}.{box}"

    def in_groups(self) -> set[str]:
        """Return the boxes that have control groups."""
        ours = self.group("")
        found = {group for places in self._all_groups() for group in cgroups.groups(places)}
        return {group.removeprefix(ours) for group in found if group.startswith(ours)}

    def group_processes(self, box: str) -> set[int]:
        return {pid for places in self._all_groups() for pid in cgroups.processes(places, self.group(box))}

    def thaw(self, box: str, holder: int) -> None:
        """Let a box's processes, its holder's too, die of a kill where somebody froze them."""
        cgroups.thaw({holder, *self.group_processes(box)})

    def killed_for_memory(self, box: str) -> int:
        """Return how many of a box's processes the kernel has killed for memory."""
        return sum(cgroups.killed_for_memory(places, self.group(box)) for places in self._all_groups())

    def remove_groups(self, box: str) -> None:
        for places in self._all_groups():
            cgroups.remove(places, self.group(box))

    def release(self, *, empty: bool) -> None:
        """Unlock. A temporary folder goes; of a lasting one, if `empty`, what holds nothing any more."""
        if not any(self.boxes.iterdir()):
            for tools in (self.tools,) if self.shared else tuple(self.path.glob(f"{_TOOLS}*")):
                remove_tree(tools)
        if not self.lasting:
            self._remove_places()
            remove_tree(self.path)
        elif empty and self.sole:
            self._remove_places()
            for folder in (self.boxes, self.layers, self.mount_point):
                with contextlib.suppress(OSError):
                    folder.rmdir()
        os.close(self._lock)

    def _remove_places(self) -> None:
        for places in self._groups:
            cgroups.sweep(places, older_than_s=_ABANDONED_S)
        if not self.in_groups():
            self._groups_file.unlink(missing_ok=True)

    def _all_groups(self) -> list[cgroups.Places]:
        """Return the places of all servers that use the folder."""
        recorded = self._recorded_groups()
        return recorded + [places for places in self._groups if places not in recorded]

    @property
    def _groups_file(self) -> Path:
        return self.path / "cgroups.json"

    def _recorded_groups(self) -> list[cgroups.Places]:
        try:
            return list(json.loads(self._groups_file.read_text()))
        except FileNotFoundError:
            return []


def _lock(folder: Path) -> int:
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(fd)
        raise FailedPrecondition(
            f"another server keeps its sandboxes in {str(folder)!r}; stop it, or give this one another folder"
        ) from None
    return fd


def _remove_if_abandoned(folder: Path) -> None:
    """Remove what a killed server left. Its boxes ended with their connections."""
    status = folder.stat()
    if status.st_uid != os.geteuid() or time.time() - status.st_mtime < _ABANDONED_S:
        return
    try:
        lock = _lock(folder)
    except FailedPrecondition:
        return  # its server lives
    log.info("removing what a killed server left folder=%s", folder)
    left = ProcessStateFolder(folder.resolve(), lock, lasting=False)
    left._groups = left._recorded_groups()
    for box in left.in_groups():
        with contextlib.suppress(
            OSError
        ):  # still ending; its groups are found by no one else, but hold nothing
            left.remove_groups(box)
    left.release(empty=True)


@contextlib.contextmanager
def on_disk() -> Iterator[None]:
    """Tell trouble with the state folder (full, read-only, gone) as what it is to the caller."""
    try:
        yield
    except RockError:
        raise  # some are also OSErrors
    except OSError as error:
        raise InfraError(
            f"cannot keep sandboxes on disk: {error}. Is the state folder gone or read-only?"
        ) from error
