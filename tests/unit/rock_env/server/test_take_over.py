"""TakeOver at bad moments, over a node in memory: what is refused changes nothing, and no box or place is left behind."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from memory_backend import KillableStore, MemoryBackend, Node, killable_store
from waiting import until

from rock_env.env import Info, StepResult, Verdict
from rock_env.env_workers.catalog import Catalog
from rock_env.env_workers.frames import Kind
from rock_env.env_workers.pool import EnvHostPool
from rock_env.errors import (
    DeadlineExceeded,
    EnvLost,
    FailedPrecondition,
    InfraError,
    NotFound,
    RockError,
    Unavailable,
)
from rock_env.lifecycle import SandboxRecord
from rock_env.proto.v1 import env_pb2 as pb
from rock_env.sandbox import Sandbox
from rock_env.server.envs.branches import Branches
from rock_env.server.envs.core import CoreOptions, EnvServiceCore
from rock_env.server.envs.sandboxed import SandboxedEnv
from rock_env.server.sandboxes.core import SandboxCore
from rock_env.spec import EnvParams, EnvSpec, SandboxSpec, TaskSource, TaskSpec


class _Tasks:
    splits = ("train",)

    def count(self, split: str) -> int:
        return 1

    def get(self, split: str, index: int) -> TaskSpec:
        return TaskSpec(f"{split}/{index}", split, index, "")


class _Box:
    """Its grade is what stands in the sandbox."""

    async def reset(self, sandbox: Sandbox, task: TaskSpec, seed: int) -> tuple[str, Info]:
        await sandbox.write_file("done", b"0")
        return "begun", {}

    async def step(self, sandbox: Sandbox, action: str) -> StepResult:
        await sandbox.write_file("done", action.encode())
        return StepResult("")

    async def evaluate(self, sandbox: Sandbox) -> Verdict:
        done = float(await sandbox.read_file("done"))
        return Verdict(done, passed=done > 0)

    def snapshot(self) -> bytes:
        return b"state"

    def restore(self, state: bytes) -> None:
        assert state == b"state"


def _tasks(params: EnvParams) -> TaskSource:
    return _Tasks()


BOX = EnvSpec(
    name="kept_box",
    version="1",
    summary="A test environment.",
    params=EnvParams,
    factory=lambda params: _Box(),
    tasks=_tasks,
    oracle=lambda params, task: lambda observation: "1",
    optimum=lambda params, task: 1.0,
    sandbox=SandboxSpec(),
    snapshots=True,
)


class Server:
    """One server's environments, and what they have on the node."""

    def __init__(
        self, node: Node, store: KillableStore, sandboxes: SandboxCore, core: EnvServiceCore
    ) -> None:
        self.node, self.store, self.sandboxes, self.core = node, store, sandboxes, core
        self.branches = Branches(core)
        self._sequences: dict[str, int] = {}

    async def make(self) -> str:
        (made,) = await self.core.make([pb.MakeRequest(env="kept_box")])
        return str(made.env_id)

    async def do(self, kind: Kind, env_id: str, **fields: Any) -> Any:
        number = self._sequences[env_id] = self._sequences.get(env_id, 0) + 1
        request = {Kind.RESET: pb.ResetRequest, Kind.STEP: pb.StepRequest, Kind.EVALUATE: pb.EvaluateRequest}[
            kind
        ]
        return await self.core.one(
            kind, request(env_id=env_id, sequence=number, idempotency_key=str(number), **fields), None
        )

    async def begun(self) -> tuple[str, str]:
        """Return an environment with a durable episode, and its sandbox."""
        env_id = await self.make()
        reply = await self.do(Kind.RESET, env_id, task_id="train/0", durable=True)
        assert reply.durable
        return env_id, reply.sandbox_id

    async def grade(self, env_id: str) -> float:
        return float((await self.do(Kind.EVALUATE, env_id)).reward)

    async def take_over(self, sandbox_id: str) -> str:
        return str(
            (
                await self.branches.take_over(pb.TakeOverRequest(sandbox_id=sandbox_id, idempotency_key="k"))
            ).env_id
        )

    async def close(self, env_id: str) -> None:
        await self.core.one(Kind.CLOSE, pb.CloseRequest(env_id=env_id), None)

    def while_made(self, act: Callable[[], Awaitable[Any]], monkeypatch: pytest.MonkeyPatch) -> None:
        """Have `act` done while the next TakeOver makes its environment."""
        make = self.core.sandboxed

        async def first(*made_of: Any) -> SandboxedEnv:
            monkeypatch.setattr(self.core, "sandboxed", make)
            await act()
            return await make(*made_of)

        monkeypatch.setattr(self.core, "sandboxed", first)

    def load(self) -> tuple[int, int, int]:
        """Return the tenant's places, its environments and the boxes of the node."""
        places = sum(self.core._counts.values())
        return places, self.core.load().envs_in_sandboxes, len(self.node.boxes)


@asynccontextmanager
async def running(**options: Any) -> AsyncIterator[Server]:
    node = Node()
    store = await killable_store(node)
    catalog = Catalog([f"{Path(__file__)}:BOX"])
    async with (
        SandboxCore(MemoryBackend(node), store, durable=True) as sandboxes,
        EnvServiceCore(
            catalog=catalog, pool=EnvHostPool(workers=1), sandboxes=sandboxes, options=CoreOptions(**options)
        ) as core,
    ):
        yield Server(node, store, sandboxes, core)
    await store.close()


@pytest.fixture
async def server() -> AsyncIterator[Server]:
    async with running() as made:
        yield made
        assert not made.core.kept, "keys"


async def test_it_goes_on_and_leaves_nothing(server: Server) -> None:
    env_id, box = await server.begun()
    taken = await server.take_over(box)
    assert server.load() == (1, 1, 1)
    with pytest.raises(NotFound):
        await server.grade(env_id)
    await server.close(taken)
    assert server.load() == (0, 0, 0)
    assert (await server.sandboxes.get(box)).episode == b"", "what the rules remember is not kept for ever"


async def test_a_refused_one_leaves_the_environment_as_it_was(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its grade, which cannot be repeated, begins while the other environment is made."""
    env_id, box = await server.begun()
    server.while_made(lambda: server.grade(env_id), monkeypatch)
    with pytest.raises(FailedPrecondition, match="taken over by another call"):
        await server.take_over(box)
    await server.do(Kind.STEP, env_id, action="2")
    assert await server.grade(env_id) == 2.0
    assert server.load() == (1, 1, 1)
    await server.close(env_id)
    assert server.load() == (0, 0, 0)


async def test_what_was_stored_though_its_caller_was_told_that_the_store_is_away_is_gone_on_with(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    env_id, box = await server.begun()
    save, saving, back = server.store.save, asyncio.Event(), asyncio.Event()

    async def late(record: SandboxRecord) -> SandboxRecord:
        saving.set()
        await back.wait()
        return await save(record)

    monkeypatch.setattr(server.store, "save", late)
    first = asyncio.ensure_future(server.take_over(box))
    await saving.wait()
    server.sandboxes.tasks.refuse(Unavailable("the store is away"))
    with pytest.raises(Unavailable):
        await first
    server.sandboxes.tasks.refuse(None)

    async def come_back() -> None:  # once the second call has read whose the box is
        back.set()

    server.while_made(come_back, monkeypatch)
    taken = await server.take_over(box)
    await server.do(Kind.STEP, taken, action="2")
    with pytest.raises(NotFound):
        await server.grade(env_id)
    await server.close(taken)
    assert server.load() == (0, 0, 0)


async def test_the_store_is_away_just_then(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    env_id, box = await server.begun()

    async def away(record: SandboxRecord) -> SandboxRecord:
        raise Unavailable("the store is away")

    with monkeypatch.context() as patched:
        patched.setattr(server.store, "save", away)
        with pytest.raises(Unavailable):
            await server.take_over(box)
    assert await server.grade(env_id) == 0.0
    await server.close(env_id)
    assert server.load() == (0, 0, 0)


async def test_the_environment_begins_another_episode_just_then(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    env_id, box = await server.begun()
    server.while_made(lambda: server.do(Kind.RESET, env_id, task_id="train/0"), monkeypatch)
    with pytest.raises(RockError):
        await server.take_over(box)
    assert await server.grade(env_id) == 0.0
    assert server.load() == (1, 1, 1)
    await server.close(env_id)
    assert server.load() == (0, 0, 0)


async def test_the_sandbox_ends_while_it_waits_for_its_record(server: Server) -> None:
    env_id, box = await server.begun()
    held = server.sandboxes.ledger.held[box]
    async with held.lock:
        taking = asyncio.create_task(server.take_over(box))
        await until(lambda: bool(held.lock._waiters))
        await server.sandboxes.lives.destroy_locked(held, "deleted by its user")
    with pytest.raises(FailedPrecondition, match="DELETED"):
        await taking
    await server.close(env_id)
    assert server.load() == (0, 0, 0)


async def test_a_close_that_waits_for_the_record_leaves_the_box_to_who_took_it_over(server: Server) -> None:
    env_id, box = await server.begun()
    held = server.sandboxes.ledger.held[box]

    def waiting() -> int:
        return len(held.lock._waiters or ())

    async with held.lock:
        taking = asyncio.create_task(server.take_over(box))
        await until(lambda: waiting() == 1)
        closing = asyncio.create_task(server.close(env_id))
        await until(lambda: waiting() == 2)
    taken = await taking
    await closing
    assert await server.grade(taken) == 0.0
    assert server.load() == (1, 1, 1)
    await server.close(taken)
    assert server.load() == (0, 0, 0)


async def failing(state: bytes) -> None:
    raise ValueError("as asked")


async def hanging(state: bytes) -> None:
    await asyncio.Event().wait()


@pytest.mark.parametrize(("restore", "error"), [(failing, InfraError), (hanging, DeadlineExceeded)])
async def test_rules_that_cannot_be_restored(
    restore: Callable[[bytes], Awaitable[None]], error: type[RockError], monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running(sandbox_timeout_s=1.0) as server:
        env_id, box = await server.begun()
        make = server.core.sandboxed

        async def broken(*made_of: Any) -> SandboxedEnv:
            made = await make(*made_of)
            monkeypatch.setattr(made._rules, "restore", restore)
            return made

        monkeypatch.setattr(server.core, "sandboxed", broken)
        async with asyncio.timeout(60):
            with pytest.raises(error, match="restoring the rules"):
                await server.take_over(box)
        assert server.load() == (1, 1, 1), "the environment is there, and so is the server"
        await server.close(env_id)
        assert server.load() == (0, 0, 0)


async def test_one_that_was_thought_dead_takes_nothing_from_the_record(server: Server) -> None:
    env_id, box = await server.begun()
    await server.core.boxes.hand_over(box, env_id, "e-elsewhere")
    with pytest.raises(EnvLost, match="taken over"):
        await server.do(Kind.STEP, env_id, action="2")
    assert (await server.sandboxes.get(box)).lasting, "the other's work still outlives the server"
    await server.close(env_id)
    assert server.load() == (0, 0, 1)
    await server.sandboxes.delete(box)


@pytest.mark.parametrize("kind", [Kind.STEP, Kind.EVALUATE])
async def test_a_sandbox_that_is_gone_is_a_loss(server: Server, kind: Kind) -> None:
    env_id, box = await server.begun()
    await server.sandboxes.delete(box)
    with pytest.raises(EnvLost, match="gone"):
        await server.do(kind, env_id)
    await server.close(env_id)
    assert server.load() == (0, 0, 0)
