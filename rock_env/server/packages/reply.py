"""What the mirror answers a box, and the part of it that knows one kind of index."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import BinaryIO, Protocol

__all__ = ["Page", "Reply", "Source"]


@dataclass(frozen=True, slots=True)
class Page:
    """An index, as its reader wants it."""

    content: bytes
    kind: str
    stands: bytes = b""
    """Where this stands in the content, `base` is sent."""
    base: bytes = b""

    def size(self) -> int:
        """Return how many bytes are sent."""
        count = self.content.count(self.stands) if self.stands else 0
        return len(self.content) + count * (len(self.base) - len(self.stands))

    def blocks(self, block_bytes: int) -> Iterator[bytes]:
        """Yield what is sent, in pieces of about this size; a reader that is slow holds no page of its own."""
        begin, content, stands = 0, self.content, self.stands
        while begin < len(content):
            end = begin + block_bytes
            if stands:
                cut = content.find(stands, max(end - len(stands) + 1, begin), end + len(stands) - 1)
                end = end if cut < 0 else cut + len(stands)
            block = content[begin:end]
            yield block.replace(stands, self.base) if stands else block
            begin = end


Reply = Page | BinaryIO
"""An index or an open file, which its receiver closes."""


class Source(Protocol):
    """One upstream and how it is asked."""

    async def answer(self, tenant: str, names: list[str], base: str) -> Reply:
        """Answer the path that these checked names make, below `base`, the URL of this source for the tenant.

        Raise `NotFound` for what there is not, and what `PackageStore` raises.
        """
        ...
