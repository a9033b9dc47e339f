"""Servers of one store whose calls to store and node are made one at a time, in an order that a test chooses.

All is the servers' own code on a real store; only who is next, and when a connection is lost, is the test's.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, TypeVar

import asyncpg
from memory_backend import MemoryBackend, MemoryBox, Node

from rock_env.errors import InfraError, RockError
from rock_env.lifecycle import SandboxRecord
from rock_env.server.sandboxes.checkpoints import CheckpointTree
from rock_env.server.sandboxes.core import SandboxCore
from rock_env.snapshots import SnapshotRecord, SnapshotState
from rock_env.store.base import Overtaken, SandboxStore
from rock_env.store.postgres.records import PostgresStore

T = TypeVar("T")
_NODE_CALLS = frozenset({"adopt", "snapshot", "snapshots"})
"""Calls to the node whose order may matter; the others are made together with the call to the store before them."""
_SPINS = 20
"""Turns of the event loop after which a server that waits for nothing outside has come to its next call."""


class Turns:
    """Who may make the next call. Without an order everybody may at once."""

    def __init__(self) -> None:
        self.ordered = False
        self.calls: dict[str, int] = {}
        self._waiting: dict[str, deque[asyncio.Future[None]]] = {}
        self._busy = 0
        self._done = asyncio.Event()

    async def call(self, who: str, act: Callable[[], Awaitable[T]]) -> T:
        if self.ordered:
            turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiting.setdefault(who, deque()).append(turn)
            await turn
        self._busy += 1
        try:
            return await act()
        finally:
            self._busy -= 1
            self._done.set()

    async def give(self, who: str, most: int = 10_000) -> None:
        """Let one server make so many calls, or all that it makes until it waits for another one."""
        for _ in range(most):
            await self._still()
            waiting = self._waiting.get(who)
            while waiting and waiting[0].done():  # cancelled
                waiting.popleft()
            if not waiting:
                return
            self.calls[who] = self.calls.get(who, 0) + 1
            waiting.popleft().set_result(None)

    async def _still(self) -> None:
        spins = 0
        while spins < _SPINS:
            if self._busy:
                self._done.clear()
                await self._done.wait()
                spins = 0
            await asyncio.sleep(0)
            spins += 1


class Ordered:
    """One server's way to its store or node, each call in its turn."""

    def __init__(self, to: Any, turns: Turns, who: str, ordered: frozenset[str] | None = None) -> None:
        self._to, self._turns, self._who, self._ordered = to, turns, who, ordered

    def __getattr__(self, name: str) -> Any:
        act = getattr(self._to, name)
        if not asyncio.iscoroutinefunction(act) or (self._ordered is not None and name not in self._ordered):
            return act
        return lambda *words, **named: self._turns.call(self._who, lambda: act(*words, **named))


class CutStore(PostgresStore):
    """A store whose connection is lost once, before a statement came to the database or before its answer came back."""

    cut = ""

    async def _persisting(
        self, act: Callable[[], Awaitable[T]], lasting: Callable[[], bool] = lambda: False
    ) -> T:
        async def once() -> T:
            cut, self.cut = self.cut, ""
            if cut == "before":
                raise asyncpg.ConnectionDoesNotExistError("cut before the statement")
            done = await act()
            if cut == "after":
                raise asyncpg.ConnectionDoesNotExistError("cut after the commit")
            return done

        return await super()._persisting(once, lasting)


class OneConnectionBackend(MemoryBackend):
    """One server's view of a node whose boxes have one connection each: who takes a box up ends the former one's."""

    connected: ClassVar[dict[str, MemoryBackend]] = {}

    def _connect(self, box_id: str) -> MemoryBox:
        self.connected[box_id] = self
        return super()._connect(box_id)

    async def snapshot(self, sandbox_id: str, *, snapshot_id: str) -> int:
        if self.connected[sandbox_id] is not self:
            raise InfraError("another server has taken the box up")
        return await super().snapshot(sandbox_id, snapshot_id=snapshot_id)


class BlindStore:
    """A store as it was before revisions of snapshots: whoever writes later wins, if the state does not go back."""

    def __init__(self, store: SandboxStore) -> None:
        self._store = store

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    async def save_snapshot(self, record: SnapshotRecord) -> SnapshotRecord:
        now = await self._store.get_snapshot(record.id)
        order = list(SnapshotState)
        if now is None or order.index(now.state) > order.index(record.state):
            raise Overtaken("its state would go back")
        return await self._store.save_snapshot(replace(record, revision=now.revision))


@dataclass
class Declared:
    """Who a server is; satisfies `Ownership`. `living` is what all servers believe."""

    id: str
    living: set[str]
    store: SandboxStore
    folder: str = "folder"
    sites: tuple[str, ...] = ()
    shared: bool = True
    places: None = None

    @property
    def maker(self) -> str:
        return f"e{self.id}"

    def away_s(self) -> float:
        return 0.0

    async def claim(self, record: SandboxRecord) -> SandboxRecord | None:
        if record.owner in self.living:
            return None
        try:
            return await self.store.save(replace(record, owner=self.id))
        except Overtaken:
            return None

    async def sole(self) -> bool:
        return self.living <= {self.id}

    async def makers(self) -> set[str]:
        return {f"e{it}" for it in self.living - {self.id}}

    async def settled(self, record: SandboxRecord) -> SandboxRecord | None:
        return await self.store.get(record.id)


@dataclass
class Server:
    """One server of the node."""

    core: SandboxCore
    tree: CheckpointTree


@dataclass
class World:
    """A node, and the servers that came and went on it."""

    turns: Turns = field(default_factory=Turns)
    node: Node = field(default_factory=Node)
    living: set[str] = field(default_factory=set)
    servers: list[Server] = field(default_factory=list)

    async def start(self, name: str, store: Any) -> Server:
        """Start a server, in no order, and let it find what is there."""
        self.living.add(name)
        ordered = Ordered(store, self.turns, name)
        backend = Ordered(OneConnectionBackend(self.node), self.turns, name, _NODE_CALLS)
        core = SandboxCore(
            backend,  # type: ignore[arg-type]
            ordered,  # type: ignore[arg-type]
            durable=True,
            ownership=Declared(name, self.living, ordered),  # type: ignore[arg-type]
        )
        await core.__aenter__()
        self.servers.append(Server(core, CheckpointTree(core)))
        return self.servers[-1]

    async def kill(self) -> None:
        """End all servers where they are."""
        self.living.clear()
        for server in self.servers:
            server.core.ledger.deadlines.close()
            await server.core.tasks.finish(0)
            await server.core.lives.close()
        self.servers.clear()
        self.turns.ordered = False


async def outcome(act: Awaitable[T]) -> T | RockError:
    """Return what a call returned, or its error."""
    try:
        return await act
    except RockError as error:
        return error
