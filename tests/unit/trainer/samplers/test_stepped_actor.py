"""The actor that answers workers one by one: a short request beside a long one, failures, aborts and new weights."""

from __future__ import annotations

import asyncio

import numpy as np
import pytest
from local_fleet import config_of
from random_llama import random_llama

from agent_runtime.policy import PolicyError, SampleRequest
from agent_runtime.types import SamplingParams
from trainer.config import TrainConfig
from trainer.errors import ConfigError
from trainer.models.chosen import asks_singly
from trainer.processes.learner import Learner
from trainer.processes.samplers import InferenceActor, SteppedActor
from trainer.rollout.sampler import AskingSampler


@pytest.fixture(scope="module")
def config(tmp_path_factory: pytest.TempPathFactory) -> TrainConfig:
    model = random_llama(tmp_path_factory.mktemp("llama"), context=1024)
    return config_of(model=model, rollout={"batching": "eager"}).model_copy(update={"engine_options": {}})


def request(name: str, count: int, seed: int = 0) -> SampleRequest:
    ids = np.random.default_rng(seed).integers(0, 200, 12).astype(np.int32)
    return SampleRequest(name, 0, ids, SamplingParams(max_tokens=count), seed)


def lasting(actor: InferenceActor, count: int) -> SampleRequest:
    """Return a request whose answer is that long."""
    asked = (request("long", count, seed) for seed in range(100))
    return next(each for each in asked if len(actor.sample([each])[0].ids) == count)


async def test_a_short_request_ends_while_a_long_one_goes_on_and_each_gets_what_it_gets_alone(config):
    batches, learner, actor = InferenceActor(config), Learner(config), SteppedActor(config)
    for each in (batches, learner, actor):
        each.ready()
    weights = learner.weights()
    batches.load(weights, 3)
    arrived = await actor.load(weights, 3)
    assert arrived == batches.arrived()
    assert arrived.version == 3
    long, short = lasting(batches, 300), request("short", 4, 1)
    running = asyncio.ensure_future(actor.answer(long))
    await asyncio.sleep(0)
    answered = await actor.answer(short)
    assert not running.done()
    with pytest.raises(PolicyError, match="got 2000 tokens"):
        await actor.answer(SampleRequest("bad", 0, np.zeros(2000, np.int32), SamplingParams(), 0))
    assert not running.done()
    both = [await running, answered]
    for one, alone in zip(both, batches.sample([long, short]), strict=True):
        assert one.ids.tolist() == alone.ids.tolist()
        np.testing.assert_allclose(one.logprobs, alone.logprobs, atol=1e-4)
        assert one.policy_version == 3
    for version in range(4, 24):  # on a busy machine the long one may end before the weights come
        running = asyncio.ensure_future(actor.answer(long))
        await actor.answer(short)
        await actor.load(weights, version)
        changed = await running
        if isinstance(changed.policy_version, tuple):
            break
    (old, before), (new, after) = changed.policy_version
    assert (old, new, before + after) == (version - 1, version, 300)
    assert min(before, after) > 0
    assert changed.ids.tolist() == both[0].ids.tolist()
    several = await actor.sample([long, short])
    assert [len(each.ids) for each in several] == [300, len(answered.ids)]


async def test_weights_arrive_between_two_tokens_and_a_cancelled_request_is_given_up(config):
    learner, actor = Learner(config), SteppedActor(config)
    learner.ready()
    actor.ready()
    await actor.load(learner.weights(), 1)
    running = asyncio.ensure_future(actor.answer(request("gone", 900)))
    await actor.answer(request("short", 2))
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    arrived = await actor.load(learner.weights(), 2)
    assert arrived is not None
    assert arrived.version == 2
    assert not actor._engine.busy
    assert (await actor.answer(request("next", 2))).policy_version == 2


def test_workers_ask_singly_where_the_engine_steps_and_nothing_has_to_repeat(config):
    assert asks_singly(config)
    assert not asks_singly(config_of(model=config.model))
    assert not asks_singly(config_of(rollout={"batching": "eager"}))
    with pytest.raises(ConfigError, match="'tiny' says that it steps and is no SteppedBatch"):
        SteppedActor(config_of()).ready()


async def test_no_slot_waits_for_another():
    asked: list[str] = []

    async def call(request: SampleRequest) -> str:
        asked.append(request.rollout_id)
        await asyncio.sleep(0 if request.rollout_id == "b" else 3600)
        return request.rollout_id

    sampler = AskingSampler(call, stops=True)
    assert sampler.stops
    for _ in range(3):
        sampler.join()
    waiting = asyncio.ensure_future(sampler.sample(request("a", 1)))
    await asyncio.sleep(0)
    assert await sampler.sample(request("b", 1)) == "b"
    assert asked == ["a", "b"]
    waiting.cancel()
    sampler.leave()
