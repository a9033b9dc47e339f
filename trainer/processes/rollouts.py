"""The rollout worker: runs hundreds of rollouts at once against ROCK and an inference engine, as a Ray actor or in place.

It decides nothing: requests come in, trajectories (encoded for the store, so that they cross processes as one buffer)
go out in the order of the requests. It holds no weights and never learns.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol, TypeVar, runtime_checkable

from agent_runtime.agents.chat_loop import run_rollout
from agent_runtime.agents.cli_rollout import BoxedRock
from agent_runtime.agents.oracle import record_expert
from agent_runtime.artifacts import Keeping
from agent_runtime.freezing import Freezer
from agent_runtime.policy import Completion, SampleRequest
from agent_runtime.store import encode
from agent_runtime.surviving import Surviving
from agent_runtime.types import RolloutRequest, Trajectory
from rock_env.client import Client
from rock_env.env_workers.catalog import Catalog
from rock_env.env_workers.here import HereGames
from rock_env.plugins import NO_OWN, Own, env_params, give, load_env
from rock_env.spec import EnvSpec
from trainer.config import TrainConfig
from trainer.models.chosen import asks_singly, learner_of, sampler_of
from trainer.processes.telling import tell
from trainer.rollout.cli_agents import CliAgents
from trainer.rollout.filtering import attempts
from trainer.rollout.sampler import AskingSampler, BatchingSampler, SlotSampler

__all__ = ["Answering", "Meeting", "RolloutWorker"]

_Played = TypeVar("_Played")

_OWN_SERVER_S = 3.0
_SERVER_S = 60.0
"""How long a call is tried again, before it is an outage: another's server may be upgraded meanwhile."""


class Answering(Protocol):
    """What samples for a worker, and for others. Both raise `PolicyError`, or `Halted` for a sampler with a bug."""

    async def sample(self, requests: Sequence[SampleRequest]) -> Sequence[Completion]:
        """Return one completion per request, in order."""
        ...

    async def answer(self, request: SampleRequest) -> Completion:
        """Return the completion of one request. Asked of engines that step alone (`asks_singly`)."""
        ...


@runtime_checkable
class Meeting(Protocol):
    """An `Answering` of several samplers, by number."""

    def meet(self, number: int, actor: Any) -> None:
        """Ask another process as the sampler of this number."""
        ...


class RolloutWorker:
    """One ROCK connection (none without an address), one sampler, and for CLI agents one gateway."""

    def __init__(
        self, config: TrainConfig, rock_address: str, engine: Answering, artifacts: str = ""
    ) -> None:
        """`artifacts` is the folder where those of rollouts are kept; "": they are not."""
        self._config = config
        self._rock_address = rock_address
        self._engine = engine
        self._games = None if rock_address else HereGames(Catalog())
        """Makes the environments in this process, where the run has no server."""
        self._client: Client | None = None
        self._artifacts = artifacts
        self._freezer: Freezer | None = None
        self._agents: CliAgents | None = None
        self._eager: SlotSampler | None = None
        """Of all rollouts, where they need not wait for each other."""
        self._asking = 0
        self._asked_s = 0.0
        self._asked: list[tuple[float, float]] = []

    async def ready(self, own: Own = NO_OWN, told_as: str = "") -> None:
        """Open the chat template, the gateway and the connection. First of all calls; see `trainer.processes.learner`."""
        give(own)
        tell(told_as)
        spec, options = learner_of(self._config)
        self._template = spec.template(self._config.model, options)
        self._stops = sampler_of(self._config)[0].stops
        if self._config.agent.name:
            assert spec.tools is not None  # checked before any process was started
            self._agents = CliAgents(self._config, spec.tools(self._config.model, options))
            await self._agents.open()
        if not self._games:
            await self._connect()

    async def process_id(self) -> int:
        """Return the actor's process, for the accounts."""
        return os.getpid()

    async def meet(self, number: int, actor: Any) -> None:
        """Ask another process as the sampler of this number: the one before it was lost."""
        if isinstance(self._engine, Meeting):
            self._engine.meet(number, actor)

    async def close(self) -> None:
        """Close the gateway and the connection, where the process goes on."""
        if self._agents is not None:
            await self._agents.close()
        if self._client is not None:
            await self._client.__aexit__(None, None, None)

    async def run(self, requests: Sequence[RolloutRequest], policy_step: int) -> list[bytes]:
        """Run the requests and return one encoded trajectory each, failures included."""
        play, sampler = await self._player(policy_step)

        async def once(request: RolloutRequest) -> bytes:
            return encode(await play(request))

        return await self._spread(requests, once, sampler)

    async def play(self, requests: Sequence[RolloutRequest], policy_step: int) -> list[list[bytes]]:
        """Run the requests, sample rejected rollouts again; return all attempts at each, the one that counts last."""
        play, sampler = await self._player(policy_step)

        async def until_accepted(request: RolloutRequest) -> list[bytes]:
            waits = bool(self._config.rollout.outage_s)
            tries = await attempts(request, play, self._config.filter, waits=waits)
            return [encode(one) for one in tries]

        return await self._spread(requests, until_accepted, sampler)

    async def record(self, requests: Sequence[RolloutRequest]) -> list[bytes]:
        """Let the environment's oracle play the requests."""
        rock = self._games or self._keeping(Surviving(await self._connect()))

        async def play(request: RolloutRequest) -> bytes:
            spec: EnvSpec = load_env(request.env)
            params = env_params(spec, request.params_json)
            split, _, index = request.task_id.rpartition("/")
            task = spec.tasks(params).get(split, int(index))
            oracle = spec.oracle(params, task)
            return encode(await record_expert(request, rock=rock, oracle=oracle, template=self._template))

        return await self._spread(requests, play, None)

    async def _player(
        self, policy_step: int
    ) -> tuple[Callable[[RolloutRequest], Awaitable[Trajectory]], SlotSampler]:
        """Return what plays one request with the published policy, and the sampler that its rollouts share."""
        rock = self._games or self._keeping(await self._freezing())
        lockstep = self._config.rollout.batching == "lockstep"
        sampler: SlotSampler = self._eager or (
            AskingSampler(self._answer, stops=self._stops)
            if asks_singly(self._config)
            else BatchingSampler(self._sample, lockstep=lockstep, stops=self._stops)
        )
        if not lockstep:
            self._eager = sampler

        async def play(request: RolloutRequest) -> Trajectory:
            if self._agents is not None:
                boxed = self._keeping(await self._freezing())
                return await self._agents.play(request, rock=boxed, sampler=sampler, policy_step=policy_step)
            return await run_rollout(
                request, rock=rock, sampler=sampler, template=self._template, policy_step=policy_step
            )

        return play, sampler

    async def _spread(
        self,
        requests: Sequence[RolloutRequest],
        play: Callable[[RolloutRequest], Awaitable[_Played]],
        sampler: SlotSampler | None,
    ) -> list[_Played]:
        """Run `play` over the requests in at most `concurrency` slots; a slot is live until nothing is left to start."""
        results: dict[int, _Played] = {}
        queue: Iterator[tuple[int, RolloutRequest]] = iter(enumerate(requests))
        slots = min(self._config.rollout.concurrency, len(requests))

        async def slot() -> None:
            this = asyncio.current_task()
            assert this is not None
            try:
                for number, request in queue:
                    this.set_name(request.id)  # for whoever asks where it waits
                    results[number] = await play(request)
            finally:
                if sampler is not None:
                    sampler.leave()

        if sampler is not None:
            for _ in range(slots):
                sampler.join()
        async with asyncio.TaskGroup() as group:
            for _ in range(slots):
                group.create_task(slot())
        return [results[number] for number in range(len(requests))]

    async def engine_calls(self) -> list[tuple[float, float]]:
        """Return from when to when, in Unix seconds, calls of the engine were under way, since this was asked last."""
        asked, self._asked = self._asked, []
        return asked

    @contextmanager
    def _waiting(self) -> Iterator[None]:
        """Note that an engine's answer is waited for."""
        if not self._asking:
            self._asked_s = time.time()
        self._asking += 1
        try:
            yield
        finally:
            self._asking -= 1
            if not self._asking:
                self._asked.append((self._asked_s, time.time()))

    async def _sample(self, requests: Sequence[SampleRequest]) -> Sequence[Completion]:
        with self._waiting():
            return await self._engine.sample(requests)

    async def _answer(self, request: SampleRequest) -> Completion:
        with self._waiting():
            return await self._engine.answer(request)

    async def _freezing(self) -> Freezer:
        """Return where rollouts get their environments, which some may leave open."""
        if self._freezer is None:
            in_sandbox, waits = self._agents is not None, bool(self._config.rollout.outage_s)
            surviving = Surviving(await self._connect(), in_sandbox=in_sandbox, patient=not waits)
            self._freezer = Freezer(surviving, self._config.rollout.freeze)
        return self._freezer

    def _keeping(self, rock: BoxedRock) -> BoxedRock:
        """Return the same, with artifacts kept where there is a folder for them."""
        return Keeping(rock, Path(self._artifacts)) if self._artifacts else rock

    async def _connect(self) -> Client:
        if self._client is None:
            rollout = self._config.rollout
            patience_s = _SERVER_S if rollout.rock_address else _OWN_SERVER_S
            if rollout.outage_s:  # the rest of an outage is waited for elsewhere
                patience_s = min(patience_s, rollout.outage_s / 10)
            client = Client(self._rock_address, retry_for_s=patience_s)
            await client.__aenter__()
            self._client = client
        return self._client
