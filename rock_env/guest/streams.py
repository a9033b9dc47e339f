"""What the guest keeps of one output stream: which bytes, from which offset, and whether more should be read.

Used by `commands` and `sessions`. Offsets count every accepted byte from the start of the stream, so they stay true
when the front has been dropped. It reads and sends nothing.
"""

from __future__ import annotations

from _collections import deque  # type: ignore[import-not-found]

from .protocol import WINDOW_BYTES

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

ALL, ACKED, RING = range(3)
"""What is kept: everything, what was not acknowledged yet, or the last bytes."""
_SMALL = 4096


class OutputBuffer:
    """One output stream. `fd` is where its bytes come from, -1 where it has ended or others bring them.

    `hold`: of a ring, that its writer waits for a slow listener (a terminal), instead of the listener missing bytes.
    """

    def __init__(
        self,
        fd: int,
        *,
        keep: int,
        limit: int | None,
        ring: int = WINDOW_BYTES,
        hold: bool = False,
        window: int = WINDOW_BYTES,
    ) -> None:
        self.fd = fd
        self.keep = keep
        self.window = window
        """How much of it may be under way unacknowledged."""
        self.base = 0
        """Offset of the first byte kept."""
        self.end = 0
        """Offset behind the last byte accepted."""
        self.dropped = False
        self.paused = False
        """Not watched, since `wants` was false."""
        self._limit = limit
        self._ring = ring
        self._hold = hold
        self._blocks: deque[bytes] = deque()

    @property
    def size(self) -> int:
        """Return how many bytes are kept."""
        return self.end - self.base

    def wants(self, acked: Iterable[int]) -> bool:
        """Return whether to read on; `acked` is how far each listener has come, none when nobody listens."""
        if self.keep == ACKED:
            return self.end - self.base < self.window
        if not self._hold:
            return True
        return self.end - min(acked, default=self.end) < self.window

    def add(self, data: bytes) -> None:
        """Accept bytes; those beyond the limit are dropped."""
        if self._limit is not None and self.end + len(data) > self._limit:
            data = data[: self._limit - self.end]
            self.dropped = True
            if not data:
                return
        blocks = self._blocks
        if blocks and len(blocks[-1]) + len(data) <= _SMALL:
            blocks[-1] += data
        else:
            blocks.append(data)
        self.end += len(data)
        if self.keep == RING and self.size > self._ring:
            self._forget(self.end - self._ring, exactly=False)

    def acked(self, offset: int) -> None:
        """Drop what nobody can ask for again."""
        if self.keep == ACKED:
            self._forget(min(offset, self.end), exactly=True)

    def pieces(self, offset: int) -> list[bytes]:
        """Return the bytes from `offset`, not before `base`, to the end."""
        found: list[bytes] = []
        start = self.end
        for block in reversed(self._blocks):
            start -= len(block)
            if start <= offset:
                if start + len(block) > offset:
                    found.append(block[offset - start :] if offset > start else block)
                break
            found.append(block)
        found.reverse()
        return found

    def _forget(self, offset: int, *, exactly: bool) -> None:
        blocks = self._blocks
        while blocks and self.base + len(blocks[0]) <= offset:
            self.base += len(blocks.popleft())
        if self.base < offset and exactly:
            blocks[0] = blocks[0][offset - self.base :]
            self.base = offset
