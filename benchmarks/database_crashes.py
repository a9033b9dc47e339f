"""PostgreSQL killed fifty times each amid Create, Snapshot, Fork, Checkpoint and TakeOver, and what became of them.

`python -m benchmarks.database_crashes [--quick] [--times N]`. The harness is `tests/chaos/database_crashes.py`: two servers
of one database, which is killed with SIGKILL at a random moment of the call and started again. Needs Debian's `postgresql`
or PostgreSQL's programs on PATH. The last line is one JSON object: `crashes` (by act, those that struck while it was under
way), `lost` (acknowledged and not there), `doubled` (asked for again it was another), `wrong` (files that are not as they
were), `leaked` (left behind when all was deleted).
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "chaos"))

from database_crashes import Crashes, Found
from integration.postgres_server import databases, postgres_server
from integration.replica_fleet import running_fleet


async def measured(times: int, seed: int) -> Found:
    """Crash the database so often amid each act."""
    with postgres_server() as postgres:
        async with running_fleet(databases(postgres)()) as fleet:
            return await Crashes(fleet, postgres, seed=seed).run(times)


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="5 crashes of each kind instead of 50")
    parser.add_argument("--times", type=int, default=0, help="crashes of each kind")
    parser.add_argument("--seed", type=int, default=0, help="of the moments of the crashes")
    options = parser.parse_args()
    began = time.monotonic()
    found = asyncio.run(measured(options.times or (5 if options.quick else 50), options.seed))
    wrong = {kind: getattr(found, kind) for kind in ("lost", "doubled", "leaked", "wrong")}
    for kind, lines in wrong.items():
        for line in lines:
            print(f"{kind}: {line}", file=sys.stderr)
    counts = {kind: len(lines) for kind, lines in wrong.items()}
    print(json.dumps({"crashes": found.crashes, **counts, "seconds": round(time.monotonic() - began, 1)}))
    return 1 if any(counts.values()) else 0


if __name__ == "__main__":
    sys.exit(main())
