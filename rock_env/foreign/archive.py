"""A tar that somebody else made, read with bounds: a build context, a pack of records.

Used by `server/images` and `ale.replay.interchange.packing`. tarfile alone takes a member's headers into memory whole,
however long they say they are, and calls itself for each.
"""

from __future__ import annotations

import gzip
import re
import tarfile
from collections.abc import Iterator
from pathlib import PurePosixPath
from typing import BinaryIO, ClassVar, NoReturn, Self

from rock_env.arguments import shown
from rock_env.errors import InvalidArgument

__all__ = ["BoundedTar", "Rewinding", "TarMember", "entry_path", "members"]

MAX_MEMBERS = 200_000
_SKIP_BYTES = 1 << 16
_HEADER_BYTES = 64 << 10
"""Of one header of a member, such as its long name; tarfile reads each into memory."""
_PATH_BYTES = 4096
"""Of a path: the kernel takes no longer one."""
_ALL_PATHS_BYTES = 64 << 20
"""Of all paths and link targets: they are in memory at once."""
_MOST_HEADERS = 8
"""How many headers one member may have; tarfile calls itself for each."""
_MOST_GLOBALS = 64
"""How many attributes may hold for all members: each member has a copy while it is read."""
_HEADERS = frozenset(
    {
        *(tarfile.XHDTYPE, tarfile.XGLTYPE, tarfile.SOLARIS_XHDTYPE),
        *(tarfile.GNUTYPE_LONGNAME, tarfile.GNUTYPE_LONGLINK),
    }
)
_MOST_OWNER = (1 << 32) - 1
"""Of numbers of users and groups; modes have no more bits, either."""
_LATEST = 1 << 40
"""Seconds since 1970, or before, of a time that a file system keeps."""
_RECORD = re.compile(rb"(\d{1,6}) [^=\n]+=")
_REWOUND_BYTES = _HEADER_BYTES + 2 * tarfile.BLOCKSIZE


class BoundedTar(tarfile.TarFile):
    """A tar that knows how many headers of one member it is in."""

    headers = 0


class TarMember(tarfile.TarInfo):
    """A member without what makes a small archive large: long headers, headers of headers, and files with holes.

    A subclass says what is read (`NOUN`), and how to have less of it.
    """

    NOUN: ClassVar[str] = "the build context"
    FEWER: ClassVar[str] = "use .dockerignore"

    @classmethod
    def frombuf(cls, buf: bytes | bytearray, encoding: str, errors: str) -> Self:
        """Read one header."""
        member = super().frombuf(buf, encoding, errors)
        if member.size < 0 or (member.type in _HEADERS and member.size > _HEADER_BYTES):
            raise InvalidArgument(
                f"{cls.NOUN} holds a header of {member.size} bytes, expected at most {_HEADER_BYTES}. Shorten the "
                "name or the attributes of its file."
            )
        return member

    @classmethod
    def fromtarfile(cls, archive: tarfile.TarFile) -> Self:
        """Read a member with the headers before it."""
        assert isinstance(archive, BoundedTar)
        if archive.headers >= _MOST_HEADERS:
            raise InvalidArgument(
                f"{cls.NOUN} holds a member with more than {_MOST_HEADERS} headers. Make the tar anew."
            )
        archive.headers += 1
        try:
            return super().fromtarfile(archive)
        finally:
            archive.headers -= 1

    def _proc_pax(self, archive: BoundedTar) -> tarfile.TarInfo:
        """Check that records lie side by side: overlapping ones take memory by the square of their size."""
        assert archive.fileobj is not None
        at = archive.fileobj.tell()
        records = archive.fileobj.read(self.size)
        archive.fileobj.seek(at)
        begin = 0
        while begin < len(records):
            found = _RECORD.match(records, begin)
            end = begin + int(found[1]) if found is not None else 0
            if found is None or end <= found.end() or records[end - 1 : end] != b"\n":
                raise InvalidArgument(f"{self.NOUN} holds attributes that cannot be read. Make the tar anew.")
            begin = end
        return super()._proc_pax(archive)  # type: ignore[misc, no-any-return]  # no part of the stubs

    def _sparse(self, *_: object) -> NoReturn:
        raise InvalidArgument(
            f"{self.NOUN} holds a sparse file, which may claim any size. Make the tar without --sparse."
        )

    _proc_sparse = _proc_gnusparse_00 = _proc_gnusparse_01 = _proc_gnusparse_10 = _sparse


class Rewinding:
    """A stream that only goes forward, such as what gzip unpacks, and goes back over the little that tarfile needs."""

    def __init__(self, stream: BinaryIO | gzip.GzipFile) -> None:
        self._stream = stream
        self._at = 0
        self._last = b""
        self._again = 0
        """How many of the last bytes are to be read once more."""

    def read(self, size: int) -> bytes:
        begin = len(self._last) - self._again
        again = self._last[begin : begin + size]
        self._again -= len(again)
        piece = self._stream.read(size - len(again))
        self._at += len(piece)
        self._last = (self._last + piece)[-_REWOUND_BYTES:]
        return again + piece

    def tell(self) -> int:
        return self._at - self._again

    def seek(self, place: int) -> int:
        """Go to a byte. Raise `tarfile.ReadError` for one that is further back than is kept."""
        if place <= self._at:
            self._again = self._at - place
            if self._again > len(self._last):
                raise tarfile.ReadError("the archive cannot be read again")
        while self.tell() < place and self.read(min(_SKIP_BYTES, place - self.tell())):
            pass
        return self.tell()


def members(file: BinaryIO, kind: type[TarMember] = TarMember) -> Iterator[tuple[BoundedTar, TarMember]]:
    """Yield each member of a tar, with the tar to read it from. Memory does not grow with their number.

    Raise `InvalidArgument` for more than such a tar may hold, and what tarfile raises.
    """
    file.seek(0)
    count = path_bytes = 0
    with BoundedTar.open(fileobj=file, mode="r:", tarinfo=kind) as tar:
        assert isinstance(tar, BoundedTar)
        while (member := tar.next()) is not None:
            assert isinstance(member, TarMember)
            tar.members.clear()  # type: ignore[attr-defined]  # the stubs leave it out
            count += 1
            path_bytes += _path_bytes(member.name, kind) + _path_bytes(member.linkname, kind)
            if count > MAX_MEMBERS:
                raise InvalidArgument(f"{kind.NOUN} has more than {MAX_MEMBERS} files; {kind.FEWER}.")
            if path_bytes > _ALL_PATHS_BYTES or len(tar.pax_headers) > _MOST_GLOBALS:
                raise InvalidArgument(
                    f"{kind.NOUN} has paths of more than {_ALL_PATHS_BYTES} bytes, or more than {_MOST_GLOBALS} "
                    f"attributes of all files; {kind.FEWER}."
                )
            if member.size < 0 or (member.isreg() and tar.offset < member.offset_data + member.size):
                raise InvalidArgument(f"{kind.NOUN} gives {shown(member.name)} two sizes. Make the tar anew.")
            if not _is_plausible(member):
                raise InvalidArgument(
                    f"{kind.NOUN} gives {shown(member.name)} a mode, owner or time that no file has. Make the tar anew."
                )
            yield tar, member
        file.seek(tar.offset)
        if file.read(tarfile.BLOCKSIZE).strip(b"\0"):
            raise tarfile.ReadError("what follows a file is no header")


def _is_plausible(member: TarMember) -> bool:
    owners = all(-_MOST_OWNER <= number <= _MOST_OWNER for number in (member.uid, member.gid))
    return owners and 0 <= member.mode <= _MOST_OWNER and -_LATEST <= member.mtime <= _LATEST


def entry_path(name: str, what: str, kind: type[TarMember] = TarMember) -> str:
    """Return a path in its one spelling. Raise `InvalidArgument` for one that leads out of the tar."""
    path = PurePosixPath(name)
    if path.is_absolute() or ".." in path.parts or "\0" in name:
        raise InvalidArgument(f"{kind.NOUN} holds the {what} {shown(name)}, which leads out of it.")
    name.encode()  # raises UnicodeEncodeError for what is not UTF-8: JSON could not carry it
    return str(path)


def _path_bytes(path: str, kind: type[TarMember]) -> int:
    size = len(path.encode(errors="surrogateescape"))
    if size > _PATH_BYTES:
        raise InvalidArgument(
            f"{kind.NOUN} holds the path {shown(path)} of {size} bytes, expected at most {_PATH_BYTES}."
        )
    return size
