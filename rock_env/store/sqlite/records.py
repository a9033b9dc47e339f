"""The default store: one SQLite file, or memory, behind one thread of its own.

Opened by `server/app`, used by the sandbox core. The thread makes reads and writes one after the other, so nothing
blocks the event loop; writes that come while one is being committed share the next commit. Write-ahead log without a
sync per commit: a killed server loses nothing it acknowledged; a power cut may take the last moments, with the sandboxes
they were about. One server per file: the lock is held until the store closes, and the system lets go of it when the
server is killed.
"""

from __future__ import annotations

import asyncio
import os
import sqlite3
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, Self, TypeVar

import msgspec

from rock_env.errors import FailedPrecondition, InfraError, InvalidArgument, RockError, Unavailable
from rock_env.lifecycle import SandboxRecord, SandboxState
from rock_env.snapshots import SnapshotRecord, Uses
from rock_env.store.base import KEPT_DELETED, Query, SnapshotQuery, overtaken
from rock_env.store.sqlite import members
from rock_env.store.sqlite import snapshots as snapshots

__all__ = ["KEPT_DELETED", "MIGRATIONS", "SqliteStore", "query_sql"]

_APPLICATION_ID = 0x524F434B
"""Marks the file as ours: "ROCK"."""
_BUSY_S = 1.0
"""How long to wait for a server that is just letting go of the file."""

MIGRATIONS: tuple[tuple[str, ...], ...] = (
    (
        """CREATE TABLE sandboxes (
            id TEXT PRIMARY KEY, tenant TEXT NOT NULL, idempotency_key TEXT NOT NULL, state TEXT NOT NULL,
            environment TEXT NOT NULL, revision INTEGER NOT NULL, record BLOB NOT NULL
        ) WITHOUT ROWID""",
        "CREATE UNIQUE INDEX sandboxes_key ON sandboxes (tenant, idempotency_key) WHERE idempotency_key != ''",
        "CREATE INDEX sandboxes_tenant ON sandboxes (tenant, id)",
        "CREATE INDEX sandboxes_state ON sandboxes (state, revision)",
        "CREATE INDEX sandboxes_environment ON sandboxes (environment, id)",
        "CREATE INDEX sandboxes_revision ON sandboxes (revision)",
        """CREATE TABLE labels (
            name TEXT NOT NULL, value TEXT NOT NULL,
            sandbox_id TEXT NOT NULL REFERENCES sandboxes (id) ON DELETE CASCADE,
            PRIMARY KEY (name, value, sandbox_id)
        ) WITHOUT ROWID""",
        "CREATE INDEX labels_sandbox ON labels (sandbox_id)",
        "CREATE TABLE latest (revision INTEGER NOT NULL)",
        "INSERT INTO latest VALUES (0)",
    ),
    (
        "UPDATE sandboxes SET record = CAST(json_set(CAST(record AS TEXT), '$.box_id', id) AS BLOB)",
        "ALTER TABLE sandboxes ADD COLUMN snapshot_id TEXT NOT NULL DEFAULT ''",
        "ALTER TABLE sandboxes ADD COLUMN leaving_snapshot_id TEXT NOT NULL DEFAULT ''",
        *(
            f"CREATE INDEX sandboxes_{column} ON sandboxes ({column}) "
            f"WHERE {column} != '' AND state != 'DELETED'"
            for column in ("snapshot_id", "leaving_snapshot_id")
        ),
        *snapshots.TABLES,
    ),
    members.TABLES,
    snapshots.REVISIONS,
)
"""The statements that lead from one `user_version` to the next. Append only: files in use have run the earlier ones."""

T = TypeVar("T")


class SqliteStore:
    """Satisfies `store.base.SandboxStore`. Open it with `open`; `path=None` keeps everything in memory."""

    def __init__(self, path: Path | None, *, kept_deleted: int = KEPT_DELETED) -> None:
        self._path = path
        self._kept_deleted = kept_deleted
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="rock-store")
        self._database: sqlite3.Connection | None = None
        self._waiting: list[tuple[Callable[[sqlite3.Connection], Any], asyncio.Future[Any]]] = []
        self._committing: asyncio.Task[None] | None = None
        self._closed = False

    @classmethod
    async def open(cls, path: Path | None = None, *, kept_deleted: int = KEPT_DELETED) -> SqliteStore:
        """Open or create the file and bring it up to date.

        Raise `InvalidArgument` for a file that cannot be opened or is no store of this version or older, `Unavailable`
        while another server uses it and `InfraError` if it cannot be read or written.
        """
        store = cls(path, kept_deleted=kept_deleted)
        try:
            await store._run(store._open)
        except BaseException:
            await store.close()
            raise
        return store

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def add(self, record: SandboxRecord) -> SandboxRecord:
        return await self._write(self._add, record)

    async def save(self, record: SandboxRecord) -> SandboxRecord:
        return await self._write(self._save, record)

    async def get(self, sandbox_id: str) -> SandboxRecord | None:
        return await self._run(self._get, sandbox_id)

    async def find(self, query: Query) -> Sequence[SandboxRecord]:
        return await self._run(self._find, query)

    async def revision(self) -> int:
        return await self._run(self._revision)

    async def add_snapshot(self, record: SnapshotRecord) -> SnapshotRecord:
        return await self._write(snapshots.add, record)

    async def save_snapshot(self, record: SnapshotRecord) -> SnapshotRecord:
        return await self._write(snapshots.save, record, self._kept_deleted)

    async def get_snapshot(self, snapshot_id: str) -> SnapshotRecord | None:
        return await self._run(lambda: snapshots.get(self._open_database, snapshot_id))

    async def find_snapshots(self, query: SnapshotQuery) -> Sequence[SnapshotRecord]:
        return await self._run(lambda: snapshots.find(self._open_database, query))

    async def count_snapshots(self, tenant: str) -> int:
        return await self._run(lambda: snapshots.count(self._open_database, tenant))

    async def uses(self, snapshot_ids: Sequence[str]) -> Mapping[str, Uses]:
        return await self._run(
            lambda: {each: snapshots.uses(self._open_database, each) for each in snapshot_ids}
        )

    async def collect(self, snapshot_id: str) -> Sequence[SnapshotRecord]:
        return await self._write(snapshots.collect, snapshot_id, self._kept_deleted)

    def when_away(self, tell: Callable[[RockError | None], None]) -> None:
        """Never: a file is there, or fails."""

    async def register(self, *, node: str, folder: str) -> None:
        """Name the server that has the file. Raise `FailedPrecondition` if live boxes are in another state folder."""
        await self._write(members.register, node, folder)

    async def close(self) -> None:
        if not self._closed:
            self._closed = True
            if self._committing is not None:
                await self._committing
            await asyncio.get_running_loop().run_in_executor(self._thread, self._close)
            self._thread.shutdown()

    async def _write(self, act: Callable[..., T], *arguments: object) -> T:
        """Do `act(database, *arguments)` and return what it did once that is committed. An error of it undoes it."""
        self._check_open()
        done: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        self._waiting.append((lambda database: act(database, *arguments), done))
        if self._committing is None:
            self._committing = asyncio.get_running_loop().create_task(self._commit_waiting())
        try:
            return await done
        except (sqlite3.Error, msgspec.DecodeError) as error:
            raise self._explained(error) from error

    async def _commit_waiting(self) -> None:
        """Commit until nothing waits: each time all that came while the last commit ran. Answers are in that order."""
        try:
            while self._waiting:
                batch, self._waiting = self._waiting, []
                acts = [act for act, _ in batch]
                job = asyncio.get_running_loop().run_in_executor(self._thread, self._commit, acts)
                outcomes = await asyncio.gather(job, return_exceptions=True)
                answers = outcomes[0]
                if isinstance(answers, BaseException):  # the commit itself: nothing of it was done
                    answers = [answers] * len(batch)
                for (_, done), answer in zip(batch, answers, strict=True):
                    if done.done():
                        continue  # its caller was cancelled
                    if isinstance(answer, BaseException):
                        done.set_exception(answer)
                    else:
                        done.set_result(answer)
        finally:
            self._committing = None

    async def _run(self, act: Callable[..., T], *arguments: object) -> T:
        self._check_open()
        try:
            return await asyncio.get_running_loop().run_in_executor(self._thread, act, *arguments)
        except (sqlite3.Error, msgspec.DecodeError) as error:
            raise self._explained(error) from error

    def _check_open(self) -> None:
        if self._closed:
            raise InfraError("the store of sandbox records is closed")

    def _damaged(self, what: str) -> FailedPrecondition:
        return FailedPrecondition(
            f"the store of sandbox records, {self._path}, {what}. No record was changed. Restore it from a backup, or name "
            "another file: a server that begins anew removes the sandboxes it finds on this machine."
        )

    def _explained(self, error: sqlite3.Error | msgspec.DecodeError) -> RockError:
        if isinstance(error, msgspec.DecodeError):
            return self._damaged(f"holds a record that cannot be read: {error}")
        where = f"the store of sandbox records, {self._path or 'in memory'},"
        if "locked" in str(error):
            return Unavailable(f"{where} is used by another server. Stop that one, or name another file.")
        if isinstance(error, sqlite3.DatabaseError) and "not a database" in str(error):
            return InvalidArgument(f"{where} is not an SQLite file. Name another one.")
        if "malformed" in str(error):
            return self._damaged(f"is damaged: {error}")
        if "no such column" in str(error) or "no such table" in str(error):
            return self._damaged(f"does not have the tables of this version: {error}")
        return InfraError(f"{where} failed: {error}. Is its folder missing or read-only?")

    # -- everything below runs in the store's thread

    @property
    def _open_database(self) -> sqlite3.Connection:
        assert self._database is not None  # `open` made it
        return self._database

    def _open(self) -> None:
        if self._path is not None:
            try:  # a spec's environment may hold secrets: the owner's alone
                os.close(os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
            except OSError as error:
                raise InvalidArgument(
                    f"cannot open the store of sandbox records: {error}. Name a file in a folder that can be written."
                ) from error
        database = sqlite3.connect(
            self._path or ":memory:", timeout=_BUSY_S, isolation_level=None, check_same_thread=False
        )
        self._database = database
        # Exclusive: a second server on the file would take the first one's sandboxes for lost.
        database.execute("PRAGMA locking_mode = EXCLUSIVE")
        self._check_ours()
        database.execute("PRAGMA journal_mode = WAL")
        database.execute("PRAGMA synchronous = NORMAL")
        database.execute("PRAGMA foreign_keys = ON")
        self._migrate()

    def _check_ours(self) -> None:
        mark = self._number("PRAGMA application_id")
        if mark not in (0, _APPLICATION_ID) or (
            mark == 0 and self._number("SELECT count(*) FROM sqlite_master")
        ):
            raise InvalidArgument(f"{self._path} is a database of another program. Name another file.")
        version = self._number("PRAGMA user_version")
        if version > len(MIGRATIONS):
            raise InvalidArgument(
                f"the store {self._path} has version {version}, this server knows up to {len(MIGRATIONS)}. "
                "Use the newer server that wrote it, or another file."
            )

    def _migrate(self) -> None:
        with self._transaction() as database:
            database.execute(f"PRAGMA application_id = {_APPLICATION_ID}")
            for statements in MIGRATIONS[self._number("PRAGMA user_version") :]:
                for statement in statements:
                    database.execute(statement)
            database.execute(f"PRAGMA user_version = {len(MIGRATIONS)}")

    def _number(self, statement: str) -> int:
        return int(self._open_database.execute(statement).fetchone()[0])

    @contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        database = self._open_database
        database.execute("BEGIN IMMEDIATE")
        try:
            yield database
            database.execute("COMMIT")
        except BaseException:
            if database.in_transaction:  # a full disk may have rolled it back already
                database.execute("ROLLBACK")
            raise

    def _commit(self, acts: Sequence[Callable[[sqlite3.Connection], Any]]) -> list[Any]:
        """Do the acts in one transaction; return what each returned, or the error that undid it alone."""
        with self._transaction() as database:
            return [self._attempt(database, act) for act in acts]

    def _attempt(self, database: sqlite3.Connection, act: Callable[[sqlite3.Connection], Any]) -> Any:
        database.execute("SAVEPOINT attempt")
        try:
            done = act(database)
        except (RockError, sqlite3.Error, msgspec.DecodeError) as error:
            if not database.in_transaction:  # a full disk took the others' work along
                raise
            database.execute("ROLLBACK TO attempt")
            database.execute("RELEASE attempt")
            return error
        database.execute("RELEASE attempt")
        return done

    def _add(self, database: sqlite3.Connection, record: SandboxRecord) -> SandboxRecord:
        if record.idempotency_key:
            row = database.execute(
                "SELECT record FROM sandboxes WHERE tenant = ? AND idempotency_key = ? AND idempotency_key != ''",
                (record.tenant, record.idempotency_key),
            ).fetchone()
            if row is not None:
                return _decoded(row[0])
        snapshots.check_kept(database, record.snapshot_id, snapshots.OFFERED)
        stored = self._numbered(record)
        database.execute("INSERT INTO sandboxes VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)", _row(stored))
        database.executemany(
            "INSERT INTO labels VALUES (?, ?, ?)",
            [(name, value, record.id) for name, value in record.labels.items()],
        )
        return stored

    def _save(self, database: sqlite3.Connection, record: SandboxRecord) -> SandboxRecord:
        if record.state is not SandboxState.DELETED:
            snapshots.check_kept(database, record.snapshot_id)
        stored = self._numbered(record)
        cursor = database.execute(
            "UPDATE sandboxes SET idempotency_key = ?, state = ?, revision = ?, record = ?, snapshot_id = ?, "
            "leaving_snapshot_id = ? WHERE id = ? AND revision = ?",
            (
                stored.idempotency_key,
                stored.state,
                stored.revision,
                _encoded(stored),
                stored.snapshot_id,
                stored.leaving_snapshot_id,
                record.id,
                record.revision,
            ),
        )
        if cursor.rowcount != 1:
            raise overtaken(record)
        if stored.state is SandboxState.DELETED:
            self._forget_old()
        return stored

    def _forget_old(self) -> None:
        self._open_database.execute(
            "DELETE FROM sandboxes WHERE state = 'DELETED' AND revision <= (SELECT revision FROM sandboxes "
            "WHERE state = 'DELETED' ORDER BY revision DESC LIMIT 1 OFFSET ?)",
            (self._kept_deleted,),
        )

    def _numbered(self, record: SandboxRecord) -> SandboxRecord:
        row = self._open_database.execute(
            "UPDATE latest SET revision = revision + 1 RETURNING revision"
        ).fetchone()
        return replace(record, revision=row[0])

    def _get(self, sandbox_id: str) -> SandboxRecord | None:
        row = self._open_database.execute(
            "SELECT record FROM sandboxes WHERE id = ?", (sandbox_id,)
        ).fetchone()
        return None if row is None else _decoded(row[0])

    def _find(self, query: Query) -> list[SandboxRecord]:
        statement, values = query_sql(query)
        return [_decoded(row[0]) for row in self._open_database.execute(statement, values)]

    def _revision(self) -> int:
        return self._number("SELECT revision FROM latest")

    def _close(self) -> None:
        if self._database is not None:
            self._database.close()
            self._database = None


def query_sql(query: Query) -> tuple[str, list[str | int]]:
    """Return the statement for a query and its values; every filter of it has an index to go by."""
    conditions: list[str] = []
    values: list[str | int] = []
    labels = sorted(query.labels.items())
    source, order = "sandboxes", "revision" if query.after_revision else "id"
    if labels and not query.after_revision:
        # The sandboxes of one label, by ascending id, are a stretch of its index: a page costs no more than its length.
        source, order = "labels CROSS JOIN sandboxes ON id = sandbox_id", "sandbox_id"
        conditions += ["name = ?", "value = ?"]
        values += labels.pop(0)
    if query.after_id or not query.after_revision:
        conditions.append(f"{'id' if query.after_revision else order} > ?")
        values.append(query.after_id)
    if query.after_revision:
        conditions.append("revision > ?")
        values.append(query.after_revision)
    if query.tenant is not None:
        conditions.append("tenant = ?")
        values.append(query.tenant)
    if query.states != frozenset(SandboxState):
        # Most states: walking the ids in order and stopping at the limit beats sorting nearly all (+ forgoes the index).
        column = "+state" if len(query.states) > len(SandboxState) // 2 else "state"
        conditions.append(f"{column} IN ({', '.join('?' * len(query.states))})")
        values += sorted(query.states)
    if query.environment:
        conditions.append("environment = ?")
        values.append(query.environment)
    for name, value in labels:
        conditions.append(
            "EXISTS (SELECT 1 FROM labels AS other WHERE other.name = ? AND other.value = ? AND other.sandbox_id = id)"
        )
        values += [name, value]
    values.append(-1 if query.limit is None else query.limit)
    return f"SELECT record FROM {source} WHERE {' AND '.join(conditions)} ORDER BY {order} LIMIT ?", values


def _row(record: SandboxRecord) -> tuple[str | int | bytes, ...]:
    return (
        record.id,
        record.tenant,
        record.idempotency_key,
        record.state,
        record.environment,
        record.revision,
        _encoded(record),
        record.snapshot_id,
        record.leaving_snapshot_id,
    )


def _encoded(record: SandboxRecord) -> bytes:
    return msgspec.json.encode(record)


_decoder = msgspec.json.Decoder(SandboxRecord)


def _decoded(record: bytes) -> SandboxRecord:
    return _decoder.decode(record)
