"""Groups of pods: all of them have room in the cluster, or none is made."""

from __future__ import annotations

import asyncio
import json

import grpc
import pytest
from kubernetes_cluster import give_slots, guest_image, kubectl, namespace, tools_image  # noqa: F401  fixtures

from rock_env.client import Client
from rock_env.errors import ResourceExhausted
from rock_env.local import embedded
from rock_env.proto.v1 import sandbox_pb2 as pb
from rock_env.proto.v1.sandbox_pb2_grpc import SandboxServiceStub
from rock_env.spec import Resources, SandboxSpec
from rock_env.wire.channel import target
from rock_env.wire.sandboxes import spec_message

SPEC = SandboxSpec(resources=Resources(cpus=1, memory_bytes=128 << 20, disk_bytes=128 << 20))


async def test_a_group_and_a_fork_that_do_not_fit_the_cluster_leave_nothing(
    guest_image: str,  # noqa: F811
    tools_image: str,  # noqa: F811
    namespace: str,  # noqa: F811
) -> None:
    async def pods() -> int:
        listed = await asyncio.to_thread(kubectl, "-n", namespace, "get", "pods", "-o", "json")
        return len(json.loads(listed)["items"])

    slot = await asyncio.to_thread(give_slots, namespace, 3)
    backend = (
        f"kubernetes:namespace={namespace},guest={guest_image},image={tools_image},profile=image,reserved=0.1"
    )
    async with (
        embedded([f"--backend={backend},slot={slot},room_s=4"]) as address,
        Client(address) as client,
        grpc.aio.insecure_channel(target(address)) as channel,
    ):

        async def group(count: int) -> list[str]:
            items = [pb.CreateSandboxRequest(spec=spec_message(SPEC))] * count
            made = await SandboxServiceStub(channel).CreateMany(pb.CreateManyRequest(items=items), timeout=60)
            return [each.id for each in made.sandboxes]

        with pytest.raises(grpc.aio.AioRpcError, match="no node had room") as full:
            await group(4)
        assert full.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
        assert await pods() == 0
        one, two = [await client.sandboxes.attach(each) for each in await group(2)]
        assert (await one.exec(["sh", "-c", "echo kept > f"])).ok
        with pytest.raises(ResourceExhausted, match="no node had room"):
            await one.fork(2)
        assert await pods() == 2
        (fork,) = await one.fork(1)
        assert (await fork.exec(["cat", "f"])).stdout == b"kept\n"
        for box in (one, two, fork):
            await box.delete()
        assert await pods() == 0
