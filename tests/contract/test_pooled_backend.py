"""Warm pools on real processes: a box in stock is handed out once, alive, and the stock never outlives its server."""

from __future__ import annotations

import asyncio
import os
import re
import signal
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from processes import below
from waiting import until

from rock_env.backends import pool as pool_module
from rock_env.backends import ready_boxes
from rock_env.backends.observed import observed
from rock_env.backends.pool import PooledBackend
from rock_env.backends.process.backend import ProcessBackend
from rock_env.errors import InfraError, InvalidArgument
from rock_env.guest_host.box import GuestBox
from rock_env.inventory import PoolStatus
from rock_env.sandbox import READY_KEY, READY_LOG_BYTES, OutputChunk
from rock_env.spec import Resources, SandboxSpec
from rock_env.telemetry import tracing

SPEC = SandboxSpec()


class Inner(ProcessBackend):
    """Process boxes; the first `failing` starts fail."""

    failing = 0

    async def create(self, *arguments: object, **options: object) -> GuestBox:
        if self.failing:
            self.failing -= 1
            raise InfraError("the engine is out of order")
        return await super().create(*arguments, **options)  # type: ignore[arg-type]


@pytest.fixture
async def inner(tmp_path: Path) -> AsyncIterator[Inner]:
    made = Inner(root=tmp_path / "node", isolation="none")
    yield made
    await made.close()


@pytest.fixture
async def backend(inner: Inner, tmp_path: Path) -> AsyncIterator[PooledBackend]:
    children = below()
    made = PooledBackend(inner)
    yield made
    await made.close()
    assert not os.listdir(tmp_path / "node"), "a closed pool leaves nothing on disk"  # noqa: PTH208
    assert below() <= children, "nor a process"


def only(backend: PooledBackend) -> PoolStatus:
    (status,) = backend.status()
    return status


async def filled(backend: PooledBackend, size: int) -> None:
    backend.set_target(SPEC, size)
    await until(lambda: only(backend).ready == size)


async def test_a_claim_is_a_box_in_stock_and_the_stock_is_filled_again(backend: PooledBackend) -> None:
    await filled(backend, 2)
    stock = backend.stock
    box = await backend.create(SPEC, sandbox_id="sb-1")
    assert box.id in stock, "it keeps the id it was made with"
    assert (await box.exec(["true"])).ok
    await until(lambda: only(backend).ready == 2)
    status = only(backend)
    assert (status.hits, status.misses, status.lost, status.failures) == (1, 0, 0, 0)
    assert box.id not in backend.stock
    census = await backend.census()
    assert {name for name, what in census.items() if what.startswith("pool stock")} == backend.stock
    assert not census[box.id].startswith("pool stock")
    await box.close()


async def test_no_box_is_handed_out_twice(backend: PooledBackend) -> None:
    await filled(backend, 4)
    boxes = await asyncio.gather(*(backend.create(SPEC, sandbox_id=f"sb-{number}") for number in range(10)))
    assert len({box.id for box in boxes}) == 10
    status = only(backend)
    assert status.hits >= 4
    assert status.hits + status.misses == 10
    await boxes[0].write_file("mark", b"mine")
    for box in boxes:
        await box.close()
    backend.set_target(SPEC, 1)
    await until(lambda: only(backend).ready == 1)
    fresh = await backend.create(SPEC, sandbox_id="sb-x")
    assert b"mark" not in (await fresh.exec(["ls"])).stdout


async def test_other_specs_snapshots_and_longer_lives_do_not_take_from_the_stock(
    backend: PooledBackend,
) -> None:
    await filled(backend, 1)
    other = SandboxSpec(resources=Resources(memory_bytes=1 << 31))
    assert (await backend.create(other, sandbox_id="sb-1")).id == "sb-1"
    longer = SandboxSpec(lifetime_s=SPEC.lifetime_s + 1)
    assert (await backend.create(longer, sandbox_id="sb-2")).id == "sb-2"
    assert (only(backend).hits, only(backend).misses) == (0, 1)
    shorter = SandboxSpec(lifetime_s=5)
    assert (await backend.create(shorter, sandbox_id="sb-3")).id != "sb-3"


async def test_a_box_that_died_in_stock_is_replaced_unclaimed(backend: PooledBackend, inner: Inner) -> None:
    await filled(backend, 1)
    (dead,) = backend.stock
    os.kill(inner._boxes[dead].box.pid, signal.SIGKILL)
    await until(lambda: only(backend).lost == 1 and only(backend).ready == 1)
    box = await backend.create(SPEC, sandbox_id="sb-1")
    assert box.id != dead
    assert (await box.exec(["true"])).ok


async def test_a_box_that_does_not_answer_is_not_handed_out(
    backend: PooledBackend, inner: Inner, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pool_module, "_PING_S", 0.1)
    await filled(backend, 1)
    (hung,) = backend.stock
    pid = inner._boxes[hung].box.pid
    os.kill(pid, signal.SIGSTOP)
    box = await backend.create(SPEC, sandbox_id="sb-1")  # or one stocked meanwhile, if that answers so soon
    assert box.id != hung
    assert (await box.exec(["true"])).ok
    assert only(backend).lost >= 1
    assert only(backend).hits + only(backend).misses == 1
    os.kill(pid, signal.SIGCONT)  # so that its graceful end is quick


async def test_a_box_that_is_slow_to_answer_is_handed_out(backend: PooledBackend, inner: Inner) -> None:
    await filled(backend, 1)
    (slow,) = backend.stock
    pid = inner._boxes[slow].box.pid
    os.kill(pid, signal.SIGSTOP)
    claim = asyncio.create_task(backend.create(SPEC, sandbox_id="sb-1"))
    await asyncio.sleep(2.2)  # as a machine with too much to do lets one wait
    os.kill(pid, signal.SIGCONT)
    assert (await claim).id == slow
    assert (only(backend).lost, only(backend).misses) == (0, 0)


async def test_failures_are_visible_and_backed_off_from(backend: PooledBackend, inner: Inner) -> None:
    inner.failing = 3
    backend.set_target(SPEC, 1)
    await until(lambda: only(backend).failures == 1)
    await until(lambda: only(backend).retry_in_s > 0)
    assert "the engine is out of order" in only(backend).last_failure
    inner.failing = 0
    backend.set_target(SPEC, 1)  # an operator who repaired it need not wait
    await until(lambda: only(backend).ready == 1)
    assert (only(backend).last_failure, only(backend).retry_in_s) == ("", 0)


async def test_a_caller_that_leaves_during_its_claim_leaves_no_box(
    backend: PooledBackend, inner: Inner, monkeypatch: pytest.MonkeyPatch
) -> None:
    await filled(backend, 1)
    (hung,) = backend.stock
    pid = inner._boxes[hung].box.pid
    os.kill(pid, signal.SIGSTOP)  # so that the claim waits
    claim = asyncio.create_task(backend.create(SPEC, sandbox_id="sb-1"))
    await asyncio.sleep(0.05)
    claim.cancel()
    with pytest.raises(asyncio.CancelledError):
        await claim
    os.kill(pid, signal.SIGCONT)
    await until(lambda: hung not in inner._boxes)
    assert "sb-1" not in inner._boxes


async def test_a_smaller_target_and_none_destroy_stock(backend: PooledBackend, inner: Inner) -> None:
    await filled(backend, 3)
    backend.set_target(SPEC, 1)
    await until(lambda: len(inner._boxes) == 1)
    backend.set_target(SPEC, 0)
    await until(lambda: not inner._boxes)
    with pytest.raises(InvalidArgument, match="from 0 to"):
        backend.set_target(SPEC, -1)


# -- ready commands

READY = SandboxSpec(ready=("sh", "-c", "sleep 0.2; echo $$; cat > got; echo end"))


async def test_stock_is_ready_and_who_asks_by_the_key_gets_what_runs(backend: PooledBackend) -> None:
    backend.set_target(READY, 1)
    await until(lambda: only(backend).ready == 1)
    pooled = await observed(backend, None).create(READY, sandbox_id="sb-1")
    backend.set_target(READY, 0)
    cold = await backend.create(READY, sandbox_id="sb-2")
    tracing.enter_remote([("traceparent", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01")])
    for box, runs in ((pooled, 1), (cold, 0)):
        assert len(await box.processes()) == runs
        process = await box.start_process(READY.ready, key=READY_KEY, log_bytes=READY_LOG_BYTES)
        assert len(await box.processes()) == 1
        async with box.process_logs(process, follow=True) as command:
            first = await anext(command.events())
            assert isinstance(first, OutputChunk)
            assert int(first.data) > 0
            command.write_stdin(box.id.encode())
            command.close_stdin()
            await command.result()
        assert (await box.read_file("got")).decode() == box.id


@pytest.mark.parametrize(
    ("command", "said"),
    [
        ("echo no browser here >&2; exit 3", r"ended \(3\) before it wrote a line: 'no browser here'"),
        ("while :; do printf x; sleep 0.02; done", "wrote no line within"),
    ],
)
async def test_a_box_that_does_not_become_ready_is_no_stock(
    backend: PooledBackend, inner: Inner, monkeypatch: pytest.MonkeyPatch, command: str, said: str
) -> None:
    monkeypatch.setattr(ready_boxes, "READY_S", 1.0)
    backend.set_target(SandboxSpec(ready=("sh", "-c", command)), 1)
    await until(lambda: only(backend).failures == 1)
    assert re.search(said, only(backend).last_failure)
    assert only(backend).ready == 0
    await until(lambda: not inner._boxes)


async def test_stock_gives_way_to_sandboxes_that_are_used(inner: Inner) -> None:
    places = 2
    backend = PooledBackend(inner, room=lambda extra: len(extra) <= places)
    backend.set_target(SPEC, 3)
    await until(lambda: only(backend).waits_for_room)
    assert only(backend).ready == 2, "no more than there is room for"
    places = 1
    other = SandboxSpec(resources=Resources(pids=9))
    await backend.create(other, sandbox_id="sb-1")
    assert only(backend).ready == 1
    places = 9
    backend.refill()
    await until(lambda: only(backend).ready == 3)
    await backend.close()


@pytest.fixture
async def lasting(inner: Inner, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[PooledBackend]:
    """A pool whose stock can be claimed as boxes that outlive their server."""
    made = PooledBackend(inner, durable=True)
    yield made
    await made.close()


async def test_a_durable_claim_outlives_the_server_and_nothing_else_does(
    lasting: PooledBackend, tmp_path: Path
) -> None:
    await filled(lasting, 3)
    kept = await lasting.create(SPEC, sandbox_id="sb-1", durable=True)
    lent = await lasting.create(SPEC, sandbox_id="sb-2")
    assert {kept.id, lent.id}.isdisjoint({"sb-1", "sb-2"}), "both were in stock"
    await kept.write_file("mark", b"mine")
    await lasting.let_go()
    after = ProcessBackend(root=tmp_path / "node", isolation="none")
    assert set(await after.census()) == {kept.id}
    box = await after.adopt(kept.id, spec=SPEC)
    assert box is not None
    assert await box.read_file("mark") == b"mine"
    await after.close()


async def test_a_claimed_box_has_the_lease_that_was_asked_for(lasting: PooledBackend, inner: Inner) -> None:
    await filled(lasting, 2)
    brief = await lasting.create(SPEC, sandbox_id="sb-1", durable=True, lease_s=0.2)
    longer = await lasting.create(SPEC, sandbox_id="sb-2", durable=True, lease_s=600)
    assert await asyncio.wait_for(brief.lost(), 30)
    assert (await longer.exec(["true"])).ok


async def test_stock_and_lent_boxes_end_by_themselves_when_nobody_renews_them(
    lasting: PooledBackend, inner: Inner, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pool_module, "STOCK_LEASE_S", 0.6)
    monkeypatch.setattr(pool_module, "_RENEW_S", 0.1)
    await filled(lasting, 2)
    lent = await lasting.create(SPEC, sandbox_id="sb-1")
    before = lasting.stock
    await asyncio.sleep(1.0)
    assert before <= lasting.stock, "the pool renews them"
    assert (await lent.exec(["true"])).ok
    assert lasting._tender is not None
    lasting._tender.cancel()  # as when the server hangs or is killed
    await until(lambda: not before & inner._boxes.keys())
    assert await asyncio.wait_for(lent.lost(), 30)


async def test_a_box_that_does_not_answer_costs_no_other_its_lease(
    lasting: PooledBackend, inner: Inner, monkeypatch: pytest.MonkeyPatch
) -> None:
    renewed: Counter[str] = Counter()
    renew = GuestBox.lease

    async def lease(box: GuestBox, seconds: float) -> None:
        await renew(box, seconds)
        renewed[box.id] += 1

    monkeypatch.setattr(GuestBox, "lease", lease)
    monkeypatch.setattr(pool_module, "_RENEW_S", 0.1)
    monkeypatch.setattr(pool_module, "_PING_S", 600.0)
    await filled(lasting, 2)
    (pool,) = lasting._pools.values()
    hung, other = (stocked.box.id for stocked in pool.ready)
    pid = inner._boxes[hung].box.pid
    os.kill(pid, signal.SIGSTOP)
    before = renewed[other]
    await until(lambda: renewed[other] > before)
    os.kill(pid, signal.SIGCONT)


async def test_a_restored_box_still_ends_with_its_server(lasting: PooledBackend, tmp_path: Path) -> None:
    await filled(lasting, 1)
    lent = await lasting.create(SPEC, sandbox_id="sb-1")
    await lasting.snapshot(lent.id, snapshot_id="sn-1")
    restored = await lasting.restore(lent.id, snapshot="sn-1")
    assert (await restored.exec(["true"])).ok
    await lasting.let_go()
    after = ProcessBackend(root=tmp_path / "node", isolation="none")
    assert await after.census() == {}
    await after.close()
