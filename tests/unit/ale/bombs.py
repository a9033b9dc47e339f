"""Small files that are large when they are read, or lead a reader astray: records, documents and packs."""

from __future__ import annotations

import gzip
import io
import struct
import tarfile
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from zlib import crc32

import msgspec
import zstandard

from agent_runtime.store import encode, read_segment, write_segment

KEPT = Path(__file__).parents[1] / "kept" / "every_field.rollouts"
MIB = 1 << 20


def _crc(header: bytes) -> bytes:
    return header + struct.pack("<I", crc32(header))


def record_with(field: str, value: bytes) -> bytes:
    """Return a record that is whole but for one field, whose msgpack is given."""
    fields = msgspec.msgpack.decode(encode(next(iter(read_segment(KEPT)))))
    fields.pop(field, None)
    rest = msgspec.msgpack.encode(fields)
    assert rest[0] == 0xDE
    return b"\xde" + struct.pack(">H", len(fields) + 1) + msgspec.msgpack.encode(field) + value + rest[3:]


def log_of(stored: list[bytes]) -> bytes:
    """Return a log of records that are compressed already."""
    frames = [_crc(struct.pack("<II", len(each), crc32(each))) + each for each in stored]
    return _crc(struct.pack("<8sI", b"ALE-LOG\n", 2)) + b"".join(frames)


def packed(payload: bytes) -> bytes:
    return zstandard.ZstdCompressor(3).compress(payload)


def repeated(first: bytes, piece: bytes, times: int) -> bytes:
    """Return `first` and then a MiB of repetitions of `piece`, so many times, compressed in little memory."""
    block = piece * (MIB // len(piece))
    writer = zstandard.ZstdCompressor(3).compressobj(size=len(first) + times * len(block))
    return b"".join([writer.compress(first), *(writer.compress(block) for _ in range(times)), writer.flush()])


def many(count: int, item: bytes) -> bytes:
    return b"\xdd" + struct.pack(">I", count) + item * count


def records() -> Iterator[tuple[str, bytes]]:
    """Yield logs by name whose first record no budget of 16 MiB holds; an intact one is behind it."""
    whole = packed(encode(next(iter(read_segment(KEPT)))))
    for name, payload in (
        ("strings", record_with("actions", many(4 * MIB, b"\xa0"))),
        ("texts", record_with("actions", many(2 * MIB, b"\xa2ab"))),
        (
            "wide",
            record_with(
                "first_observation", b"\xdb" + struct.pack(">I", 8 * MIB) + b"\xf0\x9f\x90\x8d" * (2 * MIB)
            ),
        ),
        ("dictionaries", record_with("unknown", many(4 * MIB, b"\x80"))),
        ("lists", record_with("unknown", many(4 * MIB, b"\x90"))),
        ("integers", record_with("turn_rewards", many(4 * MIB, b"\x00"))),
        ("extensions", record_with("unknown", many(2 * MIB, b"\xd4\x01\x00"))),
        ("bytes", record_with("observation_hashes", many(2 * MIB, b"\xc4\x01\x00"))),
    ):
        yield name, log_of([packed(payload), whole])
    yield "gibibyte", log_of([repeated(record_with("actions", b""), b"\xa0", 1024), whole])
    yield "nested", log_of([packed(record_with("unknown", b"\x91" * 100_000)), whole])
    yield "cycle", log_of([packed(_cycle()), whole])


def _cycle() -> bytes:
    fields = msgspec.msgpack.decode(encode(next(iter(read_segment(KEPT)))))
    fields["turns"][0]["parent"] = len(fields["turns"]) - 1
    return msgspec.msgpack.encode(fields)


def documents() -> Iterator[tuple[str, bytes]]:
    """Yield files to import by name."""
    yield "objects.jsonl", b'{"messages":[],"x":[' + b"{}," * (2 * MIB) + b"{}]}\n"
    yield "calls.jsonl", b'{"messages":[{"role":"a","tool_calls":[' + b"[]," * (2 * MIB) + b"[]]}]}\n"
    yield "line.jsonl", b'"' + b"x" * (20 * MIB)
    yield "quotes.jsonl", b'{"messages":"' + b'\\"' * (4 * MIB)
    yield (
        "said.traj",
        b'{"trajectory":[],"history":[{"role":"user","content":[' + b"0," * (4 * MIB) + b"0]}]}",
    )
    yield "nested.traj", b'{"trajectory":[],"history":[{"role":"u","content":' + b"[" * 200_000
    yield "steps.json", b'{"steps":[' + b"{}," * (3 * MIB) + b"{}]}"


def _entry(name: str, size: int = 0, kind: bytes = tarfile.REGTYPE, target: str = "") -> bytes:
    entry = tarfile.TarInfo(name)
    entry.size, entry.type, entry.linkname = size, kind, target
    return entry.tobuf(tarfile.GNU_FORMAT)


def _attributes(records: bytes) -> bytes:
    return _entry("pax", len(records), tarfile.XHDTYPE) + records + bytes(-len(records) % 512)


def _attribute(name: str, value: str) -> bytes:
    body = f" {name}={value}\n".encode()
    length = len(body)
    while len(str(length)) + len(body) != length:
        length = len(str(length)) + len(body)
    return str(length).encode() + body


def packs() -> Iterator[tuple[str, Callable[[], Iterator[bytes]]]]:
    """Yield tars by name, in pieces."""
    about = _entry("PACKED.json", 2) + b"{}" + bytes(510)
    zeros = bytes(MIB)

    def huge(kind: bytes) -> Callable[[], Iterator[bytes]]:
        def pieces() -> Iterator[bytes]:
            yield about + _entry("h", 5 << 30, kind)
            for _ in range(192):
                yield zeros

        return pieces

    yield "pax", huge(tarfile.XHDTYPE)
    yield "global", huge(tarfile.XGLTYPE)
    yield "longname", huge(tarfile.GNUTYPE_LONGNAME)
    yield "longlink", huge(tarfile.GNUTYPE_LONGLINK)
    whole = {
        "deep": _attributes(_attribute("path", "d/" * 1_900 + "f")) + _entry("x"),
        "deeper": _attributes(_attribute("path", "d/" * 3_000 + "f")) + _entry("x"),
        "folders": b"".join(
            _entry("/".join("d" * depth) + "/", 0, tarfile.DIRTYPE) for depth in range(1, 45)
        ),
        "out": _entry("../x"),
        "zero": _attributes(_attribute("path", "a\0b")) + _entry("x"),
        "surrogate": _entry("x\udcff"),
        "long": _attributes(_attribute("path", "x" * 300)) + _entry("x"),
        "twice": _entry("x") + _entry("x"),
        "link": _entry("x", 0, tarfile.LNKTYPE, "PACKED.json"),
        "symlink": _entry("x", 0, tarfile.SYMTYPE, "/etc"),
        "sparse": _attributes(_attribute("GNU.sparse.size", str(1 << 50))) + _entry("x"),
        "old-sparse": _entry("x", 0, tarfile.GNUTYPE_SPARSE),
        "claims": _entry("x", 1 << 62),
        "headers": b"".join(_attributes(_attribute("a", "b")) for _ in range(3_000)) + _entry("x"),
        "minus": _attributes(_attribute("size", "-5")) + _entry("x"),
        "device": _entry("x", 0, tarfile.BLKTYPE),
    }
    yield from ((name, partial(iter, [about + held + bytes(1024)])) for name, held in whole.items())


def written(folder: Path) -> dict[str, list[str]]:
    """Write all into a folder; return the words of `ale replay` that read each, by name."""
    found: dict[str, list[str]] = {}
    for name, content in records():
        path = folder / f"{name}.rollouts"
        path.write_bytes(content)
        found[f"record {name}"] = ["list", str(path)]
    for name, content in documents():
        (folder / name).write_bytes(content)
        found[f"document {name}"] = ["import", str(folder / name), "--out", str(folder / "imported")]
    for name, pieces in packs():
        path = folder / f"{name}.tar.gz"
        with gzip.open(path, "wb", 1) as file:
            file.writelines(pieces())
        found[f"pack {name}"] = ["unpack", str(path), "--out", str(folder / "unpacked")]
    plain = folder / "plain.tar"
    plain.write_bytes(gzip.decompress((folder / "deep.tar.gz").read_bytes()))
    found["pack plain"] = ["unpack", str(plain), "--out", str(folder / "unpacked")]
    cut = folder / "cut.tar.gz"
    cut.write_bytes((folder / "deep.tar.gz").read_bytes()[:-20])
    found["pack cut"] = ["unpack", str(cut), "--out", str(folder / "unpacked")]
    return found


def a_good_one(folder: Path) -> Path:
    """Write a file of rollouts that nothing is wrong with."""
    path = folder / "good.rollouts"
    write_segment(path, read_segment(KEPT))
    return path


def random_tar(content: bytes) -> bytes:
    """Return a tar of one file."""
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w") as archive:
        entry = tarfile.TarInfo("x")
        entry.size = len(content)
        archive.addfile(entry, io.BytesIO(content))
    return file.getvalue()
