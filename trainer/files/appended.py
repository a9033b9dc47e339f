"""A file that grows line by line and is whole after every write.

Used by what a run keeps while it goes on: its metrics and its reward answers.
"""

from __future__ import annotations

from pathlib import Path

__all__ = ["Appended"]


class Appended:
    """A file that grows without a buffer, so that a failed write leaves nothing for `close` to fail on.

    Made where it is missing. All methods raise `OSError`.
    """

    def __init__(self, path: Path) -> None:
        self._file = path.open("ab", buffering=0)

    def write(self, data: bytes) -> None:
        """Write all of `data`, however little the system takes at once."""
        view = memoryview(data)
        while view:
            view = view[self._file.write(view) :]

    def cut(self, size: int) -> None:
        """Keep the first `size` bytes."""
        self._file.truncate(size)

    def close(self) -> None:
        self._file.close()
