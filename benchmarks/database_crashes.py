"""PostgreSQL killed fifty times each amid Create, Snapshot, Fork, Checkpoint and TakeOver, and what became of them.

`python -m benchmarks.database_crashes [--quick] [--times N]`. The harness is `tests/chaos/database_crashes.py`: two servers
of one database, which is killed with SIGKILL at a random moment of the call and started again. Needs Debian's `postgresql`
or PostgreSQL's programs on PATH. The last line is one JSON object: `crashes` (by act, those that struck while it was under
way), `lost` (acknowledged and not there), `doubled` (asked for again it was another), `wrong` (files that are not as they
were), `leaked` (left behind when all was deleted).
"""

from __future__ import annotations

import asyncio
import sys
import time

from database_crashes import Crashes, Found
from integration.postgres_server import databases, postgres_server
from integration.replica_fleet import running_fleet

from benchmarks.scaffold import finish, parser_of, say


async def measured(times: int, seed: int) -> Found:
    """Crash the database so often amid each act."""
    with postgres_server() as postgres:
        async with running_fleet(databases(postgres)()) as fleet:
            return await Crashes(fleet, postgres, seed=seed).run(times)


def main() -> int:
    parser = parser_of(__doc__, quick="5 crashes of each kind instead of 50")
    parser.add_argument("--times", type=int, default=0, help="crashes of each kind")
    parser.add_argument("--seed", type=int, default=0, help="of the moments of the crashes")
    options = parser.parse_args()
    began = time.monotonic()
    found = asyncio.run(measured(options.times or (5 if options.quick else 50), options.seed))
    wrong = {kind: getattr(found, kind) for kind in ("lost", "doubled", "leaked", "wrong")}
    for kind, lines in wrong.items():
        for line in lines:
            say(f"{kind}: {line}")
    counts = {kind: len(lines) for kind, lines in wrong.items()}
    return finish(
        {"crashes": found.crashes, **counts, "seconds": round(time.monotonic() - began, 1)},
        bad=any(counts.values()),
    )


if __name__ == "__main__":
    sys.exit(main())
