"""Real CLI agents in sandboxes, before a scripted policy: do they fix a toy repository, and is the record exact?

`python -m benchmarks.agents [--agent NAME ...] [--mode MODE ...] [--shelf DIR] [--out FILE]`. Each installed agent runs
in each mode (`agent_policy.Mode`), in a sandbox of its own, through tunnel, gateway, wire format, template and tree.
An agent that is not installed is reported as that. Per run one line and one JSON object:

- `fixed`: the bug is gone from the sandbox, whatever the agent said;
- `exact`: the record's branches are what the engine saw, and each sampled token trains once;
- `drift`: calls that opened a fresh context although they go on from earlier ones, compactions apart, with the reasons;
- `unexplained_tokens`: sampled tokens that no labelled call accounts for (must be 0).
"""

from __future__ import annotations

import argparse
import asyncio
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from agent_runtime.agents.install import default_shelf, find_installed
from agent_runtime.agents.spec import agent_names, load_agent
from benchmarks.agent_policy import Mode
from benchmarks.agent_runs import Outcome, run_mode
from rock_env.client import Client
from rock_env.errors import RockError
from rock_env.local import embedded

__all__ = ["main"]

WIDTHS = {
    "agent": 16,
    "mode": 12,
    "fixed": 7,
    "exact": 7,
    "drift": 7,
    "unexplained": 13,
    "session": 14,
    "ended": 14,
}
HEAD = "".join(f"{name:<{width}}" for name, width in WIDTHS.items()) + "calls"


def line(outcome: Outcome) -> str:
    """Return one run as a line of the table."""
    calls = " ".join(f"{label}={count}" for label, count in outcome.account.calls.items())
    why = f" {outcome.reasons}" if outcome.reasons else ""
    return (
        f"{outcome.agent:<16}{outcome.mode:<12}{outcome.fixed!s:<7}{outcome.exact!s:<7}{outcome.drift:<7}"
        f"{outcome.unexplained_tokens:<13}{outcome.session_end:<14}{outcome.end.ending:<14}{calls}{why}"
    )


def as_json(outcome: Outcome) -> dict[str, Any]:
    """Return one run for programs."""
    return {
        "agent": outcome.agent,
        "mode": outcome.mode,
        "fixed": outcome.fixed,
        "exact": outcome.exact,
        "drift": outcome.drift,
        "reasons": outcome.reasons,
        "unexplained_tokens": outcome.unexplained_tokens,
        "session_end": outcome.session_end,
        "ending": outcome.end.ending,
        "exit_code": outcome.end.exit_code,
        "seconds": round(outcome.end.duration_s, 1),
        "calls": {str(label): count for label, count in outcome.account.calls.items()},
    }


async def measure(
    names: Sequence[str], modes: Sequence[Mode], shelf: Path, time_limit_s: float
) -> list[dict[str, Any]]:
    """Run every installed agent in every mode, one after the other."""
    done: list[dict[str, Any]] = []
    print(HEAD, flush=True)
    async with embedded([f"--shelf={shelf}"]) as address, Client(address) as client:
        for spec in map(load_agent, names):
            if find_installed(spec, shelf) is None:
                why = spec.unavailable or f"ale agent install {spec.name} --shelf {shelf}"
                print(f"{spec.name:<16}not installed: {why}", flush=True)
                done.append({"agent": spec.name, "not_installed": why})
                continue
            room = 0
            for mode in modes:
                try:
                    outcome = await run_mode(client, spec, mode, time_limit_s=time_limit_s, first_prompt=room)
                except RockError as error:
                    print(f"{spec.name:<16}{mode:<12}the sandbox failed: {error}", flush=True)
                    done.append({"agent": spec.name, "mode": mode, "error": str(error)})
                    continue
                room = room or outcome.first_prompt
                print(line(outcome), flush=True)
                done.append(as_json(outcome))
    return done


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else "")
    parser.add_argument("--agent", action="append", choices=agent_names(), help="repeatable; default: all")
    parser.add_argument(
        "--mode", action="append", type=Mode, choices=list(Mode), help="repeatable; default: all"
    )
    parser.add_argument("--shelf", type=Path, default=default_shelf())
    parser.add_argument("--time-limit-s", type=float, default=300.0, help="of one run")
    parser.add_argument("--out", type=Path, help="write the JSON objects here")
    options = parser.parse_args()
    names, modes = options.agent or list(agent_names()), options.mode or list(Mode)
    done = asyncio.run(measure(names, modes, options.shelf.absolute(), options.time_limit_s))
    if options.out is not None:
        options.out.write_text("".join(f"{json.dumps(each)}\n" for each in done))
    print(json.dumps(done))


if __name__ == "__main__":
    main()
