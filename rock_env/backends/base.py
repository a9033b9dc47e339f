"""What a sandbox backend offers: boxes made, found again, frozen into layers and destroyed; never their behaviour.

Implemented by `rock_env/backends/*`, called by the sandbox core. What a running box can do is
`rock_env.sandbox.Sandbox`. A backend keeps no records: which boxes should exist, the core's store says.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, Protocol, cast

from rock_env.errors import Unimplemented
from rock_env.guest.steering import Steering
from rock_env.lifecycle import SITE
from rock_env.sandbox import Sandbox
from rock_env.spec import SandboxSpec

__all__ = [
    "Backend",
    "Isolation",
    "KeepsApart",
    "TakesOver",
    "own_part",
    "part_of",
    "site_of",
    "sites_of",
    "snapshot_site_of",
    "that_takes_over",
]

Isolation = Literal["auto", "namespaces", "none"]
"""How boxes without an image are fenced in: `namespaces` refuses to run without them."""


class Backend(Protocol):
    """One way to host sandboxes. All methods run on the server's event loop and never block it.

    Ids of boxes and snapshots are unique and chosen by the server (letters, digits, `-`). Every method raises
    `InfraError` when the machine or the engine fails it, `Unavailable` when the engine is not there at all, and
    `Unimplemented`, with what to use instead, for what this backend cannot do.

    A backend that keeps nothing of its boxes on the server's host has a property `site: str` besides, the name of where
    they are: any server of the same store whose backend has the same name and site can take up, count and destroy all of
    them. Without it, or where it is empty, only a server with the same state folder can. A property `snapshot_site: str`
    says so of its snapshots.
    """

    @property
    def name(self) -> str:
        """Return the name written into records, such as "process" or "docker"."""
        ...

    def hosts(self, spec: SandboxSpec) -> bool:
        """Return whether sandboxes of this spec are for this backend, where a server has several. Pure."""
        ...

    async def create(
        self,
        spec: SandboxSpec,
        *,
        sandbox_id: str,
        snapshot: str = "",
        durable: bool = False,
        lease_s: float | None = None,
    ) -> Sandbox:
        """Start one box: fresh, or with the file system of one of this backend's snapshots.

        A `durable` box lives on when this server dies and can be adopted by the next one; another ends with its
        server. With `lease_s` the box ends by itself so many seconds from now unless the lease is renewed.

        Raise `InvalidArgument` for a spec this backend cannot honour, `ResourceExhausted` when full, `NotFound` for
        an unknown snapshot and `InfraError` when the box did not come up; nothing is left behind in any of these cases.
        """
        ...

    async def adopt(self, sandbox_id: str, *, spec: SandboxSpec) -> Sandbox | None:
        """Take up a durable box of an earlier server again; None if it is gone.

        Its running commands go on, a paused box stays paused. Called at most once per box, before any other call
        on it. Raise `InfraError` for a box that exists and does not answer; the caller then destroys it.
        """
        ...

    async def census(self) -> Mapping[str, str]:
        """Return every box of this backend that exists on the node, whoever made it: id -> what it is.

        The value is for people, such as "container 3fa9…" or "process 123"; also what is half made or half gone is listed.
        """
        ...

    async def destroy(self, sandbox_id: str) -> None:
        """Remove whatever there is of a box, also of one that nobody adopted. Nothing there: nothing is done."""
        ...

    async def snapshot(self, sandbox_id: str, *, snapshot_id: str) -> int:
        """Freeze the box's file system as an immutable layer upon those it was started from; return its bytes.

        The box's processes stand still meanwhile and go on afterwards; their memory is not captured. All or nothing:
        an error leaves no layer. Raise `NotFound` for an unknown box.
        """
        ...

    async def snapshots(self) -> set[str]:
        """Return the ids of all layers this backend keeps on the node."""
        ...

    async def delete_snapshot(self, snapshot_id: str) -> None:
        """Remove a layer that no box and no other layer builds upon. Nothing there: nothing is done."""
        ...

    async def restore(self, sandbox_id: str, *, snapshot: str) -> Sandbox:
        """Give the box the file system of a snapshot; every process of it is killed. Return the box to use from now on.

        The box that was used so far is closed. Raise `NotFound` for an unknown box or snapshot, which changes
        nothing; after an `InfraError` the box is gone.
        """
        ...

    async def let_go(self) -> None:
        """Close all connections, since the server stops: durable boxes live on, others are destroyed."""
        ...

    async def close(self) -> None:
        """Destroy every box this backend made or adopted, and every layer only it could use. Safe to call twice."""
        ...


class TakesOver(Protocol):
    """A backend that can give a clean box another one's files but those that could steer a grade."""

    async def take_over(self, sandbox_id: str, *, snapshot: str, steering: Steering) -> list[str]:
        """Give a box in which nothing of an agent ever ran the files of a snapshot, and return what was left out, by path.

        Raise `Unimplemented`, having changed nothing, where it cannot, and `UnfitFiles` for those it cannot take. After
        that and after `InfraError` the box is of no use.
        """
        ...


class KeepsApart(Protocol):
    """A backend that makes tenants' boxes in parts that are apart; whatever is said of a box by id finds its part."""

    @property
    def sites(self) -> frozenset[str]:
        """Return the `site` of every part."""
        ...

    def own_part(self, tenant: str) -> Backend | None:
        """Return the part in which this tenant's boxes are made; None where that is the backend itself, as for stock.

        Raise `PermissionDenied` for a tenant that may have none.
        """
        ...


def that_takes_over(backend: Backend) -> TakesOver:
    """Return the backend as one that takes over. Raise `Unimplemented` if it is none."""
    if not hasattr(backend, "take_over"):
        raise Unimplemented(f"the backend {backend.name!r} cannot leave out of a copy what steers a grade")
    return cast("TakesOver", backend)


def own_part(backend: Backend, tenant: str) -> Backend | None:
    """Return a tenant's own part of a backend; None where it has none. Raise as `KeepsApart.own_part`."""
    if not hasattr(backend, "own_part"):
        return None
    return cast("KeepsApart", backend).own_part(tenant)


def part_of(backend: Backend, tenant: str) -> Backend:
    """Return what makes the boxes of a tenant: its own part of the backend, or the backend. Raise as `own_part`."""
    return own_part(backend, tenant) or backend


def sites_of(backend: Backend) -> frozenset[str]:
    """Return where all of a backend's boxes may be, as records name it."""
    sites: frozenset[str] = getattr(backend, "sites", frozenset({getattr(backend, "site", "")}))
    return frozenset(f"{SITE}{backend.name}/{site}" for site in sites if site)


def site_of(backend: Backend) -> str:
    """Return where a backend's boxes are, as records name it; empty where only this host's servers reach them."""
    site: str = getattr(backend, "site", "")
    return f"{SITE}{backend.name}/{site}" if site else ""


def snapshot_site_of(backend: Backend) -> str:
    """Return where a backend's snapshots are, as records name it; empty where only this server's folder has them."""
    site: str = getattr(backend, "snapshot_site", "")
    return f"{SITE}{backend.name}/{site}" if site else ""
