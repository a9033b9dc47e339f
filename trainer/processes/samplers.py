"""The Ray actors around engines that only answer: they sample, or keep the frozen reference policy.

`ready` builds what `__init__` would, because Ray reports an error there as a dead process and loses its class.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Sequence

import torch

from agent_runtime.policy import Completion, PolicyError, SampleRequest
from rock_env.plugins import NO_OWN, Own, give
from trainer.config import TrainConfig
from trainer.data.batch import TrainBatch
from trainer.errors import ConfigError, Halted
from trainer.models.chosen import learner_of, sampler_of
from trainer.processes.telling import tell
from trainer.protocols.engines import RemembersTurns, Weights
from trainer.samplers.arrival import Arrived, StatesWeights
from trainer.samplers.named import Named
from trainer.samplers.threaded import Sleeps, SteppedBatch, ThreadedSampler

__all__ = ["InferenceActor", "ReferenceActor", "SteppedActor"]


class InferenceActor:
    """Samples for rollout workers."""

    def __init__(self, config: TrainConfig) -> None:
        self._config = config

    def ready(self, own: Own = NO_OWN, told_as: str = "") -> None:
        """Build the engine, among `own` plugins too. First of all calls."""
        give(own)
        tell(told_as)
        torch.set_num_threads(1)
        spec, options = sampler_of(self._config)
        self._engine = spec.inference(self._config.model, options, self._config.seed)
        self._named = Named(spec.name, self._engine)

    def process_id(self) -> int:
        """Return the actor's process, for the accounts."""
        return os.getpid()

    def sample(self, requests: Sequence[SampleRequest]) -> list[Completion]:
        """Sample one completion per request, in order. Raise `PolicyError`, or `Halted` for a sampler with a bug."""
        engine = self._engine
        with self._named.blamed("sample", PolicyError):
            found = (engine.sample_turns if isinstance(engine, RemembersTurns) else engine.sample)(requests)
        self._named.check_batch(found, requests)
        return found

    def load(self, weights: Weights, version: int) -> Arrived | None:
        """Take new weights; return what the engine then has."""
        with self._named.blamed(f"load version {version}", Halted):
            self._engine.load(weights, version)
        self._named.take(version)
        return self.arrived()

    def arrived(self) -> Arrived | None:
        """Return the weights that the engine has; None where it cannot say."""
        return self._engine.arrived() if isinstance(self._engine, StatesWeights) else None

    def sleep(self) -> None:
        """Give back what memory the engine can do without, until `wake`."""
        if isinstance(self._engine, Sleeps):
            self._engine.sleep()

    def wake(self) -> None:
        """Take it again."""
        if isinstance(self._engine, Sleeps):
            self._engine.wake()


class SteppedActor:
    """An `InferenceActor` of an engine that steps, for workers that ask singly: requests join and leave between two tokens.

    Ray runs its calls on an event loop.
    """

    def __init__(self, config: TrainConfig) -> None:
        self._config = config

    def ready(self, own: Own = NO_OWN, told_as: str = "") -> None:
        """Build the engine, among `own` plugins too. First of all calls. Raise `ConfigError` for one that does not step."""
        give(own)
        tell(told_as)
        torch.set_num_threads(1)
        spec, options = sampler_of(self._config)
        engine = spec.inference(self._config.model, options, self._config.seed)
        if not isinstance(engine, SteppedBatch):
            raise ConfigError(
                f"the engine {spec.name!r} says that it steps and is no SteppedBatch. Leave out `steps`, or give it `step`."
            )
        self._engine, self._sampler = engine, ThreadedSampler(engine)
        self._named = Named(spec.name, engine)

    def process_id(self) -> int:
        """Return the actor's process, for the accounts."""
        return os.getpid()

    async def answer(self, request: SampleRequest) -> Completion:
        """Answer one request. Raise `PolicyError` where it failed, or `Halted` for a sampler with a bug."""
        since = self._named.loads
        with self._named.blamed("sample", PolicyError):
            sampled = await self._sampler.sample(request)
        return self._named.checked(sampled, request, since)

    async def sample(self, requests: Sequence[SampleRequest]) -> list[Completion]:
        """Answer several, in order. Raise the `PolicyError` of one that failed."""
        return list(await asyncio.gather(*map(self.answer, requests)))

    async def load(self, weights: Weights, version: int) -> Arrived | None:
        """Take new weights between two tokens; return what the engine then has."""
        self._named.take(version)  # tokens may carry it before the call returns
        with self._named.blamed(f"load version {version}", Halted):
            await self._sampler.load(weights, version)
        return await self.arrived()

    async def outlive(self) -> None:
        """Never return: who waits for it notices the end of the process."""
        await asyncio.Event().wait()

    async def arrived(self) -> Arrived | None:
        """Return the weights that the engine has; None where it cannot say."""
        engine = self._engine
        return await self._sampler.call(engine.arrived) if isinstance(engine, StatesWeights) else None

    async def sleep(self) -> None:
        """Compute nothing and give back what memory the engine can do without, until `wake`."""
        await self._sampler.sleep()

    async def wake(self) -> None:
        """Go on."""
        await self._sampler.wake()


class ReferenceActor:
    """Keeps the frozen reference policy, where the placement has it apart from the learner."""

    def __init__(self, config: TrainConfig) -> None:
        self._config = config

    def ready(self, own: Own = NO_OWN, told_as: str = "") -> None:
        """Build the policy, among `own` plugins too. First of all calls."""
        give(own)
        tell(told_as)
        config = self._config
        torch.set_num_threads(config.optim.threads)
        spec, options = learner_of(config)
        self._engine = spec.train(config.model, options, config.seed, config.optim)

    def process_id(self) -> int:
        """Return the actor's process, for the accounts."""
        return os.getpid()

    def logprobs(self, batch: TrainBatch) -> torch.Tensor:
        """Return what it says of a batch."""
        return self._engine.logprobs(batch)
