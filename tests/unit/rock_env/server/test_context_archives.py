"""That the engine builds what was read, whatever a tar is to other programs, and that reading one has bounds."""

from __future__ import annotations

import io
import struct
import tarfile
import zlib

import pytest

from rock_env.errors import InvalidArgument
from rock_env.server.images.context import BuildContext


def header(name: bytes, size: bytes, kind: bytes = b"0") -> bytearray:
    made = bytearray(512)
    made[: len(name)] = name
    made[100:124] = b"0000644\0" + b"0000000\0" * 2
    made[124:136], made[136:148], made[156:157] = size.ljust(12, b"\0"), b"00000000000\0", kind
    made[257:265] = b"ustar\x0000"
    return signed(made)


def signed(made: bytearray) -> bytearray:
    made[148:156] = b" " * 8
    made[148:156] = b"%06o\0 " % sum(made)
    return made


def padded(content: bytes) -> bytes:
    return content + bytes(-len(content) % 512)


def member(name: bytes, content: bytes, kind: bytes = b"0") -> bytes:
    return bytes(header(name, b"%011o" % len(content), kind)) + padded(content)


END = bytes(1024)
OURS, THEIRS = member(b"Dockerfile", b"FROM a"), member(b"Dockerfile", b"FROM theirs")


def two_sizes() -> bytes:
    """Return a tar whose first size is 0 to Python, which ends at a NUL, and all of ours to Go, which begins after it."""
    cover = bytes(header(b"y", b"%011o" % len(THEIRS)))
    hidden = OURS + cover
    return bytes(header(b"x", b"\0%010o" % len(hidden))) + hidden + THEIRS + END


def gzip_too() -> bytes:
    """Return a tar that begins like a gzip file, in which another one lies."""
    packer = zlib.compressobj(9, zlib.DEFLATED, -15)
    inside = THEIRS + END
    body = packer.compress(inside) + packer.flush() + struct.pack("<II", zlib.crc32(inside), len(inside))
    first, records = header(b"", b"%011o" % 11, b"x"), padded(b"11 a=bbbbb\n")
    before = 512 + len(records) + len(OURS) + 512
    first[:12] = b"\x1f\x8b\x08\x04" + bytes(5) + b"\x03" + struct.pack("<H", before - 12)
    return bytes(signed(first)) + records + OURS + member(b"blob", body) + END


def zstd_too() -> bytes:
    """Return a tar that begins like zstandard's frame to be skipped, which some engines look for."""
    return member(b"P*M\x18" + b"AAAA", b"") + OURS + END


async def built(tar: bytes) -> tuple[frozenset[str], bytes]:
    """Return the images that are checked, and what the engine gets."""
    context = await BuildContext.open()
    try:
        await context.write(tar)
        await context.seal(dockerfile="Dockerfile", build_args={})
        return context.needs.images, b"".join([block async for block in context.blocks()])
    finally:
        context.close()


@pytest.mark.parametrize("tar", [two_sizes(), gzip_too(), zstd_too()], ids=["sizes", "gzip", "zstd"])
async def test_the_engine_unpacks_the_dockerfile_that_was_read(tar: bytes) -> None:
    images, sent = await built(tar)
    assert images == {"a"}
    assert sent.startswith(b"./"), "so it is no compressed file"
    with tarfile.open(fileobj=io.BytesIO(sent), mode="r:") as read:
        contents = {found.name: read.extractfile(found).read() for found in read}  # type: ignore[union-attr]
        assert contents["./Dockerfile"] == b"FROM a"
    # Each header says its size as every program reads it.
    at = 0
    while sent[at : at + 512].strip(b"\0"):
        size = sent[at + 124 : at + 135]
        assert size.isdigit()
        at += 512 + -(-int(size, 8) // 512) * 512
    assert at == len(sent) - 1024


async def test_what_a_context_holds_arrives_as_it_is() -> None:
    deep, data = "d/" + "n\u00e4me" * 60 + "/f", io.BytesIO()
    with tarfile.open(fileobj=data, mode="w", format=tarfile.GNU_FORMAT) as tar:
        for name, kind, link, content in (
            (".", tarfile.DIRTYPE, "", b""),
            ("d", tarfile.DIRTYPE, "", b""),
            ("Dockerfile", tarfile.REGTYPE, "", b"FROM a"),
            (deep, tarfile.REGTYPE, "", bytes(range(256)) * 9000),
            ("soft", tarfile.SYMTYPE, "../up/" + "x" * 200, b""),
            ("hard", tarfile.LNKTYPE, "./Dockerfile", b""),
        ):
            made = tarfile.TarInfo(name)
            made.type, made.linkname, made.size = kind, link, len(content)
            made.mode, made.mtime, made.uid = 0o755, 1_700_000_000, 7
            tar.addfile(made, io.BytesIO(content))
    _, sent = await built(data.getvalue())
    with tarfile.open(fileobj=io.BytesIO(sent), mode="r:") as tar:
        found = {entry.name.removeprefix("./"): entry for entry in tar}
        assert list(found) == [".", "d", "Dockerfile", deep, "soft", "hard"]
        assert tar.extractfile(found[deep]).read() == bytes(range(256)) * 9000  # type: ignore[union-attr]
    assert found["soft"].linkname == "../up/" + "x" * 200
    assert found["hard"].linkname == "Dockerfile"
    assert {(entry.mode, entry.mtime, entry.uid) for entry in found.values()} == {(0o755, 1_700_000_000, 0)}


def claimed(size: str) -> bytes:
    record = f"GNU.sparse.realsize={size}\n"
    length = len(record) + 3
    return member(b"p", f"{length} {record}".encode(), b"x") + member(b"big", b"x")


HOLDS = [
    (member(b"g", b"2 " * 30_000 + b"=", b"x"), "attributes that cannot be read"),
    (member(b"g", b"9" * 5000 + b" a=b\n", b"x"), "attributes that cannot be read"),
    (member(b"g", b"6 a=b\n", b"x") * 9, "more than 8 headers"),
    (member(b"g", b"".join(b"8 k%02d=v\n" % n for n in range(65)), b"g"), "64 attributes of all files"),
    (bytes(header(b"g", b"\xff" * 10 + b"\xf0\0", b"x")), "a header of -"),
    (claimed("999"), "two sizes"),
    (claimed("-5"), "two sizes"),
    (claimed("x"), "not a complete, uncompressed tar: invalid literal"),
    (member(b"L", b"n" * 4097, b"L") + member(b"n", b""), "of 4097 bytes, expected at most 4096"),
    (bytes(header(b"x", b"0"))[:148] + bytes(364), "not a complete, uncompressed tar"),
]


@pytest.mark.parametrize(("held", "said"), HOLDS, ids=[said for _, said in HOLDS])
async def test_a_tar_that_takes_memory_or_time_is_refused(held: bytes, said: str) -> None:
    with pytest.raises(InvalidArgument, match=said):
        await built(OURS + held + member(b"last", b"") + END)


@pytest.mark.parametrize("record", [b"13 mtime=nan\n", b"13 mtime=inf\n", b"30 uid=1180591620717411303424\n"])
async def test_numbers_that_no_file_has_are_refused(record: bytes) -> None:
    with pytest.raises(InvalidArgument, match="gives 'odd' a mode, owner or time that no file has"):
        await built(OURS + member(b"p", record, b"x") + member(b"odd", b"") + END)


@pytest.mark.parametrize(
    "argument", [("A\nB", ""), ("", ""), ("A B", ""), ("A=B", ""), ("A\x1b", ""), ("A", "x\0")]
)
async def test_build_arguments_that_nothing_can_be_given_are_refused(argument: tuple[str, str]) -> None:
    context = await BuildContext.open()
    try:
        await context.write(OURS + END)
        await context.seal(dockerfile="Dockerfile", build_args={"A.b-c": "x y\n"})
        with pytest.raises(InvalidArgument, match="build argument"):
            await context.seal(dockerfile="Dockerfile", build_args=dict([argument]))
    finally:
        context.close()


async def test_members_are_counted_also_where_a_folder_comes_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rock_env.foreign.archive.MAX_MEMBERS", 100)
    with pytest.raises(InvalidArgument, match="more than 100 files"):
        await built(OURS + member(b"d", b"", b"5") * 100 + END)


async def test_paths_are_bounded_together(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rock_env.foreign.archive._ALL_PATHS_BYTES", 1000)
    await built(OURS + member(b"l" * 90, b"") + END)
    with pytest.raises(InvalidArgument, match="paths of more than 1000 bytes"):
        await built(OURS + b"".join(member(b"%090d" % number, b"") for number in range(12)) + END)


async def test_nothing_is_written_beneath_a_link_however_it_is_named() -> None:
    link = bytearray(header(b"d", b"0", b"2"))
    link[157:158] = b"."
    between = member(b"d-e", b"") + member(b"d", b"", b"5") + member(b"d.x/f", b"")
    await built(OURS + between + END)
    with pytest.raises(InvalidArgument, match="beneath 'd'"):
        await built(OURS + bytes(signed(link)) + member(b"d-e", b"") + member(b"d/Dockerfile", b"") + END)
    link[:1] = b"."
    with pytest.raises(InvalidArgument, match=r"beneath '\.'"):
        await built(OURS + bytes(signed(link)) + END)


async def test_a_dockerfile_that_is_a_link_is_named_as_one() -> None:
    link = bytearray(header(b"Dockerfile", b"0", b"2"))
    link[157:158] = b"x"
    with pytest.raises(InvalidArgument, match="is a link in the build context"):
        await built(bytes(signed(link)) + member(b"x", b"FROM a") + END)
