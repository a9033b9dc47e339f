"""The tar of a build context: read with bounds, and written anew for the engine.

Used by `server/images/context`. Programs read tars differently (sizes, long names, what comes after a broken header), and
the engine unpacks what begins like a compressed file. So it never gets what a caller sent, but a tar that is made here of
what was read and checked.
"""

from __future__ import annotations

import re
import tarfile
from collections.abc import Iterator
from pathlib import PurePosixPath
from typing import BinaryIO, NoReturn, Self

from rock_env.arguments import shown
from rock_env.errors import InvalidArgument

__all__ = ["entry_path", "members", "rewritten"]

MAX_MEMBERS = 200_000
_BLOCK_BYTES = 1 << 20
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
_RECORD = re.compile(rb"(\d{1,6}) [^=\n]+=")
_LATEST = (1 << 33) - 1
"""The last time that a plain header holds, in seconds since the epoch."""


class BoundedTar(tarfile.TarFile):
    """A tar that knows how many headers of one member it is in."""

    headers = 0


class TarMember(tarfile.TarInfo):
    """A member without what makes a small archive large: long headers, headers of headers, and files with holes."""

    @classmethod
    def frombuf(cls, buf: bytes | bytearray, encoding: str, errors: str) -> Self:
        """Read one header."""
        member = super().frombuf(buf, encoding, errors)
        if member.size < 0 or (member.type in _HEADERS and member.size > _HEADER_BYTES):
            raise InvalidArgument(
                f"the build context holds a header of {member.size} bytes, expected at most {_HEADER_BYTES}. Shorten the "
                "name or the attributes of its file."
            )
        return member

    @classmethod
    def fromtarfile(cls, archive: tarfile.TarFile) -> Self:
        """Read a member with the headers before it."""
        assert isinstance(archive, BoundedTar)
        if archive.headers >= _MOST_HEADERS:
            raise InvalidArgument(
                f"the build context holds a member with more than {_MOST_HEADERS} headers. Make the tar anew."
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
                raise InvalidArgument(
                    "the build context holds attributes that cannot be read. Make the tar anew."
                )
            begin = end
        return super()._proc_pax(archive)  # type: ignore[misc, no-any-return]  # no part of the stubs

    def _sparse(self, *_: object) -> NoReturn:
        raise InvalidArgument(
            "the build context holds a sparse file, which may claim any size. Make the tar without --sparse."
        )

    _proc_sparse = _proc_gnusparse_00 = _proc_gnusparse_01 = _proc_gnusparse_10 = _sparse


def members(file: BinaryIO) -> Iterator[tuple[BoundedTar, TarMember]]:
    """Yield each member of a tar, with the tar to read it from. Memory does not grow with their number.

    Raise `InvalidArgument` for more than a context may hold, and what tarfile raises.
    """
    file.seek(0)
    count = path_bytes = 0
    with BoundedTar.open(fileobj=file, mode="r:", tarinfo=TarMember) as tar:
        assert isinstance(tar, BoundedTar)
        while (member := tar.next()) is not None:
            assert isinstance(member, TarMember)
            tar.members.clear()  # type: ignore[attr-defined]  # the stubs leave it out
            count += 1
            path_bytes += _path_bytes(member.name) + _path_bytes(member.linkname)
            if count > MAX_MEMBERS:
                raise InvalidArgument(
                    f"the build context has more than {MAX_MEMBERS} files; use .dockerignore."
                )
            if path_bytes > _ALL_PATHS_BYTES or len(tar.pax_headers) > _MOST_GLOBALS:
                raise InvalidArgument(
                    f"the build context has paths of more than {_ALL_PATHS_BYTES} bytes, or more than {_MOST_GLOBALS} "
                    "attributes of all files; use .dockerignore."
                )
            if member.size < 0 or (member.isreg() and tar.offset < member.offset_data + member.size):
                raise InvalidArgument(
                    f"the build context gives {shown(member.name)} two sizes. Make the tar anew."
                )
            yield tar, member
        file.seek(tar.offset)
        if file.read(tarfile.BLOCKSIZE).strip(b"\0"):
            raise tarfile.ReadError("what follows a file is no header")


def entry_path(name: str, what: str) -> str:
    """Return a path in its one spelling. Raise `InvalidArgument` for one that leads out of the context."""
    path = PurePosixPath(name)
    if path.is_absolute() or ".." in path.parts or "\0" in name:
        raise InvalidArgument(f"the build context holds the {what} {shown(name)}, which leads out of it.")
    name.encode()  # raises UnicodeEncodeError for what is not UTF-8: JSON could not carry it
    return str(path)


def rewritten(file: BinaryIO) -> Iterator[bytes]:
    """Yield a tar of the same paths, kinds, permissions, times, links and contents, in pieces of about a MiB.

    Every path begins with `./`, and so does the tar: no compressed file begins so.
    """
    piece = bytearray()
    for tar, member in members(file):
        piece += _header(member)
        if member.isreg():
            source = tar.extractfile(member)
            assert source is not None  # it is a file
            while block := source.read(_BLOCK_BYTES):
                piece += block
                if len(piece) >= _BLOCK_BYTES:
                    yield bytes(piece)
                    piece.clear()
            piece += bytes(-member.size % tarfile.BLOCKSIZE)
    yield bytes(piece) + bytes(2 * tarfile.BLOCKSIZE)


def _header(member: TarMember) -> bytes:
    path = entry_path(member.name, "path")
    made = tarfile.TarInfo("./" if path == "." else f"./{path}")
    made.type = tarfile.REGTYPE if member.isreg() else member.type
    made.mode, made.mtime = member.mode & 0o7777, int(member.mtime) if 0 <= member.mtime <= _LATEST else 0
    made.linkname = entry_path(member.linkname, "link target") if member.islnk() else member.linkname
    made.size = member.size if member.isreg() else 0
    return made.tobuf(tarfile.PAX_FORMAT, "utf-8", "surrogateescape")


def _path_bytes(path: str) -> int:
    size = len(path.encode(errors="surrogateescape"))
    if size > _PATH_BYTES:
        raise InvalidArgument(
            f"the build context holds the path {shown(path)} of {size} bytes, expected at most {_PATH_BYTES}."
        )
    return size
