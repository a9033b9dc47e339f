"""A file that grows line by line and is whole after every write.

Used by what a run keeps while it goes on: its metrics, its timeline and its reward answers.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from rock_env.foreign.files import open_regular
from rock_env.store.whole_file import write_whole

__all__ = ["Appended", "keep_lines"]


class Appended:
    """A file that grows without a buffer, so that a failed write leaves nothing for `close` to fail on.

    Made where it is missing. All methods raise `OSError`.
    """

    def __init__(self, path: Path) -> None:
        self._file = path.open("ab", buffering=0)

    def write(self, data: bytes) -> None:
        """Write all of `data`, however little the system takes at once, or nothing: what comes next follows a whole line."""
        view = memoryview(data)
        try:
            while view:
                view = view[self._file.write(view) :]
        except OSError:
            if begun := len(data) - len(view):
                self._file.truncate(os.fstat(self._file.fileno()).st_size - begun)
            raise

    def cut(self, size: int) -> None:
        """Keep the first `size` bytes."""
        self._file.truncate(size)

    def close(self) -> None:
        self._file.close()


def keep_lines(path: Path, wanted: Callable[[dict[str, Any]], bool]) -> None:
    """Keep of a file of JSON objects with a `step` those that are wanted, up to a torn or damaged line. Raise `OSError`."""

    def fill(beside: Path) -> None:
        with beside.open("wb") as kept, open_regular(path) as lines:
            for line in lines:
                try:
                    record = json.loads(line)
                except (ValueError, RecursionError):
                    break  # the torn last line of a killed run
                if not isinstance(record, dict) or not isinstance(record.get("step"), int):
                    break
                if wanted(record):  # a full disk may have had room for all but the line's end
                    kept.write(line.rstrip(b"\n") + b"\n")

    if path.exists():
        write_whole(path, fill)
