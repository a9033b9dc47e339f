"""Attacks on a ROCK server and a gateway that may use 1 GiB each, and what a neighbour notices of them.

`python -m benchmarks.hostile [--quick]`. The attacks are those of `tests/escape`, most of them written from the
documentation alone, on servers, the gateway and commands. First each is tried once (`--quick`: of those from the
documentation one in eight, and none on commands). Then an attacker, pinned to one core, repeats the small ones at a fixed
rate, in turn with a control that makes harmless calls at the same rate from the same core; meanwhile a neighbour, another
tenant, runs a command in its sandbox again and again.
The last line is one JSON object:

- `tried`, `refused`: how many were tried, and how many got one clear error that is the caller's fault (goal: all);
- `restarts`: how often a server ended and had to be started again (goal: 0);
- `neighbour_over_control`: the 99th percentile of the neighbour's calls under attack over that under control (at most
  2); `neighbour_p99_ms` and `control_p99_ms` are the two;
- `attacks_per_s`, `control_calls_per_s`: the rates as they were; one core cannot always keep up.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import AsyncExitStack, contextmanager
from pathlib import Path
from statistics import quantiles
from time import perf_counter
from typing import Any

from attack_rounds import ON_COMMANDS, ON_SERVERS
from attacks import ATTACKS, SMALL, Attack
from attacks_gateway import GATEWAY_ATTACKS
from hostile_site import Site, hostile_site, why_not_limited

from benchmarks.scaffold import finish, parser_of, say
from rock_env.proto.v1 import sandbox_pb2 as pb

BASE = {**ATTACKS, **GATEWAY_ATTACKS}
_QUICK = 8
"""Of the attacks from the documentation one in so many is tried."""
PER_S = 40
QUICK_S, FULL_S = 3.0, 15.0
ROUNDS = 3
CATCHES_UP_S = 0.2


class Sites:
    """The site, and a new one where a server of it has ended."""

    def __init__(self) -> None:
        self.restarts = 0
        self._stack = AsyncExitStack()
        self._site: Site | None = None

    async def site(self) -> Site:
        if self._site is not None and not self._site.alive:
            await self.ended()
        if self._site is None:
            folder = self._stack.enter_context(tempfile.TemporaryDirectory())
            self._site = await self._stack.enter_async_context(hostile_site(Path(folder)))
        return self._site

    async def ended(self) -> None:
        """Close the site, counting whether one of its servers has ended before."""
        self.restarts += self._site is not None and not self._site.alive
        self._site = None
        await self._stack.aclose()


async def tried(sites: Sites, attacks: Mapping[str, Attack]) -> int:
    """Try every attack once; return how many were refused."""
    refused = 0
    for name, attack in attacks.items():
        answer = await attack(await sites.site())
        refused += answer.refused and answer.clear
        if not (answer.refused and answer.clear):
            say(f"not refused: {name}: {answer.status} {answer.said[:200]}")
    return refused


# -- the neighbour


class Failed(Exception):
    """A call of the neighbour failed: there is no time to compare."""


async def attack_for_ever(where: str, kind: str) -> None:
    """Be the attacker's process: repeat small attacks, or harmless calls, at the rate."""
    async with Site.joined(json.loads(where)) as site:
        small = [ATTACKS[name] for name in SMALL]
        acts = small if kind == "attack" else [harmless_get, harmless_list]
        print("joined", flush=True)
        due = perf_counter()
        running: set[asyncio.Task[Any]] = set()
        for act in itertools.cycle(acts):
            await asyncio.sleep(max(0.0, due - perf_counter()))
            due = (
                max(due, perf_counter() - CATCHES_UP_S) + 1 / PER_S
            )  # what a stop has missed is not made up for
            os.write(1, b".")  # counted by who started this
            task = asyncio.ensure_future(act(site))
            running.add(task)
            task.add_done_callback(running.discard)


async def harmless_get(site: Site) -> None:
    await site.call("SandboxService.Get", pb.GetSandboxRequest(id=site.known.own["sandbox"][0]))


async def harmless_list(site: Site) -> None:
    await site.http("GET", "/v1/sandboxes")


@contextmanager
def pinned(site: Site, kind: str) -> Iterator[subprocess.Popen[bytes]]:
    """Start the attacker's process on one core; it stands still but for the time that `going` lets it go."""
    command = [sys.executable, "-m", "benchmarks.hostile", "--as", kind, "--where", json.dumps(site.where())]
    with subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE) as attacker:
        os.sched_setaffinity(attacker.pid, {min(os.sched_getaffinity(0))})
        assert attacker.stdout is not None
        attacker.stdout.readline()
        attacker.send_signal(signal.SIGSTOP)
        try:
            yield attacker
        finally:
            attacker.send_signal(signal.SIGKILL)


@contextmanager
def going(attacker: subprocess.Popen[bytes]) -> Iterator[None]:
    attacker.send_signal(signal.SIGCONT)
    try:
        yield
    finally:
        attacker.send_signal(signal.SIGSTOP)


async def neighbour(site: Site, for_s: float) -> list[float]:
    """Run a command again and again; return each call's seconds."""
    box, taken = site.known.others["sandbox"][0], []
    until = perf_counter() + for_s
    while (start := perf_counter()) < until:
        wanted = pb.ExecRequest(start=pb.ExecStart(sandbox_id=box, argv=["true"], no_stdin=True))
        answer = await site.call("SandboxService.Exec", iter([wanted]), who="victim")
        if answer.status != "OK":
            raise Failed(f"the neighbour's command: {answer.status} {answer.said}")
        taken.append(perf_counter() - start)
    return taken


def acts(attacker: subprocess.Popen[bytes]) -> int:
    """Return how many attacks or harmless calls it has begun."""
    assert attacker.stdout is not None
    return len(os.read(attacker.stdout.fileno(), 1 << 16))


async def compared(site: Site, for_s: float) -> tuple[float, float, float, float]:
    """Return the neighbour's p99 under attack and under control, in seconds, of phases that alternate, and the rates."""
    taken: dict[str, list[float]] = {"attack": [], "control": []}
    with pinned(site, "attack") as attacker, pinned(site, "control") as control:
        for _ in range(ROUNDS):
            for process, times in zip((attacker, control), taken.values(), strict=True):
                with going(process):
                    times += await neighbour(site, for_s)
        rates = [acts(process) / (ROUNDS * for_s) for process in (attacker, control)]
    attacked, harmless = (quantiles(times, n=100)[-1] for times in taken.values())
    return attacked, harmless, rates[0], rates[1]


async def run(quick: bool) -> dict[str, float | None]:
    sites = Sites()
    rounds = dict(list(ON_SERVERS.items())[::_QUICK]) if quick else {**ON_SERVERS, **ON_COMMANDS}
    attacks = {**BASE, **rounds}
    attacked = control = attacks_per_s = calls_per_s = None
    try:
        refused = await tried(sites, attacks)
        attacked, control, attacks_per_s, calls_per_s = await compared(
            await sites.site(), QUICK_S if quick else FULL_S
        )
    except Failed as failure:
        say(f"not compared: {failure}")
    finally:
        await sites.ended()
    return {
        "tried": len(attacks),
        "refused": refused,
        "restarts": sites.restarts,
        "neighbour_over_control": attacked and control and round(attacked / control, 2),
        "neighbour_p99_ms": attacked and round(attacked * 1e3, 1),
        "control_p99_ms": control and round(control * 1e3, 1),
        "attacks_per_s": attacks_per_s and round(attacks_per_s, 1),
        "control_calls_per_s": calls_per_s and round(calls_per_s, 1),
    }


def main() -> int:
    parser = parser_of(__doc__, quick=f"phases of {QUICK_S:g} s in place of {FULL_S:g} s")
    parser.add_argument("--as", dest="kind", choices=("attack", "control"), help=argparse.SUPPRESS)
    parser.add_argument("--where", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.kind:
        asyncio.run(attack_for_ever(options.where, options.kind))
    if why_not_limited():
        parser.error(f"attacks need a server with a memory limit: {why_not_limited()}")
    return finish(asyncio.run(run(options.quick)))


if __name__ == "__main__":
    sys.exit(main())
