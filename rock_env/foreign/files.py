"""A file that a user names is opened as a regular file and parsed to one error; a pipe or device is read by nobody.

Used by every reader of settings, specs, records and secrets. Opening a FIFO waits for a writer; a device may be endless.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any, BinaryIO, TypeVar

from rock_env.errors import InvalidArgument, RockError

__all__ = [
    "SETTINGS_BYTES",
    "check_regular",
    "open_regular",
    "parsed",
    "plain_values",
    "read_regular",
    "read_text",
]

SETTINGS_BYTES = 1 << 20
"""Of a file of settings; people write no longer ones."""
_DEPTH = 32
_VALUES = 100_000
_INTEGER_BITS = 64
_KINDS = {
    stat.S_IFIFO: "a FIFO",
    stat.S_IFCHR: "a character device",
    stat.S_IFBLK: "a block device",
    stat.S_IFSOCK: "a socket",
}

_Content = TypeVar("_Content", str, bytes)
_T = TypeVar("_T")


def check_regular(mode: int, path: Path | str) -> None:
    """Raise `OSError` for the mode of what is no regular file; its `strerror` says what it is."""
    if stat.S_ISREG(mode):
        return
    if stat.S_ISDIR(mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    kind = _KINDS.get(stat.S_IFMT(mode), "something else")
    raise OSError(errno.EINVAL, f"it is {kind}, expected a regular file", str(path))


def open_regular(path: Path | str) -> BinaryIO:
    """Open a regular file to read, links followed. Raise `OSError`; a FIFO, socket or device is not waited for."""
    check_regular(Path(path).stat().st_mode, path)  # some devices act on being opened
    number = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    try:
        check_regular(os.fstat(number).st_mode, path)
        return os.fdopen(number, "rb")
    except BaseException:
        os.close(number)
        raise


def read_regular(path: Path | str, most_bytes: int = SETTINGS_BYTES) -> bytes:
    """Return a regular file's content. Raise `OSError`, or `InvalidArgument` for more than `most_bytes`."""
    with open_regular(path) as file:
        content = file.read(most_bytes + 1)
    if len(content) > most_bytes:
        raise InvalidArgument(
            f"{path} has more than {most_bytes} bytes, which is too long for settings and the like."
        )
    return content


def read_text(path: Path | str, most_bytes: int = SETTINGS_BYTES) -> str:
    """Return a regular file's text, UTF-8. Raise as `read_regular` does, `InvalidArgument` for what is no text too."""
    return parsed(bytes.decode, read_regular(path, most_bytes), f"{path} is not a text file")


def parsed(decode: Callable[[_Content], _T], content: _Content, wrong: str) -> _T:
    """Return `decode(content)`. Raise `InvalidArgument`, beginning with `wrong`, whatever else it raises of the content."""
    try:
        return decode(content)
    except (RockError, MemoryError):
        raise
    except UnicodeDecodeError as error:
        raise InvalidArgument(f"{wrong}: byte {error.start} is not UTF-8") from error
    except RecursionError as error:
        raise InvalidArgument(f"{wrong}: it is nested too deeply") from error
    except Exception as error:  # parsers raise errors of many kinds over content, beside their own
        raise InvalidArgument(f"{wrong}: {str(error) or type(error).__name__}") from error


def plain_values(found: _T, where: str) -> _T:
    """Return what a file of settings says. Raise `InvalidArgument` for what could not be shown or walked through.

    Aliases count as often as they are used, and a number written in hexadecimal may be too long to be shown.
    """
    level: list[Any] = [found]
    seen = 0
    for _ in range(_DEPTH + 2):
        below: list[Any] = []
        for value in level:
            if isinstance(value, int) and value.bit_length() > _INTEGER_BITS:
                raise InvalidArgument(
                    f"{where} has an integer of {value.bit_length()} bits, expected at most {_INTEGER_BITS}."
                )
            if isinstance(value, dict):
                below += [*value.keys(), *value.values()]
            elif isinstance(value, list | tuple | set):
                below += value
            if seen + len(below) > _VALUES:
                raise InvalidArgument(
                    f"{where} has more than {_VALUES} values, aliases counted as often as used."
                )
        if not below:
            return found
        seen, level = seen + len(below), below
    raise InvalidArgument(
        f"{where} is nested too deeply, expected at most {_DEPTH} tables or lists in each other."
    )
