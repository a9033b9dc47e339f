"""Cycles of work while faults strike, and what they did to acknowledged results.

`python -m benchmarks.chaos [--quick] [--cycles N] [--servers N] [--image IMAGE]`. The harness is
`tests/chaos/fleet_harness.py`: two servers of one PostgreSQL, which are killed with SIGKILL and stopped for 20 s, a
database that is killed and away for longer than servers' leases, boxes killed, a full disk. It needs Debian's `postgresql`
or PostgreSQL's programs on PATH. With `--servers 1` it is `fault_harness.py`: one server with its SQLite store, whose
connections are cut and half open and whose clock is set besides. The last line is one JSON object: `cycles`, `lost`
(acknowledged and not so), `doubled` (done twice), `leaked` (left behind, by the service's census), `wrong` (answered
otherwise than it should be), and beside them how many cycles a fault `interrupted`, told by the service as an error, and
the `faults` that struck.
"""

from __future__ import annotations

import asyncio
import sys
import tempfile
from pathlib import Path

from fault_harness import Harness, Report
from fleet_harness import FleetHarness

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


def main() -> int:
    parser = parser_of(__doc__, quick="100 cycles instead of 1,000")
    parser.add_argument("--cycles", type=int, default=0)
    parser.add_argument("--servers", type=int, default=2, help="of one PostgreSQL; 1: one with SQLite")
    parser.add_argument("--image", default="", help="Docker sandboxes of this image, with --servers 1")
    parser.add_argument("--seed", type=int, default=0, help="of the order of the faults")
    options = parser.parse_args()
    cycles = options.cycles or (100 if options.quick else 1000)
    report = run(
        cycles, servers=1 if options.image else options.servers, image=options.image, seed=options.seed
    )
    for kind in KINDS:
        for line in getattr(report, kind):
            say(f"{kind}: {line}")
    found = {
        "cycles": report.cycles,
        **{kind: len(getattr(report, kind)) for kind in KINDS},
        "interrupted": dict(report.interrupted),
        "faults": dict(report.faults),
        "seconds": round(report.seconds, 1),
    }
    return finish(found, bad=any(found[kind] for kind in KINDS))


if __name__ == "__main__":
    sys.exit(main())
