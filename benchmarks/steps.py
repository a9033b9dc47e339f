"""What a step costs: latency of one through gRPC against a bare unary call, and throughput of batches.

`python -m benchmarks.steps [--quick]`. Client, server and workers share this machine's cores. The last line is one
JSON object:

- `step_over_unary`: median `AsyncEnv.step` of frozen_lake over the median of a bare grpc.aio echo whose payload has
  the same size, both over unix sockets, in alternating blocks (goal: at most 2);
- `step_many_per_s`: environment steps per second with `StepMany` (goal: at least 50,000), median of blocks;
- `coalesced_per_s`: the same when each environment is driven by a coroutine of its own.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import sys
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from statistics import median
from time import perf_counter

import grpc

from benchmarks.scaffold import Child, finish, parser_of, seconds
from rock_env.client import AsyncEnv, Client
from rock_env.errors import RockError
from rock_env.local import embedded
from rock_env.proto.v1 import env_pb2 as pb

ENVS = 1024
GROUPS = 2
"""Batches in flight: one is worked on while the client reads the other."""
ACTIONS = ("left", "down", "right", "up")
_ECHO = "/bench.Echo/Call"


async def echo_server(address: str) -> None:
    """Serve a bare unary echo until stdin closes."""

    async def echo(request: bytes, context: object) -> bytes:
        return request

    server = grpc.aio.server()
    handler = grpc.method_handlers_generic_handler(
        "bench.Echo", {"Call": grpc.unary_unary_rpc_method_handler(echo)}
    )
    server.add_generic_rpc_handlers((handler,))
    server.add_insecure_port(address)
    await server.start()
    print(json.dumps("ready"), flush=True)
    await asyncio.to_thread(sys.stdin.read)
    await server.stop(0)


@asynccontextmanager
async def bare_echo() -> AsyncIterator[Callable[[bytes], Awaitable[bytes]]]:
    """Start the echo server in a process of its own and yield the call."""
    with tempfile.TemporaryDirectory() as folder:
        address = f"unix:{Path(folder) / 'echo'}"
        with Child("-m", "benchmarks.steps", f"--echo={address}"):
            async with grpc.aio.insecure_channel(address) as channel:
                yield channel.unary_unary(_ECHO)


async def timed(call: Callable[[], Awaitable[object]], count: int) -> list[float]:
    """Return the seconds each of `count` calls took."""
    return [await seconds(call) for _ in range(count)]


async def latency(client: Client, *, blocks: int, per_block: int) -> dict[str, float]:
    """Measure one step and one bare call in alternating blocks."""
    # "left" at the starting corner leaves the agent there, so an episode lasts until its turn limit.
    env = await client.make("frozen_lake", json.dumps({"slippery": False, "max_turns": 1000}))
    await env.reset("train/0", 0)
    # Sized like the step's request and reply together, halved: an echo carries it both ways.
    request = pb.StepRequest(env_id=env.env_id, sequence=1000, idempotency_key=client.key(), action="left")
    observation = (await env.step("left")).observation
    reply = pb.StepResponse(env_id=env.env_id, observation=observation)
    payload = b"x" * ((request.ByteSize() + reply.ByteSize()) // 2)
    steps: list[float] = []
    bare: list[float] = []
    async with bare_echo() as echo:
        await timed(lambda: echo(payload), per_block)  # warm both paths
        await timed(lambda: env.step("left"), per_block)
        for _ in range(blocks):
            await env.reset("train/0", 0)
            bare += await timed(lambda: echo(payload), per_block)
            steps += await timed(lambda: env.step("left"), per_block)
    await env.close()
    return {
        "step_over_unary": round(median(steps) / median(bare), 3),
        "step_us": round(median(steps) * 1e6, 1),
        "unary_us": round(median(bare) * 1e6, 1),
    }


async def drive_batch(client: Client, envs: list[AsyncEnv], until: float) -> int:
    """Step `envs` in batches until the time `until`; restart what has ended. Return the number of steps."""
    done = 0
    while perf_counter() < until:
        action = ACTIONS[(done // len(envs)) % 4]
        results = await client.step_many([(env, action) for env in envs])
        done += len(envs)
        ended = []
        for env, result in zip(envs, results, strict=True):
            if isinstance(result, RockError):
                raise result
            if result.terminated or result.truncated:
                ended.append(env)
        await asyncio.gather(*(env.reset("train/0", done) for env in ended))
    return done


async def drive_alone(env: AsyncEnv, until: float) -> int:
    """Step one environment as a rollout does, until the time `until`. Return the number of steps."""
    done = 0
    while perf_counter() < until:
        result = await env.step(ACTIONS[done % 4])
        done += 1
        if result.terminated or result.truncated:
            await env.reset("train/0", done)
    return done


async def throughput(client: Client, *, blocks: int, block_s: float) -> dict[str, float]:
    """Measure batched and coalesced stepping in alternating blocks."""
    params = json.dumps({"slippery": False, "max_turns": 100})
    envs = list(await asyncio.gather(*(client.make("frozen_lake", params) for _ in range(ENVS))))
    await asyncio.gather(*(env.reset("train/0", index) for index, env in enumerate(envs)))
    rates: dict[bool, list[float]] = {True: [], False: []}
    groups = [envs[group::GROUPS] for group in range(GROUPS)]
    for block in range(2 * blocks + 2):
        batch = block % 2 == 0
        start = perf_counter()
        until = start + block_s
        if batch:
            counts = await asyncio.gather(*(drive_batch(client, group, until) for group in groups))
        else:
            counts = await asyncio.gather(*(drive_alone(env, until) for env in envs))
        if block >= 2:  # the first of each kind warms up
            rates[batch].append(sum(counts) / (perf_counter() - start))
    await asyncio.gather(*(env.close() for env in envs))
    return {"step_many_per_s": round(median(rates[True])), "coalesced_per_s": round(median(rates[False]))}


async def run(*, quick: bool) -> dict[str, float | int]:
    """Run both measurements on an embedded server."""
    async with embedded() as address, Client(address) as client:
        result: dict[str, float | int] = {"cpus": os.cpu_count() or 1, "envs": ENVS}
        result |= await latency(client, blocks=8 if quick else 40, per_block=100)
        result |= await throughput(client, blocks=4 if quick else 20, block_s=1.0)
    return result


def main() -> None:
    """Measure, or serve the echo."""
    parser = parser_of(__doc__, quick="about 15 s instead of a minute")
    parser.add_argument("--echo", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.echo:
        asyncio.run(echo_server(arguments.echo))
        return
    result = asyncio.run(run(quick=arguments.quick))
    print(
        f"one step {result['step_us']} us, bare unary call {result['unary_us']} us: {result['step_over_unary']}x"
    )
    print(f"StepMany {result['step_many_per_s']:,}/s, coalesced coroutines {result['coalesced_per_s']:,}/s")
    finish(result)


if __name__ == "__main__":
    main()
