"""Real CLI agents in sandboxes, before a scripted policy: do they fix a toy repository, and is the record exact?

`python -m benchmarks.agents [--quick] [--agent NAME ...] [--mode MODE ...] [--out FILE] [--write]`. Each installed agent
runs in each mode (`agent_policy.Mode`), in a sandbox of its own, through tunnel, gateway, wire format, template and tree.
What is not installed, or has no such mode, is reported as that. Per run one line; the last line is one JSON object.

- `fixed`: the bug is gone from the sandbox, whatever the agent said;
- `exact`: the record's branches are what the engine saw, and each sampled token trains once;
- `drift`: calls that opened a fresh context although they go on from earlier ones, with the reasons; compactions and their
  summaries apart;
- `unexplained_tokens`: sampled tokens that no labelled call accounts for (must be 0);
- `misses`: where it did otherwise than `agent_expectations` says. Any makes the exit code 1.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
from collections.abc import AsyncIterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from compat.agent_expectations import misses, not_offered, page
from compat.agent_policy import Mode
from compat.agent_runs import Outcome, run_mode

from agent_runtime.agents.install import default_shelf, find_installed
from agent_runtime.agents.spec import AgentSpec, agent_names, load_agent
from benchmarks.scaffold import commit, finish, parser_of, write_results
from rock_env.client import Client
from rock_env.errors import InvalidArgument, RockError
from rock_env.local import embedded

__all__ = ["main"]

QUICK = (Mode.NORMAL, Mode.RATE_LIMIT, Mode.LONG_CUT)
WIDTHS = {
    "agent": 16,
    "mode": 14,
    "fixed": 7,
    "exact": 7,
    "drift": 7,
    "unexplained": 13,
    "session": 14,
    "ended": 13,
    "s": 6,
}
HEAD = "".join(f"{name:<{width}}" for name, width in WIDTHS.items()) + "calls"
Cell = dict[str, Any]


def as_json(spec: AgentSpec, outcome: Outcome) -> Cell:
    """Return one run for programs."""
    return {
        "agent": spec.name,
        "version": spec.version,
        "mode": str(outcome.mode),
        "commit": commit(),
        "fixed": outcome.fixed,
        "exact": outcome.exact,
        "drift": outcome.drift,
        "reasons": outcome.reasons,
        "unexplained_tokens": outcome.unexplained_tokens,
        "calls": {str(label): count for label, count in outcome.account.calls.items()},
        "blamed": outcome.blamed,
        "happened": outcome.happened,
        "session_end": str(outcome.session_end),
        "ending": str(outcome.end.ending),
        "exit_code": outcome.end.exit_code,
        "seconds": round(outcome.end.duration_s, 1),
        "first_prompt": outcome.first_prompt,
        "misses": misses(outcome),
    }


def line(cell: Mapping[str, Any]) -> str:
    """Return one cell as a line of the table."""
    start = f"{cell['agent']:<16}{cell.get('mode', ''):<14}"
    for name in ("not_installed", "not_offered", "error"):
        if name in cell:
            return f"{start}{name.replace('_', ' ')}: {cell[name]}"
    calls = " ".join(f"{label}={count}" for label, count in cell["calls"].items())
    why = f" {cell['reasons']}" if cell["reasons"] else ""
    missed = "".join(f"\n{'':<16}MISS: {miss}" for miss in cell["misses"])
    return (
        f"{start}{cell['fixed']!s:<7}{cell['exact']!s:<7}{cell['drift']:<7}{cell['unexplained_tokens']:<13}"
        f"{cell['session_end']:<14}{cell['ending']:<13}{cell['seconds']:<6}{calls}{why}{missed}"
    )


async def measure(
    specs: Sequence[AgentSpec], modes: Sequence[Mode], shelf: Path, time_limit_s: float, known: Sequence[Cell]
) -> AsyncIterator[Cell]:
    """Yield the cell of every agent and mode, one after the other; those that `known` has are not measured again."""
    had = {(cell["agent"], cell.get("mode")): cell for cell in known if "misses" in cell}
    async with embedded([f"--shelf={shelf}"]) as address, Client(address) as client:
        for spec in specs:
            if find_installed(spec, shelf) is None:
                why = spec.unavailable or f"ale agent install {spec.name} --shelf {shelf}"
                yield {"agent": spec.name, "not_installed": why}
                continue
            normal = had.get((spec.name, Mode.NORMAL))
            room: int = normal["first_prompt"] if normal else 0
            for mode in modes:
                where: Cell = {"agent": spec.name, "mode": str(mode)}
                if (spec.name, mode) in had:
                    yield had[spec.name, mode]
                elif why := not_offered(spec.name, mode):
                    yield where | {"not_offered": why}
                else:
                    try:
                        outcome = await run_mode(
                            client, spec, mode, time_limit_s=time_limit_s, first_prompt=room
                        )
                    except RockError as error:
                        yield where | {"error": str(error)}
                        continue
                    room = room or outcome.first_prompt
                    yield as_json(spec, outcome)


async def _measure_all(
    options: argparse.Namespace, specs: Sequence[AgentSpec], known: Sequence[Cell]
) -> list[Cell]:
    modes = options.mode or (QUICK if options.quick else tuple(Mode))
    done: list[Cell] = []
    print(HEAD, flush=True)
    async for cell in measure(specs, modes, options.shelf.absolute(), options.time_limit_s, known):
        print(line(cell), flush=True)
        done.append(cell)
        if options.out is not None and "misses" in cell and cell not in known:
            _keep(options.out, cell)
    return done


def _known(out: Path) -> list[Cell]:
    """Return what was measured of this commit."""
    rows = out.read_text().splitlines() if out.exists() else []
    return [cell for cell in map(json.loads, rows) if cell.get("commit") == commit()]


def _keep(out: Path, cell: Cell) -> None:
    with out.open("a") as file:
        file.write(f"{json.dumps(cell)}\n")


def main() -> None:
    """Run the command line."""
    parser = parser_of(
        __doc__, quick=f"the modes {', '.join(QUICK)} only, if --mode names none", write="agents.md"
    )
    parser.add_argument("--agent", action="append", help="a name or a YAML file; repeatable; default: all")
    parser.add_argument(
        "--mode", action="append", type=Mode, choices=list(Mode), help="repeatable; default: all"
    )
    parser.add_argument("--shelf", type=Path, default=default_shelf())
    parser.add_argument("--time-limit-s", type=float, default=300.0, help="of one run")
    parser.add_argument(
        "--out",
        type=Path,
        help="add each run here as JSON; what it has of this commit is not run again",
    )
    options = parser.parse_args()
    try:
        specs = [load_agent(name) for name in options.agent or agent_names()]
    except InvalidArgument as error:
        parser.error(str(error))
    done = asyncio.run(_measure_all(options, specs, _known(options.out) if options.out else ()))
    if options.write:
        command = "python -m benchmarks.agents --write"
        write_results("agents.md", "What real CLI agents do", command, page(done))
    missed = sum(bool(cell.get("misses") or "error" in cell) for cell in done)
    sys.exit(finish({"cells": done, "missed": missed}, bad=missed))


if __name__ == "__main__":
    main()
