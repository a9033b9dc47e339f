"""The package mirror of one server: put together, and what it gives a box that asks for it.

Opened and asked by `server/node`, with `--packages`. It decides what a path means by its first names: the pass of a tenant,
then the source.
"""

from __future__ import annotations

import tempfile
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from dataclasses import replace
from pathlib import Path

from rock_env.errors import InvalidArgument, NotFound
from rock_env.server.options import ServerOptions
from rock_env.server.packages.bounds import FetchLimits, TenantBounds
from rock_env.server.packages.cache import FileCache
from rock_env.server.packages.debian import Debian
from rock_env.server.packages.debian_lists import PoolTable
from rock_env.server.packages.http import Port
from rock_env.server.packages.index import segments
from rock_env.server.packages.npm import Npm
from rock_env.server.packages.passes import BoxPasses, variables
from rock_env.server.packages.pypi import Pypi
from rock_env.server.packages.reply import Page, Reply, Source
from rock_env.server.packages.store import PackageStore
from rock_env.server.packages.upstream import Upstream, aside
from rock_env.spec import SandboxSpec

__all__ = ["PACKAGES", "PackageMirror", "asks", "open_mirror"]

PACKAGES = "rock:packages"
"""What a spec's `network.allow` names the mirror by."""


class PackageMirror:
    """The mirror as its boxes see it; open it with `open_mirror`."""

    def __init__(self, sources: Mapping[str, Source], passes: BoxPasses, bounds: TenantBounds) -> None:
        self._sources = sources
        self._passes = passes
        self._bounds = bounds
        self._host, self._port = "", 0

    def at(self, host: str, port: int) -> None:
        """Tell it where boxes reach it."""
        self._host, self._port = host, port

    def url(self, tenant: str) -> str:
        """Return where a tenant's boxes find the sources."""
        return f"http://{self._host}:{self._port}/{self._passes.of(tenant)}"

    def provide(self, tenant: str, spec: SandboxSpec) -> SandboxSpec:
        """Return the spec with the mirror's address and variables, where it asks for it; what it sets itself holds."""
        if not asks(spec):
            return spec
        here = f"{self._host}:{self._port}"
        allow = tuple(here if entry == PACKAGES else entry for entry in spec.network.allow)
        env = {**variables(self.url(tenant), self._host, self._sources), **dict(spec.env)}
        return replace(spec, network=replace(spec.network, allow=allow), env=tuple(sorted(env.items())))

    @asynccontextmanager
    async def answer(self, path: str) -> AsyncIterator[Reply]:
        """Give what a path names for the time of the block. Raise `RockError` where it names nothing."""
        shown, *names = path.removeprefix("/").split("/", 1)
        tenant = self._passes.tenant(shown)
        kind, *parts = segments(names[0] if names else "")
        source = self._sources.get(kind)
        if source is None or not parts:
            raise NotFound(f"the package mirror has {', '.join(self._sources)}")
        with self._bounds.request(tenant):
            reply = await source.answer(tenant, parts, f"{self.url(tenant)}/{kind}")
            with self._sending(tenant, reply):
                yield reply

    @contextmanager
    def _sending(self, tenant: str, reply: Reply) -> Iterator[None]:
        if isinstance(reply, Page):
            with self._bounds.sending(tenant, reply.content):
                yield
        else:
            with reply:
                yield


def asks(spec: SandboxSpec) -> bool:
    """Return whether a spec asks for the mirror."""
    return spec.network.enabled and PACKAGES in spec.network.allow


@asynccontextmanager
async def open_mirror(
    options: ServerOptions, limits: FetchLimits | None = None
) -> AsyncIterator[PackageMirror | None]:
    """Yield the mirror that listens, or None where there is to be none.

    Raise `InvalidArgument` for bad options, `FailedPrecondition` where another server has the folder, and `Unavailable`.
    """
    if not options.packages:
        yield None
        return
    limits = limits or FetchLimits()
    host, _, port = options.packages.rpartition(":")
    async with AsyncExitStack() as stack:
        folder = Path(options.packages_cache or (options.state and Path(options.state) / "packages"))
        if not (options.packages_cache or options.state):
            made = await aside(tempfile.TemporaryDirectory, prefix="rock-packages-")
            stack.push_async_callback(aside, made.cleanup)
            folder = Path(made.name)
        most = int(options.packages_gib * (1 << 30))
        cache = await aside(FileCache, folder, most_bytes=most, most_files=limits.files)
        stack.push_async_callback(aside, cache.close)
        table = await aside(PoolTable, folder / "debian.db")
        stack.push_async_callback(aside, table.close)
        upstream = await stack.enter_async_context(Upstream(limits))
        bounds = TenantBounds(limits)
        store = PackageStore(cache, upstream, bounds, limits)
        stack.push_async_callback(store.close)
        passes = BoxPasses(await aside(cache.secret))
        mirror = PackageMirror(_sources(options, store, table), passes, bounds)
        opened = await stack.enter_async_context(Port(mirror.answer, limits).listening(host, int(port)))
        mirror.at(host, opened)
        yield mirror


def _sources(options: ServerOptions, store: PackageStore, table: PoolTable) -> dict[str, Source]:
    sources: dict[str, Source] = {}
    if options.packages_pypi:
        index, *more = options.packages_pypi.split(",")
        sources["pypi"] = Pypi(store, index, more)
    if options.packages_npm:
        sources["npm"] = Npm(store, options.packages_npm)
    if options.packages_debian:
        sources["debian"] = Debian(store, options.packages_debian, table)
    if not sources:
        raise InvalidArgument(
            "--packages without any of --packages-pypi, --packages-npm and --packages-debian"
        )
    return sources
