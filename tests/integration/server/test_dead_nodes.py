"""Real servers of one store on several nodes and folders: what is refused, what fails soon, what ends."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable

import pytest
from google.protobuf.duration_pb2 import Duration
from integration.replica_fleet import LEASE_S, Fleet, refusal, run, running_fleet

from rock_env.proto.v1 import sandbox_pb2 as pb

DELETED = pb.SANDBOX_STATE_DELETED


@pytest.fixture
async def fleet(new_database: Callable[[], str]) -> AsyncIterator[Fleet]:
    async with running_fleet(new_database()) as made:
        yield made


async def test_another_state_folder_of_the_node_is_refused_and_nothing_is_lost(fleet: Fleet) -> None:
    first = await fleet.start()
    made = await first.boxes.Create(pb.CreateSandboxRequest())
    other = fleet.folder / "other"
    with pytest.raises(AssertionError, match=r"another state folder, and server .* lives there.*expected '"):
        await fleet.start("--insecure", f"--state={other}")
    first.kill()
    await first.ended()
    await asyncio.sleep(LEASE_S)
    with pytest.raises(AssertionError, match=f"1 live sandboxes are there, such as {made.id}"):
        await fleet.start("--insecure", f"--state={other}")
    again = await fleet.start()
    assert await run(again.boxes, made.id, "echo here") == b"here\n"


async def test_boxes_of_a_dead_node_fail_soon_and_end_with_their_lease(fleet: Fleet) -> None:
    other = ("--insecure", "--node=other", f"--state={fleet.folder / 'other'}")
    first, second = await fleet.start(*other), await fleet.start()
    lease = Duration(seconds=20)
    made = await first.boxes.Create(pb.CreateSandboxRequest(lease=lease, idempotency_key="k"))
    first.kill()
    await first.ended()
    killed_at = time.monotonic()
    said = ""
    while "no server runs there now" not in said:  # at first it counts as a member that cannot be reached
        began_at = time.monotonic()
        code, said, metadata = await refusal(run(second.boxes, made.id, "true"))
        assert (code, metadata["rock-retry-after-s"]) == ("UNAVAILABLE", "1")
        assert time.monotonic() - began_at < 5, "in about a second, but the machine may be busy"
        assert time.monotonic() - killed_at < 20
    watch = second.boxes.Watch(pb.WatchSandboxesRequest(after_revision=made.revision))
    async with asyncio.timeout(60):
        while (info := await watch.read()).state != DELETED:
            pass
    watch.cancel()
    assert info.history[-1].reason == "its lease expired, and no server of its node 'other' lives"
    third = await fleet.start(*other)  # it destroys the box, which no record knows any more
    assert (await third.boxes.Get(pb.GetSandboxRequest(id=made.id))).state == DELETED
