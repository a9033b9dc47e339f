"""The frames between the service and an env host: a fixed header, then one protobuf message.

Used by both ends of the socket. It knows lengths and kinds; it never looks into a payload.
"""

from __future__ import annotations

import struct
from enum import IntEnum
from typing import NamedTuple

__all__ = ["HEADER", "Frame", "Kind", "WorkerFrameReader", "pack"]

HEADER = struct.Struct("!IIBId")
"""Payload bytes, call id, kind, number of items, per-item timeout in seconds (0 in replies)."""


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

    def __init__(self) -> None:
        self._buffer = bytearray()

    def feed(self, data: bytes) -> list[Frame]:
        """Add received bytes and return the frames that are complete now."""
        buffer = self._buffer
        buffer += data
        frames = []
        start = 0
        while len(buffer) - start >= HEADER.size:
            size, call_id, kind, count, timeout_s = HEADER.unpack_from(buffer, start)
            end = start + HEADER.size + size
            if len(buffer) < end:
                break
            frames.append(Frame(call_id, kind, count, timeout_s, bytes(buffer[start + HEADER.size : end])))
            start = end
        del buffer[:start]
        return frames
