"""The store for several servers: one PostgreSQL database, shared by all replicas.

Opened by `store/open`, used by the sandbox core. All writes of one server that wait at the same time go out as one
statement, so that one commit carries many changes. Whoever writes holds the row with the latest revision until the
commit: revisions become visible in their own order, which a sequence does not promise, and a listener that has seen
one will never be told a smaller one. Every committed write sends a notification.

A lost connection is tried again: for a while where nothing can have been stored, and for as long as the server lives
where it may. Each write carries a token that is stored with it, so a write that was committed and whose answer was lost
is not made twice, and a caller never goes on without knowing its outcome. No secret of the URL gets into an error or a log.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Self, TypeVar
from urllib.parse import urlsplit

import asyncpg
import msgspec

from rock_env.errors import InfraError, InvalidArgument, RockError, Unavailable
from rock_env.lifecycle import SandboxRecord
from rock_env.snapshots import SnapshotRecord, Uses
from rock_env.store.base import KEPT_DELETED, Query, SnapshotQuery, overtaken
from rock_env.store.postgres import snapshots as snapshots
from rock_env.store.postgres.listener import NotificationListener
from rock_env.store.postgres.schema import CHANGES, digest, find_sql, migrate

__all__ = ["PostgresStore", "decoded", "masked"]

log = logging.getLogger(__name__)

_RETRY_S = 10.0
"""How long a call goes on trying while the database is away: a restart of it takes less."""
_MOST_PAUSE_S = 0.5
"""Between two tries: a replica whose lease runs has as many as it can have once the database is back."""
_MOST_WRITES = 256
"""In one statement: more would make the first of them wait too long."""
_PAGE = 500
"""How many changes a listener reads at once."""
_CALL_S = 30.0
"""When a statement that gets no answer counts as a lost connection."""

_LOST = (
    OSError,
    asyncpg.PostgresConnectionError,
    asyncpg.InterfaceError,
    asyncpg.InternalClientError,  # what a connection that is just being cut says at times
    asyncpg.exceptions.OperatorInterventionError,  # being shut down, starting up
    asyncpg.exceptions.TooManyConnectionsError,
    asyncpg.exceptions.SerializationError,
    asyncpg.exceptions.DeadlockDetectedError,
)
"""What passes: the same statement may succeed a moment later."""

T = TypeVar("T")


@dataclass(slots=True)
class _Write:
    """One change on its way: a new record where `expected` is 0, else the next form of one that is there."""

    record: SandboxRecord
    expected: int
    answer: asyncio.Future[SandboxRecord]
    token: bytes = field(default_factory=lambda: secrets.token_bytes(16))


class PostgresStore:
    """Satisfies `store.base.SandboxStore` and `SharedStore`. Open it with `open`."""

    def __init__(self, url: str, *, kept_deleted: int = KEPT_DELETED, retry_s: float = _RETRY_S) -> None:
        self._url = url
        self._where = f"the PostgreSQL store {masked(url)}"
        self._kept_deleted = kept_deleted
        self._retry_s = retry_s
        self._pool: Any = None
        self._waiting: list[_Write] = []
        self._writer: asyncio.Task[None] | None = None
        self._listener: NotificationListener | None = None
        self._told_away: list[Callable[[RockError | None], None]] = []
        self._away: RockError | None = None
        """Why no change can be begun: one waits for the database longer than a caller should."""
        self._closed = False

    @classmethod
    async def open(
        cls, url: str, *, kept_deleted: int = KEPT_DELETED, retry_s: float = _RETRY_S
    ) -> PostgresStore:
        """Connect and bring the tables up to date.

        Raise `InvalidArgument` for a URL, user or password that is wrong and for a database of a newer version, and
        `Unavailable` where no server answers.
        """
        store = cls(url, kept_deleted=kept_deleted, retry_s=retry_s)
        try:
            await store._connect()
        except BaseException:
            await store.close()
            raise
        return store

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def add(self, record: SandboxRecord) -> SandboxRecord:
        return await self._write(record, 0)

    async def save(self, record: SandboxRecord) -> SandboxRecord:
        return await self._write(record, record.revision)

    async def get(self, sandbox_id: str) -> SandboxRecord | None:
        if "\0" in sandbox_id:
            return None
        rows = await self.fetch("SELECT record, revision FROM rock_sandboxes WHERE id = $1", sandbox_id)
        return decoded(rows[0]) if rows else None

    async def find(self, query: Query) -> Sequence[SandboxRecord]:
        statement, values = find_sql(query)
        return [decoded(row) for row in await self.fetch(statement, *values)]

    async def revision(self) -> int:
        return int((await self.fetch("SELECT revision FROM rock_latest"))[0][0])

    async def add_snapshot(self, record: SnapshotRecord) -> SnapshotRecord:
        sent = False

        async def act(connection: Any) -> SnapshotRecord:
            nonlocal sent
            sent = True
            return await snapshots.add(connection, record)

        self._refuse_if_away()
        return await self._persisting(self._once(act), lambda: sent)

    async def save_snapshot(self, record: SnapshotRecord) -> SnapshotRecord:
        return await self._persisting(
            self._once(lambda connection: snapshots.save(connection, record, self._kept_deleted)),
            lambda: True,
        )

    async def get_snapshot(self, snapshot_id: str) -> SnapshotRecord | None:
        if "\0" in snapshot_id:
            return None
        rows = await self.fetch("SELECT record FROM rock_snapshots WHERE id = $1", snapshot_id)
        return snapshots.picked(rows, SnapshotQuery())[0] if rows else None

    async def find_snapshots(self, query: SnapshotQuery) -> Sequence[SnapshotRecord]:
        statement, values = snapshots.find_sql(query)
        return snapshots.picked(await self.fetch(statement, *values), query)

    async def count_snapshots(self, tenant: str) -> int:
        rows = await self.fetch(
            "SELECT count(*) FROM rock_snapshots WHERE tenant = $1 AND state != 'COLLECTED'", tenant
        )
        return int(rows[0][0])

    async def uses(self, snapshot_ids: Sequence[str]) -> Mapping[str, Uses]:
        return await self.transact(lambda connection: snapshots.uses(connection, snapshot_ids))

    async def collect(self, snapshot_id: str) -> Sequence[SnapshotRecord]:
        before: dict[str, SnapshotRecord] = {}
        return await self._persisting(
            self._once(lambda it: snapshots.collect(it, snapshot_id, self._kept_deleted, before)),
            lambda: True,
        )

    def when_away(self, tell: Callable[[RockError | None], None]) -> None:
        self._told_away.append(tell)

    async def changes(self, after_revision: int) -> AsyncGenerator[SandboxRecord]:
        """Yield every record that changed after the revision, by any server, as it is by then; never ends by itself.

        Revisions only grow. A record that changed twice before it was read comes once, in its later form. Nothing
        is lost over a lost connection.
        """
        known = after_revision
        with self.listener.listening(CHANGES) as told:
            while True:
                told.clear()
                try:
                    rows = await self.fetch(
                        "SELECT record, revision FROM rock_sandboxes WHERE revision > $1 ORDER BY revision LIMIT $2",
                        known,
                        _PAGE,
                    )
                except Unavailable as error:
                    log.warning("changes of other servers are not seen for now: %s", error)
                    continue
                for row in rows:
                    known = row[1]
                    yield decoded(row)
                if len(rows) < _PAGE:
                    await told.wait()

    @property
    def listener(self) -> NotificationListener:
        """Return what hears the database's notifications."""
        if self._listener is None:
            raise InfraError(f"{self._where} is closed")
        return self._listener

    async def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        if self._listener is not None:
            await self._listener.close()
        if self._writer is not None:
            await asyncio.wait((self._writer,))
        if self._pool is not None:
            try:
                async with asyncio.timeout(5.0):
                    await self._pool.close()
            except (*_LOST, asyncpg.PostgresError):
                self._pool.terminate()

    async def fetch(self, statement: str, *values: object) -> list[Any]:
        """Run one statement that may be repeated and return its rows. Raise `InfraError`, or `Unavailable`."""
        rows: list[Any] = await self._persisting(
            lambda: self._pool.fetch(statement, *values, timeout=_CALL_S)
        )
        return rows

    async def transact(self, act: Callable[[Any], Awaitable[T]]) -> T:
        """Run `act` with a connection in one transaction; where that is lost, once more from the start."""
        return await self._persisting(self._once(act))

    # -- how it is done

    async def _connect(self) -> None:
        self._pool = await self._persisting(self._new_pool)
        await self._persisting(self._migrate)
        self._listener = NotificationListener(self._connection, _LOST)
        self._listener.open()

    async def _migrate(self) -> None:
        async with self._pool.acquire() as connection:
            await migrate(connection, self._where)

    async def _new_pool(self) -> Any:
        return await asyncpg.create_pool(self._url, min_size=1, max_size=4, **_SETTINGS)

    async def _connection(self) -> Any:
        return await asyncpg.connect(self._url, **_SETTINGS)

    def _once(self, act: Callable[[Any], Awaitable[T]]) -> Callable[[], Awaitable[T]]:
        async def once() -> T:
            async with self._pool.acquire(timeout=_CALL_S) as connection, connection.transaction():
                return await act(connection)

        return once

    async def _persisting(
        self, act: Callable[[], Awaitable[T]], lasting: Callable[[], bool] = lambda: False
    ) -> T:
        """Do `act` again while the database is away: for a while, then for as long as it is `lasting`."""
        loop = asyncio.get_running_loop()
        give_up_at, pause_s = loop.time() + self._retry_s, 0.02
        while True:
            if self._closed:
                raise InfraError(f"{self._where} is closed")
            try:
                done = await act()
            except RockError:
                raise
            except _LOST as error:
                if loop.time() + pause_s > give_up_at or self._closed:
                    explained = self._explained(error)
                    if not lasting() or self._closed:
                        raise explained from error
                    self._tell_away(explained)
            except asyncpg.PostgresError as error:
                raise self._explained(error) from error
            except ValueError as error:  # it may quote the URL, with its password
                raise self._explained(error) from None
            else:
                self._tell_away(None)
                return done
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, _MOST_PAUSE_S)

    def _tell_away(self, why: RockError | None) -> None:
        if why is not None or self._away is not None:
            self._away = why
            for tell in self._told_away:
                tell(why)

    def _refuse_if_away(self) -> None:
        """Begin nothing new while what was begun waits for the database."""
        if self._away is not None:
            raise Unavailable(self._away.message, retry_after_s=self._away.retry_after_s)

    def _explained(self, error: Exception) -> RockError:
        if isinstance(error, _LOST):
            return Unavailable(
                f"{self._where} does not answer: {type(error).__name__}. Is the database running and reachable? "
                "What was asked for may be asked for again.",
                retry_after_s=1.0,
            )
        if isinstance(
            error, asyncpg.InvalidAuthorizationSpecificationError | asyncpg.InvalidCatalogNameError
        ):
            return InvalidArgument(
                f"{self._where} refuses us: {error}. Check the user, password and database."
            )
        if isinstance(error, asyncpg.PostgresError):
            return InfraError(f"{self._where} failed: {error}. See the database's log.")
        return InvalidArgument(
            f"{self._where} cannot be reached by this URL. Expected postgresql://user@host:port/database."
        )

    async def _write(self, record: SandboxRecord, expected: int) -> SandboxRecord:
        if self._closed:
            raise InfraError(f"{self._where} is closed")
        if expected == 0:
            self._refuse_if_away()
        if "\0" in record.snapshot_id:
            raise snapshots.gone(record.snapshot_id)
        write = _Write(record, expected, asyncio.get_running_loop().create_future())
        self._waiting.append(write)
        if self._writer is None or self._writer.done():
            self._writer = asyncio.create_task(self._write_all())
        return await write.answer

    async def _write_all(self) -> None:
        while self._waiting:
            batch, self._waiting = self._waiting[:_MOST_WRITES], self._waiting[_MOST_WRITES:]
            try:
                await self._write_batch(batch)
            except InfraError as error:  # one bad record must not fail the others
                if len(batch) == 1:
                    _refuse(batch, error)
                    continue
                for write in batch:
                    try:
                        await self._write_batch([write])
                    except RockError as own:
                        _refuse([write], own)
            except RockError as error:
                _refuse(batch, error)
            finally:
                _refuse(batch, InfraError(f"{self._where} was left in the middle of a write"))

    async def _write_batch(self, batch: Sequence[_Write]) -> None:
        columns = zip(*map(_row, batch), strict=True)
        values = [*map(list, columns), self._kept_deleted]
        sent = any(write.expected for write in batch)  # a change waits for the database, sent or not

        async def once() -> Any:
            nonlocal sent
            async with self._pool.acquire(timeout=_CALL_S) as connection:
                sent = True
                return await connection.fetch(_WRITE, *values, timeout=_CALL_S)

        rows = await self._persisting(once, lambda: sent)
        for write, (outcome, record, revision) in zip(batch, rows, strict=True):
            if write.answer.done():
                continue  # whoever asked has gone
            if outcome == "stored":
                write.answer.set_result(replace(write.record, revision=revision))
            elif outcome == "held":
                write.answer.set_result(decoded((record, revision)))
            elif outcome == "fenced":
                write.answer.set_exception(
                    Unavailable(
                        f"this server was declared dead as {write.record.owner} and may change nothing under that name. "
                        "Ask again, with the same idempotency key.",
                        retry_after_s=0.2,
                    )
                )
            elif outcome == "collected":
                write.answer.set_exception(snapshots.gone(write.record.snapshot_id))
            else:
                write.answer.set_exception(overtaken(write.record))


_WRITE = (
    "SELECT outcome, record, revision FROM rock_write($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13) "
    "ORDER BY place"
)
_SETTINGS: dict[str, Any] = {"timeout": 10.0, "server_settings": {"application_name": "rock-server"}}


def masked(url: str) -> str:
    """Return the URL without its password and options, for people to read."""
    try:
        parts = urlsplit(url)
        at = parts.netloc.rpartition("@")
        user = at[0].partition(":")[0]
    except ValueError:
        return "postgresql://…"
    return f"{parts.scheme}://{user + '@' if user else ''}{at[2]}{parts.path}"


def _refuse(batch: Sequence[_Write], error: RockError) -> None:
    for write in batch:
        if not write.answer.done():
            write.answer.set_exception(error)


def _row(write: _Write) -> tuple[object, ...]:
    record = write.record
    return (
        record.id,
        record.tenant,
        digest(record.idempotency_key) if record.idempotency_key else None,
        record.state.value,
        digest(record.environment),
        write.expected,
        write.token,
        b"".join(digest(name, value) for name, value in record.labels.items()),
        msgspec.json.encode(replace(record, revision=0)),
        record.snapshot_id,
        record.leaving_snapshot_id,
        record.owner,
    )


_decoder = msgspec.json.Decoder(SandboxRecord)


def decoded(row: Sequence[Any]) -> SandboxRecord:
    """Return the record in a row of `record, revision`. Raise `InfraError` for one that cannot be read."""
    try:
        return replace(_decoder.decode(row[0]), revision=row[1])
    except msgspec.DecodeError as error:
        raise InfraError(
            f"the database holds a record that cannot be read: {error}. Is it damaged?"
        ) from error
