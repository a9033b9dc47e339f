"""Kill runs of the simulator at random rounds of their loop and within their saves: `benchmarks.kills --part simulated`.

What runs is the trainer's scheduler, queue, collector and journal, in virtual time (`trainer.simulator`), with
environments, judges and calls that fail. A checkpoint is taken at every second step; half of the lines that the journal was
just writing are torn. A kill within a save comes when the checkpoint is there and what it makes superfluous is too.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory

from benchmarks.scaffold import say
from benchmarks.scheduler import FAULTY, settings
from trainer.config import TrainConfig
from trainer.scheduler.journal import JOURNAL, audit, entries
from trainer.simulator.clock import VirtualLoop
from trainer.simulator.parts import Plans
from trainer.simulator.run import Report, Saved, simulate

__all__ = ["killed", "simulated"]

ALL, SHARDS = ("sync", "pipeline", "stream"), 4
STEPS, GROUPS, GROUP_SIZE, EVERY = 6, 4, 2, 2
IN_SAVES = 0.2
"""Of the lives of a run, how many are to end within a save."""


class Killed(BaseException):
    """What ends a process at once."""


class Cut(Plans):
    """Plans of a run that is killed within a save: as it comes to remove what the checkpoint makes superfluous."""

    def __init__(self, config: TrainConfig) -> None:
        super().__init__(config)
        self.saves_left = -1
        """Saves until the kill; below zero there is none."""

    def forget(self, steps: Iterable[int]) -> None:
        """Forget them, or die."""
        if isinstance(steps, range):  # a save; who goes on forgets a list
            self.saves_left -= 1
            if self.saves_left == 0:
                raise Killed
        super().forget(steps)


def kill_at(last: int, journal: Path, saved: Saved, plans: Cut, random: Random) -> Callable[[int], None]:
    """End a loop at round `last`, unless the run is done, or dead; `Killed` holds what is then in the journal, its last
    line torn or not."""
    size = journal.stat().st_size if journal.exists() else 0

    def look(turn: int) -> None:
        nonlocal size
        if turn == last and saved.step < plans.config.steps and plans.saves_left:
            data = journal.read_bytes()
            raise Killed(data[: random.randint(size, len(data))] if random.random() < 0.5 else data)
        if turn > 1:
            size = journal.stat().st_size

    return look


def simulated(kills: int) -> dict[str, dict[str, int]]:
    """Kill so many runs of all modes together, in two processes; return by mode what they lost."""
    share = -(-kills // (len(ALL) * SHARDS))
    asked = [(mode, share, shard) for shard in range(SHARDS) for mode in ALL]
    found: dict[str, Counter[str]] = {mode: Counter() for mode in ALL}
    with ProcessPoolExecutor(2, get_context("spawn")) as pool:
        for (mode, _, _), own in zip(asked, pool.map(killed, *zip(*asked, strict=True)), strict=True):
            found[mode].update(own)
            say(f"simulated {mode}: {dict(found[mode])}")
    return {mode: dict(own) for mode, own in found.items()}


def killed(mode: str, kills: int, shard: int = 0) -> dict[str, int]:
    """Kill runs until there were so many kills; return what they lost."""
    found = {"kills": 0, "in_saves": 0, "lost": 0, "twice": 0, "differ": 0, "over_lag": 0}
    random, number = Random(f"{mode} {shard}"), 1000 * shard
    while found["kills"] < kills:
        batching, number = ("eager", "lockstep")[number % 2 and mode != "stream"], number + 1
        sizes = {
            "groups_per_step": GROUPS,
            "group_size": GROUP_SIZE,
            "concurrency": 2,
            "batching": batching,
        }
        config = settings(
            mode,
            steps=STEPS,
            seed=number,
            rollout=sizes,
            filter={"dynamic": "on"},
            checkpoint={"every": EVERY},
        )
        rounds = 0

        def count(turn: int) -> None:
            nonlocal rounds
            rounds = turn

        with TemporaryDirectory() as folder:
            whole = simulate(config, FAULTY, Path(folder), loop=VirtualLoop(count))
        for _ in range(10):
            with TemporaryDirectory() as folder:
                saved = Saved(Cut(config))
                report = _until_done(config, Path(folder), rounds, random, found, saved)
                journal = audit(entries(Path(folder) / JOURNAL))
            found["lost"] += len(journal.lost)
            found["twice"] += len(journal.twice)
            found["over_lag"] += saved.over_lag
            differs = bool(journal.open) if mode == "stream" else report.weights != whole.weights
            found["differ"] += differs or journal.consumed != STEPS * GROUPS * GROUP_SIZE
    return found


def _until_done(
    config: TrainConfig, folder: Path, rounds: int, random: Random, found: dict[str, int], saved: Saved
) -> Report:
    """Kill a run once, and then as often as chance has it, until it is done."""
    journal, plans = folder / JOURNAL, saved.plans
    assert isinstance(plans, Cut)
    while True:
        last = random.randint(2, rounds - 1)
        left = (config.steps - saved.step) // EVERY
        plans.saves_left = random.randint(1, left) if left and random.random() < IN_SAVES else -1
        try:
            return simulate(
                config, FAULTY, folder, saved, VirtualLoop(kill_at(last, journal, saved, plans, random))
            )
        except Killed as kill:
            found["kills"] += 1
            if kill.args:
                journal.write_bytes(kill.args[0])
            else:
                found["in_saves"] += 1
