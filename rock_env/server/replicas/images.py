"""Images by name over all servers of a store: the store has the names, the engine of one node has each image.

Made by `server/replicas/sharing`. Any server of the store shows a tenant the same images. A sandbox or a check of one is
carried to a server of the node that has it (`forward`).
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from rock_env.errors import InfraError
from rock_env.server.images.records import ImageRecord
from rock_env.store.postgres.images import ImageRow, StoredImages
from rock_env.store.postgres.records import PostgresStore

__all__ = ["SharedImages"]

_TOUCHED_S = 60.0
"""How exactly it is kept when an image was last used: a write for each use would cost more than it is worth."""
_decoder = msgspec.json.Decoder(ImageRecord)


class SharedImages:
    """Satisfies `images.records.RecordKeeper`."""

    def __init__(self, store: PostgresStore, *, node: str, maker: str) -> None:
        self._stored = StoredImages(store)
        self.node = node
        self.maker = maker

    async def take_over(self, own: Iterable[ImageRecord]) -> None:
        """Write what a server of this node knew alone; a name that the store has by now stays as it is there."""
        for record in own:
            if record.name or _stays(record):
                row = _row(msgspec.structs.replace(record, node=self.node))
                await self._stored.put(row, _without_name, replace=False)

    async def all(self) -> list[ImageRecord]:
        """Return the records of this node's images."""
        return _decoded(await self._stored.on(self.node))

    async def get(self, tenant: str, name: str) -> ImageRecord | None:
        """Return the image that has this name, on whichever node."""
        written = await self._stored.named(tenant, name)
        return None if written is None else _decoded([written])[0]

    async def of(self, tenant: str) -> list[ImageRecord]:
        """Return a tenant's images that have names, by name."""
        return _decoded(await self._stored.of(tenant))

    async def built_from(self, tenant: str, context_digest: str) -> ImageRecord | None:
        """Return an image of the tenant on this node that was built from this context and is not evicted."""
        found = _decoded(await self._stored.built_from(tenant, self.node, context_digest))
        return next((record for record in found if not record.evicted), None)

    async def with_image(self, image_id: str) -> list[ImageRecord]:
        """Return all records of one image, of any tenant and node."""
        return _decoded(await self._stored.with_image(image_id))

    async def touch(self, record: ImageRecord, at: float) -> None:
        """Note that an image was used, to the minute."""
        if at - record.used_at >= _TOUCHED_S:
            await self._stored.change(_row(record), lambda now: _changed(now, used_at=at))

    async def put(self, record: ImageRecord) -> None:
        """Give an image of this node its name; the one that had it keeps none."""
        if record.name or _stays(record):
            await self._stored.put(_row(record), _without_name, replace=True)

    async def unname(self, record: ImageRecord) -> None:
        """Take the name off."""
        await self._stored.unname(_row(record), _without_name)

    async def gone(self, image_id: str, *, evicted: bool) -> None:
        """Note that this node's image was removed: forget it where it has no name, else mark it as evicted, or forget it."""
        await self._stored.forget(self.node, image_id, nameless_only=evicted)
        if evicted:
            for record in await self.with_image(image_id):
                if record.node == self.node:
                    await self._stored.change(_row(record), lambda now: _changed(now, evicted=True))


def _stays(record: ImageRecord) -> bool:
    """Return whether a record is kept without a name: its image is one that the registry removes some day."""
    return record.built and not record.evicted


def _changed(written: bytes, **fields: float | bool) -> bytes:
    return msgspec.json.encode(msgspec.structs.replace(_decoded([written])[0], **fields))


def _without_name(written: bytes) -> ImageRow | None:
    record = _decoded([written])[0]
    return _row(msgspec.structs.replace(record, name="")) if _stays(record) else None


def _row(record: ImageRecord) -> ImageRow:
    return (
        record.tenant,
        record.name,
        record.node,
        record.image_id,
        record.context_digest,
        msgspec.json.encode(record),
    )


def _decoded(written: Iterable[bytes]) -> list[ImageRecord]:
    try:
        return [_decoder.decode(each) for each in written]
    except msgspec.DecodeError as error:
        raise InfraError(
            f"the store has a record of an image that this server cannot read: {error}"
        ) from error
