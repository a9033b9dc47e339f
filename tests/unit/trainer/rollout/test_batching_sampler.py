import asyncio

import numpy as np
import pytest

from agent_runtime.policy import Completion, PolicyError, SampleRequest
from agent_runtime.types import SamplingParams
from trainer.rollout.sampler import BatchingSampler


def request(rollout: str, turn: int = 0) -> SampleRequest:
    return SampleRequest(rollout, turn, np.zeros(1, np.int32), SamplingParams(), seed=0)


class Engine:
    """Answers with the order in which it was asked and remembers its batches."""

    def __init__(self, *, pause_s: float = 0.0, fail: bool = False, short: bool = False) -> None:
        self.batches: list[list[str]] = []
        self.pause_s, self.fail, self.short = pause_s, fail, short

    async def __call__(self, requests):
        self.batches.append([r.rollout_id for r in requests])
        await asyncio.sleep(self.pause_s)
        if self.fail:
            raise PolicyError("engine on fire")
        done = requests[:-1] if self.short else requests
        return [
            Completion(np.array([int(r.rollout_id)], np.int32), np.zeros(1, np.float32), "stop", 0)
            for r in done
        ]


async def rollouts(sampler: BatchingSampler, engine_turns: dict[str, int], delays: dict[str, float]) -> None:
    async def one(name: str) -> None:
        for turn in range(engine_turns[name]):
            await asyncio.sleep(delays.get(name, 0))
            completion = await sampler.sample(request(name, turn))
            assert completion.ids[0] == int(name)
        sampler.leave()

    for _ in engine_turns:
        sampler.join()
    await asyncio.gather(*(one(name) for name in engine_turns))


@pytest.mark.parametrize("delays", [{}, {"1": 0.02}, {"3": 0.02, "2": 0.01}])
async def test_lockstep_batches_do_not_depend_on_timing(delays):
    engine = Engine()
    await rollouts(BatchingSampler(engine, lockstep=True), {"3": 1, "1": 3, "2": 2}, delays)
    assert engine.batches == [["1", "2", "3"], ["1", "2"], ["1"]]


async def test_eager_does_not_wait_for_the_slow():
    engine = Engine()
    await rollouts(BatchingSampler(engine, lockstep=False), {"1": 3, "2": 1}, {"2": 0.05})
    assert engine.batches[:3] == [["1"], ["1"], ["1"]]


async def test_eager_gathers_what_arrives_while_the_engine_is_busy():
    engine = Engine(pause_s=0.02)
    await rollouts(
        BatchingSampler(engine, lockstep=False), {"1": 1, "2": 1, "3": 1}, {"2": 0.005, "3": 0.006}
    )
    assert engine.batches == [["1"], ["2", "3"]]


async def test_a_request_that_nobody_waits_for_is_not_sampled():
    """An agent's session that ended while the engine was busy: its answer would hold up the batch of all others."""
    engine = Engine(pause_s=0.02)
    sampler = BatchingSampler(engine, lockstep=False)
    busy, gone, waits = (asyncio.ensure_future(sampler.sample(request(name))) for name in "123")
    await asyncio.sleep(0)
    gone.cancel()
    await asyncio.gather(busy, waits)
    assert engine.batches == [["1"], ["3"]]


@pytest.mark.parametrize("engine", [Engine(fail=True), Engine(short=True)], ids=["raises", "too few"])
async def test_an_engine_failure_reaches_every_member(engine):
    sampler = BatchingSampler(engine, lockstep=True)
    sampler.join()
    sampler.join()
    results = await asyncio.gather(
        sampler.sample(request("1")), sampler.sample(request("2")), return_exceptions=True
    )
    assert [type(result) for result in results] == [PolicyError, PolicyError]
