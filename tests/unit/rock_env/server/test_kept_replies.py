"""What is kept of environments for who asks again, and of episodes and checkpoints: all have bounds."""

from __future__ import annotations

import asyncio

import pytest
from test_take_over import Server, running

from rock_env.env_workers.frames import Kind
from rock_env.errors import FailedPrecondition, InvalidArgument, ResourceExhausted
from rock_env.proto.v1 import env_pb2 as pb
from rock_env.security.auth import acting_for
from rock_env.server.envs import branches, sandboxed


async def begun(server: Server) -> str:
    env_id = await server.make()
    await server.do(Kind.RESET, env_id, task_id="train/0")
    return env_id


async def checkpoint(server: Server, env_id: str, key: str = "") -> str:
    asked = pb.CheckpointRequest(env_id=env_id, idempotency_key=key)
    return str((await server.branches.checkpoint(asked)).checkpoint_id)


async def test_the_oldest_reply_is_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(branches, "MOST_KEYS", 3)
    async with running() as server:
        env_id = await begun(server)
        first = await checkpoint(server, env_id, "0")
        assert await checkpoint(server, env_id, "0") == first
        for key in ("1", "2", "3" * 4096):
            await checkpoint(server, env_id, key)
        assert len(server.core.kept) == 3
        assert max(map(len, server.core.kept)) < 100, "a key's length is its caller's choice"
        assert await checkpoint(server, env_id, "0") != first
        assert len(server.core.find(env_id).keys) == 3
        await server.close(env_id)
        assert not server.core.kept


async def test_calls_that_fail_leave_no_key() -> None:
    async with running() as server:
        env_id = await server.make()
        for _ in range(5):
            with pytest.raises(FailedPrecondition):
                await checkpoint(server, env_id, "k")
        assert server.core.find(env_id).keys == []
        assert not server.core.kept


async def test_so_many_calls_with_a_key_run_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(branches, "MOST_KEYS", 2)
    async with running() as server:
        env_id = await begun(server)
        held = server.core.find(env_id).sandboxed
        assert held is not None
        async with held._lock:
            running_ones = [asyncio.create_task(checkpoint(server, env_id, key)) for key in "ab"]
            await asyncio.sleep(0)
            with pytest.raises(ResourceExhausted, match=r"2 checkpoints and forks .* run"):
                await checkpoint(server, env_id, "c")
            again = asyncio.create_task(checkpoint(server, env_id, "a"))
        assert await again == await running_ones[0]
        await running_ones[1]
        await server.close(env_id)


async def test_a_tenants_checkpoints_leave_room_for_others(monkeypatch: pytest.MonkeyPatch) -> None:
    async with running() as server:
        env_id = await begun(server)
        await checkpoint(server, env_id)
        taken = server.branches._bytes.total()
        assert taken > 1024, "also what it takes beside its state"
        monkeypatch.setattr(branches, "MAX_TENANT_BYTES", taken * 2)
        await checkpoint(server, env_id)
        with pytest.raises(ResourceExhausted, match="your checkpoints take"):
            await checkpoint(server, env_id)
        with acting_for("other"):
            others = await begun(server)
            await checkpoint(server, others)
            await server.close(others)
        server.branches._reap(asyncio.get_running_loop().time() + 1)
        assert not server.branches._bytes
        await checkpoint(server, env_id)
        await server.close(env_id)


async def test_a_keys_length_is_bounded() -> None:
    long = "k" * 1025
    async with running() as server:
        asked = [pb.MakeRequest(env="kept_box", idempotency_key=key) for key in ("a", long)]
        with pytest.raises(InvalidArgument, match="1025 characters, expected at most 1024"):
            await server.core.make(asked)
        assert not server.core._made, "no key is left that waits for ever"
        env_id = await server.make()
        reset = pb.ResetRequest(env_id=env_id, sequence=1, idempotency_key=long, task_id="train/0")
        with pytest.raises(InvalidArgument, match="1025 characters"):
            await server.core.one(Kind.RESET, reset, None)
        await server.close(env_id)


@pytest.mark.parametrize(("bound", "most"), [("MOST_STEPS", 2), ("MOST_ACTION_CHARS", 5)])
async def test_an_episode_remembers_so_much(bound: str, most: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sandboxed, bound, most)
    async with running() as server:
        env_id = await begun(server)
        for action in ("1", "22"):
            await server.do(Kind.STEP, env_id, action=action)
        with pytest.raises(ResourceExhausted, match="3 actions of 6 characters"):
            await server.core.one(
                Kind.STEP, pb.StepRequest(env_id=env_id, sequence=4, idempotency_key="4", action="333"), None
            )
        assert await server.grade(env_id) == 22.0, "and is sound"
        await server.close(env_id)
