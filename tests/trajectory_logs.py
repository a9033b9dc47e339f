"""Logs of trajectories, which are read although nothing writes them any more."""

from __future__ import annotations

import struct
from collections.abc import Iterable
from pathlib import Path
from zlib import crc32

import zstandard

from agent_runtime import frames
from agent_runtime.types import Trajectory


def log_frame(record: bytes) -> bytes:
    """Return an encoded trajectory as it stands in a log: compressed by itself, with right checksums."""
    return stored_frame(zstandard.ZstdCompressor(write_checksum=True).compress(record))


def stored_frame(payload: bytes) -> bytes:
    """Return a frame whose stored bytes are these, with right checksums."""
    header = struct.pack("<II", len(payload), crc32(payload))
    return header + struct.pack("<I", crc32(header)) + payload


def write_log(path: Path, trajectories: Iterable[Trajectory]) -> None:
    """Write a log of trajectories as one file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    records = (log_frame(frames.encode(each)) for each in trajectories)
    path.write_bytes(frames.file_header(frames.LOG_MAGIC) + b"".join(records))
