"""Kill runs, simulated and real, at random points, and account for every rollout afterwards.

    python -m benchmarks.kills [--quick] [--part simulated week real versions] [--kills N]

`simulated` (`benchmarks/simulated_kills.py`): at least 10,000 kills of the simulator, at random rounds of its loop and in
saves. `week` (`benchmarks/simulated_week.py`): a simulated week of each mode, in which something breaks every few minutes.
`real` (`benchmarks/real_kills.py`): 60 kills (or `--kills`) with SIGKILL of runs of `ale train`, of their learner,
worker and sampler, and of the servers that they play through. `versions` (`benchmarks/version_kills.py`): samplers of a
stream are killed and its answers computed again with the weights of every version.

The last line is one JSON object: `kills_simulated` and `kills_real`; `lost`, rollouts that were to be learned and came to
no end, and `twice`, those that were learned more than once, by the journal; `over_lag`, tokens learned beyond the lag;
`failed`, rollouts that end in a failure; `differ`, runs that did not learn as many rollouts as they should or, of `sync` and
`pipeline`, ended with other weights than an undisturbed one, bit for bit (all tensors of the last checkpoint). Then by part
the same of each mode, `runs`, and `kills` by victim. Of `versions`: `samplers_lost` and `samplers_back` as the run counted
them; `turns`, how many answers were computed again, token by token, with the weights of every version that was served
(`several_versions`: the weights changed within); `wrong_versions`, those whose recorded log-probabilities the recorded
versions do not give (within 1e-3), and `told_apart`, those that no other version gives. Needs PostgreSQL's programs.
`--quick`: 300 simulated kills, three hours of a week, 6 real kills of `frozen_lake`; `versions` one step, a kill after 10 s.
"""

from __future__ import annotations

import asyncio
import sys
import time
from typing import Any

from benchmarks.real_kills import CELLS, SOME, real
from benchmarks.scaffold import commit, finish, parser_of
from benchmarks.simulated_kills import simulated
from benchmarks.simulated_week import simulated_week
from benchmarks.version_kills import versions

PARTS = ("simulated", "week", "real", "versions")
BAD = ("lost", "twice", "over_lag", "failed", "differ")


def main() -> int:
    parser = parser_of(__doc__, quick="few kills")
    parser.add_argument("--part", nargs="+", choices=PARTS, default=PARTS)
    parser.add_argument("--kills", type=int, default=0, help="real ones, in place of 60, or 6")
    parser.add_argument("--seed", type=int, default=0, help="of the random points of real kills")
    parser.add_argument("--steps", type=int, default=10, help="of `versions`")
    parser.add_argument("--every", type=float, default=20.0, help="of `versions`, seconds between two kills")
    options = parser.parse_args()
    parts: dict[str, Any] = {}
    began, quick = time.monotonic(), options.quick
    if "simulated" in options.part:
        parts["simulated"] = simulated(300 if quick else 10_000)
    if "week" in options.part:
        parts["week"] = simulated_week(quick=quick)
    if "real" in options.part:
        wanted = options.kills or (6 if quick else 60)
        parts["real"] = asyncio.run(real(SOME if quick else CELLS, wanted, options.seed))
    if "versions" in options.part:
        parts["versions"] = {
            "frozen_lake stream": versions(quick=quick, steps=options.steps, every_s=options.every)
        }
    found = totals(parts)
    bad = any(found[name] for name in BAD) or any(
        own["wrong_versions"] for own in parts.get("versions", {}).values()
    )
    return finish({"commit": commit(), **found, "seconds": round(time.monotonic() - began), **parts}, bad=bad)


def totals(parts: dict[str, dict[str, dict[str, Any]]]) -> dict[str, int]:
    """Return the counts of all parts together."""
    rows = [row for part in parts.values() for row in part.values()]
    real_ones = [row["kills"] for part in ("real", "versions") for row in parts.get(part, {}).values()]
    return {
        "kills_simulated": sum(row["kills"] for row in parts.get("simulated", {}).values()),
        "kills_real": sum(sum(kills.values()) for kills in real_ones),
        **{name: sum(row.get(name, 0) for row in rows) for name in BAD},
    }


if __name__ == "__main__":
    sys.exit(main())
