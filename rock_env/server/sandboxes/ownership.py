"""Whose sandbox it is, where several servers share a store: the one that holds the connection to its box.

Consulted by the sandbox core and its parts. `Alone` is a server that shares its store with nobody; `server/replicas/member`
has the other kind. An owner is written as `NODE:SERVER`; `NODE:` is a box that is anybody's there, or anybody's who
reaches its site.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping
from contextlib import AbstractContextManager
from typing import Protocol

from rock_env.errors import Unavailable
from rock_env.inventory import Amount, Limits
from rock_env.lifecycle import SITE, SandboxRecord
from rock_env.server.capacity.quotas import Quota

__all__ = ["Alone", "Ownership", "SharedCount", "elsewhere", "is_here"]


class SharedCount(Protocol):
    """What tenants hold over all servers of one store."""

    async def take(self, record: SandboxRecord, limits: Limits) -> bool:
        """Let a sandbox hold its tenant's place until its record ends; False where the tenant would exceed the limits."""
        ...

    def given_back(self) -> AbstractContextManager[asyncio.Event]:
        """Return a context with an event that is set when a place may have come free."""
        ...

    async def held(self) -> Mapping[str, Amount]:
        """Return what each tenant holds over all servers."""
        ...

    async def set_quota(self, tenant: str, quota: Quota) -> None:
        """Change a tenant's quota at every server. Raise `Unavailable`, and change nothing, if it cannot be kept."""
        ...


class Ownership(Protocol):
    """What the sandbox core asks about its own server and about others."""

    @property
    def id(self) -> str:
        """Return the owner that is written into the records of this server's sandboxes."""
        ...

    @property
    def folder(self) -> str:
        """Return the id of the state folder that this server's boxes are in; empty where nothing is shared."""
        ...

    @property
    def sites(self) -> Collection[str]:
        """Return the sites whose boxes this server takes up whichever node their server was on."""
        ...

    @property
    def maker(self) -> str:
        """Return what tells this server's stock from that of others; empty where nothing is shared."""
        ...

    @property
    def shared(self) -> bool:
        """Return whether other servers change records, too, so that changes are heard of from the store alone."""
        ...

    @property
    def places(self) -> SharedCount | None:
        """Return what counts the tenants' places over all servers; None: this one's admission knows them all."""
        ...

    def away_s(self) -> float:
        """Return for how long in all, since this server began, the store was away: no time in which leases run."""
        ...

    async def claim(self, record: SandboxRecord) -> SandboxRecord | None:
        """Make a sandbox this server's own, in the store, if it is nobody's now; None if it is another's."""
        ...

    async def sole(self) -> bool:
        """Return whether no other server uses this node, so that what no record knows can only be left over."""
        ...

    async def makers(self) -> Collection[str]:
        """Return the `maker` of every other server that lives."""
        ...

    async def settled(self, record: SandboxRecord) -> SandboxRecord | None:
        """Wait until another server has made or failed to make the sandbox; None if it is nobody's any more."""
        ...


class Alone:
    """A server with a store of its own: whatever is in it is its own."""

    id = ""
    folder = ""
    sites: Collection[str] = ()
    maker = ""
    shared = False
    places = None

    def away_s(self) -> float:
        return 0.0

    async def claim(self, record: SandboxRecord) -> SandboxRecord | None:
        return record

    async def sole(self) -> bool:
        return True

    async def makers(self) -> Collection[str]:
        return ()

    async def settled(self, record: SandboxRecord) -> SandboxRecord | None:
        return record


def is_here(ownership: Ownership, folder: str) -> bool:
    """Return whether what a record says of a place may be this server's: a site of its own, its folder, or none named."""
    if folder.startswith(SITE):
        return folder in ownership.sites
    return not folder or not ownership.folder or folder == ownership.folder


def elsewhere(record: SandboxRecord) -> Unavailable:
    """Return the error for a call that came to a server just before or after the sandbox was its own."""
    return Unavailable(
        f"sandbox {record.id!r} is moving from one server to another. Ask again, with the same idempotency key.",
        retry_after_s=0.2,
    )
