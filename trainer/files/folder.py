"""Writing into a run folder: by one process at a time; what the disk refuses is one `RunFolderError` with its remedy.

It holds no state and never retries.
"""

from __future__ import annotations

import errno
import fcntl
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from trainer.errors import RunFolderError

__all__ = ["LOCK", "claimed", "fill_whole", "remove_unfinished", "writing"]

LOCK = ".lock"
_NOLOCKS = (errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP)
"""What a file system says that has none: the run goes on there, unprotected."""
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


@contextmanager
def writing(what: str, folder: Path) -> Iterator[None]:
    """Turn an `OSError` of the body into `RunFolderError`; `what` is the thing that could not be written."""
    try:
        yield
    except RunFolderError:
        raise
    except OSError as error:
        remedy = "Free space" if error.errno in _FULL else "Make the folder writable"
        raise RunFolderError(
            f"cannot write {what} in {folder}: {error.strerror or error}. What was saved before is intact. "
            f"{remedy}, then continue with --resume."
        ) from error


def fill_whole(folder: Path, fill: Callable[[Path], object]) -> None:
    """Have `fill` fill a folder beside this one, and replace this one by it as a whole. Raise `OSError`."""
    aside = folder.with_name(f".{folder.name}.tmp")
    shutil.rmtree(aside, ignore_errors=True)
    aside.mkdir()
    try:
        fill(aside)
    except OSError:
        shutil.rmtree(aside, ignore_errors=True)
        raise
    shutil.rmtree(folder, ignore_errors=True)
    aside.rename(folder)


def remove_unfinished(folder: Path) -> None:
    """Remove what killed writers left beside the places they wrote for: `.NAME.tmp`, files and folders.

    The caller has claimed the folder. Raise `RunFolderError`.
    """
    with writing("records", folder):
        for path in list(folder.rglob(".*.tmp")):
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path)
            else:
                path.unlink(missing_ok=True)


@contextmanager
def claimed(folder: Path) -> Iterator[None]:
    """Keep the folder for this process. Raise `RunFolderError` where another one has it; its end, however, frees it."""
    with writing("records", folder):
        folder.mkdir(parents=True, exist_ok=True)
        lock = os.open(folder / LOCK, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o644)
    try:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise RunFolderError(
                f"another process trains in {folder}: got its lock, expected none. Wait until it has ended or end it, or "
                "start another run with --run NAME."
            ) from error
        except OSError as error:
            if error.errno not in _NOLOCKS:
                raise
        yield
    finally:
        os.close(lock)
