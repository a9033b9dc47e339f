"""Grades in fresh boxes and tasks with sandboxes of their own, on real boxes: what is seen, what is left, what is undone."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Literal

import pytest
from fences import why_not_isolated
from waiting import until

from rock_env.backends.process.backend import ProcessBackend
from rock_env.env_workers.catalog import Catalog
from rock_env.env_workers.frames import Kind
from rock_env.errors import (
    DeadlineExceeded,
    EnvLost,
    FailedPrecondition,
    InfraError,
    NotFound,
    OwnLimit,
    Unimplemented,
)
from rock_env.inventory import Limits
from rock_env.proto.v1 import env_pb2 as pb
from rock_env.server.capacity.admission import Admission
from rock_env.server.capacity.quotas import QuotaFile, Quotas
from rock_env.server.envs.boxes import EnvBoxes
from rock_env.server.envs.kept import BoxedState
from rock_env.server.envs.rules import OwnRules
from rock_env.server.envs.sandboxed import SandboxedEnv
from rock_env.server.sandboxes.checkpoints import CheckpointTree
from rock_env.server.sandboxes.core import SandboxCore
from rock_env.store.base import SnapshotQuery
from rock_env.store.sqlite.records import SqliteStore

CATALOG = Catalog([f"{Path(__file__).parent / 'graded_envs.py'}:GRADED"])
ISOLATION: Literal["namespaces", "none"] = "none" if why_not_isolated() else "namespaces"


class Played(SandboxedEnv):
    """An environment that counts its own sequence."""

    async def do(self, kind: Kind, *, timeout_s: float = 60.0, **fields: Any) -> Any:
        number = self.journal.sequence + 1
        made = {Kind.RESET: pb.ResetRequest, Kind.STEP: pb.StepRequest, Kind.EVALUATE: pb.EvaluateRequest}
        request = made[kind](sequence=number, idempotency_key=str(number), **fields)
        return await self.call(kind, request, timeout_s=timeout_s)

    async def reset(self, task: str = "train/1") -> str:
        return str((await self.do(Kind.RESET, task_id=task)).observation)

    async def step(self, action: str) -> str:
        return str((await self.do(Kind.STEP, action=action)).observation)

    async def grade(self) -> str:
        return str((await self.do(Kind.EVALUATE)).details)


class Node:
    """Makes environments; at its end nothing of them may be left."""

    def __init__(self, core: SandboxCore) -> None:
        self.core = core
        self.boxes = EnvBoxes(core, idle_timeout_s=600.0)
        self.made: list[Played] = []

    def make(self) -> Played:
        spec = CATALOG.spec("graded")
        name = f"e-{len(self.made)}"
        env = Played(name, spec=spec, rules=OwnRules(spec, spec.params(), CATALOG), boxes=self.boxes)
        self.made.append(env)
        return env

    def live(self) -> int:
        return len(self.core.ledger.held)


@asynccontextmanager
async def running(root: Path, boxes: int | None = None) -> AsyncIterator[Node]:
    backend = ProcessBackend(root=root, isolation=ISOLATION)
    admission = Admission(QuotaFile(Quotas(Limits(boxes=boxes))))
    async with await SqliteStore.open() as store, SandboxCore(backend, store, admission=admission) as core:
        node = Node(core)
        yield node
        for env in node.made:
            await env.close()
        await until(lambda: not core.ledger.held)
        for _ in range(3000):
            (census,) = await core.census()
            if not census.layers:  # what a cancelled grade had begun is undone behind it
                break
            await asyncio.sleep(0.01)
        assert (census.boxes, census.layers, census.stray_layers, census.orphans) == (0, 0, (), {})
        assert core.admission.used.boxes == 0
    await backend.close()


@pytest.fixture
async def node(tmp_path: Path) -> AsyncIterator[Node]:
    async with running(tmp_path) as node:
        yield node


async def test_a_task_has_its_own_sandbox_also_in_checkpoints_and_grades(node: Node) -> None:
    env = node.make()
    assert await env.reset("train/1") == "the environment's\n"
    assert await env.reset("train/0") == "the task's\n"
    await env.step("echo pristine > how; touch mine")
    assert await env.grade() == "the task's:"
    state = await env.call(Kind.SNAPSHOT, None, timeout_s=60.0)
    assert isinstance(state, BoxedState)
    assert state.snapshot_id
    copy = node.make()
    await copy.call(Kind.RESTORE, (None, state), timeout_s=60.0)
    assert await copy.step("echo $WHOSE; ls") == "the task's\nhow\nmine\n"
    await copy.step("echo pristine fork > how")
    assert await copy.grade() == "the task's:; the task's: how mine"
    await node.boxes.drop(state.snapshot_id)


async def test_grading_leaves_the_agents_box_as_it_was_but_for_its_processes(node: Node) -> None:
    env = node.make()
    await env.reset()
    busy = "(while :; do echo x >> late; sleep 0.01; done) & echo $! > pid"
    await env.step(f"echo fork pristine fork > how; {busy}; until test -e late; do :; done")
    before = node.live()
    assert await env.grade() == (
        "the environment's: how late pid; the environment's:; the environment's: how late pid"
    )
    look = "ls; cat late | wc -l; kill -0 $(cat pid) 2>&1 >/dev/null && echo alive"
    seen = await env.step(look)
    assert "alive" not in seen
    assert "traces" not in seen
    assert await env.step(look) == seen, "nothing changes files any more"
    assert await env.step("echo fork > how; echo goes on") == "goes on\n"
    assert await env.grade() == "the environment's: how late pid", "and may be graded again"
    assert node.live() == before
    assert [record.state for record in await node.core.ledger.store.find_snapshots(SnapshotQuery())] == [
        "DELETED"
    ] * 3


async def test_what_runs_goes_on_where_the_task_is_graded_by_it(node: Node) -> None:
    env = node.make()
    await env.reset("train/2")
    await env.step("echo pristine > how; sleep 600 >&- 2>&- & echo $! > pid")
    assert await env.grade() == "the environment's:"
    assert await env.step("kill -0 $(cat pid) && echo alive") == "alive\n"


async def test_a_node_that_is_full_of_agents_can_grade_them_all(tmp_path: Path) -> None:
    async with running(tmp_path, 3) as node:
        envs = [node.make() for _ in range(3)]
        for env in envs:
            await env.reset()
            await env.step("echo pristine fork > how")
        grades = await asyncio.gather(*(env.grade() for env in envs))
        assert grades == ["the environment's:; the environment's: how"] * 3
        assert node.core.admission.used.boxes == 3


async def test_a_grade_that_is_too_late_or_closed_leaves_nothing(node: Node) -> None:
    late, closed = node.make(), node.make()
    for env in (late, closed):
        await env.reset()
        await env.step("echo hang > how")
    with pytest.raises(DeadlineExceeded, match=r"evaluate of graded e-0 ran longer than 1 s"):
        await late.do(Kind.EVALUATE, timeout_s=1.0)
    await until(lambda: node.live() == 2)
    grading = asyncio.create_task(closed.grade())
    await until(lambda: node.live() == 3)
    await closed.close()
    with pytest.raises(NotFound, match="was closed"):
        await grading
    await until(lambda: node.live() == 1)


@pytest.mark.parametrize("how", ["pristine", "fork"])
@pytest.mark.parametrize("after", [0.0, 0.003, 0.01, 0.03])
async def test_a_grade_cancelled_while_its_box_is_made_leaves_nothing(
    node: Node, how: str, after: float
) -> None:
    env = node.make()
    await env.reset()
    await env.step(f"echo {how} {how} {how} > how")
    grading = asyncio.create_task(env.grade())
    await asyncio.sleep(after)
    await env.close()
    with pytest.raises(NotFound):
        await grading


async def test_a_reset_closed_while_it_waits_for_a_place_leaves_nothing(tmp_path: Path) -> None:
    async with running(tmp_path, 1) as node:
        first, second = node.make(), node.make()
        await first.reset()
        waiting = asyncio.create_task(second.reset())
        await until(lambda: node.core.admission.waiting == 1)
        await second.close()
        with pytest.raises(NotFound):
            await waiting
        await until(lambda: node.core.admission.waiting == 0)


async def test_a_failing_grader_is_told_and_leaves_nothing(node: Node) -> None:
    env = node.make()
    await env.reset()
    await env.step("echo raise > how")
    with pytest.raises(InfraError, match="ValueError: as asked"):
        await env.grade()
    await env.step("echo two > how")
    with pytest.raises(FailedPrecondition, match="one box at a time"):
        await env.grade()
    assert node.live() == 1
    await env.step("echo pristine > how")
    assert await env.grade() == "the environment's:"


async def test_a_backend_without_layers_says_so(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    async def refuse(*_: object) -> Any:
        raise Unimplemented("no layers here")

    monkeypatch.setattr(CheckpointTree, "snapshot", refuse)
    env = node.make()
    await env.reset()
    await env.step("echo fork > how")
    with pytest.raises(Unimplemented, match="no layers here"):
        await env.grade()
    assert node.live() == 1


async def test_an_agents_box_that_is_gone_is_no_grade(node: Node) -> None:
    env = node.make()
    await env.reset()
    await env.step("echo pristine > how")
    await node.core.delete(env._box_id)
    with pytest.raises(EnvLost, match="deleted by its user"):
        await env.grade()


async def test_an_agents_box_that_ended_for_what_it_used_up_is_worth_nothing(node: Node) -> None:
    env, other = node.make(), node.make()
    for each in (env, other):
        await each.reset()
        await each.step("echo pristine > how")
    boxes = [node.core.ledger.held[each._box_id].box for each in (env, other)]
    boxes[0]._link.fail(OwnLimit("its files take 9 bytes, its disk limit is 8"))  # type: ignore[union-attr]
    boxes[1]._link.fail("it was killed from outside")  # type: ignore[union-attr]
    step = await env.do(Kind.STEP, action="true")
    assert (step.terminated, step.observation) == (True, "its files take 9 bytes, its disk limit is 8")
    verdict = await env.do(Kind.EVALUATE)
    assert (verdict.reward, verdict.passed) == (0.0, False)
    assert verdict.details == "its files take 9 bytes, its disk limit is 8"
    for kind, fields in ((Kind.STEP, {"action": "true"}), (Kind.EVALUATE, {})):
        with pytest.raises(InfraError, match="killed from outside"):
            await other.do(kind, **fields)
