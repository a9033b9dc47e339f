"""What the registry knows of images, and the one file it is kept in where a server has its store alone.

Used by the registry and the image cache. Images live in the engine of a node. The file lies beside the boxes and is
replaced as a whole at each change; servers that share a store keep the records there (`replicas/images`). Nothing here
asks the engine.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Protocol

import msgspec

from rock_env.errors import FailedPrecondition
from rock_env.store.whole_file import replace_file
from rock_env.threads import for_life

__all__ = ["ImageRecord", "ImageRecords", "RecordKeeper"]


class ImageRecord(msgspec.Struct, frozen=True, kw_only=True):
    """One image under one name of one tenant. Times in seconds since the epoch."""

    tenant: str
    name: str
    """Empty: another image has the name by now, or it was deleted; the image goes when nothing uses it."""
    image_id: str
    context_digest: str = ""
    """Empty where it was taken over by name."""
    source: str = "context"
    size_bytes: int = 0
    created_at: float = 0.0
    used_at: float = 0.0
    evicted: bool = False
    node: str = ""
    """Where the image is, among servers that share a store; empty where the file has the record."""

    @property
    def built(self) -> bool:
        """Return whether the registry built it, so that it may remove it."""
        return bool(self.context_digest)


class _File(msgspec.Struct, forbid_unknown_fields=True):
    version: int
    images: list[ImageRecord]


class RecordKeeper(Protocol):
    """The records of images, wherever they are kept."""

    node: str
    """The node whose engine this server builds with, as in `ImageRecord.node`."""
    maker: str
    """How the ids of this server's builds begin; empty where no other server answers for them."""

    async def all(self) -> list[ImageRecord]:
        """Return the records of this node's images."""
        ...

    async def get(self, tenant: str, name: str) -> ImageRecord | None:
        """Return the image that has this name, on whichever node."""
        ...

    async def of(self, tenant: str) -> list[ImageRecord]:
        """Return a tenant's images that have names, by name."""
        ...

    async def built_from(self, tenant: str, context_digest: str) -> ImageRecord | None:
        """Return an image of the tenant on this node that was built from this context and is not evicted."""
        ...

    async def with_image(self, image_id: str) -> list[ImageRecord]:
        """Return all records of one image, of any tenant and node."""
        ...

    async def touch(self, record: ImageRecord, at: float) -> None:
        """Note that an image was used, to the minute."""
        ...

    async def put(self, record: ImageRecord) -> None:
        """Give an image of this node its name; the one that had it keeps none."""
        ...

    async def unname(self, record: ImageRecord) -> None:
        """Take the name off."""
        ...

    async def gone(self, image_id: str, *, evicted: bool) -> None:
        """Note that this node's image was removed: forget it where it has no name, else mark it as evicted, or forget it."""
        ...


class ImageRecords:
    """Satisfies `RecordKeeper` by a file. `path` None keeps the records in memory."""

    node = ""
    maker = ""

    def __init__(self, path: Path | None = None) -> None:
        """Read the file. Raise `FailedPrecondition` if it is damaged."""
        self._path = path
        self._named: dict[tuple[str, str], ImageRecord] = {}
        self._nameless: dict[tuple[str, str], ImageRecord] = {}
        self._lock = asyncio.Lock()
        if path is not None and path.exists():
            try:
                held = msgspec.json.decode(path.read_bytes(), type=_File)
            except msgspec.DecodeError as error:
                raise FailedPrecondition(
                    f"{path} does not hold the records of images: {error}. Restore it, or remove it and register "
                    "the images again (what was built is found again in the engine's cache)."
                ) from error
            for record in held.images:
                self._place(record)

    def __iter__(self) -> Iterator[ImageRecord]:
        yield from self._named.values()
        yield from self._nameless.values()

    async def all(self) -> list[ImageRecord]:
        """Return the records of all images."""
        return list(self)

    async def get(self, tenant: str, name: str) -> ImageRecord | None:
        """Return the image that has this name."""
        return self._named.get((tenant, name))

    async def of(self, tenant: str) -> list[ImageRecord]:
        """Return a tenant's images by name."""
        return [record for (owner, _), record in sorted(self._named.items()) if owner == tenant]

    async def built_from(self, tenant: str, context_digest: str) -> ImageRecord | None:
        """Return an image of the tenant that was built from this context and is not evicted."""
        for record in self:
            if (record.tenant, record.context_digest, record.evicted) == (tenant, context_digest, False):
                return record
        return None

    async def with_image(self, image_id: str) -> list[ImageRecord]:
        """Return all records of one image, of any tenant."""
        return [record for record in self if record.image_id == image_id]

    async def touch(self, record: ImageRecord, at: float) -> None:
        """Note that an image was used; kept with the next change, since losing that costs little."""
        self._place(msgspec.structs.replace(record, used_at=at))

    async def put(self, record: ImageRecord) -> None:
        """Give the image its name; the one that had it keeps none."""
        former = self._named.get((record.tenant, record.name)) if record.name else None
        if former is not None and former.image_id != record.image_id:
            self._place(msgspec.structs.replace(former, name=""))
        self._place(record)
        await self._save()

    async def unname(self, record: ImageRecord) -> None:
        """Take the name off."""
        del self._named[record.tenant, record.name]
        self._place(msgspec.structs.replace(record, name=""))
        await self._save()

    async def gone(self, image_id: str, *, evicted: bool) -> None:
        """Note that an image was removed: forget it where it has no name, else mark it as evicted, or forget it."""
        for key in [key for key, record in self._nameless.items() if record.image_id == image_id]:
            del self._nameless[key]
        for key in [key for key, record in self._named.items() if record.image_id == image_id]:
            if evicted:
                self._named[key] = msgspec.structs.replace(self._named[key], evicted=True)
            else:
                del self._named[key]
        await self._save()

    async def forget(self) -> None:
        """Remove the file and all records: a shared store has them by now."""
        self._named, self._nameless = {}, {}
        if self._path is not None:
            await for_life(partial(self._path.unlink, missing_ok=True))

    def _place(self, record: ImageRecord) -> None:
        if record.name:
            self._named[record.tenant, record.name] = record
        elif record.built and not record.evicted:
            self._nameless[record.tenant, record.image_id] = record

    async def _save(self) -> None:
        if self._path is None:
            return
        async with self._lock:
            content = msgspec.json.format(msgspec.json.encode(_File(1, list(self))), indent=1)
            await for_life(replace_file, self._path, content, "the records of images")
