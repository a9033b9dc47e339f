"""A tenant that asks for a thousand boxes beyond its quota: each request is refused by name, with its place in the queue."""

from __future__ import annotations

import asyncio
from collections import Counter
from pathlib import Path

import grpc
from rest_servers import guarded_rest

from rock_env.proto.v1 import sandbox_pb2 as pb
from rock_env.proto.v1.sandbox_pb2_grpc import SandboxServiceStub
from rock_env.wire.channel import CLIENT_OPTIONS, target

REQUESTS = 1100
"""More than may wait, so that both ways to be refused are taken."""
DEADLINE_S = 20.0


async def test_every_refusal_at_a_full_quota_has_a_place_in_the_queue(tmp_path: Path) -> None:
    (tmp_path / "quotas.toml").write_text("[capacity]\nboxes = 40\n[default]\nboxes = 1\n")
    with guarded_rest(tmp_path, [f"--quotas={tmp_path}/quotas.toml"]) as server:
        who = (("authorization", f"Bearer {server.key}"),)
        async with grpc.aio.insecure_channel(target(server.grpc), options=CLIENT_OPTIONS) as channel:
            stub = SandboxServiceStub(channel)
            await stub.Create(pb.CreateSandboxRequest(), metadata=who)
            answers: Counter[str] = Counter()

            async def ask() -> None:
                try:
                    await stub.Create(pb.CreateSandboxRequest(), metadata=who, timeout=DEADLINE_S)
                except grpc.aio.AioRpcError as error:
                    placed = "Position " in (error.details() or "")
                    answers[f"{error.code().name}{' with its place' if placed else ''}"] += 1

            await asyncio.gather(*(ask() for _ in range(REQUESTS)))
    assert answers == {"RESOURCE_EXHAUSTED with its place": REQUESTS}
