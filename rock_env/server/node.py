"""What a node holds, put together for one server: admission, warm pools, the registry and its image cache.

Built by `server/app` around the backends and the sandbox core. It decides nothing itself; each part says what it does.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Iterable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import grpc

from rock_env.backends.base import Backend
from rock_env.backends.docker.engine import Engine
from rock_env.backends.pool import PooledBackend
from rock_env.backends.router import BackendRouter
from rock_env.errors import InvalidArgument, Unimplemented
from rock_env.server.capacity.admission import Admission
from rock_env.server.capacity.pools import PoolFile
from rock_env.server.capacity.quotas import QuotaFile
from rock_env.server.images.builds import BuildLimits
from rock_env.server.images.cache import ImageCache
from rock_env.server.images.records import ImageRecords
from rock_env.server.images.registry import Registry, RegistryOptions
from rock_env.server.options import ServerOptions
from rock_env.server.packages.mirror import PACKAGES, PackageMirror, asks, open_mirror
from rock_env.server.replicas.sharing import Sharing
from rock_env.server.sandboxes.core import SandboxCore
from rock_env.server.services.places import Places
from rock_env.server.services.registry import add_registry_service
from rock_env.spec import SandboxSpec
from rock_env.threads import for_life

if TYPE_CHECKING:
    from rock_env.server.replicas.pools import SharedPools

__all__ = ["Node"]

log = logging.getLogger(__name__)


class Node:
    """Open it with `open`. First `pooled` the backends, then `open_for` a server once the sandbox core is there."""

    def __init__(
        self, options: ServerOptions, engine: Engine | None, packages: PackageMirror | None = None
    ) -> None:
        """Read what an earlier server kept. Raise `InvalidArgument` or `FailedPrecondition` for files that are wrong."""
        state = Path(options.state) if options.state else None
        self._durable = state is not None
        self._packages = packages
        written = Path(options.quotas) if options.quotas else None
        self.admission = Admission(QuotaFile.open(written, state and state / "quotas.json"))
        self._pool_file = PoolFile(state and state / "pools.json")
        self._uses_registry: frozenset[str] = frozenset()
        self._router: BackendRouter | None = None
        self._sandboxes: SandboxCore | None = None
        self._pools: list[PooledBackend] = []
        self._shared_pools: SharedPools | None = None
        self._own_images = ImageRecords(state and state / "images.json")
        self.registry: Registry | None = None
        self.cache: ImageCache | None = None
        if engine is not None:
            limits = BuildLimits(network=options.build_network)
            wanted = RegistryOptions(spool=state, limits=limits, shared=not options.private)
            self.registry = Registry(engine, self._own_images, wanted, make_room=self._make_room)
            self.cache = ImageCache(self.registry, in_use=self._images_in_use)

    @classmethod
    @asynccontextmanager
    async def open(cls, options: ServerOptions) -> AsyncIterator[Node]:
        """Yield the node of one server; afterwards end the builds that run. The folder `--state` must be there."""
        try:
            engine: Engine | None = Engine()
        except InvalidArgument as error:  # an engine on another machine
            log.warning("no registry of images: %s", error)
            engine = None
        async with AsyncExitStack() as stack:
            if engine is not None:
                stack.push_async_callback(engine.close)
            node = cls(options, engine, await stack.enter_async_context(open_mirror(options)))
            if node.registry is not None:
                await stack.enter_async_context(node.registry)
            yield node

    def pooled(self, *backends: Backend, uses_registry: Iterable[str] = ()) -> BackendRouter:
        """Return a router over these backends, each with warm pools; `uses_registry` names those whose images are the
        registry's.
        """
        self._pools = [
            PooledBackend(backend, durable=self._durable, room=self.admission.has_room)
            for backend in backends
        ]
        for pool in self._pools:
            self.admission.on_release(pool.refill)
        self._uses_registry = frozenset(uses_registry)
        self._router = BackendRouter(*self._pools)
        return self._router

    async def pin(self, tenant: str, spec: SandboxSpec) -> SandboxSpec:
        """Resolve the image a tenant named, where the backend that will host it takes the registry's images, and the
        package mirror it asks for.
        """
        spec = self.provide(tenant, spec)
        if self.registry is None or self._router is None:
            return spec
        if self._router.hosting(spec).name not in self._uses_registry:
            return spec
        return await self.registry.pin(tenant, spec)

    async def share(self, shared: Sharing) -> None:
        """Keep names of images and sizes of pools where all servers of a store do; hand over those that this folder has."""
        if shared.pools is not None:
            await shared.pools.take_over(self._pool_file.wishes.values())
            await for_life(self._pool_file.forget)
            self._shared_pools = shared.pools
        if self.registry is not None and shared.images is not None:
            await shared.images.take_over(self._own_images)
            await self._own_images.forget()
            self.registry.records = shared.images
            if shared.forward is not None:
                shared.forward.images_node = self._images_node

    async def _images_node(self, tenant: str, spec: SandboxSpec) -> str:
        """Return the other node that has the image a tenant named; "" for none, and where images are not the registry's."""
        assert self.registry is not None
        return "" if self._is_elsewhere(spec) else await self.registry.away(tenant, spec.image)

    def _is_elsewhere(self, spec: SandboxSpec) -> bool:
        """Return whether a backend of this server hosts the spec whose images are not the registry's."""
        assert self._router is not None
        try:
            backend = self._router.hosting(spec)
        except Unimplemented:  # perhaps another server hosts it
            return False
        return backend.name not in self._uses_registry and backend.hosts(spec)

    def provide(self, tenant: str, spec: SandboxSpec) -> SandboxSpec:
        """Resolve the package mirror that a spec asks for. Raise `InvalidArgument` where there is none."""
        if self._packages is not None:
            return self._packages.provide(tenant, spec)
        if asks(spec):
            raise InvalidArgument(
                f"the spec asks for {PACKAGES}, and this server has no package mirror. Start it with ale rock serve "
                "--packages, or leave that out."
            )
        return spec

    def open_for(self, server: grpc.aio.Server, sandboxes: SandboxCore) -> Places:
        """Fill the pools that were kept, register the registry on a server that has not started yet, and return the
        calls of the AdminService.
        """
        self._sandboxes = sandboxes
        for pool in self._pools:
            pool.maker = sandboxes.ledger.ownership.maker
        shared = sandboxes.ledger.ownership.places
        places = Places(
            self.admission,
            sandboxes.backends,
            self._pool_file,
            self.pin,
            self.provide,
            self._image_node,
            self.cache,
            shared,
            self._shared_pools,
        )
        places.resume()
        if self.registry is not None:
            add_registry_service(server, self.registry, sandboxes)
        return places

    def _image_node(self, spec: SandboxSpec) -> str:
        """Return the node whose engine has the image of a spec's boxes; empty where any server has it, or none is named."""
        if not spec.image or self.registry is None or self._is_elsewhere(spec):
            return ""
        return self.registry.records.node

    async def _make_room(self) -> None:
        if self.cache is not None:
            await self.cache.make_room()

    async def _images_in_use(self) -> set[str]:
        used = {image for pool in self._pools for image in pool.images()}
        used |= {wish.spec.image for wish in self._pool_file.wishes.values()}
        if self._sandboxes is not None and self.registry is not None:
            records = [held.record for held in self._sandboxes.ledger.held.values()]
            for tenant, image in {(each.tenant, each.spec.image) for each in records if each.spec.image}:
                named = await self.registry.records.get(tenant, image)  # it starts just now
                used.add(image if named is None else named.image_id)
        return used
