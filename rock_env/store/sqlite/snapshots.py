"""The snapshots of the SQLite store: their table and what is read and written in it.

Who builds upon a snapshot is counted where it is recorded, in the rows of sandboxes and snapshots, so that no counter
can ever be wrong.
"""

from __future__ import annotations

import sqlite3
from dataclasses import replace

import msgspec

from rock_env.errors import NotFound
from rock_env.snapshots import SnapshotRecord, SnapshotState, Uses
from rock_env.store.base import SnapshotQuery, overtaken_snapshot

__all__ = [
    "KEPT",
    "OFFERED",
    "REVISIONS",
    "TABLES",
    "add",
    "check_kept",
    "collect",
    "find",
    "find_sql",
    "get",
    "save",
    "uses",
]

TABLES = (
    """CREATE TABLE snapshots (
        id TEXT PRIMARY KEY, tenant TEXT NOT NULL, idempotency_key TEXT NOT NULL, state TEXT NOT NULL,
        parent TEXT NOT NULL, sandbox_id TEXT NOT NULL, record BLOB NOT NULL
    ) WITHOUT ROWID""",
    "CREATE UNIQUE INDEX snapshots_key ON snapshots (tenant, idempotency_key) WHERE idempotency_key != ''",
    "CREATE INDEX snapshots_tenant ON snapshots (tenant, id)",
    "CREATE INDEX snapshots_sandbox ON snapshots (sandbox_id, id)",
    "CREATE INDEX snapshots_state ON snapshots (state, id)",
    "CREATE INDEX snapshots_parent ON snapshots (parent) WHERE parent != '' AND state != 'COLLECTED'",
)
REVISIONS = ("ALTER TABLE snapshots ADD COLUMN revision INTEGER NOT NULL DEFAULT 0",)
KEPT = frozenset(SnapshotState) - {SnapshotState.COLLECTED}
"""What something that builds upon it already may be recorded with."""
OFFERED = KEPT - {SnapshotState.DELETED}
"""What a new sandbox may be started from."""
_ORDER = list(SnapshotState)


def add(database: sqlite3.Connection, record: SnapshotRecord) -> SnapshotRecord:
    """Insert a snapshot, or return the one that holds its key."""
    if record.idempotency_key:
        row = database.execute(
            "SELECT record FROM snapshots WHERE tenant = ? AND idempotency_key = ? AND idempotency_key != ''",
            (record.tenant, record.idempotency_key),
        ).fetchone()
        if row is not None:
            return _decoded(row[0])
    check_kept(database, record.parent)
    database.execute("INSERT INTO snapshots VALUES (?, ?, ?, ?, ?, ?, ?, ?)", _row(record))
    return record


def save(database: sqlite3.Connection, record: SnapshotRecord, kept: int) -> SnapshotRecord:
    """Replace a snapshot that is as it was read; its state never goes back."""
    before = _ORDER[: _ORDER.index(record.state) + 1]
    stored = replace(record, revision=record.revision + 1)
    changed = database.execute(
        "UPDATE snapshots SET tenant = ?, idempotency_key = ?, state = ?, parent = ?, sandbox_id = ?, record = ?, "
        f"revision = ? WHERE id = ? AND revision = ? AND state IN ({', '.join('?' * len(before))})",
        (*_row(stored)[1:], record.id, record.revision, *before),
    )
    if changed.rowcount != 1:
        now = get(database, record.id)
        if now is None or replace(now, revision=record.revision) != record:
            raise overtaken_snapshot(record, now)
        return now
    if record.state is SnapshotState.COLLECTED:
        _forget_old(database, kept)
    return stored


def get(database: sqlite3.Connection, snapshot_id: str) -> SnapshotRecord | None:
    """Return one snapshot."""
    row = database.execute("SELECT record FROM snapshots WHERE id = ?", (snapshot_id,)).fetchone()
    return None if row is None else _decoded(row[0])


def find(database: sqlite3.Connection, query: SnapshotQuery) -> list[SnapshotRecord]:
    """Return the matching snapshots; labels are compared here, up to the limit."""
    statement, values = find_sql(query)
    found: list[SnapshotRecord] = []
    for row in database.execute(statement, values):
        record = _decoded(row[0])
        if query.labels.items() <= record.labels.items():
            found.append(record)
        if len(found) == query.limit:
            break
    return found


def find_sql(query: SnapshotQuery) -> tuple[str, list[str]]:
    """Return the statement for a query and its values; every filter but labels has an index to go by."""
    conditions, values = ["id > ?"], [query.after_id]
    if query.tenant is not None:
        conditions.append("tenant = ?")
        values.append(query.tenant)
    if query.sandbox_id:
        conditions.append("sandbox_id = ?")
        values.append(query.sandbox_id)
    if query.idempotency_key:
        conditions.append("idempotency_key = ? AND idempotency_key != ''")
        values.append(query.idempotency_key)
    if query.states != frozenset(SnapshotState):
        conditions.append(f"state IN ({', '.join('?' * len(query.states))})")
        values += sorted(query.states)
    return f"SELECT record FROM snapshots WHERE {' AND '.join(conditions)} ORDER BY id", values


def count(database: sqlite3.Connection, tenant: str) -> int:
    """Count a tenant's snapshots that have a layer."""
    return _count(database, "snapshots WHERE tenant = ? AND state != 'COLLECTED'", tenant)


def uses(database: sqlite3.Connection, snapshot_id: str) -> Uses:
    """Count what builds upon a snapshot."""
    children = _count(
        database, "snapshots WHERE parent = ? AND parent != '' AND state != 'COLLECTED'", snapshot_id
    )
    boxes = sum(
        _count(
            database, f"sandboxes WHERE {column} = ? AND {column} != '' AND state != 'DELETED'", snapshot_id
        )
        for column in ("snapshot_id", "leaving_snapshot_id")
    )
    return Uses(children, boxes)


def collect(database: sqlite3.Connection, snapshot_id: str, kept: int) -> list[SnapshotRecord]:
    """Collect a snapshot that nobody wants and nothing needs, then its parents likewise."""
    collected: list[SnapshotRecord] = []
    record = get(database, snapshot_id)
    while record is not None and record.state is SnapshotState.DELETED:
        if uses(database, record.id) != Uses(0, 0):
            break
        record = save(database, replace(record, state=SnapshotState.COLLECTED), kept)
        collected.append(record)
        record = get(database, record.parent)
    return collected


def check_kept(
    database: sqlite3.Connection, snapshot_id: str, states: frozenset[SnapshotState] = KEPT
) -> None:
    """Raise `NotFound` unless the snapshot, if there is one, is in one of these states."""
    if not snapshot_id:
        return
    row = database.execute("SELECT state FROM snapshots WHERE id = ?", (snapshot_id,)).fetchone()
    if row is None or row[0] not in states:
        raise NotFound(f"snapshot {snapshot_id!r} was deleted; ListSnapshots shows those there are")


def _forget_old(database: sqlite3.Connection, kept: int) -> None:
    database.execute(
        "DELETE FROM snapshots WHERE state = 'COLLECTED' AND id <= (SELECT id FROM snapshots "
        "WHERE state = 'COLLECTED' ORDER BY id DESC LIMIT 1 OFFSET ?)",
        (kept,),
    )


def _count(database: sqlite3.Connection, where: str, snapshot_id: str) -> int:
    return int(database.execute(f"SELECT count(*) FROM {where}", (snapshot_id,)).fetchone()[0])


def _row(record: SnapshotRecord) -> tuple[str | bytes | int, ...]:
    return (
        record.id,
        record.tenant,
        record.idempotency_key,
        record.state,
        record.parent,
        record.sandbox_id,
        msgspec.json.encode(record),
        record.revision,
    )


_decoder = msgspec.json.Decoder(SnapshotRecord)


def _decoded(record: bytes) -> SnapshotRecord:
    return _decoder.decode(record)
