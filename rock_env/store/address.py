"""What kind of store an operator named. Imports nothing, so that options can be checked before a store is opened."""

__all__ = ["is_postgres"]

_POSTGRES = ("postgresql://", "postgres://")


def is_postgres(where: str) -> bool:
    """Return whether this names a PostgreSQL database, which several servers can share."""
    return where.startswith(_POSTGRES)
