"""How this process's allocator treats large blocks of memory.

Called by the server at its start, and by clients before bulk transfer. It changes nothing in what a program computes.
"""

from __future__ import annotations

__all__ = ["keep_large_blocks"]

_LARGE_BYTES = 8 << 20


def keep_large_blocks() -> None:
    """Let freed blocks of up to 8 MiB be used again instead of going back to the kernel.

    Each message of bulk transfer is a few allocations of about its size. As glibc starts, each of those is mapped
    anew, faulted in page by page and unmapped: more than half of the time of a transfer. It learns from the first
    large block that is freed, so that is what this does; thresholds set by the environment (`MALLOC_…`) stay.
    """
    bytes(_LARGE_BYTES)
