"""Opens the store that an operator named: a file, memory, or a PostgreSQL database.

asyncpg is imported only for a PostgreSQL URL.
"""

from __future__ import annotations

from pathlib import Path

from rock_env.errors import InvalidArgument
from rock_env.store.address import is_postgres
from rock_env.store.base import SandboxStore
from rock_env.store.sqlite.records import SqliteStore

__all__ = ["open_store"]


async def open_store(where: str = "") -> SandboxStore:
    """Open the SQLite file or PostgreSQL database `where` names; empty keeps everything in memory.

    Raise `InvalidArgument` for what is no store or cannot be opened by this server, `Unavailable` for one that does
    not answer or is in use, `InfraError` for one that cannot be written.
    """
    if not is_postgres(where):
        if "://" in where:
            raise InvalidArgument(
                f"unknown kind of store {where.partition('://')[0]!r}: expected the path of an SQLite file or "
                "postgresql://user@host:port/database."
            )
        return await SqliteStore.open(Path(where) if where else None)
    try:
        from rock_env.store.postgres.records import PostgresStore
    except ModuleNotFoundError as error:
        if error.name != "asyncpg":
            raise
        raise InvalidArgument(
            "a PostgreSQL store needs the asyncpg package. Install it: pip install 'ale-rl[postgres]'."
        ) from error
    return await PostgresStore.open(where)
