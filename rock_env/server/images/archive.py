"""The tar of a build context, written anew for the engine.

Used by `server/images/context`. Programs read tars differently (sizes, long names, what comes after a broken header), and
the engine unpacks what begins like a compressed file. So it never gets what a caller sent, but a tar that is made here of
what was read and checked.
"""

from __future__ import annotations

import tarfile
from collections.abc import Iterator
from typing import BinaryIO

from rock_env.foreign.archive import TarMember, entry_path, members

__all__ = ["rewritten"]

_BLOCK_BYTES = 1 << 20
_LATEST = (1 << 33) - 1
"""The last time that a plain header holds, in seconds since the epoch."""


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
