"""The frames between the service and an env host: a fixed header, then one protobuf message.

Used by both ends of the socket. It knows lengths and kinds; it never looks into a payload.
"""

from __future__ import annotations

import struct
from enum import IntEnum
from typing import NamedTuple

__all__ = ["HEADER", "MOST_BYTES", "Frame", "Kind", "WorkerFrameReader", "pack"]

HEADER = struct.Struct("!IIBId")
"""Payload bytes, call id, kind, number of items, per-item timeout in seconds (0 in replies)."""
MOST_BYTES = 65 << 20
"""Of a reply's payload. What a call answers with could not be sent to its caller if it were larger."""


class Kind(IntEnum):
    """What a frame asks for; its reply has the same kind."""

    MAKE = 1
    RESET = 2
    STEP = 3
    EVALUATE = 4
    CLOSE = 5
    SNAPSHOT = 6
    RESTORE = 7
    SPLITS = 8
    ENDED = 9
    """From an episode's process alone: why it ends now."""


class Frame(NamedTuple):
    """One message. A call may be answered by several frames; it ends when all its `items` have come back."""

    call_id: int
    kind: int
    items: int
    timeout_s: float
    payload: bytes


def pack(frame: Frame) -> bytes:
    """Return the bytes of a frame."""
    header = HEADER.pack(len(frame.payload), frame.call_id, frame.kind, frame.items, frame.timeout_s)
    return header + frame.payload


class WorkerFrameReader:
    """Cuts a byte stream into frames."""

    def __init__(self, most_bytes: int = (1 << 32) - 1) -> None:
        """Take how long a payload may be; a worker trusts its server, and not the other way round."""
        self._most_bytes = most_bytes
        self._buffer = bytearray()

    def feed(self, data: bytes) -> list[Frame]:
        """Add received bytes and return the frames that are complete now. Raise `ValueError` for one that is too long."""
        buffer = self._buffer
        buffer += data
        frames = []
        start = 0
        while len(buffer) - start >= HEADER.size:
            size, call_id, kind, count, timeout_s = HEADER.unpack_from(buffer, start)
            if size > self._most_bytes:
                raise ValueError(f"a frame of {size} bytes")
            end = start + HEADER.size + size
            if len(buffer) < end:
                break
            frames.append(Frame(call_id, kind, count, timeout_s, bytes(buffer[start + HEADER.size : end])))
            start = end
        del buffer[:start]
        return frames
