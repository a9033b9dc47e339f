"""Rollouts against a real embedded ROCK server: sampled, from anchors, by an oracle, stored, replayed, and broken."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from agent_runtime.agents.chat_loop import run_rollout
from agent_runtime.agents.oracle import record_expert
from agent_runtime.graph import validate
from agent_runtime.policy import Completion, Message, SampleRequest
from agent_runtime.replay import replay
from agent_runtime.store import read_segment, segment_path, write_segment
from agent_runtime.types import (
    AgentConfig,
    IntArray,
    PrefixTurn,
    RolloutRequest,
    SamplingParams,
    Start,
    Trajectory,
)
from rock_env import plugins
from rock_env.client import Client
from rock_env.local import start_embedded

pytestmark = pytest.mark.timeout(300)

MOVES = ("left", "down", "right", "up", "stay")  # the last one is illegal
ASSISTANT, END = 256, 257


class ByteTemplate:
    """One token per UTF-8 byte."""

    max_context = 100_000

    def open(self, messages: Sequence[Message]) -> IntArray:
        text = "".join(f"{message.role}:{message.content}\n" for message in messages)
        return np.array([*text.encode(), ASSISTANT], np.int32)

    def extend(self, messages: Sequence[Message], *, closed: bool) -> IntArray:
        return np.concatenate([np.array([] if closed else [END], np.int32), self.open(messages)])

    def encode_completion(self, text: str, prompt_ids: IntArray | None = None) -> IntArray:
        return np.array([*text.encode(), END], np.int32)

    def decode(self, ids: IntArray, prompt_ids: IntArray | None = None) -> str:
        return bytes(i for i in ids.tolist() if i < ASSISTANT).decode()


class RandomWalk:
    """Samples one of five words."""

    async def sample(self, request: SampleRequest) -> Completion:
        await asyncio.sleep(0)
        word = MOVES[np.random.default_rng(request.seed).integers(len(MOVES))]
        ids = ByteTemplate().encode_completion(word)
        return Completion(ids, np.full(len(ids), -0.1, np.float32), "stop", 1)


@pytest.fixture(scope="module")
def address():
    with start_embedded() as server:
        yield server.address


def a_request(index: int, *, slippery: bool, start: Start | None = None, window: int = 0) -> RolloutRequest:
    return RolloutRequest(
        id=f"r{index}",
        env="frozen_lake",
        params_json=json.dumps({"slippery": slippery}),
        task_id=f"train/{index % 8}",
        group_id=f"g{index % 8}",
        index=index // 8,
        seed=1000 + index,
        agent=AgentConfig(window_turns=window, max_turns=100),
        sampling=SamplingParams(max_tokens=8),
        start=start or Start(env_seed=index),
        time_limit_s=240.0,
    )


async def play(client: Client, request: RolloutRequest) -> Trajectory:
    return await run_rollout(request, rock=client, sampler=RandomWalk(), template=ByteTemplate())


async def play_expert(client: Client, request: RolloutRequest) -> Trajectory:
    spec = plugins.load_env(request.env)
    params = plugins.env_params(spec, request.params_json)
    split, _, index = request.task_id.partition("/")
    oracle = spec.oracle(params, spec.tasks(params).get(split, int(index)))
    return await record_expert(request, rock=client, oracle=oracle, template=ByteTemplate())


async def test_many_rollouts_at_once_are_stored_read_and_replayed_identically(address, tmp_path):
    async with Client(address) as client:
        requests = [a_request(i, slippery=i % 2 == 0, window=i % 3) for i in range(64)]
        played = await asyncio.gather(*(play(client, request) for request in requests))
        for trajectory in played:
            validate(trajectory)
            assert trajectory.failure is None
            assert trajectory.env == "frozen_lake@1"
        assert sum(trajectory.illegal_actions for trajectory in played) > 0
        assert len({trajectory.stop_reason for trajectory in played}) > 1
        path = segment_path(tmp_path, "step", 1)
        write_segment(path, played)
        reports = await asyncio.gather(*(replay(trajectory, client) for trajectory in read_segment(path)))
    assert [report.divergence for report in reports] == [None] * 64
    assert [report.turns for report in reports] == [len(trajectory.turns) for trajectory in played]


async def test_an_oracle_wins_and_any_of_its_turns_can_be_an_anchor(address):
    async with Client(address) as client:
        expert = await play_expert(client, a_request(3, slippery=False))
        validate(expert)
        assert (expert.reward, expert.passed, expert.is_expert) == (1.0, True, True)
        pairs = tuple(map(PrefixTurn, expert.actions, expert.observations))
        for anchor in range(1, len(expert.turns)):
            start = Start(3, expert.first_observation, pairs[:anchor], 7, expert.id)
            trajectory = await play(client, a_request(3, slippery=False, start=start))
            assert trajectory.failure is None
            assert trajectory.first_observation == expert.observations[anchor - 1]
            assert (await replay(trajectory, client)).identical
            finished = await play_expert(client, a_request(3, slippery=False, start=start))
            assert (finished.reward, len(finished.turns)) == (1.0, len(expert.turns) - anchor)


async def test_a_resume_seed_gives_the_same_state_another_future(address):
    async with Client(address) as client:
        source = await play(client, a_request(0, slippery=True))
        start = Start(0, source.first_observation, (PrefixTurn(source.actions[0], source.observations[0]),))
        futures = [
            await play(client, a_request(0, slippery=True, start=replace(start, resume_seed=seed)))
            for seed in range(8)
        ]
    assert {trajectory.first_observation for trajectory in futures} == {source.observations[0]}
    assert len({trajectory.observations for trajectory in futures}) > 1


async def test_a_recorded_prefix_that_was_altered_is_a_reset_divergence(address):
    async with Client(address) as client:
        source = await play(client, a_request(1, slippery=False))
        altered = Start(1, source.first_observation, (PrefixTurn(source.actions[0], "another world"),))
        trajectory = await play(client, a_request(1, slippery=False, start=altered))
    validate(trajectory)
    assert trajectory.failure is not None
    assert trajectory.failure.code == "reset_divergence"


async def test_an_unknown_environment_is_a_failure_that_names_the_known_ones(address):
    async with Client(address) as client:
        trajectory = await play(client, replace(a_request(0, slippery=False), env="frozen_lak"))
    assert trajectory.failure is not None
    assert trajectory.failure.code == "unknown_name"
    assert "frozen_lake" in trajectory.failure.message


async def test_a_killed_server_makes_masked_failures_that_keep_their_turns():
    class Killer(RandomWalk):
        async def sample(self, request: SampleRequest) -> Completion:
            if request.turn == 3:
                os.kill(server.pid, signal.SIGKILL)
            return await super().sample(request)

    with start_embedded() as server:
        async with Client(server.address, retry_for_s=0.5) as client:
            request = a_request(0, slippery=True)
            trajectory = await run_rollout(request, rock=client, sampler=Killer(), template=ByteTemplate())
    validate(trajectory)
    assert trajectory.failure is not None
    assert trajectory.failure.code in ("unavailable", "env_lost")
    assert trajectory.failure.turn == len(trajectory.turns) == 3
    assert np.isnan(trajectory.reward)
