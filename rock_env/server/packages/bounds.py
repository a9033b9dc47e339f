"""What one tenant may ask of the mirror: requests at once, fetches at once, and fetches and bytes in an hour.

Asked by the mirror before anything is fetched. Nothing here waits but for a tenant's own turn.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field

from rock_env.errors import ResourceExhausted

__all__ = ["FetchLimits", "TenantBounds"]

_HOUR_S = 3600.0


@dataclass(frozen=True, slots=True)
class FetchLimits:
    """The bounds of one mirror."""

    file_bytes: int = 4 << 30
    index_bytes: int = 32 << 20
    hourly_bytes: int = 64 << 30
    """Fetched from upstream for one tenant."""
    hourly_fetches: int = 20_000
    """Of one tenant, those that failed included. What the cache holds is free."""
    requests: int = 1024
    """Of one tenant at once."""
    fetches: int = 8
    """Of one tenant at once; more wait."""
    connections: int = 128
    """Of one address at once: uv opens 50, npm 15."""
    all_connections: int = 4096
    fetch_s: float = 600.0
    stall_s: float = 30.0
    """An upstream that says nothing for so long has failed."""
    request_s: float = 900.0
    """From the first byte of a request to the last of its answer."""
    head_s: float = 15.0
    fresh_s: float = 600.0
    """An index is asked for anew after so long."""
    pages_bytes: int = 256 << 20
    """Different indices that are being sent to one tenant's boxes at once."""
    indices_bytes: int = 256 << 20
    """Kept in memory, over all tenants."""
    files: int = 500_000
    """In the cache."""


@dataclass(eq=False, slots=True)
class _Tenant:
    turns: asyncio.Semaphore
    requests: int = 0
    fetches: int = 0
    fetched_bytes: int = 0
    pages: Counter[int] = field(default_factory=Counter)
    """How often a page is being sent, by its identity."""
    pages_bytes: int = 0
    began_at: float = field(default_factory=time.monotonic)


class TenantBounds:
    """The count of each tenant; used on one event loop."""

    def __init__(self, limits: FetchLimits) -> None:
        self._limits = limits
        self._tenants: dict[str, _Tenant] = {}

    @contextmanager
    def request(self, tenant: str) -> Iterator[None]:
        """Count a request for the time of the block. Raise `ResourceExhausted` for one too many."""
        one = self._tenant(tenant)
        if one.requests >= self._limits.requests:
            raise ResourceExhausted(
                f"this tenant has {one.requests} requests at the package mirror already", retry_after_s=1.0
            )
        one.requests += 1
        try:
            yield
        finally:
            one.requests -= 1

    @contextmanager
    def sending(self, tenant: str, page: bytes) -> Iterator[None]:
        """Count a page that is kept in memory for the time of the block. Raise `ResourceExhausted` for one too many."""
        one, key = self._tenant(tenant), id(page)
        if not one.pages[key]:
            if one.pages_bytes + len(page) > max(self._limits.pages_bytes, len(page)):
                del one.pages[key]
                raise ResourceExhausted(
                    "this tenant's boxes are reading too many indices at once", retry_after_s=1.0
                )
            one.pages_bytes += len(page)
        one.pages[key] += 1
        try:
            yield
        finally:
            one.pages[key] -= 1
            if not one.pages[key]:
                del one.pages[key]
                one.pages_bytes -= len(page)

    def charge(self, tenant: str) -> None:
        """Count a fetch that is about to begin. Raise `ResourceExhausted` where this hour's are used up."""
        one = self._tenant(tenant)
        now = time.monotonic()
        if now - one.began_at >= _HOUR_S:
            one.began_at, one.fetches, one.fetched_bytes = now, 0, 0
        if one.fetches >= self._limits.hourly_fetches or one.fetched_bytes >= self._limits.hourly_bytes:
            raise ResourceExhausted(
                f"this tenant had {one.fetches} files of {one.fetched_bytes} bytes fetched from upstream in an hour; what "
                "the mirror holds is served as before",
                retry_after_s=one.began_at + _HOUR_S - now,
            )
        one.fetches += 1

    def add_bytes(self, tenant: str, count: int) -> None:
        """Count bytes as they come from upstream."""
        self._tenant(tenant).fetched_bytes += count

    @asynccontextmanager
    async def turn(self, tenant: str) -> AsyncIterator[None]:
        """Wait until one of the tenant's fetches may run."""
        async with self._tenant(tenant).turns:
            yield

    def _tenant(self, name: str) -> _Tenant:
        found = self._tenants.get(name)
        if found is None:
            found = self._tenants[name] = _Tenant(asyncio.Semaphore(self._limits.fetches))
        return found
