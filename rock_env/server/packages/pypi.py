"""PyPI's simple index (PEP 503 for boxes, PEP 691 from upstream), its files and their metadata (PEP 658).

A file is offered where its index gives a SHA-256 of it and it lies at upstream's origin or one that the operator named.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from html import escape
from urllib.parse import quote, urljoin

import msgspec

from rock_env.errors import NotFound
from rock_env.server.packages.index import Index, Wanted, origin, segments, unreadable, wanted
from rock_env.server.packages.reply import Page, Reply
from rock_env.server.packages.store import PackageStore
from rock_env.server.packages.upstream import Count, aside

__all__ = ["Pypi"]

_ACCEPT = "application/vnd.pypi.simple.v1+json"
_PROJECT = re.compile(r"[a-z0-9]([a-z0-9-]{0,126}[a-z0-9])?", re.ASCII)


class _File(msgspec.Struct, rename="kebab"):
    filename: str
    url: str
    hashes: dict[str, str]
    size: int | None = None
    requires_python: str | None = None
    core_metadata: bool | dict[str, str] = False
    yanked: bool | str = False


class _Project(msgspec.Struct):
    files: list[msgspec.Raw]
    """Read one by one: what reads a long list at once keeps every other thread from running meanwhile."""


class Pypi:
    """Answers `simple/PROJECT` and `files/PROJECT/FILE`."""

    def __init__(self, store: PackageStore, url: str, more_origins: Sequence[str] = ()) -> None:
        """Take the URL of the simple index, and further origins at which its files may lie."""
        self._store = store
        self._url = url.rstrip("/")
        self._origins = tuple(map(origin, (url, *more_origins)))

    async def answer(self, tenant: str, names: list[str], base: str) -> Reply:
        match names:
            case ["simple", project]:
                index = await self._index(tenant, project)
                return Page(index.page, index.kind)
            case ["files", project, name]:
                return await self._store.file(tenant, (await self._index(tenant, project)).file(name))
        raise NotFound("of PyPI there is simple/PROJECT/")

    async def _index(self, tenant: str, name: str) -> Index:
        project = re.sub(r"[-_.]+", "-", name).lower()
        if not _PROJECT.fullmatch(project):
            raise NotFound(f"{name!r} is no project's name")
        url = f"{self._url}/{project}/"

        async def load(count: Count) -> Index:
            text = await self._store.upstream.read(url, accept=_ACCEPT, count=count)
            return await aside(_read, text, url, project, self._origins)

        return await self._store.index(tenant, f"pypi {project}", load)


def _read(text: bytes, url: str, project: str, origins: Sequence[str]) -> Index:
    try:
        read_file = msgspec.json.Decoder(_File).decode
        listed = [read_file(raw) for raw in msgspec.json.decode(text, type=_Project).files]
    except msgspec.DecodeError as error:
        raise unreadable(f"index of {project}", error) from error
    files: dict[str, Wanted] = {}
    links = []
    for one in listed:
        lies = _place(url, one.url)
        found = wanted(lies, {"sha256": one.hashes.get("sha256", "")}, one.size, origins)
        if found is None or not _is_name(one.filename):
            continue
        files[one.filename] = found
        about = one.core_metadata if isinstance(one.core_metadata, dict) else {}
        metadata = wanted(f"{lies}.metadata", {"sha256": about.get("sha256", "")}, None, origins)
        if metadata is not None:
            files[f"{one.filename}.metadata"] = metadata
        links.append(_link(one, project, found, metadata))
    page = f"<!DOCTYPE html>\n<html><body>\n{''.join(links)}</body></html>\n"
    return Index(page.encode(errors="replace"), "text/html; charset=utf-8", files)


def _place(url: str, named: str) -> str:
    try:
        return urljoin(url, named)
    except ValueError:
        return ""


def _is_name(name: str) -> bool:
    try:
        return segments(name) == [name]
    except ValueError:
        return False


def _link(one: _File, project: str, found: Wanted, metadata: Wanted | None) -> str:
    told = f' href="../../files/{project}/{quote(one.filename)}#sha256={found.digest}"'
    if one.requires_python:
        told += f' data-requires-python="{escape(one.requires_python)}"'
    if metadata is not None:
        told += f' data-core-metadata="sha256={metadata.digest}" data-dist-info-metadata="sha256={metadata.digest}"'
    if one.yanked is not False:
        told += f' data-yanked="{escape(one.yanked if isinstance(one.yanked, str) else "")}"'
    return f"<a{told}>{escape(one.filename)}</a><br>\n"
