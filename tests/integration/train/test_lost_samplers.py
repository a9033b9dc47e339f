"""A sampler's process is killed while rollouts run and new weights come: rollouts end elsewhere, and it comes back."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from random_llama import random_llama
from ray_cluster import JOINING, ray_cluster

from agent_runtime.store import decode
from agent_runtime.types import RolloutRequest, Trajectory
from rock_env.plugins import env_params, load_env
from trainer.config import TrainConfig
from trainer.processes.fleet import Fleet
from trainer.rollout.tasks import eval_requests

pytestmark = [pytest.mark.ray, pytest.mark.turn(1), pytest.mark.timeout(600)]

PARAMS = '{"max_turns": 5}'
STREAM = {"mode": "stream", "staleness": 2, "batching": "eager", "workers": 2, "engines": 2}
POOL = {"pool": [{"cpus": 1}, {"cpus": 2}, {"cpus": 2}], "layout": "disaggregated"}
"""A sampler and a worker in each bundle of two: of raylets with three processors each, they are on one each."""


class Played:
    """A fleet of two workers and two samplers, the rollouts that it played and the versions that it served."""

    def __init__(self, fleet: Fleet, requests: list[RolloutRequest]) -> None:
        self.fleet, self._requests = fleet, requests
        self.rollouts: list[Trajectory] = []
        self.served = [0]

    async def play(self, worker: int) -> None:
        for (last,) in await self.fleet.play_at(worker, self._requests, self.served[-1]):
            self.rollouts.append(decode(last))

    async def serve(self) -> None:
        version = self.served[-1] + 1
        await asyncio.to_thread(self.fleet.publish, version, load=False)
        self.served.append(version)
        assert await self.fleet.serve(version) == version

    async def loses(self, number: int) -> None:
        """Kill a sampler while both workers play; serve versions and play until another process is in its place."""
        under_way = [asyncio.create_task(self.play(worker)) for worker in (0, 1)]
        await asyncio.wait(under_way, timeout=0)  # they have asked
        os.kill(self.fleet._at.pids[1 + number], signal.SIGKILL)
        await self.serve()
        await asyncio.gather(*under_way)
        serving = self.fleet._serving
        replacing = serving._samplers[number].replacing
        assert replacing is not None
        while not replacing.done():
            await asyncio.gather(self.serve(), self.play(0), self.play(1))
        await self.serve()

    def check(self, lost: int) -> None:
        assert self.fleet.samplers() == {"samplers/lost": lost, "samplers/back": lost, "samplers/up": 2}
        assert self.fleet.holding() == [self.served[-1]] * 2
        assert [rollout.failure for rollout in self.rollouts] == [None] * len(self.rollouts)
        shown = {
            version
            for rollout in self.rollouts
            for turn in rollout.turns
            for version in versions_of(turn.policy_version)
        }
        assert shown <= set(self.served)
        assert len(shown) > 1


def versions_of(given: int | tuple[tuple[int, int], ...]) -> list[int]:
    return [version for version, _ in given] if isinstance(given, tuple) else [given]


@pytest.fixture(params=[1, 2], ids=["one machine", "two raylets"])
def address(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[str | None]:
    """Of a cluster whose two raylets have an object store and processors each; None for this machine alone."""
    if request.param == 1:
        yield None
        return
    for name, value in JOINING.items():
        monkeypatch.setenv(name, value)
    with ray_cluster(tmp_path, raylets=2) as found:
        yield found


async def test_rollouts_end_elsewhere_and_a_killed_sampler_comes_back(
    tmp_path: Path, address: str | None
) -> None:
    config = TrainConfig.model_validate(
        {
            "env": "frozen_lake",
            "model": random_llama(tmp_path / "llama", context=1024),
            "sampling": {"max_tokens": 24},
            "rollout": STREAM,
            "eval": {"temperature": 1.0},
            **({"placement": POOL} if address else {}),
        }
    )
    params = env_params(load_env("frozen_lake"), PARAMS).canonical()
    requests = eval_requests(config, params, 1, [f"train/{number}" for number in range(8)])
    with Fleet(config, address) as fleet:
        fleet.publish(0)
        played = Played(fleet, requests)
        first = list(fleet._at.pids)
        await played.loses(0)
        played.check(lost=1)
        assert fleet._at.pids[1] != first[1]
        await played.loses(1)  # workers ask the one that came back, too: no other is left meanwhile
        played.check(lost=2)
        news = fleet.sampler_news()
    assert [event.kind for event in news] == ["fault", "recovery"] * 2
    assert [event.message.partition(":")[0].partition(" and ")[0] for event in news] == [
        "sampler 1 of 2 was lost",
        "sampler 1 of 2 is back",
        "sampler 2 of 2 was lost",
        "sampler 2 of 2 is back",
    ]
