"""Simulated engines, environments and plans: how long they take, and that a run is a function of its seed."""

from __future__ import annotations

import asyncio
import math
from random import Random
from typing import Any

import pytest
from pydantic import ValidationError

from agent_runtime.store import decode
from trainer.config import TrainConfig
from trainer.simulator.clock import run_virtually
from trainer.simulator.fleet import FleetTimes, Sampler
from trainer.simulator.parts import Engine, Plans, SimulatedCalls, Weights, script_of

TURNS: dict[str, Any] = {"tokens_per_s": 100, "tokens_per_s_of_one": 50, "tokens": 100}


def config(**rollout: Any) -> TrainConfig:
    sizes = {"groups_per_step": 2, "group_size": 2, "workers": 1, "engines": 1, "batching": "eager"}
    return TrainConfig(rollout={**sizes, **rollout})


def fleet(**changes: Any) -> FleetTimes:
    return FleetTimes.model_validate({"sampler": TURNS, "environment": {"turns": 2, "step_s": 3}, **changes})


def ends(jobs: list[tuple[float, float]], **options: Any) -> list[float]:
    """Return when jobs end that begin at (seconds) and want (tokens)."""

    async def run() -> list[float]:
        engine, now = Engine(Sampler(**options)), asyncio.get_running_loop().time

        async def one(at: float, tokens: float) -> float:
            await asyncio.sleep(at)
            await engine.sample(tokens)
            return now()

        return await asyncio.gather(*(one(*job) for job in jobs))

    return run_virtually(run())


def test_an_engine_is_shared_evenly_and_no_rollout_is_faster_than_alone() -> None:
    shared = {"tokens_per_s": 100, "tokens_per_s_of_one": 50}
    assert ends([(0, 100)], **shared) == pytest.approx([2])
    assert ends([(0, 100), (0, 100)], **shared) == pytest.approx([2, 2])
    assert ends([(0, 100)] * 4, **shared) == pytest.approx([4] * 4)
    # three at 33.3 until the short one is done at 1.5 s, then two at 50
    assert ends([(0, 50), (0, 100), (0, 100)], **shared) == pytest.approx([1.5, 2.5, 2.5])
    assert ends([(0, 100), (1, 100), (1, 25)], **shared) == pytest.approx([2.25, 3.25, 1.75])


def played(
    settings: TrainConfig, times: FleetTimes, worker: int = 0
) -> tuple[float, list[list[str]], SimulatedCalls]:
    """Return how long a plan's rollouts took at one worker, and the ids of their attempts."""

    async def run() -> tuple[float, list[list[str]], SimulatedCalls]:
        calls = SimulatedCalls(settings, times, Weights(settings))
        await calls.serve(0)
        found = await calls.play_at(worker, Plans(settings).plan(1).requests, 1)
        return asyncio.get_running_loop().time(), [[decode(t).id for t in own] for own in found], calls

    return run_virtually(run())


def test_rollouts_take_what_the_fleet_says() -> None:
    # four share 100 tokens a second: 4 s a turn, and 3 s the environment; then the same once more
    took_s, attempts, calls = played(config(), fleet())
    assert took_s == pytest.approx(14)
    assert attempts == [[request.id] for request in Plans(config()).plan(1).requests]
    assert calls.env_s == pytest.approx(4 * 6)
    assert calls.forget([own[0] for own in attempts]) == pytest.approx(8 / 14)
    assert calls.forget([own[0] for own in attempts]) == 0  # they are forgotten
    assert played(config(concurrency=2), fleet())[0] == pytest.approx(2 * (2 + 3 + 2 + 3))
    begun = {"turns": 2, "step_s": 3, "make_s": 5, "grade_s": 7}
    assert played(config(), fleet(environment=begun))[0] == pytest.approx(26)


def test_in_lockstep_all_wait_for_the_slowest() -> None:
    spread = {"turns": 4, "step_s": {"low": 0, "high": 10}}
    eager = played(config(), fleet(environment=spread))[0]
    assert played(config(batching="lockstep"), fleet(environment=spread))[0] > eager + 1
    assert played(config(batching="lockstep"), fleet())[0] == pytest.approx(14)


def test_faults_take_time_and_lost_rollouts_are_sampled_again() -> None:
    took_s, attempts, _ = played(config(), fleet(faults={"lost": 1.0}))
    assert all([one.rpartition("-")[2] for one in own][1:] == ["r1", "r2"] for own in attempts)
    assert took_s > 14
    refused = fleet(faults={"refused": 0.99, "refused_s": 100})
    assert played(config(), refused)[0] > 200
    slow = fleet(faults={"slow": 1.0, "slow_factor": 10})
    assert played(config(), slow)[0] == pytest.approx(4 + 30 + 4 + 30)


def test_what_a_rollout_takes_is_drawn_by_its_seed_alone() -> None:
    times = FleetTimes.model_validate({"faults": {"lost": 0.1}})
    first, again = (
        [script_of(request, times) for request in Plans(config()).plan(1).requests] for _ in range(2)
    )
    assert first == again
    assert len(set(first)) == 4
    other = TrainConfig(seed=1, rollout=config().rollout.model_dump())
    assert [script_of(request, times) for request in Plans(other).plan(1).requests] != first


def test_a_log_normal_time_has_its_median_and_its_percentile() -> None:
    times, random = FleetTimes.model_validate({"reward_s": {"median": 1, "p99": 30}}), Random(0)
    drawn = sorted(times.reward_s.draw(random) for _ in range(20_000))
    assert drawn[10_000] == pytest.approx(1, rel=0.05)
    assert math.log(drawn[19_800]) == pytest.approx(math.log(30), rel=0.05)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"reward_s": {"median": 30, "p99": 1}}, "median=30 above p99=1"),
        ({"reward_s": {"mean": 1}}, r"expected a number, \{low = 1"),
        ({"reward_s": -1}, "greater than or equal to 0"),
        ({"reward_s": {"low": 2, "high": 1}}, "low=2 above high=1"),
        ({"reward_s": {"samples": []}}, "at least 1 item"),
        ({"learner": {"seconds": 1}}, "seconds"),
        ({"faults": {"refused": 1}}, "less than 1"),
    ],
)
def test_a_wrong_time_is_refused(given: dict[str, Any], said: str) -> None:
    with pytest.raises(ValidationError, match=said):
        FleetTimes.model_validate(given)
