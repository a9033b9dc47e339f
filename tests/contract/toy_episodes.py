"""Episodes of the toy environments."""

from __future__ import annotations

from rock_env.client import AsyncEnv, Client


async def started(client: Client, seed: int = 1) -> AsyncEnv:
    env = await client.make("toy")
    await env.reset("train/3", seed)
    return env
