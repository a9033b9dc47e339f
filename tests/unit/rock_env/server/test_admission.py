"""Waiting at the door: deadlines, refusals that say when to come back, and places that always come back."""

from __future__ import annotations

import asyncio
import pickle
import random
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rock_env.errors import FailedPrecondition, InvalidArgument, ResourceExhausted, UnknownName
from rock_env.inventory import Amount, Limits
from rock_env.server.capacity.admission import Admission
from rock_env.server.capacity.quotas import Ask, Quota, QuotaFile, Quotas, parse_quotas

BOX = Ask(cpus=1, memory_bytes=1 << 30)


def door(boxes: int, *, max_waiting: int = 10, **quotas: Quota) -> Admission:
    return Admission(QuotaFile(Quotas(Limits(boxes=boxes), tenants=quotas)), max_waiting=max_waiting)


async def test_a_place_that_is_released_goes_to_who_waits() -> None:
    admission = door(1)
    first = await admission.admit("a", [BOX])
    waits = asyncio.create_task(admission.admit("a", [BOX]))
    await asyncio.sleep(0)
    assert admission.waiting == 1
    first.release()
    first.release()
    second = await waits
    assert (admission.used, admission.waiting) == (Amount(1, 1000, 1 << 30), 0)
    second.release()
    assert admission.used == Amount()


async def test_a_refusal_names_position_and_when_to_come_back() -> None:
    now = [100.0]
    quotas = QuotaFile(Quotas(Limits(boxes=1)))
    admission = Admission(quotas, clock=lambda: now[0])
    for _ in range(5):
        grant = await admission.admit("a", [BOX])
        now[0] += 2.0
        grant.release()
    await admission.admit("a", [BOX])
    ahead = asyncio.create_task(admission.admit("a", [BOX], timeout_s=60))
    await asyncio.sleep(0)
    with pytest.raises(ResourceExhausted, match=r"Position 2 in its queue.*the server's capacity") as caught:
        await admission.admit("a", [BOX], timeout_s=0.001)
    error = pickle.loads(pickle.dumps(caught.value))
    assert error.queue_position == 2
    assert error.retry_after_s == pytest.approx(2 / (5 / 8)), "two boxes at five in eight seconds"
    ahead.cancel()
    with pytest.raises(asyncio.CancelledError):
        await ahead
    assert admission.waiting == 0


async def test_a_full_queue_refuses_at_once() -> None:
    admission = door(1, max_waiting=1)
    await admission.admit("a", [BOX])
    waits = asyncio.create_task(admission.admit("a", [BOX]))
    await asyncio.sleep(0)
    with pytest.raises(ResourceExhausted, match="its queue is full"):
        await admission.admit("a", [BOX])
    waits.cancel()


async def test_a_caller_that_gives_up_as_it_is_served_leaves_no_place_taken() -> None:
    admission = door(1)
    first = await admission.admit("a", [BOX])
    waits = asyncio.create_task(admission.admit("a", [BOX]))
    await asyncio.sleep(0)
    first.release()  # serves it
    waits.cancel()  # before it could run
    with pytest.raises(asyncio.CancelledError):
        await waits
    assert (admission.used, admission.waiting) == (Amount(), 0)


async def test_a_caller_that_gave_up_is_never_served() -> None:
    admission = door(1)
    first = await admission.admit("a", [BOX])
    waits = asyncio.create_task(admission.admit("a", [BOX]))
    await asyncio.sleep(0)
    waits.cancel()
    first.release()
    with pytest.raises(asyncio.CancelledError):
        await waits
    assert admission.used == Amount()
    assert (await admission.admit("a", [BOX], timeout_s=0)).held


async def test_a_gang_gets_all_or_nothing_and_each_box_gives_back_its_own() -> None:
    admission = door(4)
    one = await admission.admit("a", [BOX])
    gang = asyncio.create_task(admission.admit("a", [BOX] * 4))
    await asyncio.sleep(0)
    assert admission.used.boxes == 1
    one.release()
    whole = await gang
    parts = whole.split()
    whole.release()
    assert admission.used.boxes == 4, "what was split is the parts'"
    for left, part in zip((3, 2, 1, 0), parts, strict=True):
        part.release()
        assert admission.used.boxes == left


async def test_two_gangs_at_once_and_what_can_never_be() -> None:
    admission = door(4, b=Quota(Limits(boxes=2)))
    gangs = [asyncio.create_task(admission.admit("a", [BOX] * 3)) for _ in range(2)]
    await asyncio.sleep(0)
    assert [gang.done() for gang in gangs] == [True, False]
    (await gangs[0]).release()
    (await gangs[1]).release()
    with pytest.raises(
        InvalidArgument, match="never be granted: it takes 5 boxes, and this server's capacity is 4"
    ):
        await admission.admit("a", [BOX] * 5)
    with pytest.raises(InvalidArgument, match="quota of its tenant is 2"):
        await admission.admit("b", [BOX] * 3)
    with pytest.raises(InvalidArgument, match="at least one box"):
        await admission.admit("b", [])


async def test_what_is_adopted_waits_for_nobody_and_counts() -> None:
    admission = door(1)
    kept = [admission.adopt("a", [BOX]), admission.adopt("a", [BOX])]
    assert not admission.has_room([])
    with pytest.raises(ResourceExhausted):
        await admission.admit("b", [BOX], timeout_s=0)
    kept[0].release()
    with pytest.raises(ResourceExhausted):
        await admission.admit("b", [BOX], timeout_s=0)
    kept[1].release()
    assert (await admission.admit("b", [BOX], timeout_s=0)).held


async def test_a_quota_is_changed_for_those_who_wait(tmp_path: Path) -> None:
    kept = tmp_path / "quotas.json"
    quotas = Quotas(Limits(boxes=9), Quota(Limits(boxes=1)))
    admission = Admission(QuotaFile(quotas, kept))
    await admission.admit("a", [BOX])
    waits = asyncio.create_task(admission.admit("a", [BOX]))
    await asyncio.sleep(0)
    assert not waits.done()
    admission.set_quota("a", Quota(Limits(boxes=2), weight=3))
    assert (await waits).held
    again = Admission(QuotaFile(quotas, kept))
    assert again.quota("a") == Quota(Limits(boxes=2), weight=3), "it survives the server"
    assert (again.quota("b"), again.tenants()) == (Quota(Limits(boxes=1)), ["a"])
    kept.write_text("{}")
    with pytest.raises(FailedPrecondition, match="does not hold quotas"):
        QuotaFile(quotas, kept)


@settings(max_examples=25)
@given(seed=st.integers(0, 1 << 30), capacity=st.integers(1, 6))
def test_whatever_callers_do_every_place_comes_back(seed: int, capacity: int) -> None:
    """Many callers wait, give up, are cancelled and release at any moment of the event loop."""
    asyncio.run(_storm(random.Random(seed), capacity))


async def _storm(chance: random.Random, capacity: int) -> None:
    admission = door(capacity, max_waiting=1000, b=Quota(Limits(boxes=2), weight=2))
    most = 0

    async def caller(tenant: str, size: int) -> None:
        nonlocal most
        try:
            grant = await admission.admit(tenant, [BOX] * size, timeout_s=chance.choice([0, 0.001, 5]))
        except (ResourceExhausted, InvalidArgument):
            return
        most = max(most, admission.used.boxes)
        try:
            for _ in range(chance.randrange(4)):
                await asyncio.sleep(0)
        finally:
            for part in grant.split():
                part.release()

    tasks = []
    for _ in range(60):
        tasks.append(asyncio.create_task(caller(chance.choice("abc"), chance.randint(1, 3))))
        if chance.random() < 0.3:
            chance.choice(tasks).cancel()
        if chance.random() < 0.5:
            await asyncio.sleep(0)
    await asyncio.gather(*tasks, return_exceptions=True)
    assert (admission.used, admission.waiting) == (Amount(), 0)
    assert most <= capacity


def test_a_quota_file() -> None:
    quotas = parse_quotas(
        '[capacity]\nboxes = 8\nmemory = "64GiB"\n[default]\ncpus = 2.5\n[tenants.blue]\nweight = 2\nmemory = "512M"\n'
    )
    assert (quotas.capacity.boxes, quotas.capacity.memory_bytes) == (8, 64 << 30)
    assert quotas.capacity.cpus, "what is not said is the machine's"
    assert quotas.default == Quota(Limits(cpus=2.5))
    assert quotas.tenants == {"blue": Quota(Limits(memory_bytes=512 << 20), weight=2)}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[capasity]", "Did you mean 'capacity'"),
        ("[default]\nbox = 1", "Did you mean 'boxes'"),
        ("[capacity]\nweight = 1", "unknown key of"),
        ('[default]\nmemory = "lots"', "such as \"64GiB\", got 'lots'"),
        ("[default]\nboxes = true", "boxes of .default. must be a number"),
        ("[default]\nweight = 0", "weight of a quota must be from 0.001"),
        ("[default]\ncpus = -1", "cpus of a limit must be from 0"),
        ("tenants = 3", "must be tables"),
        ("[tenants]\nblue = 3", "must be a table"),
        ("nonsense", "not a quota file"),
    ],
)
def test_a_bad_quota_file_is_refused_by_key(text: str, said: str) -> None:
    with pytest.raises((InvalidArgument, UnknownName), match=said):
        parse_quotas(text)
