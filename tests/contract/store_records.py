"""Records to put into stores, and how to empty a database, for the tests of stores."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import asyncpg

from rock_env.lifecycle import SandboxRecord, born
from rock_env.spec import NetworkPolicy, SandboxSpec


def record(number: int, **fields: Any) -> SandboxRecord:
    spec = SandboxSpec(env=(("A", "b"),), network=NetworkPolicy(allow=("x",)))
    made = born(f"sb-{number:03}", spec, backend="process", at=number + 0.1, lease_s=5.0)
    return replace(made, **fields)


async def emptied(url: str) -> None:
    """Leave the database as new, but for its tables."""
    connection = await asyncpg.connect(url)
    try:
        if await connection.fetchval("SELECT to_regclass('rock_version')"):
            await connection.execute(
                "TRUNCATE rock_sandboxes, rock_snapshots, rock_labels, rock_places, rock_quotas;"
                "UPDATE rock_latest SET revision = 0"
            )
    finally:
        await connection.close()
