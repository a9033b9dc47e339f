"""The bytes of a trajectory file: headers, frames, seal, and their checks.

    file     8 bytes magic | u32 schema version | u32 crc32 of the 12 bytes before | frames
    frame    u32 length | u32 crc32 of the payload | u32 crc32 of the 8 bytes before | payload
    seal     a frame header whose length is 0 and whose second field counts the frames

All integers little-endian. A payload is one `Trajectory` in msgpack: a map by field name, enums as strings, token
arrays as raw bytes (`<i4`, `<f4`), so float32 log-probabilities come back bit for bit. A frame's header has its
own checksum, so that a damaged length is told apart from a tail that a killed writer left.

Used by `store` only, which opens, writes and syncs the files.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO
from zlib import crc32

import msgspec
import numpy as np

from agent_runtime.errors import CorruptTrajectory, UnknownSchema
from agent_runtime.types import SCHEMA_VERSION, FloatArray, IntArray, Trajectory

__all__ = [
    "FILE_HEADER_BYTES",
    "FRAME_HEADER_BYTES",
    "LOG_MAGIC",
    "SEGMENT_MAGIC",
    "TornTail",
    "decode",
    "encode",
    "file_header",
    "frame_at",
    "read_file_header",
    "seal",
    "sealed_count",
    "walk",
]

SEGMENT_MAGIC = b"ALE-SEG\n"
LOG_MAGIC = b"ALE-LOG\n"
_FILE_HEADER = struct.Struct("<8sI")
_FRAME_HEADER = struct.Struct("<II")
_CRC = struct.Struct("<I")
FILE_HEADER_BYTES = _FILE_HEADER.size + _CRC.size
FRAME_HEADER_BYTES = _FRAME_HEADER.size + _CRC.size
_WINDOW_BYTES = 1 << 20


class TornTail(CorruptTrajectory):
    """The file ends inside a frame: what a killed writer leaves. A writer may cut it; a reader refuses."""


def _to_bytes(value: object) -> bytes:
    if isinstance(value, np.ndarray) and value.dtype in (np.int32, np.float32) and value.ndim == 1:
        return value.astype(value.dtype.newbyteorder("<"), copy=False).tobytes()
    raise TypeError(f"the store takes vectors of int32 or float32, got {value!r}")


def _from_bytes(kind: type, value: object) -> IntArray | FloatArray:
    if not isinstance(value, bytes):
        raise TypeError(f"expected `bytes`, got `{type(value).__name__}`")
    if kind == IntArray:
        return np.frombuffer(value, "<i4").astype(np.int32, copy=False)
    if kind == FloatArray:
        return np.frombuffer(value, "<f4").astype(np.float32, copy=False)
    raise TypeError(f"no array kind {kind!r}")


_encoder = msgspec.msgpack.Encoder(enc_hook=_to_bytes)
_decoder = msgspec.msgpack.Decoder(Trajectory, dec_hook=_from_bytes)


def _with_crc(header: bytes) -> bytes:
    return header + _CRC.pack(crc32(header))


def file_header(magic: bytes) -> bytes:
    """Return the first bytes of a file of this schema version."""
    return _with_crc(_FILE_HEADER.pack(magic, SCHEMA_VERSION))


def encode(trajectory: Trajectory) -> bytes:
    """Return the trajectory's frame. Raise `TypeError` for an array that is not an int32 or float32 vector."""
    payload = _encoder.encode(trajectory)
    return _with_crc(_FRAME_HEADER.pack(len(payload), crc32(payload))) + payload


def seal(count: int) -> bytes:
    """Return the end mark of a segment of `count` frames."""
    return _with_crc(_FRAME_HEADER.pack(0, count))


def decode(payload: bytes | memoryview, path: Path, offset: int) -> Trajectory:
    """Return a frame's trajectory, every field's type checked. Raise `CorruptTrajectory`."""
    try:
        return _decoder.decode(payload)
    except (msgspec.DecodeError, ValueError, TypeError) as error:
        raise _corrupt(
            path, offset, f"a record that is not a trajectory of schema {SCHEMA_VERSION} ({error})"
        ) from error


def walk(
    file: BinaryIO, path: Path, *, payloads: bool = True, damaged: list[CorruptTrajectory] | None = None
) -> Iterator[tuple[int, bytes]]:
    """Yield (offset, payload) of every frame, checked; without `payloads`, check headers only and yield b"".

    Raise `CorruptTrajectory` (`TornTail` where the file just ends) or `UnknownSchema`. With a list `damaged`, pass over what
    cannot be read to the next intact frame, and add to the list what was wrong with it.
    """
    if damaged is not None:
        yield from _salvage(file, path, damaged)
        return
    is_segment = read_file_header(file, path) == SEGMENT_MAGIC
    size = os.fstat(file.fileno()).st_size
    offset, count = FILE_HEADER_BYTES, 0
    while header := file.read(FRAME_HEADER_BYTES):
        length, check = _parse_header(header, path, offset)
        end = offset + FRAME_HEADER_BYTES + length
        if length == 0:
            if not is_segment or check != count or end != size:
                raise _corrupt(
                    path, offset, f"a seal of {check} records after {count}, {size - end} bytes follow"
                )
            return
        if end > size:
            raise _torn(path, offset, f"{size - offset} of its {FRAME_HEADER_BYTES + length} bytes")
        payload = b""
        if payloads:
            payload = file.read(length)
            if crc32(payload) != check:
                raise _corrupt(path, offset, "a record whose checksum does not match")
        else:
            file.seek(end)
        yield offset, payload
        offset, count = end, count + 1
    if is_segment:
        raise _corrupt(path, offset, f"the end of the file after {count} records, expected a seal")


def frame_at(file: BinaryIO, path: Path, offset: int) -> bytes:
    """Return the payload of the frame at a byte, checked. Raise `CorruptTrajectory` where none begins."""
    size = os.fstat(file.fileno()).st_size
    if not FILE_HEADER_BYTES <= offset < size:
        raise _corrupt(path, offset, f"no place among {size} bytes")
    file.seek(offset)
    length, check = _parse_header(file.read(FRAME_HEADER_BYTES), path, offset)
    if not 0 < length <= size - offset - FRAME_HEADER_BYTES:
        raise _torn(path, offset, f"a record of {length} bytes")
    payload = file.read(length)
    if crc32(payload) != check:
        raise _corrupt(path, offset, "a record whose checksum does not match")
    return payload


def _salvage(file: BinaryIO, path: Path, damaged: list[CorruptTrajectory]) -> Iterator[tuple[int, bytes]]:
    """Yield every intact frame of a file, whatever lies between."""
    is_segment = read_file_header(file, path) == SEGMENT_MAGIC
    size = os.fstat(file.fileno()).st_size
    offset = FILE_HEADER_BYTES
    while offset < size:
        file.seek(offset)
        try:
            length, check = _parse_header(file.read(FRAME_HEADER_BYTES), path, offset)
            end = offset + FRAME_HEADER_BYTES + length
            if end > size:
                raise _torn(path, offset, f"{size - offset} of its {FRAME_HEADER_BYTES + length} bytes")
        except CorruptTrajectory as error:
            damaged.append(error)
            offset = _next_header(file, offset + 1, size)
            continue
        if length == 0 and end == size:
            return
        payload = file.read(length)
        if length and crc32(payload) == check:
            yield offset, payload
        else:
            damaged.append(_corrupt(path, offset, "a record whose checksum does not match"))
        offset = end
    if is_segment and not damaged:
        damaged.append(_corrupt(path, size, "the end of the file, expected a seal"))


def _next_header(file: BinaryIO, start: int, size: int) -> int:
    """Return where the next frame header with a right checksum begins, or the file's size."""
    for at in range(start, size, _WINDOW_BYTES):
        file.seek(at)
        window = file.read(_WINDOW_BYTES + FRAME_HEADER_BYTES - 1)
        for place in range(len(window) - FRAME_HEADER_BYTES + 1):
            header = window[place : place + FRAME_HEADER_BYTES]
            if header == _with_crc(header[: _FRAME_HEADER.size]):
                return at + place
    return size


def sealed_count(file: BinaryIO) -> int | None:
    """Return how many frames the seal at the end of an open file counts, or None if it does not end in one."""
    if file.seek(0, os.SEEK_END) < FILE_HEADER_BYTES + FRAME_HEADER_BYTES:
        return None
    file.seek(-FRAME_HEADER_BYTES, os.SEEK_END)
    header = file.read(FRAME_HEADER_BYTES)
    length, count = _FRAME_HEADER.unpack_from(header)
    return int(count) if length == 0 and header == seal(count) else None


def read_file_header(file: BinaryIO, path: Path) -> bytes:
    """Read and check the file header; return its magic. Raise `CorruptTrajectory` or `UnknownSchema`."""
    header = file.read(FILE_HEADER_BYTES)
    magic = header[: len(SEGMENT_MAGIC)]
    if len(header) < FILE_HEADER_BYTES or magic not in (SEGMENT_MAGIC, LOG_MAGIC):
        raise _corrupt(path, 0, f"{header!r}, expected the header of a trajectory file")
    if header != _with_crc(header[: _FILE_HEADER.size]):
        raise _corrupt(path, 0, "a file header whose checksum does not match")
    _, version = _FILE_HEADER.unpack_from(header)
    if version != SCHEMA_VERSION:
        raise UnknownSchema(
            f"trajectory file {path} has schema version {version}, this ale reads {SCHEMA_VERSION}. "
            "Read it with the version of ale that wrote it.",
            path=path,
        )
    return magic


def _parse_header(header: bytes, path: Path, offset: int) -> tuple[int, int]:
    if len(header) < FRAME_HEADER_BYTES:
        raise _torn(path, offset, f"{len(header)} of its header's {FRAME_HEADER_BYTES} bytes")
    if header != _with_crc(header[: _FRAME_HEADER.size]):
        raise _corrupt(path, offset, "a record header whose checksum does not match")
    length, check = _FRAME_HEADER.unpack_from(header)
    return length, check


def _corrupt(path: Path, offset: int, got: str) -> CorruptTrajectory:
    return CorruptTrajectory(
        f"corrupt trajectory file {path} at byte {offset}: got {got}. The records before it are intact. "
        "Restore the file from a copy, or delete it.",
        path=path,
        offset=offset,
    )


def _torn(path: Path, offset: int, got: str) -> TornTail:
    return TornTail(
        f"trajectory file {path} breaks off in the record at byte {offset}: got {got}. Its writer was killed or "
        "still writes. The records before it are intact; opening the log for writing cuts the torn tail.",
        path=path,
        offset=offset,
    )
