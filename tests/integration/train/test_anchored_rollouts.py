"""Anchors over a real embedded server: the planted fork of `fork_chain` is found, imitated, and rolled back over."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Mapping, Sequence

import numpy as np
import pytest
from flat_branches import token_arrays

from agent_runtime.agents.chat_loop import run_rollout
from agent_runtime.agents.oracle import record_expert
from agent_runtime.graph import validate
from agent_runtime.policy import Completion, SampleRequest
from agent_runtime.types import Trajectory
from ale.training.rollouts import ByteTemplate
from rock_env import plugins
from rock_env.client import Client
from rock_env.local import start_embedded
from trainer.config import TrainConfig
from trainer.rollout.anchors import Anchor, AnchorPool, Origin, expert_from, injections
from trainer.rollout.tasks import expert_requests, train_requests

pytestmark = pytest.mark.timeout(300)

PARAMS = json.dumps({"length": 6, "crucial": 1, "train_maps": 4})
TASKS = [f"train/{number}" for number in range(4)]
FORK = re.compile(r"(\d)/6 [=>](\w+) ([\w ]+)")


class Walker:
    """Obeys plain signs, so it errs at every crucial fork; follows hints; knows what it imitated; errs now and then."""

    def __init__(self) -> None:
        self.known: dict[str, str] = {}
        """Fork as shown -> path."""

    async def sample(self, request: SampleRequest) -> Completion:
        await asyncio.sleep(0)
        shown = ByteTemplate().decode(request.prompt_ids)
        fork = FORK.search(shown)
        assert fork is not None
        rng = np.random.default_rng(request.seed)
        told = shown.partition("Hint: ")[2].split()[::2]
        number = int(fork[1]) - 1
        path = told[number] if number < len(told) else self.known.get(fork[0], fork[2])
        if rng.random() < 0.05:
            path = str(rng.choice(fork[3].split()))
        ids = ByteTemplate().encode_completion(path)
        return Completion(ids, np.full(len(ids), -0.1, np.float32), "stop", 0)


def a_config(**anchors: object) -> TrainConfig:
    return TrainConfig.model_validate(
        {
            "env": "fork_chain",
            "env_args": json.loads(PARAMS),
            "agent": {"window_turns": 1, "system": False},
            "sampling": {"max_tokens": 8},
            "rollout": {"group_size": 8},
            "anchors": {"inject": 9, **anchors},
        }
    )


async def experts_of(config: TrainConfig, client: Client) -> list[Trajectory]:
    spec = plugins.load_env(config.env)
    params = plugins.env_params(spec, PARAMS)
    played = []
    for request in expert_requests(config, PARAMS, TASKS):
        task = spec.tasks(params).get("train", int(request.task_id.rpartition("/")[2]))
        oracle = spec.oracle(params, task)
        played.append(await record_expert(request, rock=client, oracle=oracle, template=ByteTemplate()))
    return played


def planted() -> Mapping[str, int]:
    """Return each task's crucial turn, as the environment's own oracle knows it."""
    spec = plugins.load_env("fork_chain")
    params = plugins.env_params(spec, PARAMS)
    oracles = {task: spec.oracle(params, spec.tasks(params).get("train", int(task[-1]))) for task in TASKS}
    return {task: oracle.crucial[0] for task, oracle in oracles.items()}  # type: ignore[attr-defined]


class Loop:
    """A training loop in the small: choose, roll out over the server, imitate what is injected, observe."""

    def __init__(self, config: TrainConfig, client: Client, experts: Sequence[Trajectory]) -> None:
        self.config, self.client, self.walker = config, client, Walker()
        self.pool = AnchorPool(config.anchors)
        self.experts = {expert.id: expert for expert in experts}
        for expert in experts:
            self.pool.add(expert_from(expert, Origin.ORACLE, "fork_chain@1"))

    async def step(self, step: int) -> list[Trajectory]:
        chosen = self.pool.choose(4, seed=step)
        requests = train_requests(self.config, PARAMS, step, tasks=[], anchors=chosen)
        groups = dict.fromkeys(request.group_id for request in requests)
        played = await asyncio.gather(
            *(
                run_rollout(each, rock=self.client, sampler=self.walker, template=ByteTemplate())
                for each in requests
            )
        )
        self.pool.observe(step, dict(zip(groups, chosen, strict=True)), played)
        return played

    def imitate(self) -> list[Anchor]:
        """Learn by heart what the pool would have imitated."""
        gated = self.pool.injections(9, seed=0)
        for injection in injections(gated, 0, weight=1.0, seed=0):
            expert = self.experts[injection.trajectory_id]
            seen = (expert.first_observation, *expert.observations)
            for turn in injection.turns:
                self.walker.known[seen[turn]] = expert.actions[turn]
        return gated


@pytest.fixture(scope="module")
def address():
    with start_embedded() as server:
        yield server.address


@pytest.mark.parametrize("scheduler", ["sequential", "parallel"])
async def test_the_planted_fork_is_found_and_once_imitated_the_start_is_won(address, scheduler):
    crucial = planted()
    assert len(set(crucial.values())) > 1
    async with Client(address) as client:
        config = a_config(scheduler=scheduler)
        loop = Loop(config, client, await experts_of(config, client))
        tasks = {expert.id: expert.task_id for expert in loop.pool.experts}

        def forks():
            return {tasks[key]: turns for key, turns in loop.pool.forks().items() if key in tasks}

        for step in range(1, 40):
            assert all(t.failure is None for t in await loop.step(step))
            if all(forks().values()):
                break
        assert forks() == {task: [turn] for task, turn in crucial.items()}
        gated = loop.imitate()
        assert {anchor.expert.task_id: anchor.turn for anchor in gated} == crucial
        from_start: list[Trajectory] = []
        for later in range(step + 1, step + 24):
            from_start += [t for t in await loop.step(later) if not t.start.anchor]
        assert {t.task_id for t in from_start} == set(TASKS)
        assert np.mean([t.passed for t in from_start]) > 0.5
        assert loop.pool.injections(9, 0) == [], "nothing is left to imitate"
        if scheduler == "sequential":
            assert loop.pool.metrics()["anchor_mean"] == 0, "rollback has reached every task's start"


async def test_hints_lead_over_the_fork_are_recorded_as_seen_and_fade(address):
    async with Client(address) as client:
        config = a_config(scheduler="hint")
        loop = Loop(config, client, await experts_of(config, client))
        played = await loop.step(1)
        for trajectory in played:
            validate(trajectory)
            assert trajectory.start.hint.startswith("Hint: ")
            for branch in trajectory.branches():
                ids, trains, _ = token_arrays(branch)
                assert trajectory.start.hint in ByteTemplate().decode(ids)
                said = ByteTemplate().decode(ids[trains])
                assert said == trajectory.actions[branch.turns[-1].index]
        assert np.mean([trajectory.passed for trajectory in played]) > 0.5
        for step in range(2, 12):
            await loop.step(step)
        # Without imitation the hint stays as long as it must: up to and including the crucial turn.
        lengths = {anchor.expert.task_id: anchor.hint for anchor in loop.pool.choose(4, 0)}
        for task, turn in planted().items():
            assert turn <= lengths[task] <= turn + 1
