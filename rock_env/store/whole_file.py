"""A file that is replaced as a whole: its readers see the former or the new content, never a part.

Used for what servers and runs keep in files of their own. Callers serialise their own writes.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from rock_env.errors import InfraError

__all__ = ["make_once", "make_private_file", "replace_file", "sync_folder", "write_whole"]


def write_whole(path: Path, write: Callable[[Path], object], *, durable: bool = True) -> None:
    """Have `write` make a file beside `path`, sync it and move it into place. Raise what fails, `path` unchanged.

    Without `durable` nothing is synced: the caller does that before anybody is told of the file.
    """
    beside = path.with_name(f".{path.name}.{secrets.token_hex(4)}.tmp")
    try:
        write(beside)
        if durable:
            with beside.open("rb") as file:
                os.fsync(file.fileno())
        beside.replace(path)
    except BaseException:
        with suppress(OSError):
            beside.unlink(missing_ok=True)
        raise
    if durable:
        sync_folder(path.parent)


def replace_file(path: Path, content: bytes, what: str) -> None:
    """Write a file that only its owner can read. Raise `InfraError`, the file unchanged, if that fails."""
    try:
        write_whole(path, lambda beside: make_private_file(beside, content))
    except OSError as error:
        raise InfraError(
            f"cannot write {what} to {path}: {error.strerror}. It is unchanged; is its folder gone or read-only?"
        ) from error


def make_once(path: Path, content: bytes) -> None:
    """Write a new private file, whole and durable, unless there is one: of several writers at once the first one's stays."""
    beside = path.with_name(f".{path.name}.{secrets.token_hex(4)}.tmp")
    try:
        make_private_file(beside, content)
        with beside.open("rb") as file:
            os.fsync(file.fileno())
        with suppress(FileExistsError):
            os.link(beside, path)
    finally:
        beside.unlink(missing_ok=True)
    sync_folder(path.parent)


def make_private_file(path: Path, content: bytes) -> None:
    """Write a new file that only its owner can read, from its first moment on. Raise `OSError`."""
    number = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    with os.fdopen(number, "wb") as file:
        file.write(content)


def sync_folder(folder: Path) -> None:
    """Make a rename or a new file in `folder` survive a power cut."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
