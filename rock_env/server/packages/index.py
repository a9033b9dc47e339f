"""What an index says of the files it lists, and which names, digests and addresses are believed at all.

Used by the mirror's parts. What a box names and what an upstream answers pass here; nothing is opened.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from urllib.parse import unquote_to_bytes, urlsplit

from rock_env.errors import InfraError, InvalidArgument, NotFound

__all__ = ["Index", "Wanted", "check_digest", "origin", "segments", "unreadable", "wanted"]

_SEGMENT = re.compile(r"-|@?[A-Za-z0-9][A-Za-z0-9._+~-]{0,254}", re.ASCII)
"""One name of a path: never empty, hidden, `..` or with a separator, so that no path leaves where it is joined."""
_MOST_PATH = 1024
_MOST_SEGMENTS = 12
_DIGITS = {"sha256": 64, "sha384": 96, "sha512": 128}
"""The digests that are believed, by their hexadecimal digits. SHA-1 and MD5 can be forged."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """A file as its index describes it."""

    url: str
    algorithm: str
    digest: str
    """Hexadecimal, lower case."""
    size_bytes: int | None = None
    """None where the index does not say."""
    name: str = ""
    """What its index calls it, where that is not how it was asked for."""

    @property
    def key(self) -> str:
        """Return the file's name in the cache: its digest, and nothing that anybody named."""
        return f"{self.algorithm}-{self.digest}"


@dataclass(frozen=True, slots=True)
class Index:
    """What a box reads of an index, and the files it lists, by the names under which the box asks for them."""

    page: bytes
    kind: str
    """The page's media type."""
    files: Mapping[str, Wanted]

    def file(self, name: str) -> Wanted:
        """Return the file of this name. Raise `NotFound`."""
        found = self.files.get(name)
        if found is None:
            raise NotFound(f"the index lists no file {name!r} with a digest that is believed")
        return found


def segments(path: str) -> list[str]:
    """Return the names of a path that a box asked for. Raise `InvalidArgument` for any that could lead elsewhere."""
    plain = path.partition("?")[0]
    try:
        parts = unquote_to_bytes(plain).decode("ascii").removeprefix("/").removesuffix("/").split("/")
    except UnicodeDecodeError as error:
        raise InvalidArgument("the path holds characters beyond ASCII") from error
    if len(plain) > _MOST_PATH or len(parts) > _MOST_SEGMENTS:
        raise InvalidArgument("the path is too long")
    for part in parts:
        if _SEGMENT.fullmatch(part) is None:
            raise InvalidArgument(f"the path holds {part[:80]!r}, which is no name of a package or file")
    return parts


def check_digest(algorithm: str, digest: str) -> bool:
    """Return whether this is a digest that is believed."""
    digits = _DIGITS.get(algorithm)
    return digits is not None and re.fullmatch(f"[0-9a-f]{{{digits}}}", digest) is not None


def wanted(
    url: str, digests: Mapping[str, str], size_bytes: int | None, origins: Sequence[str]
) -> Wanted | None:
    """Return a file that an index lists; None where it lies elsewhere than it may, or has no digest that is believed."""
    if len(url) > 2 * _MOST_PATH or (size_bytes is not None and size_bytes < 0):
        return None
    if not (url.isascii() and url.isprintable()) or "#" in url:
        return None
    place = origin(url)
    if not place or place not in origins:
        return None
    for algorithm in ("sha512", "sha384", "sha256"):
        digest = digests.get(algorithm, "")
        if check_digest(algorithm, digest):
            return Wanted(url, algorithm, digest, size_bytes)
    return None


def origin(url: str) -> str:
    """Return scheme, host and port of a URL, and nothing ("") for one with a user or without a host."""
    try:
        parts = urlsplit(url)
        port = parts.port or {"http": 80, "https": 443}.get(parts.scheme)
    except ValueError:
        return ""
    if port is None or not parts.hostname or "@" in parts.netloc:
        return ""
    return f"{parts.scheme}://{parts.hostname}:{port}"


def unreadable(what: str, error: Exception) -> InfraError:
    """Return the error for an answer of an upstream that is no index."""
    return InfraError(f"upstream's {what} cannot be read, and was not kept: {error}")
