"""Images by name over all servers of a store: the store has the names, the engine of one node has each image.

Made by `server/replicas/joining`. Any server of the store shows a tenant the same images. A sandbox or a check of one is
carried to a server of the node that has it (`forward`).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec

from rock_env.errors import InfraError
from rock_env.server.images.records import ImageRecord
from rock_env.store.postgres.records import PostgresStore
from rock_env.store.postgres.schema import IMAGES

__all__ = ["SharedImages"]

_TOUCHED_S = 60.0
"""How exactly it is kept when an image was last used: a write for each use would cost more than it is worth."""
_ONE_BY_ONE = f"SELECT pg_advisory_xact_lock({IMAGES}, hashtext($1))"
"""Lets one transaction at a time change a tenant's names, so that no image is forgotten by two that take one name."""
_WHERE = "WHERE tenant = $1 AND name = $2 AND node = $3 AND image_id = $4"
_OF_RECORD = f"FROM rock_images {_WHERE}"
_INSERT = "INSERT INTO rock_images (tenant, name, node, image_id, context_digest, record) VALUES ($1, $2, $3, $4, $5, $6)"
_TAKE_NAME = f"""{_INSERT} ON CONFLICT (tenant, name) WHERE name != '' DO UPDATE SET node = excluded.node,
    image_id = excluded.image_id, context_digest = excluded.context_digest, record = excluded.record"""
_KEEP = f"{_INSERT} ON CONFLICT (tenant, node, image_id) WHERE name = '' DO NOTHING"
_decoder = msgspec.json.Decoder(ImageRecord)


class SharedImages:
    """Satisfies `images.records.RecordKeeper`. A name is one row of its tenant; a row without a name is one for each image
    of a node.
    """

    def __init__(self, store: PostgresStore, *, node: str, maker: str) -> None:
        self._store = store
        self.node = node
        self.maker = maker

    async def take_over(self, own: Iterable[ImageRecord]) -> None:
        """Write what a server of this node knew alone; a name that the store has by now stays as it is there."""
        for record in own:
            await self._write(msgspec.structs.replace(record, node=self.node), replace=False)

    async def all(self) -> list[ImageRecord]:
        """Return the records of this node's images."""
        return await self._find("node = $1", self.node)

    async def get(self, tenant: str, name: str) -> ImageRecord | None:
        """Return the image that has this name, on whichever node."""
        found = await self._find("tenant = $1 AND name = $2 AND name != ''", tenant, name)
        return found[0] if found else None

    async def of(self, tenant: str) -> list[ImageRecord]:
        """Return a tenant's images that have names, by name."""
        return await self._find("tenant = $1 AND name != '' ORDER BY name", tenant)

    async def built_from(self, tenant: str, context_digest: str) -> ImageRecord | None:
        """Return an image of the tenant on this node that was built from this context and is not evicted."""
        found = await self._find(
            "tenant = $1 AND context_digest = $3 AND node = $2", tenant, self.node, context_digest
        )
        return next((record for record in found if not record.evicted), None)

    async def with_image(self, image_id: str) -> list[ImageRecord]:
        """Return all records of one image, of any tenant and node."""
        return await self._find("image_id = $1", image_id)

    async def touch(self, record: ImageRecord, at: float) -> None:
        """Note that an image was used, to the minute."""
        if at - record.used_at >= _TOUCHED_S:
            await self._change(record, used_at=at)

    async def put(self, record: ImageRecord) -> None:
        """Give an image of this node its name; the one that had it keeps none."""
        await self._write(record, replace=True)

    async def unname(self, record: ImageRecord) -> None:
        """Take the name off, where the record has it still; its image stays known if the registry removes it some day."""

        async def act(connection: Any) -> None:
            await connection.execute(_ONE_BY_ONE, record.tenant)
            now = await connection.fetchval(f"SELECT record {_OF_RECORD} FOR UPDATE", *_key(record))
            if now is not None and (left := _without_name(_decoded(now))) is not None:
                await connection.execute(_KEEP, *_row(left))
            await connection.execute(f"DELETE {_OF_RECORD}", *_key(record))

        await self._store.transact(act)

    async def gone(self, image_id: str, *, evicted: bool) -> None:
        """Note that this node's image was removed: forget it where it has no name, else mark it as evicted, or forget it."""
        await self._store.fetch(
            "DELETE FROM rock_images WHERE node = $1 AND image_id = $2 AND (name = '' OR NOT $3)",
            self.node,
            image_id,
            evicted,
        )
        if evicted:
            for record in await self.with_image(image_id):
                if record.node == self.node:
                    await self._change(record, evicted=True)

    async def _find(self, condition: str, *values: object) -> list[ImageRecord]:
        rows = await self._store.fetch(f"SELECT record FROM rock_images WHERE {condition}", *values)
        return [_decoded(row[0]) for row in rows]

    async def _change(self, record: ImageRecord, **fields: float | bool) -> None:
        """Change fields of a record as it is now, where it has the name still."""

        async def act(connection: Any) -> None:
            now = await connection.fetchval(f"SELECT record {_OF_RECORD} FOR UPDATE", *_key(record))
            if now is not None:
                changed = msgspec.json.encode(msgspec.structs.replace(_decoded(now), **fields))
                await connection.execute(
                    f"UPDATE rock_images SET record = $5 {_WHERE}", *_key(record), changed
                )

        await self._store.transact(act)

    async def _write(self, record: ImageRecord, *, replace: bool) -> None:
        """Write a record, with `replace` in place of one that has its name already. The other of the two keeps no name."""
        if not record.name and not _stays(record):
            return

        async def act(connection: Any) -> None:
            await connection.execute(_ONE_BY_ONE, record.tenant)
            held = await connection.fetchval(
                "SELECT record FROM rock_images WHERE tenant = $1 AND name = $2 AND name != '' FOR UPDATE",
                record.tenant,
                record.name,
            )
            former = None if held is None else _decoded(held)
            left = None if former is None else _without_name(former if replace else record)
            if left is not None and (not replace or _key(left)[2:] != _key(record)[2:]):
                await connection.execute(_KEEP, *_row(left))
            if former is None or replace:
                await connection.execute(_TAKE_NAME if record.name else _KEEP, *_row(record))

        await self._store.transact(act)


def _stays(record: ImageRecord) -> bool:
    """Return whether a record is kept without a name: its image is one that the registry removes some day."""
    return record.built and not record.evicted


def _without_name(record: ImageRecord) -> ImageRecord | None:
    return msgspec.structs.replace(record, name="") if _stays(record) else None


def _key(record: ImageRecord) -> tuple[str, str, str, str]:
    return record.tenant, record.name, record.node, record.image_id


def _row(record: ImageRecord) -> tuple[str | bytes, ...]:
    return (*_key(record), record.context_digest, msgspec.json.encode(record))


def _decoded(written: bytes) -> ImageRecord:
    try:
        return _decoder.decode(written)
    except msgspec.DecodeError as error:
        raise InfraError(
            f"the store has a record of an image that this server cannot read: {error}"
        ) from error
