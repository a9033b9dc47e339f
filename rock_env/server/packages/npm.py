"""npm's registry: what a package's versions are, in the short form that installing needs, and their archives.

A version is offered where its index gives a SHA-512 (or 384, 256) of its archive and that lies at upstream's origin.
"""

from __future__ import annotations

import base64
import binascii
import secrets
from collections.abc import Sequence
from urllib.parse import quote, urlsplit

import msgspec

from rock_env.errors import NotFound
from rock_env.server.packages.index import Index, Wanted, origin, segments, unreadable, wanted
from rock_env.server.packages.reply import Page, Reply
from rock_env.server.packages.store import PackageStore
from rock_env.server.packages.upstream import Count, aside

__all__ = ["Npm"]

_ACCEPT = "application/vnd.npm.install-v1+json"
_BASE = f"rock-{secrets.token_hex(16)}:"
"""Stands for the mirror's own URL in a page that is kept; nobody upstream can know it."""


class _Dist(msgspec.Struct):
    tarball: str = ""
    integrity: str = ""


class _Version(msgspec.Struct):
    dist: _Dist


class _Package(msgspec.Struct):
    versions: dict[str, msgspec.Raw]
    dist_tags: dict[str, str] = msgspec.field(name="dist-tags", default_factory=dict)
    modified: str = ""


class Npm:
    """Answers `PACKAGE` or `@SCOPE/PACKAGE`, and `…/-/ARCHIVE`."""

    def __init__(self, store: PackageStore, url: str) -> None:
        self._store = store
        self._url = url.rstrip("/")
        self._origins = (origin(url),)

    async def answer(self, tenant: str, names: list[str], base: str) -> Reply:
        scoped = names[0].startswith("@")
        name, rest = "/".join(names[: 1 + scoped]), names[1 + scoped :]
        if "@" in name[1:] or (scoped and "/" not in name):
            raise NotFound("npm's names are PACKAGE or @SCOPE/PACKAGE")
        match rest:
            case []:
                index = await self._index(tenant, name)
                return Page(index.page, index.kind, _BASE.encode(), f"{base}/".encode())
            case ["-", archive]:
                return await self._store.file(tenant, (await self._index(tenant, name)).file(archive))
        raise NotFound("of npm there is PACKAGE and PACKAGE/-/ARCHIVE")

    async def _index(self, tenant: str, name: str) -> Index:
        url = f"{self._url}/{quote(name, safe='@')}"

        async def load(count: Count) -> Index:
            text = await self._store.upstream.read(url, accept=_ACCEPT, count=count)
            return await aside(_read, text, name, self._origins)

        return await self._store.index(tenant, f"npm {name}", load)


def _read(text: bytes, name: str, origins: Sequence[str]) -> Index:
    files: dict[str, Wanted] = {}
    versions = {}
    try:
        package = msgspec.json.decode(text, type=_Package)
        for version, raw in package.versions.items():
            dist = msgspec.json.decode(raw, type=_Version).dist
            found = wanted(dist.tarball, _digests(dist.integrity), None, origins)
            archive = _archive(dist.tarball)
            if found is None or not archive:
                continue
            files[archive] = found
            fields = msgspec.json.decode(raw, type=dict[str, msgspec.Raw])
            told = {"tarball": f"{_BASE}{name}/-/{archive}", "integrity": _integrity(found)}
            fields["dist"] = msgspec.Raw(msgspec.json.encode(told))
            versions[version] = fields
    except msgspec.DecodeError as error:
        raise unreadable(f"index of {name}", error) from error
    tags = {tag: version for tag, version in package.dist_tags.items() if version in versions}
    page = {"name": name, "dist-tags": tags, "versions": versions}
    if package.modified:
        page["modified"] = package.modified
    return Index(msgspec.json.encode(page), _ACCEPT, files)


def _archive(url: str) -> str:
    """Return the last name of an archive's URL; nothing where that is no name."""
    try:
        name = urlsplit(url).path.rpartition("/")[2]
        return name if segments(name) == [name] else ""
    except ValueError:
        return ""


def _digests(integrity: str) -> dict[str, str]:
    """Return the digests of a `dist.integrity` (W3C Subresource Integrity), in hexadecimal."""
    found = {}
    for word in integrity.split()[:8]:
        algorithm, _, text = word.partition("?")[0].partition("-")
        try:
            found[algorithm] = base64.b64decode(text, validate=True).hex()
        except (binascii.Error, ValueError):
            continue
    return found


def _integrity(found: Wanted) -> str:
    return f"{found.algorithm}-{base64.b64encode(bytes.fromhex(found.digest)).decode()}"
