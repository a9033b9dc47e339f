"""The bytes of a trajectory file: headers, frames, seal, and their checks.

    file        8 bytes magic | u32 schema version | u32 crc32 of the 12 bytes before | frames
    frame       u32 length | u32 crc32 of the payload | u32 crc32 of the 8 bytes before | payload
    dictionary  a frame whose length has its highest bit set
    seal        a frame header whose length is 0 and whose second field counts the records

All integers little-endian. A record is one `Trajectory` in msgpack: a map by field name, enums as strings, token
arrays as raw bytes (`<i4`, `<f4`), so float32 log-probabilities come back bit for bit. A frame's header has its
own checksum, so that a damaged length is told apart from a tail that a killed writer left.

Schema 2 compresses each record by itself (Zstandard), so that damage costs one record. What rollouts of one file share
is said once: the file's first record is the dictionary of all, kept as the first frame and again as the last one.
Schema 1 has records as they are, without a dictionary.

Used by `store` only, which opens, writes and syncs the files.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import chain, islice
from pathlib import Path
from typing import BinaryIO
from zlib import crc32

import msgspec
import numpy as np
import zstandard

from agent_runtime.errors import CorruptTrajectory, TooLarge, UnknownSchema
from agent_runtime.policy import version_fault
from agent_runtime.types import SCHEMA_VERSION, FloatArray, IntArray, Trajectory
from rock_env.errors import InvalidArgument
from rock_env.foreign import budget

__all__ = [
    "FILE_HEADER_BYTES",
    "FRAME_HEADER_BYTES",
    "LOG_MAGIC",
    "SEGMENT_MAGIC",
    "Frame",
    "FrameFile",
    "TornTail",
    "decode",
    "encode",
    "file_header",
    "segment",
]

SEGMENT_MAGIC = b"ALE-SEG\n"
LOG_MAGIC = b"ALE-LOG\n"
_FILE_HEADER = struct.Struct("<8sI")
_FRAME_HEADER = struct.Struct("<II")
_CRC = struct.Struct("<I")
FILE_HEADER_BYTES = _FILE_HEADER.size + _CRC.size
FRAME_HEADER_BYTES = _FRAME_HEADER.size + _CRC.size
_WINDOW_BYTES = 1 << 20
_UNCOMPRESSED = 1
"""The schema version whose records are not compressed."""
_DICTIONARY = 1 << 31
_MOST_DICTIONARY_BYTES = 1 << 20
_WORTH_A_DICTIONARY = 4
"""Records of a segment from which two copies of a dictionary cost less than they save."""
_LEVEL = 3


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


def _frame(payload: bytes, mark: int = 0) -> bytes:
    return _with_crc(_FRAME_HEADER.pack(len(payload) | mark, crc32(payload))) + payload


def file_header(magic: bytes) -> bytes:
    """Return the first bytes of a file of this schema version."""
    return _with_crc(_FILE_HEADER.pack(magic, SCHEMA_VERSION))


def encode(trajectory: Trajectory) -> bytes:
    """Return the trajectory as msgpack. Raise `TypeError` for an array that is not an int32 or float32 vector."""
    return _encoder.encode(trajectory)


def decode(payload: bytes | memoryview, path: Path, offset: int) -> Trajectory:
    """Return a record's trajectory, every field's type checked. Raise `CorruptTrajectory`."""
    try:
        found = _decoder.decode(payload)
        for at, turn in enumerate(found.turns):
            if turn.parent is not None and not 0 <= turn.parent < at:
                raise ValueError(f"turn {at} continues turn {turn.parent}, expected an earlier one")
            if fault := version_fault(turn.policy_version, len(turn.completion_ids)):
                raise ValueError(f"turn {at}: {fault}")
        return found
    except (msgspec.DecodeError, ValueError, TypeError, RecursionError) as error:
        raise _corrupt(
            path, offset, f"a record that is not a trajectory of schema {SCHEMA_VERSION} ({error})"
        ) from error


def segment(payloads: Iterable[bytes]) -> Iterator[bytes]:
    """Yield a whole segment of these records, in parts: it is never in memory as a whole."""
    rest = iter(payloads)
    first = list(islice(rest, _WORTH_A_DICTIONARY))
    raw = first[0][:_MOST_DICTIONARY_BYTES] if len(first) == _WORTH_A_DICTIONARY else None
    compressor = _compressor(raw)
    dictionary = b"" if raw is None else _frame(_compressor(None).compress(raw), _DICTIONARY)
    yield file_header(SEGMENT_MAGIC) + dictionary
    count = 0
    for payload in chain(first, rest):
        yield _frame(compressor.compress(payload))
        count += 1
    yield dictionary + _with_crc(_FRAME_HEADER.pack(0, count))


def _compressor(dictionary: bytes | None) -> zstandard.ZstdCompressor:
    if dictionary is None:
        return zstandard.ZstdCompressor(_LEVEL, write_checksum=True)
    shared = zstandard.ZstdCompressionDict(dictionary, dict_type=zstandard.DICT_TYPE_RAWCONTENT)
    shared.precompute_compress(level=_LEVEL)
    return zstandard.ZstdCompressor(_LEVEL, dict_data=shared, write_checksum=True)


@dataclass(frozen=True, slots=True)
class Frame:
    """One record's place in a file, and the record if it was asked for."""

    offset: int
    end: int
    payload: bytes = b""


@dataclass(frozen=True, slots=True)
class _Header:
    """What a frame's header says."""

    offset: int
    length: int
    check: int
    is_dictionary: bool

    @property
    def end(self) -> int:
        return self.offset + FRAME_HEADER_BYTES + self.length

    @property
    def is_seal(self) -> bool:
        return self.length == 0 and not self.is_dictionary


class FrameFile:
    """An open trajectory file. Raises `CorruptTrajectory` or `UnknownSchema` where its header cannot be read."""

    def __init__(self, file: BinaryIO, path: Path) -> None:
        self._file = file
        self._path = path
        self._size = os.fstat(file.fileno()).st_size
        file.seek(0)
        magic, self.version = _read_file_header(file, path)
        self.is_segment = magic == SEGMENT_MAGIC
        self._decompressor = zstandard.ZstdDecompressor()

    def walk(self, *, payloads: bool = True) -> Iterator[Frame]:
        """Yield every record, checked; without `payloads`, check headers only and leave the records out.

        Raise `CorruptTrajectory` (`TornTail` where the file just ends) at the first damage.
        """
        offset, count = FILE_HEADER_BYTES, 0
        while offset < self._size:
            header = self._header_at(offset)
            if header.is_seal:
                if not self.is_segment or header.check != count or header.end != self._size:
                    follow = self._size - header.end
                    raise self._corrupt(
                        offset, f"a seal of {header.check} records after {count}, {follow} bytes follow"
                    )
                return
            offset = header.end
            payload = self._payload(header) if payloads or header.is_dictionary else b""
            if not header.is_dictionary:
                yield Frame(header.offset, header.end, payload)
                count += 1
        if self.is_segment:
            raise self._corrupt(offset, f"the end of the file after {count} records, expected a seal")

    def salvage(self, damaged: list[CorruptTrajectory]) -> Iterator[Frame]:
        """Yield every intact record, whatever lies between, and add to `damaged` what was wrong with each other place."""
        self._find_dictionary()
        for header in self._headers(damaged):
            if header.is_seal and header.end == self._size:
                return
            try:
                payload = self._payload(header)
            except CorruptTrajectory as error:
                damaged.append(error)
            else:
                if not header.is_dictionary:
                    yield Frame(header.offset, header.end, payload)
        if self.is_segment and not damaged:
            damaged.append(self._corrupt(self._size, "the end of the file, expected a seal"))

    def at(self, offset: int) -> bytes:
        """Return the record at a byte, checked. Raise `CorruptTrajectory` where none begins."""
        if not FILE_HEADER_BYTES <= offset < self._size:
            raise self._corrupt(offset, f"no place among {self._size} bytes")
        self._find_dictionary()
        header = self._header_at(offset)
        if header.is_seal or header.is_dictionary:
            raise self._corrupt(offset, "no record")
        return self._payload(header)

    def sealed_count(self) -> int | None:
        """Return how many records the seal at the end counts, or None if the file does not end in one."""
        if not self.is_segment or self._size < FILE_HEADER_BYTES + FRAME_HEADER_BYTES:
            return None
        try:
            header = self._header_at(self._size - FRAME_HEADER_BYTES)
        except CorruptTrajectory:
            return None
        return header.check if header.is_seal else None

    def _header_at(self, offset: int) -> _Header:
        self._file.seek(offset)
        header = self._file.read(FRAME_HEADER_BYTES)
        if len(header) < FRAME_HEADER_BYTES:
            raise self._torn(offset, f"{len(header)} of its header's {FRAME_HEADER_BYTES} bytes")
        if header != _with_crc(header[: _FRAME_HEADER.size]):
            raise self._corrupt(offset, "a record header whose checksum does not match")
        length, check = _FRAME_HEADER.unpack_from(header)
        is_dictionary = self.version > _UNCOMPRESSED and bool(length & _DICTIONARY)
        found = _Header(offset, length & ~_DICTIONARY if is_dictionary else length, check, is_dictionary)
        if found.end > self._size:
            raise self._torn(offset, f"{self._size - offset} of its {found.end - offset} bytes")
        return found

    def _payload(self, header: _Header) -> bytes:
        """Return a frame's content, checked and decompressed; a dictionary is taken for what follows."""
        what = f"the record at byte {header.offset} of {self._path}"
        with _within(self._path, header.offset):
            budget.check_size(header.length, what)
        self._file.seek(header.offset + FRAME_HEADER_BYTES)
        stored = self._file.read(header.length)
        if header.is_seal or crc32(stored) != header.check:
            raise self._corrupt(header.offset, "a record whose checksum does not match")
        plain = zstandard.ZstdDecompressor() if header.is_dictionary else self._decompressor
        payload = stored
        if self.version > _UNCOMPRESSED:
            payload = self._decompressed(plain, stored, header, what)
        if not header.is_dictionary:
            with _within(self._path, header.offset):
                budget.check_msgpack(payload, what)
        else:
            shared = zstandard.ZstdCompressionDict(payload, dict_type=zstandard.DICT_TYPE_RAWCONTENT)
            self._decompressor = zstandard.ZstdDecompressor(dict_data=shared)
        return payload

    def _decompressed(
        self, decompressor: zstandard.ZstdDecompressor, stored: bytes, header: _Header, what: str
    ) -> bytes:
        try:
            size = zstandard.get_frame_parameters(stored).content_size
            if header.is_dictionary and size > _MOST_DICTIONARY_BYTES:
                raise self._corrupt(header.offset, f"a dictionary of {size} bytes")
            if size == zstandard.CONTENTSIZE_UNKNOWN:
                raise self._corrupt(header.offset, "a record of an unknown size")
            with _within(self._path, header.offset):
                budget.check_size(size, what)
            return decompressor.decompress(stored)
        except zstandard.ZstdError as error:
            raise self._corrupt(header.offset, f"a record that cannot be decompressed ({error})") from error

    def _find_dictionary(self) -> None:
        """Take the file's dictionary, from its last copy where the first is damaged; a file may have none."""
        if self.version == _UNCOMPRESSED:
            return
        for header in self._headers([]):
            if header.is_dictionary:
                try:
                    self._payload(header)
                except CorruptTrajectory:
                    continue
                return
            if header.offset == FILE_HEADER_BYTES:  # an intact file has its dictionary first, or none
                return

    def _headers(self, damaged: list[CorruptTrajectory]) -> Iterator[_Header]:
        """Yield every intact header of a frame that the file holds whole."""
        offset = FILE_HEADER_BYTES
        while offset < self._size:
            try:
                header = self._header_at(offset)
            except CorruptTrajectory as error:
                damaged.append(error)
                offset = _next_header(self._file, offset + 1, self._size)
            else:
                yield header
                offset = header.end

    def _corrupt(self, offset: int, got: str) -> CorruptTrajectory:
        return _corrupt(self._path, offset, got)

    def _torn(self, offset: int, got: str) -> TornTail:
        return TornTail(
            f"trajectory file {self._path} breaks off in the record at byte {offset}: got {got}. Its writer was killed or "
            "still writes. The records before it are intact; opening the log for writing cuts the torn tail.",
            path=self._path,
            offset=offset,
        )


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


def _read_file_header(file: BinaryIO, path: Path) -> tuple[bytes, int]:
    """Read and check the file header; return its magic and schema version."""
    header = file.read(FILE_HEADER_BYTES)
    magic = header[: len(SEGMENT_MAGIC)]
    if len(header) < FILE_HEADER_BYTES or magic not in (SEGMENT_MAGIC, LOG_MAGIC):
        raise _corrupt(path, 0, f"{header!r}, expected the header of a trajectory file")
    if header != _with_crc(header[: _FILE_HEADER.size]):
        raise _corrupt(path, 0, "a file header whose checksum does not match")
    _, version = _FILE_HEADER.unpack_from(header)
    if not _UNCOMPRESSED <= version <= SCHEMA_VERSION:
        raise UnknownSchema(
            f"trajectory file {path} has schema version {version}, this ale reads 1 to {SCHEMA_VERSION}. "
            "Read it with the version of ale that wrote it.",
            path=path,
        )
    return magic, version


@contextmanager
def _within(path: Path, offset: int) -> Iterator[None]:
    """Turn what the budget refuses into `TooLarge`."""
    try:
        yield
    except InvalidArgument as error:
        raise TooLarge(str(error), path=path, offset=offset) from error


def _corrupt(path: Path, offset: int, got: str) -> CorruptTrajectory:
    return CorruptTrajectory(
        f"corrupt trajectory file {path} at byte {offset}: got {got}. The records before it are intact. "
        "Restore the file from a copy, or delete it.",
        path=path,
        offset=offset,
    )
