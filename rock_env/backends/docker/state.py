"""A docker backend's folder on the host: its id, its lock, one folder per box, the guest's bundle.

Used by the `docker` backend only. The id in the folder names everything the backend makes in the engine, so what a
killed server left is told from what others own.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import secrets
import shutil
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rock_env.backends.folder_lock import begin_shared, end_start
from rock_env.errors import FailedPrecondition, InvalidArgument
from rock_env.store.whole_file import make_private_file

__all__ = ["BoxFolder", "DockerStateFolder"]

_PREFIX = "rock-docker-"
_ABANDONED_S = 60.0
"""A younger folder may belong to a server that has not locked it yet."""
_ID_FILE = "docker-id"


@dataclass(frozen=True, slots=True)
class BoxFolder:
    """What belongs to one box: `run` is shared with its container, the rest is the server's alone."""

    path: Path

    @property
    def run(self) -> Path:
        """Return the folder that is bound into the container."""
        return self.path / "run"

    @property
    def ready(self) -> Path:
        """Return the FIFO that the guest opens and closes once it listens."""
        return self.run / "ready"

    @property
    def sock(self) -> Path:
        """Return where the guest's socket lies from `take_socket` on."""
        return self.path / "guest.sock"

    @property
    def token(self) -> bytes:
        """Return what the guest knows its server by."""
        return (self.path / "token").read_bytes()

    def make(self, facts: dict[str, Any]) -> None:
        """Lay the folder out. Raise `InvalidArgument` if the box exists."""
        try:
            self.path.mkdir(mode=0o700, parents=True)
        except FileExistsError as error:
            raise InvalidArgument(f"a sandbox {self.path.name!r} exists already") from error
        try:
            self._fill(facts)
        except BaseException:  # on a full disk
            shutil.rmtree(self.path)
            raise

    def _fill(self, facts: dict[str, Any]) -> None:
        make_private_file(self.path / "token", secrets.token_bytes(32))
        (self.path / "box.json").write_text(json.dumps(facts))
        self.run.mkdir()
        self.run.chmod(0o777)  # whoever the image's user is; on the host the folder above is closed
        os.mkfifo(self.ready)
        self.ready.chmod(0o666)

    def facts(self) -> dict[str, Any] | None:
        """Return what `make` was given; None where there is no such box."""
        try:
            read: dict[str, Any] = json.loads((self.path / "box.json").read_text())
        except (FileNotFoundError, json.JSONDecodeError):
            return None
        return read

    def take_socket(self) -> None:
        """Move the guest's socket out of the box's reach, so that no command can put another in its place.

        The shared folder is deleted: in its container it is still there, and nothing can be made in it any more.
        """
        (self.run / "guest.sock").rename(self.sock)
        self.ready.unlink()
        self.run.rmdir()

    def remove(self) -> None:
        """Delete everything. Nothing there: nothing is done."""
        with contextlib.suppress(FileNotFoundError):
            shutil.rmtree(self.path)


class DockerStateFolder:
    """The folder, locked while this object holds it. Without a path it is a temporary one, which nothing outlives."""

    def __init__(self, path: Path, *, temporary: bool, shared: bool = False) -> None:
        self.path = path
        self.temporary = temporary
        if shared:
            self._lock_fd, sole = begin_shared(path)
            self.id = self._own_id()
            if sole:
                end_start(self._lock_fd)
            return
        self._lock_fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            fcntl.flock(self._lock_fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            os.close(self._lock_fd)
            raise FailedPrecondition(
                f"another server uses the sandbox folder {path}; stop it, or give this one another --state"
            ) from error
        self.id = self._own_id()

    @classmethod
    def open(cls, path: Path | None, *, shared: bool = False) -> DockerStateFolder:
        """Make or find the folder and lock it. Raise `FailedPrecondition` if another server holds it.

        `shared`: servers that open it so, too, may hold it at the same time.
        """
        if path is None:
            return cls(Path(tempfile.mkdtemp(prefix=_PREFIX)), temporary=True)
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
        return cls(path, temporary=False, shared=shared)

    def box(self, sandbox_id: str) -> BoxFolder:
        """Return the folder of a box, made or not."""
        return BoxFolder(self.path / "boxes" / sandbox_id)

    def boxes(self) -> list[str]:
        """Return the ids of all boxes that have a folder."""
        folder = self.path / "boxes"
        return sorted(entry.name for entry in folder.iterdir()) if folder.is_dir() else []

    @staticmethod
    def abandoned() -> list[DockerStateFolder]:
        """Return the temporary folders of servers that were killed, locked."""
        found = []
        for path in Path(tempfile.gettempdir()).glob(f"{_PREFIX}*"):
            with contextlib.suppress(
                FileNotFoundError, FailedPrecondition
            ):  # in use, or another server is at it
                status = path.lstat()
                if status.st_uid == os.geteuid() and time.time() - status.st_mtime > _ABANDONED_S:
                    found.append(DockerStateFolder(path, temporary=True))
        return found

    def close(self, *, keep: bool = False) -> None:
        """Give the lock back; a temporary folder is deleted, or with `keep` left for a later server to clean up after."""
        if self.temporary and not keep:
            shutil.rmtree(self.path, ignore_errors=True)
        os.close(self._lock_fd)

    def _own_id(self) -> str:
        file = self.path / _ID_FILE
        if not file.exists():
            part = self.path / f".{_ID_FILE}"
            part.write_text(secrets.token_hex(4))
            part.rename(file)
        return file.read_text()
