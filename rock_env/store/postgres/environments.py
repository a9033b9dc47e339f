"""Environments that were pushed to the servers of one store: a row each, with the tasks as `rock_env.registered` keeps them.

Used by `server/replicas/environments`.
"""

from __future__ import annotations

from rock_env.store.postgres.records import PostgresStore
from rock_env.store.postgres.schema import ENVIRONMENTS
from rock_env.store.postgres.settings import StoredSettings

__all__ = ["StoredEnvs"]


class StoredEnvs(StoredSettings[str]):
    """The rows of one store: by name the digest, the record and the tasks."""

    def __init__(self, store: PostgresStore) -> None:
        super().__init__(store, "rock_envs", "name", ("digest", "record", "tasks"), channel=ENVIRONMENTS)
