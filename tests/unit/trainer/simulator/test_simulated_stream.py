"""A stream in virtual time: engines stop while weights load, recorded times, lags by what was really shown, kills."""

from __future__ import annotations

import asyncio
from pathlib import Path
from random import Random
from typing import Any

import pytest

from trainer.config import TrainConfig
from trainer.scheduler.groups import Group
from trainer.scheduler.journal import JOURNAL, audit, entries
from trainer.scheduler.queue import RolloutQueue, State
from trainer.scheduler.streaming import Streaming
from trainer.simulator.clock import Stalled, VirtualLoop, run_virtually
from trainer.simulator.fleet import FleetTimes, Sampler
from trainer.simulator.parts import Engine, Plans, PromiseBroken, SimulatedCalls
from trainer.simulator.run import Report, Saved, simulate

FAULTY = FleetTimes.model_validate(
    {
        "environment": {"turns": {"low": 1, "high": 4}},
        "learner": {"step_s": {"low": 5, "high": 60}, "other_s": 1},
        "faults": {"lost": 0.05, "refused": 0.05, "slow": 0.1},
        "reward_s": {"low": 0, "high": 2},
        "sampler": {"load_s": 2},
    }
)
ONE_TURN: dict[str, Any] = {
    "sampler": {"tokens": 50, "tokens_per_s": 1e9},
    "environment": {"turns": 1, "step_s": 9},
    "learner": {"step_s": 40},
}


def config(mode: str = "stream", lag: int = 1, dynamic: str = "off", **rollout: Any) -> TrainConfig:
    own = {"mode": mode, "staleness": lag, "batching": "eager", "concurrency": 8, "workers": 2}
    sizes = {"groups_per_step": 4, "group_size": 4, "max_failure_rate": 1}
    return TrainConfig.model_validate(
        {
            "steps": 8,
            "rollout": {**own, **sizes, **rollout},
            "filter": {"dynamic": dynamic},
            "checkpoint": {"every": 2},
        }
    )


def simulated(folder: Path, settings: TrainConfig, times: FleetTimes = FAULTY) -> Report:
    folder.mkdir()
    return simulate(settings, times, folder)


def test_an_engine_that_is_stopped_goes_on_where_it_was() -> None:
    async def run() -> tuple[float, float]:
        engine, now = (
            Engine(Sampler(tokens_per_s=100, tokens_per_s_of_one=50)),
            asyncio.get_running_loop().time,
        )
        asked = asyncio.create_task(engine.sample(100))
        await asyncio.sleep(1)
        with engine.stopped():
            later = asyncio.create_task(engine.sample(25))
            await asyncio.sleep(5)
        await later
        assert now() == pytest.approx(6.5)
        return await asked, engine.busy_s

    assert run_virtually(run()) == pytest.approx((7, 2))


def test_weights_load_while_rollouts_run_and_nothing_is_sampled_meanwhile(tmp_path: Path) -> None:
    turns: dict[str, Any] = {
        "sampler": {"tokens": 500, "tokens_per_s": 1e9},
        "environment": {"turns": 3, "step_s": 1},
    }
    quick = {**turns, "learner": {"step_s": 1}}
    loading = {**quick, "sampler": {**turns["sampler"], "load_s": 7}}
    for mode in ("stream", "pipeline"):
        plain, slow = (
            simulated(tmp_path / f"{mode} {number}", config(mode), FleetTimes.model_validate(times))
            for number, times in enumerate((quick, loading))
        )
        assert slow.sampled_s == pytest.approx(plain.sampled_s)
        assert slow.total_s > plain.total_s + 7 * 2


def test_what_was_recorded_is_taken_by_plan_and_place(tmp_path: Path) -> None:
    recorded = [
        {"rollouts": [[2, 1, 10]] * 12 + [[1, 2, 40]] * 4, "learn_s": 3, "other_s": 1},
        {"rollouts": [[3, 5, 25]] * 16, "learn_s": 5},
    ]
    times = FleetTimes.model_validate(
        {"sampler": {"tokens_per_s": float("inf"), "tokens_per_s_of_one": 1}, "recorded": recorded}
    )
    found = simulated(tmp_path / "run", config(lag=2), times)
    assert found.rollouts_too_old == 0
    assert found.env_s == pytest.approx(4 * (12 * 9 + 4 * 38 + 16 * 20))
    assert found.learn_s == pytest.approx(4 * 3 + 4 * 5)
    assert found.total_s < simulated(tmp_path / "sync", config("sync", 0), times).total_s


def test_the_slow_plans_of_a_worker_are_slow_in_a_stream(tmp_path: Path) -> None:
    faulty = {**ONE_TURN, "faults": {"slow": 1.0, "slow_factor": 3}}
    plain, slow = (
        simulated(tmp_path / str(number), config(), FleetTimes.model_validate(times))
        for number, times in enumerate((ONE_TURN, faulty))
    )
    assert slow.env_s == pytest.approx(3 * plain.env_s) == pytest.approx(3 * 8 * 16 * 9)


def test_slots_are_those_that_a_stream_lets_in_and_lags_those_of_tokens(tmp_path: Path) -> None:
    found = simulated(tmp_path / "run", config(concurrency=99), FleetTimes.model_validate(ONE_TURN))
    assert found.slots == 2 * 16
    assert simulated(tmp_path / "few", config(), FleetTimes.model_validate(ONE_TURN)).slots == 16
    assert found.steps_s == pytest.approx([50] + [40] * 7)
    assert found.lags == [0] + [1] * 7
    assert found.summary()["lag"] == {"mean": 7 / 8, "most": 1, "too_old": 0}


def test_tokens_beyond_the_lag_are_counted_and_not_learned(tmp_path: Path) -> None:
    long = {
        **ONE_TURN,
        "environment": {"turns": 4, "step_s": 1, "rollout_factor": {"samples": [1, 1, 1, 90]}},
    }
    found = simulated(tmp_path / "run", config(), FleetTimes.model_validate(long))
    assert 0 < found.too_old < found.tokens
    assert found.most_lag == 1
    assert found.rollouts_too_old % 4 == 0
    assert found.summary()["lag"]["too_old"] == found.too_old / found.tokens


def test_a_token_of_other_weights_than_its_record_says_is_noticed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = SimulatedCalls.serve

    async def claims(calls: SimulatedCalls, version: int) -> int:
        before = calls._mark
        held = await real(calls, version)
        calls._mark = before if version == 3 else calls._mark
        return held

    monkeypatch.setattr(SimulatedCalls, "serve", claims)
    with pytest.raises(PromiseBroken, match="tokens were learned that other weights sampled"):
        simulated(tmp_path / "run", config())


def test_a_lost_reply_is_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = SimulatedCalls.play_at

    async def deaf(calls: SimulatedCalls, worker: int, requests: Any, step: int) -> Any:
        if requests[0].id == "000003-0001-002":
            await asyncio.get_running_loop().create_future()
        return await real(calls, worker, requests, step)

    monkeypatch.setattr(SimulatedCalls, "play_at", deaf)
    with pytest.raises(Stalled, match="stands still"):
        simulated(tmp_path / "run", config())


def test_a_group_that_comes_to_no_end_is_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = Streaming._take

    def forgetful(stream: Streaming, group: Any) -> None:
        if group.number != 5:
            real(stream, group)
        else:
            stream.queue.move(group.ids, State.REJECTED)
            stream._admission.give_back()

    monkeypatch.setattr(Streaming, "_take", forgetful)
    with pytest.raises(PromiseBroken, match="came to no end"):
        simulated(tmp_path / "run", config())


class Killed(BaseException):
    """What ends a process at once."""


@pytest.mark.parametrize("lag", [1, 3])
def test_a_killed_stream_ends_every_group_once_with_true_lags(tmp_path: Path, lag: int) -> None:
    settings, random, kills, rounds = config(lag=lag, dynamic="on"), Random(lag), 0, list[int]()
    (tmp_path / "whole").mkdir()
    simulate(settings, FAULTY, tmp_path / "whole", loop=VirtualLoop(rounds.append))
    for number in range(4):
        folder = tmp_path / str(number)
        folder.mkdir()
        saved, journal = Saved(Plans(settings)), folder / JOURNAL
        while True:
            last, kept = random.randrange(2, len(rounds)), list[bytes]()

            def look(turn: int, last: int = last, kept: list[bytes] = kept, file: Path = journal) -> None:
                if turn == last:
                    kept.append(file.read_bytes())
                    raise Killed

            try:
                simulate(settings, FAULTY, folder, saved, VirtualLoop(look))
            except Killed:
                kills += 1
                journal.write_bytes(kept[0])
                continue
            break
        found = audit(entries(journal))
        assert (found.lost, found.twice, found.open, found.consumed) == ([], [], [], 8 * 16)
        assert saved.over_lag == 0
        assert len(saved.plans.groups) == 0  # no checkpoint names a group any more
    assert kills > 4


@pytest.mark.parametrize("groups", [4, 32])
def test_what_a_rollout_costs_does_not_grow_with_the_batch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, groups: int
) -> None:
    looked = {"ages": 0, "states": 0}
    newest: Any = Group.newest
    of = RolloutQueue.of

    def aged(group: Group) -> Any:
        looked["ages"] += 1
        return newest.fget(group)

    def counted(queue: RolloutQueue, plan: int, *states: State) -> Any:
        looked["states"] += len(queue._plans.get(plan, ()))
        return of(queue, plan, *states)

    monkeypatch.setattr(Group, "newest", property(aged))
    monkeypatch.setattr(RolloutQueue, "of", counted)
    simulated(tmp_path / "run", config(groups_per_step=groups, concurrency=256))
    assert looked["ages"] < 8 * groups * 4
    assert looked["states"] < 8 * groups * 4 * 8
