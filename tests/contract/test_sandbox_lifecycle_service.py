"""The life of sandboxes over gRPC, on real processes: leases, deadlines, pause, watch, restarts and full disks."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Awaitable
from contextvars import ContextVar
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import grpc
import psutil
import pytest
import transports
from fences import why_not_isolated
from processes import below, name_of, parent_of
from sandbox_servers import serving

from rock_env.backends.process.backend import ProcessBackend
from rock_env.errors import InfraError, NotFound, Unavailable
from rock_env.lifecycle import SandboxState, born
from rock_env.proto.v1 import sandbox_pb2 as pb
from rock_env.server.sandboxes.core import SandboxCore, SandboxWish
from rock_env.spec import SandboxSpec
from rock_env.store.base import Query
from rock_env.store.sqlite.records import SqliteStore

STARTING, RUNNING, PAUSED = pb.SANDBOX_STATE_STARTING, pb.SANDBOX_STATE_RUNNING, pb.SANDBOX_STATE_PAUSED
DELETING, DELETED, FAILED = pb.SANDBOX_STATE_DELETING, pb.SANDBOX_STATE_DELETED, pb.SANDBOX_STATE_FAILED


def guests_since(before: frozenset[psutil.Process]) -> frozenset[psutil.Process]:
    """Return the boxes' processes that are not in `before`: other tests' servers may live on."""
    zygotes = {process.pid for process in psutil.Process().children()}
    return frozenset(process for process in below() if parent_of(process) in zygotes) - before


@pytest.fixture(params=["namespaces", "none"])
def isolation(request: pytest.FixtureRequest) -> str:
    if request.param == "namespaces" and why_not_isolated():
        pytest.skip(f"no isolation here: {why_not_isolated()}")
    return str(request.param)


@pytest.fixture
def earlier() -> set[psutil.Process]:
    """Return the processes below this one that are not the test's, such as a database that others share."""
    return below()


@pytest.fixture
async def stub(
    tmp_path: Path, isolation: Literal["namespaces", "none"], earlier: set[psutil.Process]
) -> AsyncIterator[Any]:
    async with serving(tmp_path, isolation) as made:
        yield made
    assert below() <= earlier, "a stopped server leaves no process"


@pytest.fixture
async def bare(tmp_path: Path) -> AsyncIterator[Any]:
    """Serve without isolation, for what does not depend on it."""
    async with serving(tmp_path, "none") as made:
        yield made


@pytest.fixture(params=transports.EACH)
async def either(tmp_path: Path, request: pytest.FixtureRequest) -> AsyncIterator[Any]:
    """Serve the same over gRPC and over REST."""
    async with serving(tmp_path, "none", transport=request.param) as made:
        yield made


def wish(**seconds: float) -> pb.CreateSandboxRequest:
    """Ask for a sandbox with `lease`, `idle_timeout` or `lifetime` in seconds."""
    request = pb.CreateSandboxRequest()
    for name, value in seconds.items():
        duration = request.spec.lifetime if name == "lifetime" else getattr(request, name)
        duration.FromMilliseconds(round(value * 1000))
    return request


def renewal(sandbox_id: str, seconds: float) -> pb.RenewSandboxRequest:
    request = pb.RenewSandboxRequest(id=sandbox_id)
    request.lease.FromMilliseconds(round(seconds * 1000))
    return request


async def run(stub: Any, sandbox_id: str, script: str) -> bytes:
    start = pb.ExecStart(sandbox_id=sandbox_id, argv=["bash", "-c", script])
    return b"".join([event.stdout.data async for event in stub.Exec(iter([pb.ExecRequest(start=start)]))])


async def refusal(call: Awaitable[Any]) -> tuple[str, str]:
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await call
    return caught.value.code().name, caught.value.details()


async def next_change(stub: Any, since: pb.SandboxInfo, state: int) -> pb.SandboxInfo:
    """Wait for a push, not seen yet, that shows the sandbox in the state."""
    watch = stub.Watch(pb.WatchSandboxesRequest(after_revision=since.revision))
    async for info in watch:
        if (info.id, info.state) == (since.id, state):
            watch.cancel()
            return info
    pytest.fail("the watch ended")


@pytest.mark.parametrize(
    ("deadline", "reason"),
    [
        ({"lease": 0.05}, "its lease expired"),
        ({"idle_timeout": 0.1}, "it was idle too long"),
        ({"lifetime": 0.05}, "its lifetime ended"),
        ({"lifetime": 0.05, "lease": 100, "idle_timeout": 100}, "its lifetime ended"),
    ],
)
async def test_a_deadline_ends_a_sandbox_and_is_its_reason(
    stub: Any, deadline: dict[str, float], reason: str
) -> None:
    made = await stub.Create(wish(**deadline))
    gone = await next_change(stub, made, DELETED)
    assert [change.state for change in gone.history] == [STARTING, RUNNING, DELETING, DELETED]
    assert [change.reason for change in gone.history][2:] == [reason, reason]
    assert (await refusal(run(stub, made.id, "true")))[0] == "NOT_FOUND"


@pytest.mark.any_address
async def test_a_renewed_lease_lasts_and_is_told(bare: Any) -> None:
    kept, other = [await bare.Create(wish(lease=1.5)) for _ in range(2)]
    renewed = await bare.Renew(renewal(kept.id, 600))
    assert renewed.lease_expires_at.ToSeconds() > other.lease_expires_at.ToSeconds() + 500
    assert renewed.history == kept.history
    await next_change(bare, other, DELETED)  # its deadline is later than the first one's was
    assert (await bare.Get(pb.GetSandboxRequest(id=kept.id))).state == RUNNING
    code, said = await refusal(bare.Renew(renewal(other.id, 600)))
    assert (code, "DELETED (its lease expired)" in said) == ("FAILED_PRECONDITION", True)
    assert (await refusal(bare.Renew(pb.RenewSandboxRequest(id=kept.id))))[0] == "INVALID_ARGUMENT"


@pytest.mark.any_address
async def test_a_sandbox_in_use_is_not_idle(bare: Any) -> None:
    made = await bare.Create(wish(idle_timeout=1.0))
    command = asyncio.create_task(run(bare, made.id, "until test -f go; do sleep 0.01; done; echo done"))
    moved = made
    while moved.idle_expires_at.ToNanoseconds() <= made.idle_expires_at.ToNanoseconds():
        moved = await next_change(bare, moved, RUNNING)
    assert moved.history == made.history
    await bare.WriteFile(iter([pb.WriteFileRequest(sandbox_id=made.id, path="go")]))
    assert await command == b"done\n"
    assert (await next_change(bare, moved, DELETED)).reason == "it was idle too long"


async def test_pause_stops_everything_and_resume_goes_on(stub: Any, earlier: set[psutil.Process]) -> None:
    made = await stub.Create(pb.CreateSandboxRequest())
    # A command that counts, one that detached itself and counts, and one that was stopped by the user.
    count = "n=0; while :; do n=$((n+1)); echo $n > count; sleep 0.01; done"
    detached = "n=0; while :; do n=$((n+1)); echo $n > detached; sleep 0.01; done"
    script = f"(setsid bash -c '{detached}' &); sleep 600 & echo $! > pid; kill -STOP $!; echo up; {count}"
    command = stub.Exec()
    start = pb.ExecStart(sandbox_id=made.id, argv=["bash", "-c", script], timeout={"seconds": 600})
    await command.write(pb.ExecRequest(start=start))
    assert (await command.read()).stdout.data == b"up\n"
    await run(stub, made.id, "until test -s count -a -s detached; do sleep 0.01; done")

    paused = await stub.Pause(pb.PauseSandboxRequest(id=made.id))
    assert (paused.state, paused.reason) == (PAUSED, "paused by its user")
    assert await stub.Pause(pb.PauseSandboxRequest(id=made.id)) == paused
    code, said = await refusal(run(stub, made.id, "true"))
    assert (code, "Resume it first" in said) == ("FAILED_PRECONDITION", True)
    boxes = [process for process in below() - earlier if name_of(process) == "bash"]
    assert len(boxes) >= 2
    before = [process.cpu_times() for process in boxes]
    assert {process.status() for process in boxes} == {psutil.STATUS_STOPPED}
    await asyncio.sleep(0.1)
    assert [process.cpu_times() for process in boxes] == before

    resumed = await stub.Resume(pb.ResumeSandboxRequest(id=made.id))
    assert resumed.state == RUNNING
    assert await stub.Resume(pb.ResumeSandboxRequest(id=made.id)) == resumed
    goes_on = (
        'c=$(cat count) d=$(cat detached); while [ "$c" = "$(cat count)" ] || [ "$d" = "$(cat detached)" ]'
    )
    assert await run(stub, made.id, f"{goes_on}; do sleep 0.01; done; echo both") == b"both\n"
    state = "read -ra stat < /proc/$(cat pid)/stat; echo ${stat[2]}"
    assert await run(stub, made.id, state) == b"T\n", "what the user had stopped stays stopped"
    command.cancel()


@pytest.mark.any_address
async def test_a_paused_sandbox_is_not_idle_but_its_lease_ends(bare: Any) -> None:
    made = await bare.Create(wish(idle_timeout=1.0))
    paused = await bare.Pause(pb.PauseSandboxRequest(id=made.id))
    moved = await next_change(bare, paused, PAUSED)
    assert moved.idle_expires_at.ToNanoseconds() > paused.idle_expires_at.ToNanoseconds()
    await bare.Renew(renewal(made.id, 0.05))
    assert (await next_change(bare, moved, DELETED)).reason == "its lease expired"


async def test_a_box_that_dies_is_failed_at_once(stub: Any, earlier: set[psutil.Process]) -> None:
    made = await stub.Create(pb.CreateSandboxRequest())
    for process in below() - earlier:
        with contextlib.suppress(psutil.NoSuchProcess):  # it ended with another one
            process.kill()
    failed = await next_change(stub, made, FAILED)
    assert "ended with status" in failed.reason
    assert (await refusal(stub.Pause(pb.PauseSandboxRequest(id=made.id))))[0] == "FAILED_PRECONDITION"
    assert (await stub.Delete(pb.DeleteSandboxRequest(id=made.id))).state == DELETED


@pytest.mark.any_address
async def test_watch_tells_what_is_what_changes_and_what_was_missed(either: Any) -> None:
    mine = pb.CreateSandboxRequest(labels={"team": "a"})
    first = await either.Create(mine)
    await either.Create(pb.CreateSandboxRequest(labels={"team": "b"}))
    watch = either.Watch(pb.WatchSandboxesRequest(labels={"team": "a"}))
    assert await watch.read() == first
    second = await either.Create(mine)
    changes = [await watch.read()]
    while (
        changes[-1].state != RUNNING
    ):  # servers of one store tell a change that was followed by another only once
        changes.append(await watch.read())
    assert [(info.id, info.state) for info in changes][-2:] in (
        [(second.id, STARTING), (second.id, RUNNING)],
        [(second.id, RUNNING)],
    )
    assert [first.revision, *(info.revision for info in changes)] == sorted(
        {first.revision, *(info.revision for info in changes)}
    )
    assert changes[-1].revision == second.revision
    watch.cancel()
    gone = await either.Delete(pb.DeleteSandboxRequest(id=first.id))
    again = either.Watch(pb.WatchSandboxesRequest(labels={"team": "a"}, after_revision=second.revision))
    assert await again.read() == gone, "with the states it passed in its history"
    unknown = either.Watch(pb.WatchSandboxesRequest(after_revision=gone.revision + 1))
    code, said = await refusal(unknown.read())
    assert (code, "Watch from 0" in said) == ("FAILED_PRECONDITION", True)


@pytest.mark.any_address
async def test_list_finds_an_environments_sandboxes(either: Any) -> None:
    asked = [pb.CreateSandboxRequest(environment=name) for name in ("swe", "web", "swe")]
    made = [await either.Create(request) for request in asked]
    found = await either.List(pb.ListSandboxesRequest(environment="swe", states=[RUNNING]))
    assert [info.id for info in found.sandboxes] == sorted([made[0].id, made[2].id])
    assert {info.environment for info in found.sandboxes} == {"swe"}


@pytest.mark.any_address
@pytest.mark.parametrize(
    "request_", [wish(lease=0), wish(lease=-1), wish(idle_timeout=0.01), wish(lifetime=-1), wish(lease=1e9)]
)
async def test_a_wrong_duration_is_refused(either: Any, request_: pb.CreateSandboxRequest) -> None:
    assert (await refusal(either.Create(request_)))[0] == "INVALID_ARGUMENT"
    assert not (await either.List(pb.ListSandboxesRequest())).sandboxes


async def test_a_stopping_server_deletes_its_sandboxes_and_remembers_keys(tmp_path: Path) -> None:
    store = tmp_path / "store.db"
    async with serving(tmp_path, "none", store) as stub:
        request = pb.CreateSandboxRequest(idempotency_key="k")
        made = await stub.Create(request)
    async with serving(tmp_path, "none", store) as stub:
        again = await stub.Create(request)
        assert (again.id, again.state, again.reason) == (made.id, DELETED, "the server stopped")
        code = (
            await refusal(stub.Create(pb.CreateSandboxRequest(idempotency_key="k", environment="other")))
        )[0]
        assert code == "FAILED_PRECONDITION"


async def test_a_create_that_was_never_answered_can_be_tried_again(tmp_path: Path) -> None:
    store, key = tmp_path / "store.db", "k"
    async with await SqliteStore.open(
        store
    ) as records:  # as a server leaves it that was killed while starting a box
        half = born("sb-half", SandboxSpec(), backend="process", at=1.0)
        await records.add(replace(half, idempotency_key=key, request_digest="d"))
    async with serving(tmp_path, "none", store) as stub:
        made = await stub.Create(pb.CreateSandboxRequest(idempotency_key=key))
        assert (made.state, made.id != "sb-half") == (RUNNING, True)
        lost = await stub.Get(pb.GetSandboxRequest(id="sb-half"))
        assert [change.state for change in lost.history] == [STARTING, FAILED, DELETING, DELETED]
        assert {change.reason for change in lost.history[1:]} == {"server restarted"}


async def test_a_full_store_loses_no_box(tmp_path: Path) -> None:
    before = guests_since(frozenset())
    (tmp_path / "boxes").mkdir()
    backend = ProcessBackend(root=tmp_path / "boxes", isolation="none")
    async with await SqliteStore.open(tmp_path / "store.db") as store, SandboxCore(backend, store) as core:
        made = await core.create(SandboxWish(SandboxSpec()))

        async def limit_pages(count: int) -> None:
            await store._run(lambda: store._number(f"PRAGMA max_page_count = {count}"))

        await limit_pages(1)  # SQLite takes it as the present size: nothing can grow

        async def fill() -> None:
            for number in range(100):
                labels = {"filler": json.dumps([number] * 1000)}
                await core.create(SandboxWish(SandboxSpec(), labels=labels))

        with pytest.raises(InfraError, match="disk is full"):
            await fill()
        running = [it.id for it in await core.find(Query(states=frozenset({SandboxState.RUNNING})))]
        guests = len(guests_since(before))
        assert len(running) == guests, "a sandbox that could not be stored has no box"
        await limit_pages(1_000_000)
        assert (await core.delete(made.id)).state is SandboxState.DELETED
        assert len(guests_since(before)) == guests - 1
    await backend.close()


async def test_a_store_that_cannot_be_written_keeps_no_box_alive(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rock_env.server.sandboxes.ledger.RETRY_S", 0.1)
    before = guests_since(frozenset())
    (tmp_path / "boxes").mkdir()
    backend = ProcessBackend(root=tmp_path / "boxes", isolation="none")
    async with await SqliteStore.open(tmp_path / "store.db") as store, SandboxCore(backend, store) as core:
        made = await core.create(SandboxWish(SandboxSpec()))

        async def writable(answer: bool) -> None:
            await store._run(lambda: store._open_database.execute(f"PRAGMA query_only = {not answer}"))

        await writable(False)
        with pytest.raises(InfraError, match="readonly"):
            await core.create(SandboxWish(SandboxSpec()))
        with pytest.raises(InfraError, match="could not be deleted"):
            await core.delete(made.id)
        assert not guests_since(before)
        with pytest.raises(NotFound, match="DELETING"):
            async with core.using(made.id):
                pass
        await writable(True)
        async for record in core.watch({}, after_revision=made.revision):  # it is tried again by itself
            assert [change.state for change in record.history[2:]] == [
                SandboxState.DELETING,
                SandboxState.DELETED,
            ]
            break
    await backend.close()


async def test_tenants_do_not_see_each_other(tmp_path: Path) -> None:
    (tmp_path / "boxes").mkdir()
    backend = ProcessBackend(root=tmp_path / "boxes", isolation="none")
    caller: ContextVar[str] = ContextVar("caller", default="")
    async with (
        await SqliteStore.open() as store,
        SandboxCore(backend, store, tenant=caller.get) as core,
    ):
        caller.set("a")
        theirs = await core.create(SandboxWish(SandboxSpec(), key="k"))
        gone = await core.create(SandboxWish(SandboxSpec()))
        await core.delete(gone.id)
        caller.set("b")
        mine = await core.create(SandboxWish(SandboxSpec(), key="k"))
        assert (theirs.tenant, mine.tenant) == ("a", "b")
        assert mine.id != theirs.id, "a key is one tenant's own"
        for sandbox_id in (theirs.id, gone.id):
            for act in (core.get, core.delete, core.pause, core.resume):
                with pytest.raises(NotFound, match="no sandbox"):
                    await act(sandbox_id)
            with pytest.raises(NotFound, match="no sandbox"):
                await core.renew(sandbox_id, 1.0)
            with pytest.raises(NotFound, match="no sandbox"):
                await core.using(sandbox_id).__aenter__()
        assert [record.id for record in await core.find(Query())] == [mine.id]
        watch = core.watch({}, after_revision=0)
        assert (await anext(watch)).id == mine.id
        caller.set("a")
        await core.pause(theirs.id)
        caller.set("b")
        await core.pause(mine.id)
        assert (await anext(watch)).id == mine.id
        await watch.aclose()
        caller.set("a")
        assert (await core.get(theirs.id)).state is SandboxState.PAUSED
    await backend.close()


async def test_a_renewal_that_came_before_the_expiry_wins(tmp_path: Path) -> None:
    (tmp_path / "boxes").mkdir()
    backend = ProcessBackend(root=tmp_path / "boxes", isolation="none")
    async with await SqliteStore.open() as store, SandboxCore(backend, store) as core:
        made = await core.create(SandboxWish(SandboxSpec(), lease_s=0.3))
        async with core.ledger.held[made.id].lock:  # another change is in progress
            renewal = asyncio.create_task(core.renew(made.id, 600))
            for _ in range(1500):
                await asyncio.sleep(0.02)
                if core.ledger.deadlines._heap.next_at() is None:
                    break  # the lease expired, with the renewal waiting
        await renewal
        await core.tasks.finish(None)
        assert (await core.get(made.id)).state is SandboxState.RUNNING
        assert core.ledger.deadlines._heap.next_at() is not None, "and its new deadline is watched"
    await backend.close()


@pytest.mark.parametrize("turns", [1, 3, 10, 100])
async def test_a_server_that_stops_while_sandboxes_start_leaves_none(turns: int, tmp_path: Path) -> None:
    before = guests_since(frozenset())
    (tmp_path / "boxes").mkdir()
    backend = ProcessBackend(root=tmp_path / "boxes", isolation="none")
    async with await SqliteStore.open() as store:
        async with SandboxCore(backend, store) as core:
            starting = [asyncio.create_task(core.create(SandboxWish(SandboxSpec()))) for _ in range(4)]
            for _ in range(turns):  # of the event loop: asked for, being stored, being made
                await asyncio.sleep(0)
        answers = await asyncio.gather(*starting, return_exceptions=True)
        records = await store.find(Query())
        assert {record.state for record in records} <= {SandboxState.DELETED}
        answered = {answer.id for answer in answers if not isinstance(answer, BaseException)}
        assert answered <= {record.id for record in records}
        assert not guests_since(before)
        with pytest.raises(Unavailable, match="stopping"):
            await core.create(SandboxWish(SandboxSpec()))
    await backend.close()
