"""Which built images to remove when the engine's disk fills up: the least recently used, and never one in use.

In use is what a container, a pool or a live sandbox's record names, what another image builds upon (so every layer of a
snapshot's lineage), and whatever the registry did not build.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any

from rock_env.errors import RockError
from rock_env.inventory import CollectedImage, Collection
from rock_env.server.images.records import ImageRecord
from rock_env.server.images.registry import Registry
from rock_env.threads import for_life

__all__ = ["ImageCache"]

log = logging.getLogger(__name__)

MIN_FREE_BYTES = 5 << 30
"""Default threshold: a build of a large image writes about as much."""


async def _none() -> set[str]:
    return set()


class ImageCache:
    """The built images of one registry. `in_use` tells the images that pools and live sandboxes name."""

    def __init__(
        self,
        registry: Registry,
        *,
        in_use: Callable[[], Awaitable[Iterable[str]]] = _none,
        min_free_bytes: int = MIN_FREE_BYTES,
        free_bytes: Callable[[str], int] | None = None,
    ) -> None:
        """`free_bytes` measures the disk that holds a folder, for tests."""
        self._registry = registry
        self._in_use = in_use
        self._min_free_bytes = min_free_bytes
        self._free_bytes = free_bytes or _free_bytes
        self._lock = asyncio.Lock()

    async def make_room(self) -> Collection:
        """Remove unused images until the threshold is kept."""
        return await self.collect()

    async def collect(self, *, free_bytes: int = 0, dry_run: bool = False) -> Collection:
        """Remove unused images, least recently used first, until so much is free (0: the server's threshold)."""
        wanted = free_bytes or self._min_free_bytes
        async with self._lock:
            folder = str((await self._registry.engine.call("GET", "/info"))["DockerRootDir"])
            free = await for_life(self._free_bytes, folder)
            removed: list[CollectedImage] = []
            kept: list[CollectedImage] = []
            for image in await self._images():
                if image.kept_because:
                    kept.append(image)
                elif free >= wanted:
                    kept.append(_kept(image, "enough of the disk is free"))
                elif dry_run:
                    removed.append(image)
                    free += image.size_bytes
                elif await self._remove(image):
                    removed.append(image)
                    free = await for_life(self._free_bytes, folder)
                else:
                    kept.append(_kept(image, "the engine would not remove it"))
            return Collection(tuple(removed), tuple(kept), free)

    async def _remove(self, image: CollectedImage) -> bool:
        try:
            await self._registry.remove(image.image_id)
        except RockError as error:  # something began to use it just now
            log.info("an image was not evicted image=%s cause=%s", image.image_id, error)
            return False
        await self._registry.records.gone(image.image_id, evicted=True)
        log.info("image evicted image=%s bytes=%d", image.image_id, image.size_bytes)
        return True

    async def _images(self) -> list[CollectedImage]:
        """Return what the registry knows, least recently used first, each with why it must stay."""
        engine = self._registry.engine
        containers = await engine.call("GET", "/containers/json", params={"all": "1"})
        images: list[Mapping[str, Any]] = await engine.call("GET", "/images/json", params={"all": "1"})
        running = {str(container["ImageID"]) for container in containers}
        parents = {str(image["ParentId"]) for image in images if image.get("ParentId")}
        present = {str(image["Id"]) for image in images}
        named = set(await self._in_use())
        by_id: dict[str, list[ImageRecord]] = {}
        for record in await self._registry.records.all():
            if not record.evicted and record.image_id in present:
                by_id.setdefault(record.image_id, []).append(record)
        reasons = (
            (running, "a container uses it"),
            (named, "a sandbox or a pool uses it"),
            (parents, "another image or snapshot builds upon it"),
        )
        found = []
        for image_id, records in by_id.items():
            because = next((why for ids, why in reasons if image_id in ids), "")
            if not all(record.built for record in records):
                because = "it was taken over by name, not built here"
            found.append(_cached(image_id, records, because))
        return sorted(found, key=lambda image: image.used_at)


def _cached(image_id: str, records: list[ImageRecord], because: str) -> CollectedImage:
    return CollectedImage(
        image_id,
        max(record.size_bytes for record in records),
        tuple(sorted(record.name for record in records if record.name)),
        max(record.used_at for record in records),
        because,
    )


def _kept(image: CollectedImage, because: str) -> CollectedImage:
    return CollectedImage(image.image_id, image.size_bytes, image.names, image.used_at, because)


def _free_bytes(folder: str) -> int:
    """Return the free bytes below the folder; where the engine's own is not ours to see, of the root."""
    try:
        status = os.statvfs(folder)
    except OSError:
        status = os.statvfs("/")
    return status.f_bavail * status.f_frsize
