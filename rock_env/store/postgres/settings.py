"""What operators set for all servers of one store: sizes of pools, quotas, pushed environments; a row for each.

Used by the pools, places and environments of `server/replicas`. A row is written over what its writer has read and over
nothing else: so a write that is asked for again, since its answer was lost, does not undo what somebody set meanwhile.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from rock_env.store.base import Overtaken
from rock_env.store.postgres.records import PostgresStore

if TYPE_CHECKING:
    import asyncio

__all__ = ["Row", "StoredSettings"]

Key = TypeVar("Key", str, bytes)
Row = tuple[Any, ...]


class StoredSettings(Generic[Key]):
    """The rows of one table, which has a column for the key and others for the values; `channel` tells of changes."""

    def __init__(
        self, store: PostgresStore, table: str, key: str, columns: Sequence[str], *, channel: str
    ) -> None:
        self._store, self._table, self._key, self._columns = store, table, key, tuple(columns)
        self._channel = channel

    async def all(self, *columns: str) -> dict[Key, Row]:
        """Return the rows by key; all their columns, or those that are named."""
        rows = await self._store.fetch(
            f"SELECT {', '.join((self._key, *(columns or self._columns)))} FROM {self._table}"
        )
        return {row[0]: tuple(row)[1:] for row in rows}

    async def get(self, key: Key) -> Row | None:
        """Return one row, or None if there is none."""
        rows = await self._store.fetch(
            f"SELECT {', '.join(self._columns)} FROM {self._table} WHERE {self._key} = $1", key
        )
        return tuple(rows[0]) if rows else None

    async def fill(self, rows: Mapping[Key, Row]) -> None:
        """Write those rows that are not there yet."""
        for key, row in rows.items():
            await self._store.fetch(self._told(self._inserting()), key, *row)

    async def change(self, key: Key, before: Row | None, after: Row | None) -> None:
        """Put a row in the place of what was read, None being no row, and tell all servers.

        Raise `Overtaken`, nothing changed, if it is something else by now.
        """
        if before is None and after is None:
            return
        same = " AND ".join(f"{name} = ${n}" for n, name in enumerate(self._columns, 2))
        if before is None:
            changed = await self._store.fetch(self._told(self._inserting()), key, *(after or ()))
        elif after is None:
            gone = f"DELETE FROM {self._table} WHERE {self._key} = $1 AND {same} RETURNING 1"
            changed = await self._store.fetch(self._told(gone), key, *before)
        else:
            values = ", ".join(f"{name} = ${n}" for n, name in enumerate(self._columns, 2 + len(before)))
            put = f"UPDATE {self._table} SET {values} WHERE {self._key} = $1 AND {same} RETURNING 1"
            changed = await self._store.fetch(self._told(put), key, *before, *after)
        if not changed and await self.get(key) != after:  # else it was this change, whose answer was lost
            raise Overtaken("this was set by somebody else just now. Look at what it is, and set it again.")

    def changed(self) -> AbstractContextManager[asyncio.Event]:
        """Return a context with an event that is set when some row may have been changed."""
        return self._store.listener.listening(self._channel)

    def _inserting(self) -> str:
        values = ", ".join(f"${n}" for n in range(1, 2 + len(self._columns)))
        columns = ", ".join((self._key, *self._columns))
        return f"INSERT INTO {self._table} ({columns}) VALUES ({values}) ON CONFLICT DO NOTHING RETURNING 1"

    def _told(self, change: str) -> str:
        return f"WITH changed AS ({change}) SELECT pg_notify('{self._channel}', '') FROM changed"
