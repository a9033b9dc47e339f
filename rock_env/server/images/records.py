"""What the registry knows of images, and the one file it is kept in.

Used by the registry and the image cache. Images live in the engine of this node, so their records are this node's,
too: a file beside the boxes, replaced as a whole at each change. It asks the engine nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import msgspec

from rock_env.errors import FailedPrecondition
from rock_env.store.whole_file import replace_file
from rock_env.threads import for_life

__all__ = ["ImageRecord", "ImageRecords"]


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

    @property
    def built(self) -> bool:
        """Return whether the registry built it, so that it may remove it."""
        return bool(self.context_digest)


class _File(msgspec.Struct, forbid_unknown_fields=True):
    version: int
    images: list[ImageRecord]


class ImageRecords:
    """All records. `path` None keeps them in memory."""

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

    def get(self, tenant: str, name: str) -> ImageRecord | None:
        """Return the image that has this name."""
        return self._named.get((tenant, name))

    def of(self, tenant: str) -> list[ImageRecord]:
        """Return a tenant's images by name."""
        return [record for (owner, _), record in sorted(self._named.items()) if owner == tenant]

    def built_from(self, tenant: str, context_digest: str) -> ImageRecord | None:
        """Return an image of the tenant that was built from this context and is not evicted."""
        for record in self:
            if (record.tenant, record.context_digest, record.evicted) == (tenant, context_digest, False):
                return record
        return None

    def with_image(self, image_id: str) -> list[ImageRecord]:
        """Return all records of one image, of any tenant."""
        return [record for record in self if record.image_id == image_id]

    def touch(self, record: ImageRecord, at: float) -> None:
        """Note that an image was used; kept with the next change, since losing it costs little."""
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
