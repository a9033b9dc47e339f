"""Ways to a reward that are no fix, tried one after the other, and what they earned.

`python -m benchmarks.reward_hacks [--quick]`. The hacks are those of `tests/escape/hacks.py`: each is played in a box of
its own on a real server and graded as `swe` grades. The last line is one JSON object: `tried`, `rewarded` (which must be 0),
and, of an honest fix beside what fair hacks leave behind, `honest_tried` and `honest_rewarded` (which must be equal).
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "escape"))

from hacked_env import FIX
from hacks import HACKS

from rock_env.client import Client
from rock_env.local import embedded

ENV = Path(__file__).parents[1] / "tests" / "escape" / "hacked_env.py"
_QUICK = 5
"""Every so many hacks one is tried."""


async def earned(client: Client, name: str, *, fixed: bool) -> float:
    env = await client.make("hacked")
    try:
        await env.reset(HACKS[name].task, 0)
        await env.step(f"cd /workspace/depot\n{HACKS[name].script}")
        if fixed:
            await env.step(f"cd /workspace/depot\n{FIX}")
        verdict = await env.evaluate()
    finally:
        await env.close()
    print(f"{name}{' and a fix' if fixed else ''}: {verdict.reward:g} ({verdict.details})", file=sys.stderr)
    return verdict.reward


async def run(names: list[str]) -> dict[str, int]:
    found = {"tried": 0, "rewarded": 0, "honest_tried": 0, "honest_rewarded": 0}
    options = [f"--env={ENV}:HACKED", "--workers=1", "--isolation=namespaces"]
    async with embedded(options) as address, Client(address) as client:
        for name in names:
            found["tried"] += 1
            found["rewarded"] += await earned(client, name, fixed=False) > 0
            if HACKS[name].fair:
                found["honest_tried"] += 1
                found["honest_rewarded"] += await earned(client, name, fixed=True) == 1.0
    return found


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help=f"one hack of {_QUICK}")
    options = parser.parse_args()
    found = asyncio.run(run(list(HACKS)[:: _QUICK if options.quick else 1]))
    print(json.dumps(found))
    return 1 if found["rewarded"] or found["honest_tried"] != found["honest_rewarded"] else 0


if __name__ == "__main__":
    sys.exit(main())
