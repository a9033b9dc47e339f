"""PostgreSQL killed amid one call after the other, and what became of what the call had asked for.

Used by `tests/chaos` (each twice) and `benchmarks.chaos --amid-calls` (each fifty times). Two servers share a database
that is killed with SIGKILL at a random moment of a Create, Snapshot, Fork, Checkpoint or TakeOver, and started again soon
after, or once all leases of servers would be over. The caller repeats the call with its key until it is answered; the
answer must hold, be the same when it is asked for again, and leave nothing behind once all is deleted.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any, TypeVar

from fault_harness import CALL_S, PATIENCE_S, RETRY_S, Caller
from integration.postgres_server import PostgresServer
from integration.replica_fleet import LEASE_S, Fleet, Server

from rock_env.errors import RockError
from rock_env.proto.v1 import admin_pb2, env_pb2
from rock_env.proto.v1 import sandbox_pb2 as pb

T = TypeVar("T")
ACTS = ("create", "snapshot", "fork", "checkpoint", "take over")
LONG_EVERY = 10
"""Every so many crashes the database is away for longer than servers' leases."""
SOON_S = 1.0
_WARM = 2
"""Calls of a kind without a crash, of which the faster one counts."""
_MOST_TRIES = 4
"""For each crash that is wanted: some strike when the call has just been answered."""
_READY = pb.SNAPSHOT_STATE_READY
_LIVE = (
    pb.SANDBOX_STATE_STARTING,
    pb.SANDBOX_STATE_RUNNING,
    pb.SANDBOX_STATE_PAUSED,
    pb.SANDBOX_STATE_DELETING,
)


@dataclass
class Found:
    """What went wrong; all lists must be empty. `crashes` counts those of each act that it was under way in."""

    crashes: Counter[str] = field(default_factory=Counter)
    lost: list[str] = field(default_factory=list)
    doubled: list[str] = field(default_factory=list)
    leaked: list[str] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)


class Crashes:
    """Two servers of one store, `first` and `second`; `run` does it all."""

    def __init__(self, fleet: Fleet, postgres: PostgresServer, *, seed: int = 0) -> None:
        self.found = Found()
        self._fleet, self._postgres = fleet, postgres
        self._random = random.Random(seed)
        self._crashes = 0
        self._played: set[str] = set()
        """The sandboxes of environments, whose checkpoints their server keeps for a while."""

    async def run(self, times: int, acts: tuple[str, ...] = ACTS) -> Found:
        """Crash the database so often amid each act."""
        self.first, self.second = await self._fleet.start(), await self._fleet.start()
        for act in acts:
            do = getattr(self, f"_{act.replace(' ', '_')}")
            took: list[float] = []
            for number in range(_WARM + _MOST_TRIES * times):
                if self.found.crashes[act] == times:
                    break
                try:
                    await do(f"{act} {number}", took)
                except RockError as error:
                    self.found.lost.append(f"{act} {number}: {error!r}")
        await self._leftovers()
        return self.found

    async def _amid(self, name: str, took: list[float], call: Callable[[], Awaitable[T]]) -> T:
        """Make a call with a crash in it; the first ones of its kind without, to see how long it takes."""
        began = time.monotonic()
        if len(took) < _WARM:
            answer = await call()
            took.append(time.monotonic() - began)
            return answer
        asked = asyncio.ensure_future(call())
        await asyncio.sleep(self._random.random() * min(took))
        if not asked.done():
            self.found.crashes[name.rpartition(" ")[0]] += 1
        await asyncio.to_thread(self._postgres.stop, fast=False)
        self._crashes += 1
        away_s = 1.5 * LEASE_S if self._crashes % LONG_EVERY == 0 else self._random.random() * SOON_S
        await asyncio.sleep(away_s)
        await asyncio.to_thread(self._postgres.start)
        return await asked

    def _same(self, name: str, answer: object, again: object) -> None:
        if answer != again:
            self.found.doubled.append(f"{name}: answered {answer}, asked again {again}")

    # -- the acts

    async def _made(self, name: str, **fields: Any) -> str:
        return str((await self._create_of(self.first, name, **fields)).id)

    async def _create_of(self, server: Server, name: str, **fields: Any) -> Any:
        request = pb.CreateSandboxRequest(idempotency_key=name, **fields)
        return await _ask(server, lambda it: it.boxes.Create(request, timeout=CALL_S))

    async def _content(self, name: str, box: str, expected: str) -> None:
        output, _ = await Caller(self.second.channel).exec(box, "cat word", f"read {name} {box}")
        if output.decode().strip() != expected:
            self.found.wrong.append(f"{name}: {box} has {output!r}, expected {expected!r}")

    async def _with_word(self, name: str) -> str:
        box = await self._made(f"box of {name}")
        await Caller(self.first.channel).exec(box, f"echo {name} > word", f"write {name}")
        return box

    async def _delete(self, *boxes: str) -> None:
        for box in boxes:
            request = pb.DeleteSandboxRequest(id=box)
            await _ask(self.first, lambda it, request=request: it.boxes.Delete(request, timeout=CALL_S))

    async def _create(self, name: str, took: list[float]) -> None:
        made = await self._amid(name, took, lambda: self._create_of(self.first, name))
        self._same(name, made.id, (await self._create_of(self.second, name)).id)
        output, _ = await Caller(self.second.channel).exec(made.id, "echo here", f"run {name}")
        if output != b"here\n":
            self.found.wrong.append(f"{name}: {output!r}")
        await self._delete(made.id)

    async def _snapshot(self, name: str, took: list[float]) -> None:
        box = await self._with_word(name)
        request = pb.SnapshotSandboxRequest(id=box, idempotency_key=name)

        async def freeze(server: Server) -> Any:
            return await _ask(server, lambda it: it.boxes.Snapshot(request, timeout=CALL_S))

        made = (await self._amid(name, took, lambda: freeze(self.first))).snapshot_id
        self._same(name, made, (await freeze(self.second)).snapshot_id)
        wanted = pb.GetSnapshotRequest(id=made)
        state = (await _ask(self.second, lambda it: it.boxes.GetSnapshot(wanted, timeout=CALL_S))).state
        if state != _READY:
            self.found.lost.append(f"{name}: {made} is in state {state}")
        else:
            copy = await self._made(f"copy of {name}", snapshot_id=made)
            await self._content(name, copy, name)
            await self._delete(copy)
        unwanted = pb.DeleteSnapshotRequest(id=made)
        await _ask(self.first, lambda it: it.boxes.DeleteSnapshot(unwanted, timeout=CALL_S))
        await self._delete(box)

    async def _fork(self, name: str, took: list[float]) -> None:
        box = await self._with_word(name)
        request = pb.ForkSandboxRequest(id=box, count=2, idempotency_key=name)

        async def fork(server: Server) -> list[str]:
            reply = await _ask(server, lambda it: it.boxes.Fork(request, timeout=CALL_S))
            return [info.id for info in reply.sandboxes]

        made = await self._amid(name, took, lambda: fork(self.first))
        self._same(name, made, await fork(self.second))
        for twin in made:
            await self._content(name, twin, name)
        await self._delete(box, *made)

    async def _env(self, name: str, *, durable: bool = False) -> Any:
        """Make and begin an episode of `terminal` at the first server; return its first answer, with its id in it."""
        make = env_pb2.MakeRequest(env="terminal", idempotency_key=f"make {name}")
        env_id = (await _ask(self.first, lambda it: it.envs.Make(make, timeout=60))).env_id
        reset = env_pb2.ResetRequest(
            env_id=env_id, sequence=1, idempotency_key="reset", task_id="train/0", seed=0, durable=durable
        )
        began = await _ask(self.first, lambda it: it.envs.Reset(reset, timeout=60))
        self._played.add(began.sandbox_id)
        return began

    async def _step(self, env_id: str, sequence: int, action: str) -> str:
        request = env_pb2.StepRequest(
            env_id=env_id, sequence=sequence, idempotency_key=f"s{sequence}", action=action
        )
        return str((await _ask(self.first, lambda it: it.envs.Step(request, timeout=60))).observation)

    async def _close(self, env_id: str) -> None:
        close = env_pb2.CloseRequest(env_id=env_id)
        await _ask(self.second, lambda it: it.envs.Close(close, timeout=60))

    async def _checkpoint(self, name: str, took: list[float]) -> None:
        env_id = (await self._env(name)).env_id
        await self._step(env_id, 2, f"echo {name} > word")
        request = env_pb2.CheckpointRequest(env_id=env_id, idempotency_key=name)

        async def keep(server: Server) -> str:
            reply = await _ask(server, lambda it: it.envs.Checkpoint(request, timeout=60))
            return str(reply.checkpoint_id)

        kept = await self._amid(name, took, lambda: keep(self.first))
        self._same(name, kept, await keep(self.second))
        await self._step(env_id, 3, "rm word")
        restore = env_pb2.RestoreRequest(
            env_id=env_id, sequence=4, idempotency_key="back", checkpoint_id=kept
        )
        await _ask(self.first, lambda it: it.envs.Restore(restore, timeout=60))
        seen = await self._step(env_id, 5, "cat word")
        if name not in seen:
            self.found.wrong.append(f"{name}: restored, its file is {seen!r}")
        await self._close(env_id)

    async def _take_over(self, name: str, took: list[float]) -> None:
        """Go on with an episode of a server that was killed just now."""
        began = await self._env(name, durable=True)
        box = began.sandbox_id
        await Caller(self.first.channel).exec(box, f"echo {name} > word", f"write {name}")
        self.first.kill()
        await self.first.ended()
        request = env_pb2.TakeOverRequest(sandbox_id=box, idempotency_key=name)

        async def go_on() -> str:
            return str((await _ask(self.second, lambda it: it.envs.TakeOver(request, timeout=60))).env_id)

        try:
            taken = await self._amid(name, took, go_on)
            self._same(name, taken, await go_on())
            await self._content(name, box, name)
            await self._close(taken)
        finally:  # else all acts that follow are asked of the dead
            self.first, self.second = self.second, await self._fleet.start()

    # -- what is left

    async def _leftovers(self) -> None:
        """All was deleted: the servers have nothing in their records, nor on the machine."""
        end = time.monotonic() + RETRY_S
        while (left := await self._left()) and time.monotonic() < end:  # noqa: ASYNC110  only the servers know
            await asyncio.sleep(1.0)
        self.found.leaked += left

    async def _left(self) -> list[str]:
        listed = pb.ListSandboxesRequest(states=_LIVE)
        boxes = await _ask(self.second, lambda it: it.boxes.List(listed, timeout=CALL_S))
        named = pb.ListSnapshotsRequest(states=[pb.SNAPSHOT_STATE_MAKING, _READY, pb.SNAPSHOT_STATE_DELETED])
        snapshots = await _ask(self.second, lambda it: it.boxes.ListSnapshots(named, timeout=CALL_S))
        census = await _ask(self.second, lambda it: it.admin.Census(admin_pb2.CensusRequest(), timeout=60))
        left = [f"sandbox {info.id}: {info.reason}" for info in boxes.sandboxes]
        left += [
            f"snapshot {info.id} in state {info.state}"
            for info in snapshots.snapshots
            if info.state != _READY or info.sandbox_id not in self._played
        ]
        for backend in census.backends:
            left += [f"{each}: {what}" for each, what in {**backend.orphans, **backend.ghosts}.items()]
            left += [f"layer {each}" for each in (*backend.stray_layers, *backend.missing_layers)]
        return left


async def _ask(server: Server, call: Callable[[Caller], Awaitable[T]]) -> T:
    caller = Caller(server.channel)
    return await asyncio.wait_for(caller.ask(lambda: call(caller)), 2 * PATIENCE_S)
