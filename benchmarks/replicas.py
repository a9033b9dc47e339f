"""One service of three servers: what is lost, doubled or leaked while they are killed, and what passing a call on costs.

`python -m benchmarks.replicas [--quick] [--cycles N]`. Three servers of one PostgreSQL stand behind a proxy that gives each
connection the next of them. Callers make a sandbox each, write lines into a file of it by commands, read them and delete it;
players play FrozenLake by its oracle. Meanwhile the servers are killed in turn with SIGKILL and started again, and every
connection to PostgreSQL is cut; in the full run a server is also stopped for longer than its lease and PostgreSQL is
restarted. Every tenth sandbox has its guest killed from inside, and must be reported as lost. Callers retry lost calls with
the same keys and nothing else. Needs Debian's `postgresql` or PostgreSQL's programs on PATH.

The last line is one JSON object: `cycles`, `kills`, `killed_guests`, `cuts` (of all connections to PostgreSQL), `untold`
(killed guests whose sandbox was not reported as lost), `lost` (lines or sandboxes that were acknowledged and are not there),
`doubled` (lines written twice), `leaked` (boxes and records left at the end), `failed_rollouts`, `over_quota` (sandboxes
beyond a tenant's quota under concurrent creation), `forward_over_direct` (p50 of an exec through the wrong server over that
through the right one, alternating), `create_per_s_1` and `create_per_s_3` (eight callers, one server or three).
"""

from __future__ import annotations

import asyncio
import itertools
import random
import signal
import sys
import time
from collections.abc import Awaitable
from contextlib import suppress
from functools import partial
from typing import Any

import asyncpg
from integration.postgres_server import PostgresServer, databases, postgres_server
from integration.replica_fleet import LEASE_S, Fleet, Server, run, running_fleet
from round_robin import round_robin

from agent_runtime.agents.oracle import record_expert
from agent_runtime.surviving import Surviving
from agent_runtime.types import AgentConfig, RolloutRequest, SamplingParams, Start
from ale.training.rollouts import ByteTemplate
from benchmarks.scaffold import alternating, finish, parser_of, say
from rock_env.client import Client, Credentials
from rock_env.errors import FailedPrecondition, InfraError, NotFound, RockError
from rock_env.plugins import env_params, load_env
from rock_env.proto.v1 import admin_pb2
from rock_env.proto.v1 import sandbox_pb2 as pb

REPLICAS = 3
WIDTH = 6
LINES = 3
EVERY_S = 1.5
QUOTA = 5
PATIENCE_S = 60.0


class Cycles:
    """Work through the proxy, and what came of it."""

    def __init__(self, address: str) -> None:
        self.address = address
        self.lost: list[str] = []
        self.doubled: list[str] = []
        self.failed: list[str] = []
        self.untold: list[str] = []
        self.killed_guests = 0

    async def guest(self, number: int) -> None:
        """Make a sandbox, kill its guest from inside, and ask what became of it."""
        self.killed_guests += 1
        try:
            async with (
                Client(self.address, credentials=Credentials(), retry_for_s=PATIENCE_S) as client,
                await client.sandboxes.create(labels={"killed": str(number)}) as box,
            ):
                with suppress(RockError):
                    await box.exec(["sh", "-c", "kill -9 $PPID"])
                done = await box.exec(["true"])
        except (InfraError, FailedPrecondition, NotFound):
            return
        except RockError as error:
            self.untold.append(f"guest {number}: {error!r}")
            return
        self.untold.append(f"guest {number}: {done} after its end")

    async def sandbox(self, number: int) -> None:
        """Make a sandbox, write lines by commands, read them, delete it."""
        written = b"".join(b"%d\n" % line for line in range(LINES))
        try:
            async with (
                Client(self.address, credentials=Credentials(), retry_for_s=PATIENCE_S) as client,
                await client.sandboxes.create(labels={"cycle": str(number)}) as box,
            ):
                for line in range(LINES):
                    done = await box.exec(["sh", "-c", f"echo {line} >> log; sleep 0.1"])
                    if not done.ok:
                        self.lost.append(f"cycle {number}: line {line} ended with {done}")
                found = await box.files.read("log")
        except RockError as error:
            self.lost.append(f"cycle {number}: {error}")
            return
        if found != written:
            kept = self.doubled if len(found) > len(written) else self.lost
            kept.append(f"cycle {number}: {found!r} for {written!r}")

    async def episode(self, number: int) -> None:
        """Play one episode by the oracle."""
        spec = load_env("frozen_lake")
        params = env_params(spec, "{}")
        oracle = spec.oracle(params, spec.tasks(params).get("train", number))
        asked = RolloutRequest(
            id=f"r{number}",
            env="frozen_lake",
            params_json="{}",
            task_id=f"train/{number}",
            group_id="g",
            index=0,
            seed=number,
            agent=AgentConfig(max_turns=60),
            sampling=SamplingParams(),
            start=Start(env_seed=number),
        )

        def act(observation: str) -> str:  # in a thread
            time.sleep(0.1)
            return oracle(observation)

        async with Client(self.address, retry_for_s=PATIENCE_S) as rock:
            played = await record_expert(asked, rock=Surviving(rock), oracle=act, template=ByteTemplate())
        if played.failure is not None:
            self.failed.append(f"episode {number}: {played.failure}")

    async def run(self, cycles: int) -> None:
        """Do so many of each, `WIDTH` at a time."""
        left = iter(range(cycles))

        async def worker() -> None:
            for number in left:
                await self.sandbox(number)
                if number % 10 == 0:
                    await self.guest(number)
                if number % 2 == 0:
                    await self.episode(number)

        await asyncio.gather(*(worker() for _ in range(WIDTH)))


async def strike(
    fleet: Fleet, living: list[Server], postgres: PostgresServer, over: asyncio.Event, *, all_faults: bool
) -> tuple[int, int]:
    """Kill one server after the other and start it again, until it is over; return how many were, and the cuts."""
    chance, cuts = random.Random(0), 0
    for strikes in itertools.count(1):
        with suppress(TimeoutError):
            async with asyncio.timeout(EVERY_S):
                await over.wait()
            return strikes - 1, cuts
        if strikes % 3 == 1:
            await cut(fleet.url)
            cuts += 1
        victim = living.pop(chance.randrange(len(living)))
        if all_faults and strikes % 7 == 0:  # it wakes up and finds that it owns nothing
            victim.process.send_signal(signal.SIGSTOP)
            await asyncio.sleep(2 * LEASE_S)
            victim.process.send_signal(signal.SIGCONT)
            living.append(victim)
            continue
        if all_faults and strikes % 5 == 0:
            await asyncio.to_thread(postgres.stop)
            await asyncio.to_thread(postgres.start)
        victim.kill()
        await victim.ended()
        living.append(await fleet.start())
    raise AssertionError("count() has no end")


async def cut(url: str) -> None:
    """Cut every connection to the database but its own."""
    connection = await asyncpg.connect(url)
    await connection.execute(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
        " WHERE datname = current_database() AND pid <> pg_backend_pid()"
    )
    await connection.close()


async def left_over(server: Server) -> list[str]:
    """Return what is there when nothing should be."""
    found = [f"record {info.id}" for info in (await server.boxes.List(pb.ListSandboxesRequest())).sandboxes]
    async with asyncio.timeout(30):
        while True:
            (census,) = (await server.admin.Census(admin_pb2.CensusRequest())).backends[:1]
            if not census.orphans and not census.boxes:
                return found
            if not census.orphans:
                return [*found, f"{census.boxes} boxes"]
            await asyncio.sleep(0.2)


async def over_quota(servers: list[Server]) -> int:
    """Return how many sandboxes a tenant got beyond its quota, from all servers at once."""
    limits = admin_pb2.SetQuotaRequest(limits={"boxes": QUOTA})
    await servers[0].admin.SetQuota(limits)
    for server in servers:
        while await boxes_of(server) != QUOTA:  # noqa: ASYNC110  nobody is told of quotas
            await asyncio.sleep(0.02)
    asks = (
        servers[n % len(servers)].boxes.Create(pb.CreateSandboxRequest(), timeout=3) for n in range(3 * QUOTA)
    )
    made = await asyncio.gather(*map(awaited, asks), return_exceptions=True)
    ids = [each.id for each in made if isinstance(each, pb.SandboxInfo)]
    await asyncio.gather(*(servers[0].boxes.Delete(pb.DeleteSandboxRequest(id=each)) for each in ids))
    await servers[0].admin.SetQuota(admin_pb2.SetQuotaRequest())
    return len(ids) - QUOTA


async def boxes_of(server: Server) -> int:
    """Return the quota that a server knows."""
    listed = await server.admin.ListQuotas(admin_pb2.ListQuotasRequest())
    return int(listed.tenants[0].limits.boxes) if listed.tenants else 0


async def awaited(call: Awaitable[Any]) -> Any:
    return await call


async def forward_over_direct(right: Server, wrong: Server, pairs: int) -> float:
    """Return the ratio of medians of an exec, alternating."""
    box = (await right.boxes.Create(pb.CreateSandboxRequest())).id
    forwarded, direct = (partial(run, server.boxes, box, "true") for server in (wrong, right))
    await alternating(forwarded, direct, 5)  # warms up
    forwarded_s, direct_s = await alternating(forwarded, direct, pairs)
    await right.boxes.Delete(pb.DeleteSandboxRequest(id=box))
    return forwarded_s / direct_s


async def create_per_s(servers: list[Server], count: int) -> float:
    """Return how many sandboxes eight callers make in a second."""
    ids: list[str] = []
    left = iter(range(count))

    async def caller(number: int) -> None:
        ids.extend(
            [(await servers[number % len(servers)].boxes.Create(pb.CreateSandboxRequest())).id for _ in left]
        )

    began = time.perf_counter()
    await asyncio.gather(*map(caller, range(8)))
    took = time.perf_counter() - began
    await asyncio.gather(*(servers[0].boxes.Delete(pb.DeleteSandboxRequest(id=each)) for each in ids))
    return count / took


async def measured(cycles: int, *, quick: bool) -> dict[str, object]:
    """Run all parts and return what they found."""
    with postgres_server() as postgres:
        async with running_fleet(databases(postgres)()) as fleet:
            living = [await fleet.start() for _ in range(REPLICAS)]
            found: dict[str, object] = {"over_quota": await over_quota(living)}
            found["forward_over_direct"] = round(
                await forward_over_direct(living[0], living[1], 60 if quick else 300), 2
            )
            count = 24 if quick else 120
            found["create_per_s_1"] = round(await create_per_s(living[:1], count), 1)
            found["create_per_s_3"] = round(await create_per_s(living, count), 1)
            async with round_robin(lambda: [server.address for server in living]) as port:
                work = Cycles(f"grpc://127.0.0.1:{port}")
                over = asyncio.Event()
                striking = asyncio.create_task(strike(fleet, living, postgres, over, all_faults=not quick))
                await work.run(cycles)
                over.set()
                kills, cuts = await striking
            leaked = await left_over(living[-1])
            for kind, lines in (
                ("lost", work.lost),
                ("doubled", work.doubled),
                ("failed", work.failed),
                ("untold", work.untold),
                ("leaked", leaked),
            ):
                for line in lines:
                    say(f"{kind}: {line}")
    return {
        "cycles": cycles,
        "kills": kills,
        "killed_guests": work.killed_guests,
        "cuts": cuts,
        "untold": len(work.untold),
        "lost": len(work.lost),
        "doubled": len(work.doubled),
        "leaked": len(leaked),
        "failed_rollouts": len(work.failed),
        **found,
    }


def main() -> int:
    parser = parser_of(__doc__, quick="24 cycles instead of 1,000, and only kills")
    parser.add_argument("--cycles", type=int, default=0)
    options = parser.parse_args()
    cycles = options.cycles or (24 if options.quick else 1000)
    found = asyncio.run(measured(cycles, quick=options.quick))
    bad = [found[name] for name in ("lost", "untold", "doubled", "leaked", "failed_rollouts", "over_quota")]
    return finish(found, bad=any(bad))


if __name__ == "__main__":
    sys.exit(main())
