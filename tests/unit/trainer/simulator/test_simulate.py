"""The real scheduler in virtual time: what it promises in every mode, after every kill; planted bugs are noticed."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import pytest

from trainer.config import TrainConfig
from trainer.rollout.filling import Rollouts
from trainer.scheduler import sampling as scheduler
from trainer.scheduler.collector import Collector
from trainer.scheduler.journal import JOURNAL, audit, entries
from trainer.scheduler.queue import QueueError, RolloutQueue
from trainer.scheduler.sampling import Sampling
from trainer.simulator.clock import Stalled, VirtualLoop
from trainer.simulator.fleet import FleetTimes
from trainer.simulator.parts import Plans, PromiseBroken
from trainer.simulator.run import Report, Saved, simulate

FLEET = FleetTimes.model_validate(
    {
        "environment": {"turns": {"low": 1, "high": 4}},
        "learner": {"step_s": {"low": 5, "high": 60}, "other_s": 1},
        "faults": {"lost": 0.05, "refused": 0.05, "slow": 0.1},
        "reward_s": {"low": 0, "high": 2},
        "sampler": {"load_s": 2},
    }
)
MODES = [("sync", 0), ("pipeline", 1), ("pipeline", 2)]
BATCHINGS = ["lockstep", "eager"]


def config(mode: str = "sync", lag: int = 0, batching: str = "eager", **changes: Any) -> TrainConfig:
    rollout = {"mode": mode, "staleness": lag, "batching": batching, "concurrency": 4}
    return TrainConfig.model_validate(
        {
            "steps": 8,
            "rollout": {"groups_per_step": 4, "group_size": 4, **rollout},
            "filter": {"dynamic": "on"},
            "checkpoint": {"every": 2},
            **changes,
        }
    )


def simulated(folder: Path, settings: TrainConfig, times: FleetTimes = FLEET) -> Report:
    folder.mkdir()
    return simulate(settings, times, folder)


@pytest.mark.parametrize("batching", BATCHINGS)
@pytest.mark.parametrize("lag", [1, 2])
def test_pipeline_learns_what_sync_with_that_staleness_learns_and_sooner(
    tmp_path: Path, lag: int, batching: str
) -> None:
    sync, pipeline, again = (
        simulated(tmp_path / name, config(name.split()[0], lag, batching))
        for name in ("sync", "pipeline", "pipeline again")
    )
    assert pipeline.weights == sync.weights
    assert pipeline == again
    assert pipeline.total_s < sync.total_s
    assert pipeline.lags == [min(step, lag) for step in range(8)]


def test_a_run_is_a_function_of_its_seed(tmp_path: Path) -> None:
    first, other = (simulated(tmp_path / str(seed), config(seed=seed)) for seed in (1, 2))
    assert first.weights != other.weights
    assert first.steps_s != other.steps_s


def test_what_nothing_overlaps_takes_the_sum_and_shares_add_up(tmp_path: Path) -> None:
    exact = {
        "sampler": {"tokens": 50, "tokens_per_s": 1000},
        "environment": {"turns": 1, "step_s": 9},
        "learner": {"step_s": 10},
    }
    times = FleetTimes.model_validate(exact)
    sizes = {"groups_per_step": 4, "group_size": 4}
    found = simulated(tmp_path / "run", config(rollout=sizes, filter={"dynamic": "off"}), times)
    assert found.steps_s == pytest.approx([20] * 8)
    told = found.summary()
    assert told["idle"] == pytest.approx({"samplers": 0.95, "environments": 0.55, "learner": 0.5})
    assert told["bound"] == pytest.approx({"environments": 0.45, "samplers": 0.05, "learner": 0.5})


class Killed(BaseException):
    """What ends a process at once."""


def killed_at(turn: int, journal: Path, kept: list[bytes]) -> Callable[[int], None]:
    """End a loop at one of its rounds; `kept` gets what the disk then had."""

    def look(number: int) -> None:
        if number == turn:
            kept.append(journal.read_bytes())
            raise Killed

    return look


@pytest.mark.parametrize("batching", BATCHINGS)
@pytest.mark.parametrize(("mode", "lag"), MODES)
def test_a_killed_run_ends_as_an_undisturbed_one(tmp_path: Path, mode: str, lag: int, batching: str) -> None:
    settings = config(mode, lag, batching)
    whole = simulated(tmp_path / "whole", settings)
    random, kills = Random(f"{mode} {lag} {batching}"), 0
    for number in range(6):
        folder = tmp_path / str(number)
        folder.mkdir()
        saved = Saved(Plans(settings))
        while True:
            kept: list[bytes] = []
            loop = VirtualLoop(killed_at(random.randrange(1, 1500), folder / JOURNAL, kept))
            try:
                found = simulate(settings, FLEET, folder, saved, loop)
            except Killed:
                kills += 1
                (folder / JOURNAL).write_bytes(kept[0])
                continue
            break
        journal = audit(entries(folder / JOURNAL))
        assert (journal.lost, journal.twice, journal.consumed) == ([], [], 8 * 16)
        assert found.weights == whole.weights
    assert kills > 6


def test_a_group_that_is_learned_twice_is_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = Collector.rollouts

    def twice(collector: Collector, *args: Any) -> Rollouts:
        found = real(collector, *args)
        found.trajectories[-4:] = found.trajectories[:4]
        return found

    monkeypatch.setattr(Collector, "rollouts", twice)
    with pytest.raises(PromiseBroken, match="12 of them different, of 3 groups: expected 4 groups of 4"):
        simulated(tmp_path / "run", config())
    monkeypatch.setattr("trainer.simulator.run._check", lambda batch, config: None)
    with pytest.raises(QueueError, match="cannot become consumed: got one that is consumed"):
        simulated(tmp_path / "unchecked", config())


def test_a_batch_that_is_learned_twice_is_noticed_by_the_journal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = Sampling.consumed

    def twice(sampling: Sampling, batch: scheduler.Batch) -> None:
        real(sampling, batch)
        if batch.plan.step == 3:
            sampling._journal.consumed(4, [t.id for t in batch.rollouts.trajectories], [])

    monkeypatch.setattr(Sampling, "consumed", twice)
    with pytest.raises(PromiseBroken, match=r"learned twice: \['000003-"):
        simulated(tmp_path / "run", config())


@pytest.mark.parametrize("ahead", [-1, 1])
@pytest.mark.parametrize("lag", [1, 2])
def test_a_lag_that_is_off_by_one_is_noticed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lag: int, ahead: int
) -> None:
    real = Sampling.__init__

    def off(sampling: Sampling, *args: Any, **named: Any) -> None:
        real(sampling, *args, **named)
        sampling._lag += ahead
        sampling._ahead += ahead

    monkeypatch.setattr(Sampling, "__init__", off)
    with pytest.raises(PromiseBroken, match="learns tokens that are"):
        simulated(tmp_path / "run", config("pipeline", lag))


def test_an_admission_that_is_off_by_one_is_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = Sampling.__init__

    def early(sampling: Sampling, *args: Any, **named: Any) -> None:
        real(sampling, *args, **named)
        sampling._ahead += 1

    monkeypatch.setattr(Sampling, "__init__", early)
    slow = FleetTimes.model_validate({"learner": {"step_s": 10_000}})
    with pytest.raises(PromiseBroken, match=r"version 1 was asked for: got versions \[0\]"):
        simulated(tmp_path / "run", config("pipeline", 1), slow)


def test_a_plan_that_is_drawn_before_its_outcomes_is_noticed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = simulated(tmp_path / "whole", config())
    real, late = Plans.observe, []

    def later(plans: Plans, plan: Any, rollouts: Rollouts) -> str:
        late.append((plan, rollouts))
        return real(plans, *late.pop(0)) if len(late) > 1 else ""

    monkeypatch.setattr(Plans, "observe", later)
    assert simulated(tmp_path / "run", config()).weights != whole.weights


@pytest.mark.parametrize(("mode", "lag"), MODES)
def test_a_lost_reply_is_noticed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mode: str, lag: int
) -> None:
    real = scheduler._Singly._one

    async def deaf(singly: Any, request: Any, worker: int) -> None:
        if request.id == "000003-0001-002":
            await asyncio.get_running_loop().create_future()
        await real(singly, request, worker)

    monkeypatch.setattr(scheduler._Singly, "_one", deaf)
    with pytest.raises(Stalled, match="stands still"):
        simulated(tmp_path / "run", config(mode, lag))


def test_a_lost_rollout_of_a_wave_is_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = scheduler._Waves._deal

    async def short(waves: Any, requests: Any) -> Any:
        return (await real(waves, requests))[:-1]

    monkeypatch.setattr(scheduler._Waves, "_deal", short)
    with pytest.raises(ValueError, match="shorter"):
        simulated(tmp_path / "run", config(batching="lockstep"))


def test_a_rollout_that_comes_to_no_end_is_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(RolloutQueue, "forget", lambda queue, plan: None)
    with pytest.raises(PromiseBroken, match="rollouts are not"):
        simulated(tmp_path / "run", config())
