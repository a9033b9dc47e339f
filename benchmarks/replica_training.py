"""Training through three servers of one store while each is killed in turn: what fails, and whether the model is the same.

`python -m benchmarks.replica_training [--quick] [--every SECONDS] [--agent NAME]`. Three servers of one PostgreSQL stand
behind a proxy that gives each connection the next of them. `ale train --env swe` (`--quick`: frozen_lake) runs through it
twice, once undisturbed and once while a server is killed with SIGKILL every so often, each in turn, and started again. With
`--agent` the policy acts through that CLI agent, whose rollouts depend on its own timing, so the two models are not
compared. Needs Debian's `postgresql` or PostgreSQL's programs on PATH; `--agent` needs `ale agent install NAME`.

The last line is one JSON object: `env`, `agent`, `steps`, `rollouts` (of one run), `every_s`, `kills`, `failed_rollouts`
(of both runs; null where one was halted), `halted` (its last words), `equal_weights` (whether the two models are equal bit
for bit; null with `--agent`, and where a run was halted), `undisturbed_s` and `disturbed_s`.
"""

from __future__ import annotations

import asyncio
import sys
import tempfile
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from integration.postgres_server import databases, postgres_server
from integration.replica_fleet import Fleet, Server, running_fleet
from round_robin import round_robin

from agent_runtime.agents.install import default_shelf
from benchmarks.runs import settings_words, train, train_rows
from benchmarks.scaffold import finish, parser_of

REPLICAS = 3
STEPS = 5
EVERY_S = 15.0
"""Between two kills; a server lives three times as long."""
QUICK_EVERY_S = 3.0
SETTINGS: dict[str, Any] = {
    "eval.every": 0,
    "eval.tasks": 1,
    "rollout.groups_per_step": 2,
    "rollout.group_size": 2,
    "rollout.concurrency": 8,
    "warmup.trajectories": 32,
}
"""Eight episodes of a worker at once: each is a sandbox with processes of its own, on the cores that all servers share."""
BEHIND_AN_AGENT: dict[str, object] = {
    "warmup.trajectories": 0,
    "anchors.scheduler": "none",
    "anchors.inject": 0,
    "engine_options.layers": 1,
    "engine_options.width": 16,
    "engine_options.heads": 2,
    "engine_options.max_context": 16384,
    "sampling.max_tokens": 24,
    "rollout.token_budget": 96,
}


async def killed_in_turn(
    fleet: Fleet, living: list[Server], over: asyncio.Event, every_s: float, *options: str
) -> int:
    """Kill the server that has lived longest and start it again, until it is over; return how many were."""
    kills = 0
    while True:
        with suppress(TimeoutError):
            async with asyncio.timeout(every_s):
                await over.wait()
            return kills
        victim = living.pop(0)
        victim.kill()
        await victim.ended()
        living.append(await fleet.start(*options))
        kills += 1


@dataclass
class Outcome:
    """What came of one run."""

    failed: float | None = None
    halted: str = ""
    model: bytes = b""
    kills: int = 0
    took_s: float = 0.0


async def trained(
    folder: Path, url: str, settings: dict[str, object], *named: str, every_s: float | None, agent: str
) -> Outcome:
    """Train behind a fleet of its own, of which a server is killed every so often; None: none is."""
    options = ["--insecure", *([f"--shelf={default_shelf()}"] if agent else [])]
    found = Outcome()
    async with running_fleet(url) as fleet:
        living = [await fleet.start(*options) for _ in range(REPLICAS)]
        async with round_robin(lambda: [server.address for server in living]) as port:
            over, killing = asyncio.Event(), None
            if every_s is not None:
                killing = asyncio.create_task(killed_in_turn(fleet, living, over, every_s, *options))
            began = time.monotonic()
            try:
                address = {"rollout.rock_address": f"grpc://127.0.0.1:{port}"}
                words = [*named, *settings_words({**settings, **address})]
                await asyncio.to_thread(train, folder, words)
                steps = train_rows(folder)
                found.failed = sum(row["failed"] for row in steps)
                found.model = (folder / "model" / "model.safetensors").read_bytes()
            except RuntimeError as error:
                found.halted = str(error)[-4000:]
            over.set()
            found.took_s = round(time.monotonic() - began, 1)
            if killing is not None:
                found.kills = await killing
    return found


async def measured(*, quick: bool, every_s: float, agent: str) -> dict[str, object]:
    """Train twice and compare."""
    steps, env = (3, "frozen_lake") if quick else (STEPS, "swe")
    settings = {**SETTINGS, **(BEHIND_AN_AGENT if agent else {})}
    if quick:
        settings |= {"warmup.trajectories": 16, "warmup.epochs": 2}
    named = ["--env", env, "--algo", "ipa", "--steps", str(steps), "--seed", "5"]
    if agent:
        named += ["--agent", agent, "--model", "tiny"]
    runs: list[Outcome] = []
    with postgres_server() as postgres, tempfile.TemporaryDirectory() as name:
        database = databases(postgres)
        for run, every in (("undisturbed", None), ("disturbed", every_s)):
            folder = Path(name) / run
            runs.append(await trained(folder, database(), settings, *named, every_s=every, agent=agent))
    calm, disturbed = runs
    halted = calm.halted or disturbed.halted
    return {
        "env": env,
        "agent": agent or None,
        "steps": steps,
        "rollouts": steps * SETTINGS["rollout.groups_per_step"] * SETTINGS["rollout.group_size"],
        "every_s": every_s,
        "kills": disturbed.kills,
        "failed_rollouts": None if halted else (calm.failed or 0.0) + (disturbed.failed or 0.0),
        "halted": halted,
        "equal_weights": None if agent or halted else calm.model == disturbed.model,
        "undisturbed_s": calm.took_s,
        "disturbed_s": disturbed.took_s,
    }


def main() -> int:
    parser = parser_of(__doc__, quick="three steps of frozen_lake instead of five of swe")
    parser.add_argument("--every", type=float, default=0.0, help="seconds between two kills")
    parser.add_argument("--agent", default="", help="a CLI agent that is installed, such as mini-swe-agent")
    options = parser.parse_args()
    every_s = options.every or (QUICK_EVERY_S if options.quick else EVERY_S)
    found = asyncio.run(measured(quick=options.quick, every_s=every_s, agent=options.agent))
    bad = found["failed_rollouts"] != 0.0 or found["equal_weights"] is False or not found["kills"]
    return finish(found, bad=bad)


if __name__ == "__main__":
    sys.exit(main())
