"""The snapshots of the PostgreSQL store: their table and what is read and written in it.

Every write holds the row of the latest revision, as writes of sandboxes do, so that nothing can begin to build upon a
snapshot while it is being collected.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import msgspec

from rock_env.errors import InvalidArgument, NotFound
from rock_env.snapshots import SnapshotRecord, SnapshotState, Uses
from rock_env.store.base import SnapshotQuery, overtaken_snapshot
from rock_env.store.postgres.schema import digest

__all__ = ["add", "collect", "find_sql", "gone", "picked", "save", "uses"]

_ORDER = list(SnapshotState)
_USES = """SELECT wanted.id,
    (SELECT count(*) FROM rock_snapshots s WHERE s.parent = wanted.id AND s.state != 'COLLECTED'),
    (SELECT count(*) FROM rock_sandboxes b WHERE b.snapshot_id = wanted.id AND b.state != 'DELETED')
    + (SELECT count(*) FROM rock_sandboxes b WHERE b.leaving_snapshot_id = wanted.id AND b.state != 'DELETED')
    FROM unnest($1::text[]) AS wanted (id)"""


async def add(connection: Any, record: SnapshotRecord) -> SnapshotRecord:
    """Insert a snapshot, or return the one that holds its key."""
    await _lock(connection)
    key = digest(record.idempotency_key) if record.idempotency_key else None
    held = await connection.fetchval(
        "SELECT record FROM rock_snapshots WHERE id = $1 OR (tenant = $2 AND key = $3)",
        record.id,
        record.tenant,
        key,
    )
    if held is not None:
        return _decoded(held)
    if record.parent and await connection.fetchval(
        "SELECT NOT EXISTS (SELECT FROM rock_snapshots WHERE id = $1 AND state != 'COLLECTED')", record.parent
    ):
        raise gone(record.parent)
    await connection.execute(
        "INSERT INTO rock_snapshots VALUES ($1, $2, $3, $4, $5, $6, $7, $8)", *_row(record)
    )
    return record


async def save(connection: Any, record: SnapshotRecord, kept: int) -> SnapshotRecord:
    """Replace a snapshot that is as it was read; its state never goes back."""
    await _lock(connection)
    stored = replace(record, revision=record.revision + 1)
    changed = await connection.fetchval(
        "UPDATE rock_snapshots SET tenant = $2, key = $3, state = $4, parent = $5, sandbox_id = $6, record = $7, "
        "revision = $8 WHERE id = $1 AND revision = $9 AND state = ANY ($10::text[]) RETURNING id",
        *_row(stored),
        record.revision,
        _ORDER[: _ORDER.index(record.state) + 1],
    )
    if changed is None:
        held = await connection.fetchval("SELECT record FROM rock_snapshots WHERE id = $1", record.id)
        now = None if held is None else _decoded(held)
        if now is None or replace(now, revision=record.revision) != record:
            raise overtaken_snapshot(record, now)
        return now  # the answer to this very change was lost on its way
    if record.state is SnapshotState.COLLECTED:
        await _forget_old(connection, kept)
    return stored


async def uses(connection: Any, snapshot_ids: Sequence[str]) -> dict[str, Uses]:
    """Count what builds upon each snapshot."""
    rows = await connection.fetch(_USES, [each for each in snapshot_ids if "\0" not in each])
    counted = {row[0]: Uses(row[1], row[2]) for row in rows}
    return {each: counted.get(each, Uses(0, 0)) for each in snapshot_ids}


async def collect(
    connection: Any, snapshot_id: str, kept: int, before: dict[str, SnapshotRecord]
) -> list[SnapshotRecord]:
    """Collect a snapshot that nobody wants and nothing needs, then its parents likewise.

    `before` has what was collected by tries whose answers were lost: they may have been stored all the same.
    """
    await _lock(connection)
    collected: list[SnapshotRecord] = []
    while True:
        held = await connection.fetchval(
            "SELECT record FROM rock_snapshots WHERE id = $1 AND state IN ('DELETED', 'COLLECTED')",
            snapshot_id,
        )
        record = None if held is None else _decoded(held)
        if record is None or (record.state is SnapshotState.COLLECTED and before.get(record.id) != record):
            break
        if record.state is SnapshotState.DELETED:
            if (await uses(connection, [snapshot_id]))[snapshot_id] != Uses(0, 0):
                break
            record = await save(connection, replace(record, state=SnapshotState.COLLECTED), kept)
        collected.append(record)
        snapshot_id = record.parent
    before.update({record.id: record for record in collected})
    return collected


def find_sql(query: SnapshotQuery) -> tuple[str, list[object]]:
    """Return the statement for a query and its values; labels are compared afterwards, by `picked`."""
    conditions, values = ["id > $1"], [query.after_id]
    for column, value in (("tenant", query.tenant), ("sandbox_id", query.sandbox_id or None)):
        if value is not None:
            values.append(value)
            conditions.append(f"{column} = ${len(values)}")
    if any("\0" in value for value in values):
        raise InvalidArgument(
            "a page token, tenant or sandbox id holds the character 0: expected one of this server"
        )
    wanted: list[object] = [*values]
    if query.idempotency_key:
        wanted.append(digest(query.idempotency_key))
        conditions.append(f"key = ${len(wanted)}")
    if query.states != frozenset(SnapshotState):
        wanted.append(sorted(query.states))
        conditions.append(f"state = ANY (${len(wanted)}::text[])")
    limit = "" if query.limit is None or query.labels else f" LIMIT {query.limit:d}"
    return f"SELECT record FROM rock_snapshots WHERE {' AND '.join(conditions)} ORDER BY id{limit}", wanted


def picked(rows: Sequence[Any], query: SnapshotQuery) -> list[SnapshotRecord]:
    """Return the snapshots among the rows that have the query's labels, up to its limit."""
    found = (_decoded(row[0]) for row in rows)
    return [it for it in found if query.labels.items() <= it.labels.items()][: query.limit]


def gone(snapshot_id: str) -> NotFound:
    """Return the error for a snapshot whose layer nothing may begin to build upon."""
    return NotFound(f"snapshot {snapshot_id!r} was deleted; ListSnapshots shows those there are")


async def _lock(connection: Any) -> None:
    await connection.execute("SELECT revision FROM rock_latest FOR UPDATE")


async def _forget_old(connection: Any, kept: int) -> None:
    await connection.execute(
        "DELETE FROM rock_snapshots WHERE state = 'COLLECTED' AND id <= (SELECT id FROM rock_snapshots "
        "WHERE state = 'COLLECTED' ORDER BY id DESC LIMIT 1 OFFSET $1)",
        kept,
    )


def _row(record: SnapshotRecord) -> tuple[object, ...]:
    key = digest(record.idempotency_key) if record.idempotency_key else None
    content = msgspec.json.encode(record)
    return (
        record.id,
        record.tenant,
        key,
        record.state.value,
        record.parent,
        record.sandbox_id,
        content,
        record.revision,
    )


_decoder = msgspec.json.Decoder(SnapshotRecord)


def _decoded(record: bytes) -> SnapshotRecord:
    return _decoder.decode(record)
