"""Debian's archives: the signed InRelease, the lists it names, and the packages these name.

Each is checked against the one before it; InRelease's signature is apt's to check, in the box. Releases in two files, lists
of sources and of changes are not offered.
"""

from __future__ import annotations

import asyncio
from typing import BinaryIO
from urllib.parse import quote

from rock_env.errors import NotFound
from rock_env.server.packages.debian_lists import PoolTable, is_packages, read_release
from rock_env.server.packages.index import Index, Wanted, origin
from rock_env.server.packages.reply import Page, Reply
from rock_env.server.packages.store import PackageStore
from rock_env.server.packages.upstream import Count, aside

__all__ = ["Debian"]

_MOST_FILES = 100_000
"""Of the releases of one suite, before those of earlier ones are forgotten."""


class Debian:
    """Answers `ARCHIVE/dists/SUITE/…` and `ARCHIVE/pool/…`, such as those of `debian` and `debian-security`."""

    def __init__(self, store: PackageStore, url: str, table: PoolTable) -> None:
        """Take the URL above the archives."""
        self._store = store
        self._url = url.rstrip("/")
        self._origins = (origin(url),)
        self._table = table
        self._reading = asyncio.Semaphore(1)
        """Lists are long: one at a time."""

    async def answer(self, tenant: str, names: list[str], base: str) -> Reply:
        match names:
            case [archive, "dists", suite, "InRelease"]:
                index = await self._release(tenant, archive, suite)
                return Page(index.page, index.kind)
            case [archive, "dists", suite, *rest] if rest:
                return await self._list(tenant, archive, suite, "/".join(rest))
            case [archive, "pool", *rest] if rest:
                return await self._package(tenant, archive, "/".join(("pool", *rest)))
        raise NotFound("of Debian there is ARCHIVE/dists/SUITE/… and ARCHIVE/pool/…")

    async def _release(self, tenant: str, archive: str, suite: str) -> Index:
        folder = f"{self._url}/{quote(archive)}/dists/{quote(suite)}"
        key = f"debian {archive} {suite}"

        async def load(count: Count) -> Index:
            text = await self._store.upstream.read(f"{folder}/InRelease", accept="*/*", count=count)
            return await aside(_read, text, folder, self._origins, self._store.former(key))

        return await self._store.index(tenant, key, load)

    async def _list(self, tenant: str, archive: str, suite: str, path: str) -> BinaryIO:
        """Return a file that the release lists; what it says of packages is learned before apt can ask for one."""
        found = (await self._release(tenant, archive, suite)).file(path)
        opened = await self._store.file(tenant, found)
        try:
            if is_packages(found.name):
                await self._store.once(
                    f"list {archive} {found.key}", lambda: self._learn(tenant, archive, found)
                )
        except BaseException:
            opened.close()
            raise
        return opened

    async def _learn(self, tenant: str, archive: str, found: Wanted) -> None:
        if await aside(self._table.knows, archive, found.digest):
            return
        with await self._store.file(tenant, found) as packed:
            async with self._reading:
                await aside(self._table.learn, archive, found.name, found.digest, packed)

    async def _package(self, tenant: str, archive: str, path: str) -> BinaryIO:
        known = await aside(self._table.find, archive, path)
        if known is None:
            raise NotFound(
                f"no list of {archive} that the mirror served names {path}. Run apt-get update first."
            )
        url = f"{self._url}/{quote(archive)}/{quote(path)}"
        return await self._store.file(tenant, Wanted(url, "sha256", *known))


def _read(text: bytes, folder: str, origins: tuple[str, ...], former: Index | None) -> Index:
    """Return a release. A box that has the one before it still finds the lists of that one, by their digests."""
    files = read_release(text, folder, origins)
    if former is not None and len(former.files) < _MOST_FILES:
        files = {name: one for name, one in former.files.items() if "/by-hash/" in name} | files
    return Index(text, "text/plain; charset=utf-8", files)
