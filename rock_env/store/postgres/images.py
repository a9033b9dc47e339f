"""The images that the servers of one store know by name, a row for each record.

Used by `server/replicas/images`. A name is one row of its tenant; a row without a name is one for each image of a node.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from rock_env.store.postgres.records import PostgresStore
from rock_env.store.postgres.schema import IMAGES

__all__ = ["ImageRow", "StoredImages"]

ImageRow = tuple[str, str, str, str, str, bytes]
"""Tenant, name, node, image id, digest of the context, and the record as it was written."""

_ONE_BY_ONE = f"SELECT pg_advisory_xact_lock({IMAGES}, hashtext($1))"
"""Lets one transaction at a time change a tenant's names, so that no image is forgotten by two that take one name."""
_WHERE = "WHERE tenant = $1 AND name = $2 AND node = $3 AND image_id = $4"
_OF_ROW = f"FROM rock_images {_WHERE}"
_INSERT = "INSERT INTO rock_images (tenant, name, node, image_id, context_digest, record) VALUES ($1, $2, $3, $4, $5, $6)"
_TAKE_NAME = f"""{_INSERT} ON CONFLICT (tenant, name) WHERE name != '' DO UPDATE SET node = excluded.node,
    image_id = excluded.image_id, context_digest = excluded.context_digest, record = excluded.record"""
_KEEP = f"{_INSERT} ON CONFLICT (tenant, node, image_id) WHERE name = '' DO NOTHING"


class StoredImages:
    """The rows of one store."""

    def __init__(self, store: PostgresStore) -> None:
        self._store = store

    async def named(self, tenant: str, name: str) -> bytes | None:
        """Return the record that has the name."""
        found = await self._find("tenant = $1 AND name = $2 AND name != ''", tenant, name)
        return found[0] if found else None

    async def of(self, tenant: str) -> list[bytes]:
        """Return a tenant's records that have names, by name."""
        return await self._find("tenant = $1 AND name != '' ORDER BY name", tenant)

    async def on(self, node: str) -> list[bytes]:
        """Return the records of a node's images."""
        return await self._find("node = $1", node)

    async def built_from(self, tenant: str, node: str, context_digest: str) -> list[bytes]:
        """Return the tenant's records on a node that were built from a context."""
        return await self._find(
            "tenant = $1 AND context_digest = $3 AND node = $2", tenant, node, context_digest
        )

    async def with_image(self, image_id: str) -> list[bytes]:
        """Return the records of one image."""
        return await self._find("image_id = $1", image_id)

    async def change(self, row: ImageRow, make: Callable[[bytes], bytes]) -> None:
        """Write what `make` makes of a record as it is now, where it has the name still."""

        async def act(connection: Any) -> None:
            now = await connection.fetchval(f"SELECT record {_OF_ROW} FOR UPDATE", *row[:4])
            if now is not None:
                await connection.execute(
                    f"UPDATE rock_images SET record = $5 {_WHERE}", *row[:4], make(bytes(now))
                )

        await self._store.transact(act)

    async def put(
        self, row: ImageRow, without_name: Callable[[bytes], ImageRow | None], *, replace: bool
    ) -> None:
        """Write a record. Of it and one that has the name already, that function makes the row of the one that gives way:
        with `replace` the former one.
        """

        async def act(connection: Any) -> None:
            await connection.execute(_ONE_BY_ONE, row[0])
            former = await connection.fetchval(
                "SELECT record FROM rock_images WHERE tenant = $1 AND name = $2 AND name != '' FOR UPDATE",
                *row[:2],
            )
            left = None if former is None else without_name(bytes(former) if replace else row[-1])
            if left is not None and (not replace or left[2:4] != row[2:4]):
                await connection.execute(_KEEP, *left)
            if former is None or replace:
                await connection.execute(_TAKE_NAME if row[1] else _KEEP, *row)

        await self._store.transact(act)

    async def unname(self, row: ImageRow, without_name: Callable[[bytes], ImageRow | None]) -> None:
        """Forget a record that has a name, if it still has that, and keep what that function leaves of it."""

        async def act(connection: Any) -> None:
            await connection.execute(_ONE_BY_ONE, row[0])
            now = await connection.fetchval(f"SELECT record {_OF_ROW} FOR UPDATE", *row[:4])
            left = None if now is None else without_name(bytes(now))
            if left is not None:
                await connection.execute(_KEEP, *left)
            await connection.execute(f"DELETE {_OF_ROW}", *row[:4])

        await self._store.transact(act)

    async def forget(self, node: str, image_id: str, *, nameless_only: bool) -> None:
        """Forget the records of a node's image, or those that have no name."""
        await self._store.fetch(
            "DELETE FROM rock_images WHERE node = $1 AND image_id = $2 AND (name = '' OR NOT $3)",
            node,
            image_id,
            nameless_only,
        )

    async def _find(self, condition: str, *values: object) -> list[bytes]:
        rows = await self._store.fetch(f"SELECT record FROM rock_images WHERE {condition}", *values)
        return [bytes(row[0]) for row in rows]
