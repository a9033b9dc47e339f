"""Cycles of work while faults strike, and what they did to acknowledged results.

`python -m benchmarks.chaos [--quick] [--cycles N] [--image IMAGE]`. The harness is `tests/chaos/fault_harness.py`: servers
and boxes killed with SIGKILL, connections cut and half open, a full disk, a clock that is set. The last line is one JSON
object: `cycles`, `lost` (acknowledged and not so), `doubled` (done twice), `leaked` (left behind, by the service's census
and by looking at the machine), and beside them how many cycles a fault `interrupted`, told by the service as an error, and
the `faults` that struck.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "chaos"))

from fault_harness import Harness


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="100 cycles instead of 1,000")
    parser.add_argument("--cycles", type=int, default=0)
    parser.add_argument(
        "--image", default="", help="Docker sandboxes of this image; default: process sandboxes"
    )
    parser.add_argument("--seed", type=int, default=0, help="of the order of the faults")
    options = parser.parse_args()
    cycles = options.cycles or (100 if options.quick else 1000)
    with tempfile.TemporaryDirectory() as folder:
        harness = Harness(Path(folder), image=options.image, seed=options.seed)
        report = asyncio.run(harness.run(cycles, width=8, pause_s=0.5))
    for kind in ("lost", "doubled", "leaked"):
        for line in getattr(report, kind):
            print(f"{kind}: {line}", file=sys.stderr)
    found = {
        "cycles": report.cycles,
        "lost": len(report.lost),
        "doubled": len(report.doubled),
        "leaked": len(report.leaked),
        "interrupted": dict(report.interrupted),
        "faults": dict(report.faults),
        "seconds": round(report.seconds, 1),
    }
    print(json.dumps(found))
    return 1 if report.lost or report.doubled or report.leaked else 0


if __name__ == "__main__":
    sys.exit(main())
