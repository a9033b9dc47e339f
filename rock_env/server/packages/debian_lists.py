"""What Debian's lists say: the files of a Release, and the packages of a Packages file, kept on disk for all suites.

Used by `debian`, in threads. The database is a cache: what it lacks is learned again from the next `apt-get update`.
"""

from __future__ import annotations

import gzip
import lzma
import re
import sqlite3
import threading
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import BinaryIO
from urllib.parse import quote

from rock_env.errors import InfraError
from rock_env.server.packages.index import Wanted, check_digest, segments, unreadable, wanted

__all__ = ["PoolTable", "is_packages", "read_release"]

_MOST_TEXT = 1 << 30
"""Bytes of a Packages file, unpacked; Debian's largest has 60 MB."""
_MOST_LINE = 64 << 10
_MOST_LISTED = 50_000
_MOST_PACKAGES = 400_000
"""Of one list; Debian's largest has 70,000."""
_UNPACK_BYTES = 256 << 20
"""Memory that unpacking may take."""
_MOST_LISTS = 64
_BLOCK = 1 << 20
_TABLES = """
PRAGMA journal_mode = WAL;
PRAGMA synchronous = NORMAL;
CREATE TABLE IF NOT EXISTS lists (number INTEGER PRIMARY KEY, digest TEXT UNIQUE);
CREATE TABLE IF NOT EXISTS pool (
  archive TEXT, path TEXT, sha256 BLOB, size INTEGER, list INTEGER, PRIMARY KEY (archive, path)
) WITHOUT ROWID;
"""
_PACKAGES = re.compile(r"([A-Za-z0-9.+~_-]+/)+binary-[a-z0-9-]+/Packages(\.xz|\.gz)?", re.ASCII)


def is_packages(path: str) -> bool:
    """Return whether a file of a Release lists packages."""
    return _PACKAGES.fullmatch(path) is not None


def read_release(text: bytes, folder: str, origins: tuple[str, ...]) -> dict[str, Wanted]:
    """Return each file that an InRelease lists with a SHA-256, by its name and by that of its digest.

    Lists of changes (`Packages.diff`) are left out: apt takes the whole list then, which says what the mirror must know.
    Raise `InfraError` for a text that does not come to its end.
    """
    lines = text.decode("utf-8", errors="replace").split("\n")
    if not lines or "-----END PGP SIGNATURE-----" not in lines[-3:]:
        raise InfraError("upstream's InRelease does not come to its end, and was not kept")
    by_hash = "Acquire-By-Hash: yes" in lines
    found: dict[str, Wanted] = {}
    inside = False
    for line in lines:
        if not line.startswith(" "):
            inside = line.strip() == "SHA256:"
            continue
        words = line.split()
        if not inside or len(words) != 3 or not words[1].isdecimal() or len(found) > _MOST_LISTED:
            continue
        digest, size, path = words
        if not _is_path(path) or ".diff/" in path or not check_digest("sha256", digest):
            continue
        above, slash, _ = path.rpartition("/")
        alias = f"{above}{slash}by-hash/SHA256/{digest}"
        place = f"{folder}/{quote(alias if by_hash else path)}"
        lies = wanted(place, {"sha256": digest}, int(size[:18]), origins)
        if lies is not None:
            found[path] = found[alias] = replace(lies, name=path)
    return found


class PoolTable:
    """Which packages there are, by archive and path. Safe to use from several threads."""

    def __init__(self, path: Path) -> None:
        self._lock = threading.Lock()
        try:
            self._db = _opened(path)
        except sqlite3.DatabaseError:  # damaged: it is learned again
            for each in path.parent.glob(f"{path.name}*"):
                each.unlink()
            self._db = _opened(path)

    def close(self) -> None:
        """Close the database."""
        self._db.close()

    def knows(self, archive: str, digest: str) -> bool:
        """Return whether this list was learned."""
        with self._using():
            row = self._db.execute("SELECT 1 FROM lists WHERE digest = ?", (f"{archive} {digest}",))
            return row.fetchone() is not None

    def learn(self, archive: str, name: str, digest: str, packed: BinaryIO) -> None:
        """Take in the packages of a list; the oldest lists are forgotten. Raise `InfraError` if it cannot be read."""
        try:
            found = islice(_packages(packed, name), _MOST_PACKAGES)
            rows = [(archive, path, bytes.fromhex(sha256), size) for path, sha256, size in found]
        except (lzma.LZMAError, zlib.error, EOFError, OSError, ValueError) as error:
            raise unreadable(f"list {name}", error) from error
        with self._using():
            self._db.execute("BEGIN")
            try:
                number = self._db.execute(
                    "INSERT OR REPLACE INTO lists (digest) VALUES (?)", (f"{archive} {digest}",)
                ).lastrowid
                self._db.executemany(f"INSERT OR REPLACE INTO pool VALUES (?, ?, ?, ?, {number or 0})", rows)
                self._db.execute("DELETE FROM lists WHERE number <= ?", ((number or 0) - _MOST_LISTS,))
                self._db.execute("DELETE FROM pool WHERE list <= ?", ((number or 0) - _MOST_LISTS,))
            except BaseException:
                self._db.execute("ROLLBACK")
                raise
            self._db.execute("COMMIT")

    def find(self, archive: str, path: str) -> tuple[str, int] | None:
        """Return digest and size of a package; None for one that no list named."""
        with self._using():
            row = self._db.execute(
                "SELECT sha256, size FROM pool WHERE archive = ? AND path = ?", (archive, path)
            ).fetchone()
        return None if row is None else (row[0].hex(), row[1])

    @contextmanager
    def _using(self) -> Iterator[None]:
        try:
            with self._lock:
                yield
        except sqlite3.Error as error:
            raise InfraError(f"the package mirror's table of packages failed: {error}") from error


def _opened(path: Path) -> sqlite3.Connection:
    db = sqlite3.connect(path, check_same_thread=False, isolation_level=None)
    try:
        db.executescript(_TABLES)
    except sqlite3.Error:
        db.close()
        raise
    return db


def _packages(packed: BinaryIO, name: str) -> Iterator[tuple[str, str, int]]:
    """Yield path, SHA-256 and size of each package of a list."""
    fields: dict[bytes, bytes] = {}
    for line in _lines(packed, name):
        if line:
            key, _, value = line.partition(b":")
            if key in (b"Filename", b"SHA256", b"Size"):
                fields[key] = value.strip()
            continue
        path, digest = (
            fields.get(b"Filename", b"").decode("ascii", "replace"),
            fields.get(b"SHA256", b"").decode("ascii", "replace"),
        )
        size = fields.get(b"Size", b"")
        if path.startswith("pool/") and _is_path(path) and check_digest("sha256", digest) and size.isdigit():
            yield path, digest, int(size[:18])
        fields = {}


def _lines(packed: BinaryIO, name: str) -> Iterator[bytes]:
    """Yield the lines of a list, and an empty one at its end."""
    rest, total = b"", 0
    for block in _unpacked(packed, name):
        total += len(block)
        if total > _MOST_TEXT or len(rest) > _MOST_LINE:
            raise ValueError("it is too large, or a line of it is too long")
        *lines, rest = (rest + block).split(b"\n")
        yield from lines
    yield from (rest, b"")


def _unpacked(packed: BinaryIO, name: str) -> Iterator[bytes]:
    if not name.endswith(".xz"):
        plain = gzip.GzipFile(fileobj=packed) if name.endswith(".gz") else packed
        while block := plain.read(_BLOCK):
            yield block
        return
    unpack = lzma.LZMADecompressor(lzma.FORMAT_XZ, memlimit=_UNPACK_BYTES)
    while not unpack.eof:
        block = packed.read(_BLOCK) if unpack.needs_input else b""
        if unpack.needs_input and not block:
            raise EOFError("it ends early")
        yield unpack.decompress(block, _BLOCK)


def _is_path(path: str) -> bool:
    try:
        return "%" not in path and "/".join(segments(path)) == path
    except ValueError:
        return False
