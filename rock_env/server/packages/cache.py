"""The mirror's files on the server's disk, each under its digest: what is there was checked when it came.

Used by `store` in threads of its own. A name is made of a digest's letters alone. The file that nobody asked for longest
goes first where there is no room; who reads it at that moment keeps it until the end.
"""

from __future__ import annotations

import fcntl
import os
import secrets
import shutil
import threading
from collections import OrderedDict
from pathlib import Path
from typing import BinaryIO

from rock_env.errors import FailedPrecondition, InvalidArgument

__all__ = ["FileCache"]

_KEY_BYTES = 32


class FileCache:
    """Make one on a folder of its own, made if absent, and use it from several threads. It reads the disk."""

    def __init__(self, folder: Path, *, most_bytes: int, most_files: int) -> None:
        """Take up what an earlier server kept. Raise `FailedPrecondition` where another server uses the folder."""
        self.most_bytes, self._most_files = most_bytes, most_files
        self._lock = threading.Lock()
        self._sizes: OrderedDict[str, int] = OrderedDict()
        self._bytes = 0
        self.folder = folder
        self._files, self._partial = folder / "files", folder / "partial"
        try:
            for each in (folder.parent, folder):  # the first may be --state: its owner's alone from the start
                each.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._holding = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except OSError as error:
            raise InvalidArgument(
                f"cannot use the folder --packages-cache: {error}. Name one that can be written."
            ) from error
        try:
            fcntl.flock(self._holding, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            os.close(self._holding)
            raise FailedPrecondition(
                f"another server keeps packages in {str(folder)!r}; stop it, or name another --packages-cache"
            ) from error
        shutil.rmtree(self._partial, ignore_errors=True)  # what a killed server had begun
        for each in (self._files, self._partial):
            each.mkdir(mode=0o700, exist_ok=True)
        self._take_up()

    def close(self) -> None:
        """Let another server have the folder."""
        os.close(self._holding)

    def secret(self) -> bytes:
        """Return random bytes that stay the same for the folder's life."""
        path = self.folder / "secret"
        if not path.exists():
            fresh = self.partial()
            fresh.touch(mode=0o600)
            fresh.write_bytes(secrets.token_bytes(_KEY_BYTES))
            fresh.replace(path)
        return path.read_bytes()

    def partial(self) -> Path:
        """Return a path for a file that is being fetched."""
        return self._partial / secrets.token_hex(8)

    def open(self, key: str) -> BinaryIO | None:
        """Open a file to be read, now the newest; None if it is not there."""
        with self._lock:
            if key not in self._sizes:
                return None
            try:
                path = self._path(key)
                found = path.open("rb")
                os.utime(path)
            except FileNotFoundError:
                self._drop(key)
                return None
            self._sizes.move_to_end(key)
            return found

    def holds(self, key: str) -> bool:
        """Return whether a file is there."""
        with self._lock:
            return key in self._sizes

    def add(self, key: str, partial: Path) -> None:
        """Keep a file that was checked and is on the disk, and make room for it."""
        size = partial.stat().st_size
        with self._lock:
            path = self._path(key)
            path.parent.mkdir(mode=0o700, exist_ok=True)
            partial.replace(path)
            self._drop(key, unlink=False)
            self._sizes[key] = size
            self._bytes += size
            while len(self._sizes) > 1 and (
                self._bytes > self.most_bytes or len(self._sizes) > self._most_files
            ):
                self._drop(next(iter(self._sizes)))

    def _drop(self, key: str, *, unlink: bool = True) -> None:
        self._bytes -= self._sizes.pop(key, 0)
        if unlink:
            self._path(key).unlink(missing_ok=True)

    def _path(self, key: str) -> Path:
        return self._files / key.rpartition("-")[2][:2] / key

    def _take_up(self) -> None:
        found = []
        for group in self._files.iterdir():
            for path in group.iterdir():
                about = path.stat()
                found.append((about.st_mtime, path.name, about.st_size))
        for _, key, size in sorted(found):
            self._sizes[key] = size
            self._bytes += size
