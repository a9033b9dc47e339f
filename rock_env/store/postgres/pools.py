"""The warm pools that the servers of one store keep together: a row for each.

Used by `server/replicas/pools`.
"""

from __future__ import annotations

from rock_env.store.postgres.records import PostgresStore
from rock_env.store.postgres.schema import POOLS
from rock_env.store.postgres.settings import StoredSettings

__all__ = ["StoredPools"]


class StoredPools(StoredSettings[bytes]):
    """The rows of one store: each the record of a pool, as it was written."""

    def __init__(self, store: PostgresStore) -> None:
        super().__init__(store, "rock_pools", "key", ("record",), channel=POOLS)
