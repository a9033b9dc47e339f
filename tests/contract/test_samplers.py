"""What every sampler must do: answer requests, each by itself and failing alone, with the weights that it was given; and one
that steps: abort, pause, resume, sleep and load between tokens.

Over every installed engine that samples. One that only samples has the weights of the engine that trains for it.
"""

import asyncio
import importlib.util
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import pytest
import torch
from random_llama import random_llama

from agent_runtime.policy import Message, PolicyError, SampleRequest
from agent_runtime.types import SamplingParams
from rock_env import plugins
from rock_env.errors import InvalidArgument
from trainer.models.chosen import learner_spec, sampler_spec
from trainer.protocols.engines import EngineSpec, OptimOptions, SamplerSpec
from trainer.protocols.net import host_weights
from trainer.protocols.token_sampler import PROTOCOL, Aborted, Sampled, VersionSpan
from trainer.samplers.threaded import ThreadedSampler

CONTEXT = 160
MODELS = {"hf": random_llama, "vllm": partial(random_llama, head=32)}
OPTIONS = {"vllm": {"cache_bytes": 1 << 24}}
BLOCK = 32
"""Tokens of which vLLM keeps keys and values together."""


class Whole:
    """An engine that answers whole batches, as an inference actor asks it."""

    protocol = PROTOCOL

    def __init__(self, engine, stops):
        self.engine, self.stops = engine, stops

    async def all(self, requests):
        return [
            Sampled(
                one.ids, one.logprobs, one.finish_reason, (VersionSpan(one.policy_version, 0, len(one.ids)),)
            )
            for one in self.engine.sample(requests)
        ]

    async def sample(self, request):
        return (await self.all([request]))[0]

    async def load(self, weights, version):
        self.engine.load(weights, version)

    async def close(self): ...


@dataclass
class Sampling:
    """A sampler's engine, with the weights and the template of its model."""

    spec: SamplerSpec
    learner: EngineSpec
    model: str

    def __post_init__(self):
        self.options = self.spec.options(max_context=CONTEXT, **OPTIONS.get(self.spec.name, {}))
        options = self.learner.options(max_context=CONTEXT)
        self.template = self.learner.template(self.model, options)
        self.weights = self.learner.train(self.model, options, 0, OptimOptions()).weights()
        self.weights = {name: value.copy() for name, value in self.weights.items()}

    @asynccontextmanager
    async def open(self, version=1, weights=None):
        engine = self.spec.inference(self.model, self.options, 0)
        sampler = ThreadedSampler(engine) if self.spec.steps else Whole(engine, self.spec.stops)
        await sampler.load(weights or self.weights, version)
        try:
            yield sampler
        finally:
            await sampler.close()

    def request(self, name="r", *, text="left", seed=1, **params):
        prompt = self.template.open([Message("user", text)])
        return SampleRequest(name, 0, prompt, SamplingParams(**{"max_tokens": 6, **params}), seed)


NAMES = plugins.names("ale.engines")


@pytest.fixture(scope="module", params=NAMES)
def sampling(request, tmp_path_factory):
    return sampling_of(request.param, tmp_path_factory)


@pytest.fixture(scope="module", params=[name for name in NAMES if sampler_spec(name).steps])
def stepping(request, tmp_path_factory):
    return sampling_of(request.param, tmp_path_factory)


def sampling_of(name, tmp_path_factory):
    spec = sampler_spec(name)
    learner = learner_spec(next(iter(spec.learners), name))
    if name == "vllm" and importlib.util.find_spec("vllm") is None:
        pytest.skip("vLLM is not here: scripts/vllm_cpu.sh makes an environment with it")
    write = MODELS.get(name) or MODELS.get(learner.name)
    return Sampling(spec, learner, write(tmp_path_factory.mktemp(name)) if write else learner.name)


def values(sampled):
    return sampled.ids.tolist(), sampled.finish_reason, [(s.version, s.start, s.end) for s in sampled.spans]


async def test_an_answer_keeps_its_promises(sampling):
    async with sampling.open(version=7) as sampler:
        assert sampler.protocol == PROTOCOL
        assert sampler.stops == sampling.spec.stops
        sampled = await sampler.sample(sampling.request())
    assert 1 <= len(sampled.ids) == len(sampled.logprobs) <= 6
    assert (sampled.ids.dtype, sampled.logprobs.dtype) == (np.int32, np.float32)
    assert (sampled.logprobs <= 0).all()
    assert [(span.version, span.start, span.end) for span in sampled.spans] == [(7, 0, len(sampled.ids))]
    assert sampled.cached_tokens == 0
    assert sampled.completion().policy_version == 7


async def test_answers_do_not_depend_on_what_is_sampled_beside_them(sampling):
    requests = [sampling.request(f"r{i}", text="up " * (i + 1), seed=i) for i in range(6)]
    async with sampling.open() as sampler:
        alone = [await sampler.sample(request) for request in requests]
    async with sampling.open() as sampler:
        if sampling.spec.steps:
            together = await asyncio.gather(*(sampler.sample(request) for request in requests))
        else:
            together = await sampler.all(requests)
    for one, two in zip(alone, together, strict=True):
        assert values(one) == values(two)
        np.testing.assert_allclose(one.logprobs, two.logprobs, atol=1e-4)


async def test_a_request_that_cannot_be_answered_fails_alone(sampling):
    bad = replace(sampling.request("bad"), prompt_ids=np.zeros(CONTEXT, np.int32))
    async with sampling.open() as sampler:
        found = await asyncio.gather(
            sampler.sample(sampling.request("a")),
            sampler.sample(bad),
            sampler.sample(sampling.request("b", seed=2)),
            return_exceptions=True,
        )
    assert isinstance(found[1], PolicyError)
    assert "got 160 tokens" in str(found[1])
    assert len(found[0].ids) >= 1 <= len(found[2].ids)


async def test_nothing_is_sampled_while_it_is_paused_and_a_paused_request_can_be_aborted(stepping):
    async with stepping.open() as sampler:
        await sampler.pause()
        kept = asyncio.ensure_future(sampler.sample(stepping.request("kept")))
        gone = asyncio.ensure_future(sampler.sample(stepping.request("gone")))
        await asyncio.sleep(0.02)
        assert await sampler.abort("gone") == 1
        with pytest.raises(Aborted, match="'gone'"):
            await gone
        assert not kept.done()
        await sampler.resume()
        assert len((await kept).ids) >= 1
        assert await sampler.abort("kept") == 0


async def test_weights_loaded_while_paused_are_those_that_sample(stepping):
    async with stepping.open(version=1) as sampler:
        await sampler.pause()
        waiting = asyncio.ensure_future(sampler.sample(stepping.request()))
        await asyncio.sleep(0.02)
        await sampler.load(stepping.weights, 2)
        await sampler.resume()
        assert {span.version for span in (await waiting).spans} == {2}


async def test_what_is_sampled_changes_with_new_weights_to_what_they_give_a_fresh_sampler(sampling):
    noise = np.random.default_rng(0)
    other = {
        name: value + noise.normal(0, 0.1, value.shape).astype(value.dtype)
        for name, value in sampling.weights.items()
    }
    requests = [sampling.request(f"r{seed}", seed=seed) for seed in range(3)]
    async with sampling.open() as sampler:
        before = [await sampler.sample(request) for request in requests]
        await sampler.load(other, 2)
        after = [await sampler.sample(request) for request in requests]
    async with sampling.open(weights=other) as sampler:
        fresh = [await sampler.sample(request) for request in requests]
    assert [each.ids.tolist() for each in after] == [each.ids.tolist() for each in fresh]
    for one, two in zip(after, fresh, strict=True):
        np.testing.assert_allclose(one.logprobs, two.logprobs, atol=1e-4)
    first = [float(each.logprobs[0]) for each in before]
    assert not np.allclose(first, [float(each.logprobs[0]) for each in after], atol=1e-3), (
        "load keeps old weights"
    )


@pytest.mark.parametrize("taken", [0, 1])
async def test_a_sampler_whose_load_keeps_old_weights_does_not_pass(taken):
    def inference(model, options, seed):
        engine = sampler_spec("tiny").inference(model, options, seed)
        loads, left = engine.load, iter(range(taken))
        engine.load = lambda weights, version: loads(
            weights if next(left, None) is not None else host_weights(engine.net), version
        )
        return engine

    learner = learner_spec("tiny")
    keeps = Sampling(replace(sampler_spec("tiny"), inference=inference), learner, "tiny")
    with pytest.raises(AssertionError):
        await test_what_is_sampled_changes_with_new_weights_to_what_they_give_a_fresh_sampler(keeps)


async def test_a_request_that_is_running_while_the_sampler_sleeps_goes_on_when_it_wakes(stepping):
    wanted = stepping.request(text="up down up", max_tokens=40)
    async with stepping.open() as sampler:
        alone = await sampler.sample(wanted)
    async with stepping.open() as sampler:
        await sampler.sample(stepping.request("other"))
        running = asyncio.ensure_future(sampler.sample(wanted))
        await asyncio.sleep(0)
        await sampler.sleep()
        late = asyncio.ensure_future(sampler.sample(stepping.request("late")))
        await asyncio.sleep(0.05)
        assert not late.done()
        await sampler.wake()
        found = await running
        assert (await late).cached_tokens == 0
    assert values(found) == values(alone)
    np.testing.assert_allclose(found.logprobs, alone.logprobs, atol=1e-4)


async def test_a_sampler_that_slept_takes_new_weights_and_remembers_nothing(stepping):
    async with stepping.open() as sampler:
        first = await sampler.sample(stepping.request(text="up up up"))
        await sampler.sleep()
        await sampler.wake()
        again = await sampler.sample(stepping.request(text="up up up"))
        assert (again.cached_tokens, again.ids.tolist()) == (0, first.ids.tolist())
        await sampler.load(stepping.weights, 2)
        assert {span.version for span in (await sampler.sample(stepping.request())).spans} == {2}


async def test_weights_of_another_model_are_refused_and_sampling_goes_on(sampling):
    async with sampling.open() as sampler:
        before = await sampler.sample(sampling.request())
        with pytest.raises(InvalidArgument, match="names differ"):
            await sampler.load({**sampling.weights, "extra": np.zeros(1, np.float32)}, 2)
        assert (await sampler.sample(sampling.request())).ids.tolist() == before.ids.tolist()


async def test_a_cancelled_call_leaves_the_others(stepping):
    async with stepping.open() as sampler:
        await sampler.pause()
        kept, gone = (asyncio.ensure_future(sampler.sample(stepping.request(name))) for name in "ab")
        await asyncio.sleep(0.02)
        gone.cancel()
        await sampler.resume()
        assert len((await kept).ids) >= 1


async def test_a_closed_sampler_ends_what_waits_and_takes_nothing_more(stepping):
    async with stepping.open() as sampler:
        await sampler.pause()
        waiting = asyncio.ensure_future(sampler.sample(stepping.request()))
        await asyncio.sleep(0.02)
        await sampler.close()
        with pytest.raises(Aborted, match="closed"):
            await waiting
        with pytest.raises(Aborted, match="closed"):
            await sampler.sample(stepping.request())


async def test_reported_cached_tokens_never_reach_the_prompts_last(sampling):
    async with sampling.open() as sampler:
        first = await sampler.sample(sampling.request(text="up up up"))
        again = await sampler.sample(sampling.request(text="up up up"))
    prompt = len(sampling.request(text="up up up").prompt_ids)
    assert first.cached_tokens == 0
    assert again.cached_tokens in {0, prompt - 1, (prompt - 1) // BLOCK * BLOCK}
    assert torch.is_inference_mode_enabled() is False
