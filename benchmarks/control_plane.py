"""What the control plane itself costs as sandboxes grow in number: the real core and store over boxes that are nothing.

`python -m benchmarks.control_plane [--quick]`. Records go to a SQLite file on disk, each change one durable transaction,
as in `ale rock serve --state`; boxes are simulated
(`memory_backend` of the tests), so no process, container or guest is timed. The last line is one
JSON object:

- `create_us_at_100`, `create_us_at_10000`: median microseconds of one Create with so many sandboxes alive;
- `list_us_at_10000`: median microseconds to find a page of 100 by label among 10,000;
- `reaper_s_at_10000`: seconds from the moment 10,000 leases end at once until the last sandbox is deleted.
"""

from __future__ import annotations

import asyncio
import tempfile
from functools import partial
from pathlib import Path
from statistics import median
from time import perf_counter

from memory_backend import MemoryBackend, Node

from benchmarks.scaffold import at_once, finish, parser_of
from rock_env.lifecycle import SandboxState
from rock_env.server.sandboxes.core import SandboxCore, SandboxWish
from rock_env.spec import SandboxSpec
from rock_env.store.base import Query
from rock_env.store.sqlite.records import SqliteStore

AT_ONCE = 64
PROBES = 200
PAGE = 100
LEASE_S = 30.0
"""Longer than renewing every lease takes, so that all end together."""
LABELS = 100
"""Sandboxes are spread over so many values of one label: a page of 100 is one value's sandboxes out of 10,000."""


def wish(number: int) -> SandboxWish:
    """Return what the `number`-th Create asks for."""
    return SandboxWish(
        spec=SandboxSpec(lifetime_s=7200.0),
        labels={"group": str(number % LABELS)},
        key=f"key-{number}",
        digest=str(number),
    )


async def fill(core: SandboxCore, numbers: range) -> None:
    """Create the numbered sandboxes, many at a time."""
    await at_once((partial(core.create, wish(number)) for number in numbers), AT_ONCE)


async def create_us(core: SandboxCore, first: int) -> float:
    """Return the median microseconds of one Create; what it makes is deleted again."""
    seconds = []
    for number in range(first, first + PROBES):
        start = perf_counter()
        record = await core.create(wish(number))
        seconds.append(perf_counter() - start)
        await core.delete(record.id)
    return median(seconds) * 1e6


async def list_us(core: SandboxCore) -> float:
    """Return the median microseconds of finding one page by label."""
    seconds = []
    for number in range(PROBES):
        query = Query(
            states=frozenset({SandboxState.RUNNING}), labels={"group": str(number % LABELS)}, limit=PAGE
        )
        start = perf_counter()
        found = await core.find(query)
        seconds.append(perf_counter() - start)
        assert len(found) == PAGE, len(found)
    return median(seconds) * 1e6


async def reaper_s(core: SandboxCore, count: int) -> float:
    """Let all leases end together; return how long after that the last sandbox is gone."""
    loop = asyncio.get_running_loop()
    live = await core.find(Query(states=frozenset({SandboxState.RUNNING})))
    assert len(live) == count, (len(live), count)
    gone, revision = 0, max(record.revision for record in live)
    changes = core.watch({}, after_revision=revision)
    end = loop.time() + LEASE_S

    async def renew(sandbox: str) -> None:
        await core.renew(sandbox, end - loop.time())

    renewing = asyncio.create_task(at_once((partial(renew, record.id) for record in live), AT_ONCE))
    async for record in changes:
        gone += record.state is SandboxState.DELETED
        if gone == count:
            break
    await renewing
    return loop.time() - end


async def measure(count: int) -> dict[str, float]:
    """Return the figures, the larger ones at `count` sandboxes."""
    with tempfile.TemporaryDirectory() as folder:
        store = await SqliteStore.open(Path(folder) / "records.db")
        async with SandboxCore(MemoryBackend(Node()), store) as core:
            await fill(core, range(100))
            few = await create_us(core, first=1_000_000)
            await fill(core, range(100, count))
            many = await create_us(core, first=2_000_000)
            page = await list_us(core)
            reaped = await reaper_s(core, count)
        await store.close()
    return {
        "create_us_at_100": round(few),
        "create_us_at_10000": round(many),
        "list_us_at_10000": round(page),
        "reaper_s_at_10000": round(reaped, 2),
    }


def main() -> None:
    parser = parser_of(__doc__, quick="the same: it takes less than a minute")
    parser.parse_args()
    finish(asyncio.run(measure(10_000)))


if __name__ == "__main__":
    main()
