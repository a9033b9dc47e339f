"""Cycles of work while faults strike, and what they did to acknowledged results.

`python -m benchmarks.chaos [--quick] [--cycles N] [--servers N] [--image IMAGE] [--amid-calls]`. The harness is
`tests/chaos/fleet_harness.py`: two servers of one PostgreSQL, which are killed with SIGKILL and stopped for 20 s, a
database that is killed and away for longer than servers' leases, boxes killed, a full disk. It needs Debian's `postgresql`
or PostgreSQL's programs on PATH. With `--servers 1` it is `fault_harness.py`: one server with its SQLite store, whose
connections are cut and half open and whose clock is set besides. The last line is one JSON object: `cycles`, `lost`
(acknowledged and not so), `doubled` (done twice), `leaked` (left behind, by the service's census), `wrong` (answered
otherwise than it should be), and beside them how many cycles a fault `interrupted`, told by the service as an error, and
the `faults` that struck.

With `--amid-calls` PostgreSQL is killed `--cycles` times (50; `--quick` 5) at a random moment of each of Create, Snapshot,
Fork, Checkpoint and TakeOver and started again (`tests/chaos/database_crashes.py`). `crashes` are then, by act, those that
struck while it was under way; `lost` is what was acknowledged and is not there, `doubled` what was another when asked for
again, `wrong` files that are not as they were.
"""

from __future__ import annotations

import asyncio
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from database_crashes import Crashes, Found
from fault_harness import Harness, Report
from fleet_harness import FleetHarness
from integration.postgres_server import databases, postgres_server
from integration.replica_fleet import running_fleet

from benchmarks.scaffold import finish, parser_of, say

KINDS = ("lost", "doubled", "leaked", "wrong")


def run(cycles: int, *, servers: int, image: str, seed: int) -> Report:
    """Return what happened in so many cycles."""
    if servers > 1:
        fleet = FleetHarness(servers=servers, seed=seed)
        return asyncio.run(fleet.run(cycles, width=8, pause_s=1.0))
    with tempfile.TemporaryDirectory() as folder:
        harness = Harness(Path(folder), image=image, seed=seed)
        return asyncio.run(harness.run(cycles, width=8, pause_s=0.5))


async def amid_calls(times: int, seed: int) -> Found:
    """Crash the database so often amid each act."""
    with postgres_server() as postgres:
        async with running_fleet(databases(postgres)()) as fleet:
            return await Crashes(fleet, postgres, seed=seed).run(times)


def main() -> int:
    parser = parser_of(__doc__, quick="100 cycles instead of 1,000")
    parser.add_argument("--cycles", type=int, default=0)
    parser.add_argument("--servers", type=int, default=2, help="of one PostgreSQL; 1: one with SQLite")
    parser.add_argument("--image", default="", help="Docker sandboxes of this image, with --servers 1")
    parser.add_argument("--amid-calls", action="store_true", help="kill the database amid calls instead")
    parser.add_argument("--seed", type=int, default=0, help="of the order of the faults")
    options = parser.parse_args()
    began = time.monotonic()
    report: Report | Found
    if options.amid_calls:
        report = asyncio.run(amid_calls(options.cycles or (5 if options.quick else 50), options.seed))
        told: dict[str, Any] = {"crashes": report.crashes}
    else:
        servers = 1 if options.image else options.servers
        cycles = options.cycles or (100 if options.quick else 1000)
        report = run(cycles, servers=servers, image=options.image, seed=options.seed)
        told = {
            "cycles": report.cycles,
            "interrupted": dict(report.interrupted),
            "faults": dict(report.faults),
        }
    for kind in KINDS:
        for line in getattr(report, kind):
            say(f"{kind}: {line}")
    counts = {kind: len(getattr(report, kind)) for kind in KINDS}
    return finish({**told, **counts, "seconds": round(time.monotonic() - began, 1)}, bad=any(counts.values()))


if __name__ == "__main__":
    sys.exit(main())
