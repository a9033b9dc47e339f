"""The webshop: how fast it steps and searches, and whether its rewards hold when computed again.

`python -m benchmarks.webshop [--quick] [--write]`. Client, server and workers share this machine's cores. The last line is
one JSON object:

- `steps_per_s_per_core`: steps of the oracle's decision lists (one search in five, each searched for anew) with the default
  catalogue, by batches over gRPC, over the number of cores (goal: at least 2,000); `..._50k` with 50,000 products;
- `steps_per_cpu_s`: the same over the processor time of client, server and workers, which other work does not change;
- `search_p50_ms`, `search_p99_ms`: one search of an instruction's words among 50,000 products (goal: p99 below 10);
  `search_cpu_p99_ms` is in processor time;
- `reward_mismatches`: random episodes whose reward is not `webshop_referee`'s (goal: 0 of 10,000);
- `http_mismatches`: lists of decisions whose purchase over HTTP is worth something else than in text (goal: 0 of 500);
- `instructions_per_s`: drawn from the default catalogue (goal: 1,000 in 2 s).

`--quick` plays 2,000 episodes and 40 lists, and no 50,000 products over gRPC. `--write` writes docs/results/webshop.md.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Sequence
from random import Random
from time import perf_counter, thread_time
from typing import Any

import psutil
from webshop_decisions import decisions, list_of_decisions
from webshop_referee import Referee, random_action
from webshop_visitor import Visitor

from benchmarks.scaffold import figures_page, finish, parser_of, percentiles, write_results
from rock_env.client import AsyncEnv, Client
from rock_env.errors import RockError
from rock_env.local import embedded
from sandboxes.webshop import ENV
from sandboxes.webshop.params import WebshopParams, shop_of
from sandboxes.webshop.product import goal_of
from sandboxes.webshop.serve import Site

LARGE = 50_000
ENVS, GROUPS = 256, 2
"""Environments, and batches of them in flight: one is worked on while the client reads the other."""
LISTS = 6 * ENVS
"""More than a worker remembers searches of."""
GOALS = {
    "steps_per_s_per_core": "≥ 2,000",
    "search_p99_ms": "< 10",
    "instructions_per_s": "≥ 500",
    "reward_mismatches": "0",
    "http_mismatches": "0",
}
NOTE = "`benchmarks/webshop.py` says what each figure is."


class Player:
    """One environment that plays lists of decisions, one after the other."""

    def __init__(self, env: AsyncEnv, lists: Sequence[tuple[str, list[str]]], first: int) -> None:
        self.env, self._lists, self._number = env, lists, first
        self._left: list[str] = []

    async def start(self) -> None:
        """Begin the next list."""
        task, actions = self._lists[self._number % len(self._lists)]
        self._number += ENVS
        self._left = actions[::-1]
        await self.env.reset(task, 0)

    def act(self) -> tuple[AsyncEnv, str]:
        """Return the next decision."""
        return self.env, self._left.pop()

    @property
    def over(self) -> bool:
        """Return whether the list has come to its end."""
        return not self._left


async def drive(client: Client, players: list[Player], until: float) -> int:
    """Play in batches until the time `until`; return the number of steps."""
    done = 0
    while perf_counter() < until:
        results = await client.step_many([player.act() for player in players])
        for result in results:
            if isinstance(result, RockError):
                raise result
        done += len(players)
        await asyncio.gather(*(player.start() for player in players if player.over))
    return done


def cpu_s() -> float:
    """Return the processor time so far of this process and of all it started that live."""
    me = psutil.Process()
    times = [process.cpu_times() for process in (me, *me.children(recursive=True))]
    return float(sum(time.user + time.system for time in times))


async def throughput(params: WebshopParams, *, seconds: float) -> tuple[int, int]:
    """Return steps per second and core, and per second of processor time; resets count as no step."""
    source = ENV.tasks(params)
    tasks = [source.get("train", index) for index in range(LISTS)]
    lists = [(task.id, decisions(params, task)) for task in tasks]
    async with embedded() as address, Client(address) as client:
        made = [await client.make("webshop", params.canonical()) for _ in range(ENVS)]
        players = [Player(env, lists, number) for number, env in enumerate(made)]
        await asyncio.gather(*(player.start() for player in players))
        groups = [players[group::GROUPS] for group in range(GROUPS)]
        await asyncio.gather(*(drive(client, group, perf_counter() + 1.0) for group in groups))
        start, used = perf_counter(), cpu_s()
        counts = await asyncio.gather(*(drive(client, group, start + seconds) for group in groups))
        steps, spent = sum(counts), perf_counter() - start
        return round(steps / spent / (os.cpu_count() or 1)), round(steps / (cpu_s() - used))


def searching(params: WebshopParams, queries: int) -> dict[str, float]:
    """Return percentiles of one search's milliseconds."""
    shop, source = shop_of(params), ENV.tasks(params)
    texts = [goal_of(source.get("train", index).payload).text for index in range(queries + 10)]
    start = perf_counter()
    index = shop.catalogue.index
    built = perf_counter() - start
    spent, worked = [], []
    for text in texts:
        start, used = perf_counter(), thread_time()
        index.hits(text)
        worked.append((thread_time() - used) * 1e3)
        spent.append((perf_counter() - start) * 1e3)
    (p50, p99), (_, cpu_p99) = percentiles(spent[10:]), percentiles(worked[10:])  # the first warm up
    return {
        "index_s": round(built, 2),
        "search_p50_ms": round(p50, 3),
        "search_p99_ms": round(p99, 3),
        "search_cpu_p99_ms": round(cpu_p99, 3),
    }


def refereed(params: WebshopParams, episodes: int) -> dict[str, int]:
    """Play random episodes, half of them from each split, and count rewards that the referee disputes."""
    rng, shop, source = Random(2), shop_of(params), ENV.tasks(params)
    env: Any = ENV.factory(params)
    mismatches = bought = 0
    for index in range(episodes):
        task = source.get(source.splits[index % 2], index // 2)
        referee = Referee(shop.catalogue, task.payload)
        page, _ = env.reset(task, 0)
        referee.follow("", page)
        over = False
        while not over:
            action = random_action(rng, page, task.payload)
            result = env.step(action)
            page, over = result.observation, result.terminated or result.truncated
            referee.follow(action, page)
        bought += referee.bought is not None
        mismatches += abs(env.evaluate().reward - float(referee.bought or 0)) > 1e-12
    return {"reward_episodes": episodes, "reward_purchases": bought, "reward_mismatches": mismatches}


def over_http(params: WebshopParams, lists: int) -> dict[str, int]:
    """Play lists of decisions, half the oracle's and half random, in text and over HTTP."""
    shop, source = shop_of(params), ENV.tasks(params)
    mismatches = 0
    for index in range(lists):
        goal = goal_of(source.get("train", index).payload)
        actions, expected = list_of_decisions(params, index)
        with Site(shop, goal.text) as site:
            thread = threading.Thread(target=site.serve_forever, args=(0.005,))
            thread.start()
            try:
                visitor = Visitor(site.server_port)
                for action in actions:
                    visitor.act(action)
            finally:
                site.shutdown()
                thread.join()
            reward = shop.score(site.bought, goal).reward if site.bought else 0.0
        mismatches += reward != expected
    return {"http_lists": lists, "http_mismatches": mismatches}


def drawing(count: int) -> float:
    """Return instructions drawn per second."""
    source = ENV.tasks(WebshopParams(catalogue_seed=1))
    start = perf_counter()
    for index in range(count):
        source.get("train", index)
    return round(count / (perf_counter() - start))


def measure(*, quick: bool) -> dict[str, Any]:
    """Run everything."""
    result: dict[str, Any] = {"cpus": os.cpu_count() or 1}
    small, large = WebshopParams(), WebshopParams(products=LARGE)
    result["instructions_per_s"] = drawing(1000)
    result |= refereed(small, 2000 if quick else 10_000)
    result |= over_http(small, 40 if quick else 500)
    rates = asyncio.run(throughput(small, seconds=4.0 if quick else 20.0))
    result["steps_per_s_per_core"], result["steps_per_cpu_s"] = rates
    result |= searching(large, 500 if quick else 2000)
    if not quick:
        rates = asyncio.run(throughput(large, seconds=20.0))
        result["steps_per_s_per_core_50k"], result["steps_per_cpu_s_50k"] = rates
    return result


def main() -> None:
    """Measure, print, and write the page if asked."""
    parser = parser_of(__doc__, quick="well under a minute instead of several", write="webshop.md")
    arguments = parser.parse_args()
    result = measure(quick=arguments.quick)
    table = figures_page(result, GOALS)
    print(table)
    if arguments.write:
        write_results(
            "webshop.md", "The webshop", "python -m benchmarks.webshop --write", f"{table}\n\n{NOTE}"
        )
    finish(result)


if __name__ == "__main__":
    main()
