"""Kill parts of real runs at random points, and compare what they come to: `benchmarks.kills --part real`.

Runs of `ale train` in each mode, on `frozen_lake` with the tiny model and on `swe` with the coder, play through a ROCK
service of three servers with one store behind one address (`tests/integration/replica_fleet.py`) and on one Ray cluster.
What is killed, with SIGKILL: the whole `run` (its process and its actors), its `learner`, its rollout `worker`, a
`sampler`, or a `server` of the service (another takes its place on the same store). A run whose process is killed goes on
by `--resume`; where a part is, it must go on by itself. A kill comes some random number of the journal's lines after the
one before, and up to half a second later; a run ends only after the last one.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from itertools import cycle, islice
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

import psutil
from integration.postgres_server import databases, postgres_server
from integration.ray_cluster import JOINING, ray_cluster
from integration.replica_fleet import Fleet, Server, running_fleet
from round_robin import round_robin
from safetensors.numpy import load_file

from benchmarks.runs import settings_words, train_rows
from benchmarks.scaffold import say
from trainer.scheduler.journal import JOURNAL, audit, entries

__all__ = ["ACTORS", "CELLS", "SOME", "Cell", "over_lag", "processes", "real"]

REPLICAS, PATIENCE_S, DELAY_S = 3, 600.0, 0.5
LAGS = {"sync": 0, "pipeline": 1, "stream": 2}
VICTIMS = {
    "sync": ("run", "server", "learner", "worker", "sampler"),
    "pipeline": ("learner", "worker", "server", "run", "sampler"),
    "stream": ("sampler", "run", "server", "sampler", "worker", "learner"),
}
ACTORS = {
    "sampler": ("InferenceActor", "SteppedActor", "WatchedActor"),
    "learner": ("Learner",),
    "worker": ("RolloutWorker",),
}
EVERY_ACTOR = tuple(name for names in ACTORS.values() for name in names)
COMMON: dict[str, object] = {
    "rollout.workers": 1,
    "rollout.engines": 1,
    "rollout.groups_per_step": 2,
    "rollout.group_size": 4,
    "warmup.trajectories": 4,
    "warmup.epochs": 1,
    "anchors.inject": 2,
    "anchors.inject_gate": "none",
    "anchors.inject_until": 1.0,
    "guard.legal_fall": 0,
    "guard.text_rise": 0,
    "eval.tasks": 1,
    "eval.every": 0,
    "checkpoint.every": 1,
    "optim.threads": 1,
}
"""Experts are imitated in each step, so that weights move whatever the rollouts come to. With two threads on a busy machine
MKL rounds products of matrices in two ways, by how the threads happen to share them."""
OF_ENV: dict[str, dict[str, object]] = {
    "frozen_lake": {"rollout.groups_per_step": 4, "env_args.max_turns": 8},
    "swe": {"env_args.max_turns": 6, "eval.apart_tasks": 1, "rollout.concurrency": 8},
}
STEPS = {"frozen_lake": 8, "swe": 6}


class Cell(NamedTuple):
    """What runs: an environment, and a mode."""

    env: str
    mode: str

    def settings(self, rock: str) -> dict[str, object]:
        """Return the settings of its runs. Lockstep makes what is sampled the same, whenever requests come."""
        batching = "eager" if self.mode == "stream" else "lockstep"
        own = {"rollout.mode": self.mode, "rollout.staleness": LAGS[self.mode], "rollout.batching": batching}
        return {**COMMON, **OF_ENV[self.env], **own, "rollout.rock_address": rock}

    @property
    def rollouts(self) -> int:
        """How many a run learns."""
        settings = {**COMMON, **OF_ENV[self.env]}
        sizes = int(str(settings["rollout.groups_per_step"])) * int(str(settings["rollout.group_size"]))
        return STEPS[self.env] * sizes

    @property
    def lines_a_step(self) -> int:
        """About how many lines a step has in the journal."""
        return 3 if self.mode != "stream" else self.rollouts // STEPS[self.env] // 4 * 2 + 2


SOME = tuple(Cell("frozen_lake", mode) for mode in LAGS)
CELLS = (*SOME, *(Cell("swe", mode) for mode in LAGS))


def processes(*names: str) -> list[psutil.Process]:
    """Return the processes of Ray's actors of these classes that this process' children started, the oldest first."""
    found = []
    for child in psutil.Process().children(recursive=True):
        try:
            if child.cmdline()[0].removeprefix("ray::").partition(".")[0] in names:
                found.append((child.create_time(), child.pid, child))
        except (psutil.NoSuchProcess, psutil.ZombieProcess, IndexError):
            continue
    return [child for _, _, child in sorted(found)]


def over_lag(rows: list[dict[str, Any]], lag: int) -> int:
    """Return how many tokens were learned beyond the lag."""
    late = [(name, tokens) for row in rows for name, tokens in row.items() if name.startswith("lag/tokens/")]
    return int(sum(tokens for name, tokens in late if int(name.rpartition("/")[2]) > lag))


def weights(run: Path) -> str:
    """Return the digest of all tensors of the newest checkpoint, those of the optimizer included."""
    digest = hashlib.sha256()
    for path in sorted(max((run / "checkpoints").glob("step-*")).glob("*.safetensors")):
        for name, tensor in sorted(load_file(path).items()):
            digest.update(f"{path.name} {name} {tensor.dtype} {tensor.shape}".encode() + tensor.tobytes())
    return digest.hexdigest()


class Service:
    """The servers of one store, those that live."""

    def __init__(self, fleet: Fleet, living: list[Server], random: Random) -> None:
        self._fleet, self.living, self._random = fleet, living, random

    async def lose(self) -> None:
        """Kill one of them, and start another."""
        victim = self.living.pop(self._random.randrange(len(self.living)))
        victim.kill()
        await victim.ended()
        self.living.append(await self._fleet.start())


class Run:
    """One run, and what is killed of it."""

    def __init__(self, cell: Cell, folder: Path, ray: str, rock: str) -> None:
        self.cell, self.folder, self._ray, self._rock = cell, folder, ray, rock
        self.kills = Counter[str]()
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Begin, or go on."""
        words = ["--run", str(self.folder), "--quiet", "--ray-address", self._ray]
        if (self.folder / "config.toml").exists():
            words.append("--resume")
        else:
            words += ["--env", self.cell.env, "--algo", "ipa", "--seed", "4"]
            words += ["--steps", str(STEPS[self.cell.env]), *settings_words(self.cell.settings(self._rock))]
        with self.folder.with_suffix(".log").open("ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "ale", "train", *words],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env={**os.environ, **JOINING},
                process_group=0,
            )

    def lines(self) -> int:
        """Return how many lines the journal has."""
        with suppress(FileNotFoundError):
            return (self.folder / JOURNAL).read_bytes().count(b"\n")
        return 0

    async def reaches(self, lines: int, delay_s: float) -> bool:
        """Wait for so many lines of the journal, and then for so long; return whether the run was still going."""
        assert self._process is not None
        seen, since = -1, time.monotonic()
        while self._process.poll() is None:
            if (now := self.lines()) >= lines:
                await asyncio.sleep(delay_s)
                return self._process.poll() is None
            if now != seen:
                seen, since = now, time.monotonic()
            if time.monotonic() - since > PATIENCE_S:
                raise self.broken(f"stands still at {now} lines of its journal")
            await asyncio.sleep(0.02)
        return False

    async def kill(self, victim: str, service: Service) -> None:
        """Kill a part, or the run, which is then started again. A victim that is not up is passed over."""
        assert self._process is not None
        if victim == "server":
            await service.lose()
            self.kills[victim] += 1
            return
        found = processes(*ACTORS.get(victim, ()))
        if victim == "run":
            os.killpg(self._process.pid, signal.SIGKILL)
            for actor in processes(*EVERY_ACTOR):
                with suppress(psutil.NoSuchProcess):
                    actor.kill()
        else:
            try:
                found[0].kill()
            except (IndexError, psutil.NoSuchProcess):
                return
        self.kills[victim] += 1
        if victim == "run":
            if await self.ended() == 0:
                raise self.broken("ended well although it was killed")
            self.start()

    async def ended(self) -> int:
        """Wait for the end of the run and of its actors; return its exit code."""
        assert self._process is not None
        until = time.monotonic() + PATIENCE_S
        while self._process.poll() is None or processes(*EVERY_ACTOR):
            if time.monotonic() > until:
                raise self.broken("does not end")
            await asyncio.sleep(0.2)
        return self._process.returncode

    async def done(self) -> None:
        """Wait for its end. Raise `RuntimeError` where it is none."""
        while await self.reaches(sys.maxsize, 0.0):
            pass
        if code := await self.ended():
            raise self.broken(f"exited with {code}")

    def broken(self, how: str) -> RuntimeError:
        """Return an error with the end of what the run said."""
        said = self.folder.with_suffix(".log").read_text(errors="replace")[-6000:]
        return RuntimeError(f"{self.cell}, after {dict(self.kills)}, {how}:\n{said}")

    def end(self) -> None:
        """Leave no process behind."""
        if self._process is not None and self._process.poll() is None:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()

    def account(self, undisturbed: str) -> Counter[str]:
        """Return what the run lost, and learned twice, and whether it ended otherwise than the undisturbed one."""
        found, rows = audit(entries(self.folder / JOURNAL)), train_rows(self.folder)
        whole = found.consumed == self.cell.rollouts and len(rows) == STEPS[self.cell.env]
        return Counter(
            {
                "runs": 1,
                "lost": len(found.lost) + len(found.open),
                "twice": len(found.twice),
                "over_lag": over_lag(rows, LAGS[self.cell.mode]),
                "failed": int(sum(row["failed"] for row in rows)),
                "differ": int(not whole or (bool(undisturbed) and weights(self.folder) != undisturbed)),
            }
        )


async def disturbed(
    cell: Cell, kills: int, folder: Path, ray: str, rock: str, service: Service, random: Random
) -> dict[str, Any]:
    """Kill parts of runs of a cell so often; return what they came to."""
    undisturbed, found, killed = "", Counter[str](), Counter[str]()
    victims = cycle(VICTIMS[cell.mode])
    if cell.mode != "stream":
        calm = Run(cell, folder / "calm", ray, rock)
        undisturbed = await _to_end(calm, iter(()), service, random)
    while killed.total() < kills:
        run = Run(cell, folder / f"run{found['runs']}", ray, rock)
        await _to_end(run, islice(victims, kills - killed.total()), service, random)
        killed.update(run.kills)
        found.update(run.account(undisturbed))
        say(f"{cell.env} {cell.mode}: {dict(run.kills)}, {dict(found)}")
    return {"kills": dict(killed), **found}


async def _to_end(run: Run, victims: Iterator[str], service: Service, random: Random) -> str:
    """Let a run come to its end, after a kill of each victim that it lives to see; return the digest of its weights."""
    try:
        run.start()
        for victim in victims:
            further = random.randint(1, run.cell.lines_a_step + 1)
            if not await run.reaches(run.lines() + further, random.uniform(0, DELAY_S)):
                break
            await run.kill(victim, service)
        await run.done()
    finally:
        run.end()
    return weights(run.folder)


async def real(cells: tuple[Cell, ...], kills: int, seed: int = 0) -> dict[str, Any]:
    """Kill parts of real runs so often in all; return by cell what they came to."""
    random, found = Random(seed), dict[str, Any]()
    with (
        tempfile.TemporaryDirectory(prefix="ale-kills-") as name,
        postgres_server() as postgres,
        ray_cluster(Path(name)) as ray,
    ):
        async with running_fleet(databases(postgres)()) as fleet:
            service = Service(fleet, [await fleet.start() for _ in range(REPLICAS)], random)
            async with round_robin(lambda: [server.address for server in service.living]) as port:
                for number, cell in enumerate(cells):
                    share = kills * (number + 1) // len(cells) - kills * number // len(cells)
                    folder = Path(name) / f"{cell.env}-{cell.mode}"
                    folder.mkdir()
                    began = time.monotonic()
                    rock = f"grpc://127.0.0.1:{port}"
                    own = await disturbed(cell, share, folder, ray, rock, service, random)
                    found[f"{cell.env} {cell.mode}"] = {**own, "seconds": round(time.monotonic() - began)}
    return found
