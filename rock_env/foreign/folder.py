"""Files of a folder that somebody else made, read without leaving it.

Used by the readers of tasks, of build contexts and of what is kept beside records. A link may lead anywhere within the
folder. One that leads out is refused by name: what it leads to belongs to this machine, and would go where the folder's
files go.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path

from rock_env.errors import InvalidArgument
from rock_env.foreign import budget

__all__ = ["place_inside", "read_file", "read_inside"]

_ENTER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


def place_inside(root: Path, path: Path) -> Path:
    """Return where `path` lies once its links are followed. Raise `InvalidArgument` for a place outside `root`."""
    try:
        place = Path(os.path.realpath(path))
    except ValueError as error:  # it holds a NUL
        raise InvalidArgument(f"{str(path)!r} is no path: {error}.") from error
    if not place.is_relative_to(os.path.realpath(root)):
        raise InvalidArgument(f"{path} is a link that leads out of the folder {root}. Put a copy there.")
    return place


def read_inside(root: Path, path: Path) -> bytes:
    """Return the content of a regular file in the folder `root`.

    Raise `InvalidArgument` for a link that leads out, for what is no file, and for a file beyond the budget; `OSError` for
    one that is absent or cannot be read.
    """
    real = Path(os.path.realpath(root))
    *folders, name = place_inside(root, path).relative_to(real).parts or (".",)
    at = os.open(real, _ENTER)
    try:
        for folder in folders:  # no link is left on the way: one that comes now is not followed
            inner = os.open(folder, _ENTER, dir_fd=at)
            os.close(at)
            at = inner
        return read_file(name, at, path)
    finally:
        os.close(at)


def read_file(name: str, folder: int, path: Path) -> bytes:
    """Return the content of a regular file in an open folder, no link; `path` is its name in errors, raised as above."""
    with os.fdopen(os.open(name, _READ, dir_fd=folder), "rb") as file:
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            raise InvalidArgument(f"{path} is no regular file. Put a file there.")
        return budget.read_open(file, str(path))
