"""The `kubernetes` backend: boxes that are pods of a cluster, all in one namespace or each tenant's in one of its own.

Used by the sandbox core; satisfies `backends.base.Backend` and `KeepsApart`. What happens in one namespace is in
`namespace`. Which namespace a new box is made in says its tenant; a box that is there is found by its id, wherever it is.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path

from rock_env.backends.base import Backend
from rock_env.backends.kubernetes.archives import Archives
from rock_env.backends.kubernetes.namespace import NamespaceBackend
from rock_env.backends.kubernetes.options import KubernetesOptions
from rock_env.backends.plugin import BackendPlace, BackendSpec
from rock_env.errors import FailedPrecondition, NotFound, PermissionDenied, RockError, Unavailable
from rock_env.guest.steering import Steering
from rock_env.guest_host.box import GuestBox
from rock_env.spec import SandboxSpec

__all__ = ["BACKEND", "KubernetesBackend"]


class KubernetesBackend:
    """Make, find again and destroy boxes in pods.

    `secret` gives the secret of the store, which all its servers share; without it `root`, a folder, keeps one; without
    both, no box outlives this server.
    """

    name = "kubernetes"

    def __init__(
        self,
        options: KubernetesOptions,
        *,
        root: Path | None = None,
        secret: Callable[[], Awaitable[bytes]] | None = None,
    ) -> None:
        self._options = options
        self._archives = Archives(
            options.snapshots or (root and root / "snapshots"),
            shared=options.snapshots is not None,
            most_bytes=options.snapshot_bytes,
            room_bytes=options.snapshot_room,
        )

        def part(namespace: str) -> NamespaceBackend:
            own = options.model_copy(update={"namespace": namespace})
            return NamespaceBackend(own, self._archives, root=root, secret=secret)

        self._shared = part(options.namespace)
        self._own = {tenant: part(namespace) for tenant, namespace in options.tenants.items()}
        self._parts = (self._shared, *self._own.values())

    @property
    def site(self) -> str:
        """Return where boxes of no tenant's own are, by name; empty for a server that shares its store with nobody."""
        return self._shared.site

    @property
    def sites(self) -> frozenset[str]:
        """Return that of every namespace: a server without one of them takes up no box that is there."""
        return frozenset(part.site for part in self._parts)

    @property
    def snapshot_site(self) -> str:
        """Return where snapshots are; empty where each server has its own."""
        return self._shared.site if self._options.snapshots else ""

    def hosts(self, spec: SandboxSpec) -> bool:
        """Return whether the spec names an image, or the operator one for all."""
        return self._shared.hosts(spec)

    def own_part(self, tenant: str) -> Backend | None:
        """Return where this tenant's boxes are made; None where they are beside those of others. See `KeepsApart`."""
        own = self._own.get(tenant)
        if own is None and self._own and self._options.others == "refuse":
            raise PermissionDenied(
                f"{f'the tenant {tenant!r}' if tenant else 'a caller without a tenant'} has no namespace for sandboxes in "
                "this cluster. Have the operator name one (sandboxes.tenants of the chart, the option tenants of the "
                "backend), or let others share one (sandboxes.otherTenants=namespace, the option others)."
            )
        return own

    async def create(
        self,
        spec: SandboxSpec,
        *,
        sandbox_id: str,
        snapshot: str = "",
        durable: bool = False,
        lease_s: float | None = None,
    ) -> GuestBox:
        """Start one box of no tenant's own, as stock is; see `Backend.create`."""
        if self._own and self._options.others == "refuse":
            raise FailedPrecondition(
                "no tenant would get stock of a warm pool: each has sandboxes in a namespace of its own, and a pod stays in "
                "the one it was made in. Leave the pool, or let other tenants share a namespace (others=namespace)."
            )
        return await self._shared.create(
            spec, sandbox_id=sandbox_id, snapshot=snapshot, durable=durable, lease_s=lease_s
        )

    async def adopt(self, sandbox_id: str, *, spec: SandboxSpec) -> GuestBox | None:
        """Take up a durable box of an earlier server, or of another server of the store; None if it is gone."""
        knowing = [part for part in self._parts if part.has_heard_of(sandbox_id)]
        unasked: RockError | None = None
        # All at once: a namespace that does not answer keeps no box of another from its tenant.
        asked = [asyncio.ensure_future(part.adopt(sandbox_id, spec=spec)) for part in knowing or self._parts]
        try:
            for answer in asyncio.as_completed(asked):
                try:
                    box = await answer
                except (FailedPrecondition, Unavailable) as error:  # it may be there
                    unasked = unasked or error
                else:
                    if box is not None:
                        return box
        finally:
            for each in asked:
                each.cancel()
            await asyncio.gather(*asked, return_exceptions=True)
        if unasked is not None:
            raise unasked
        return None

    async def census(self) -> Mapping[str, str]:
        """Return every box that has a pod, whichever server of the store made it: id -> what it is."""
        found: dict[str, str] = {}
        for counted in await asyncio.gather(*(part.census() for part in self._parts)):
            found |= counted
        return found

    async def destroy(self, sandbox_id: str) -> None:
        """Remove whatever there is of a box. Nothing there: nothing is done."""
        parts = [part for part in self._parts if part.holds(sandbox_id)]
        parts = parts or [part for part in self._parts if part.has_heard_of(sandbox_id)] or [*self._parts]
        await _all_of([part.destroy(sandbox_id) for part in parts])

    async def snapshot(self, sandbox_id: str, *, snapshot_id: str) -> int:
        """Keep what of the box's files is no more as its image has it; return its bytes."""
        return await self._holding(sandbox_id).snapshot(sandbox_id, snapshot_id=snapshot_id)

    async def snapshots(self) -> set[str]:
        """Return the ids of all snapshots in the folder that this server keeps them in."""
        return await self._archives.all()

    async def delete_snapshot(self, snapshot_id: str) -> None:
        """Remove a snapshot; no pod and no other snapshot needs it. Nothing there: nothing is done."""
        await self._archives.delete(snapshot_id)

    async def restore(self, sandbox_id: str, *, snapshot: str) -> GuestBox:
        """Replace the box by a new pod of the same id, in the same namespace, with the files of a snapshot."""
        return await self._holding(sandbox_id).restore(sandbox_id, snapshot=snapshot)

    async def take_over(self, sandbox_id: str, *, snapshot: str, steering: Steering) -> list[str]:
        """Have a clean box's guest take a snapshot's files but those that `steering` refuses; return these."""
        part = self._holding(sandbox_id)
        return await part.take_over(sandbox_id, snapshot=snapshot, steering=steering)

    async def let_go(self) -> None:
        """Close all connections: durable boxes live on, others are destroyed."""
        await self._leave([part.let_go() for part in self._parts])

    async def close(self) -> None:
        """Destroy every box this backend made or adopted."""
        await self._leave([part.close() for part in self._parts])

    async def _leave(self, ends: list[Awaitable[None]]) -> None:
        try:
            await _all_of(ends)
        finally:
            await self._archives.close()

    def _holding(self, sandbox_id: str) -> NamespaceBackend:
        for part in self._parts:
            if part.holds(sandbox_id):
                return part
        raise NotFound(f"there is no sandbox {sandbox_id!r} in this backend")


async def _all_of(acts: list[Awaitable[None]]) -> None:
    """Do all of them, whichever fails; raise the first error at last."""
    for done in await asyncio.gather(*acts, return_exceptions=True):
        if isinstance(done, BaseException):
            raise done


def _build(place: BackendPlace, options: KubernetesOptions) -> KubernetesBackend:
    return KubernetesBackend(options, root=place.root, secret=place.secret)


BACKEND = BackendSpec(
    name="kubernetes",
    summary="pods of a Kubernetes cluster, from any image",
    build=_build,
    options=KubernetesOptions,
)
