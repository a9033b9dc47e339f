"""One environment with a sandbox, inside the service: journal, episode, replay and the box's lifetime.

Called by the service core, each call in a task of the core's own, so that a dropped connection interrupts nothing.
Every Reset gets a fresh box; Close, or the next Reset, destroys it. It never knows which backend it uses.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from rock_env.backends.base import Backend
from rock_env.catalog import Catalog
from rock_env.env import SandboxEnv, observation_hash
from rock_env.errors import DeadlineExceeded, NotFound, ResetDivergence, RockError, Unimplemented
from rock_env.guest.frames import Kind
from rock_env.journal import Journal, check_observation, plugin_call
from rock_env.proto.v1 import env_pb2 as pb
from rock_env.sandbox import Sandbox
from rock_env.spec import EnvParams, EnvSpec, SandboxSpec
from rock_env.wire import encode_info, step_response

__all__ = ["SandboxedEnv"]


class SandboxedEnv:
    """A `SandboxEnv` with its journal and its box."""

    def __init__(
        self, env_id: str, *, spec: EnvSpec, params: EnvParams, catalog: Catalog, backend: Backend
    ) -> None:
        assert spec.sandbox is not None  # the core asks only for environments with a sandbox
        self.spec = spec
        self.journal = Journal(env_id)
        self._box_spec: SandboxSpec = spec.sandbox
        self._params = params
        self._catalog = catalog
        self._backend = backend
        self._env: SandboxEnv = spec.factory(params)  # type: ignore[assignment]  # a SandboxEnv, by EnvSpec
        self._box: Sandbox | None = None
        self._resets = 0
        self._lock = asyncio.Lock()
        self._running: asyncio.Task[Any] | None = None
        self._closed = False
        self._acts: dict[Kind, Callable[[Any], Awaitable[Any]]] = {
            Kind.RESET: self._reset,
            Kind.STEP: self._step,
            Kind.EVALUATE: self._evaluate,
        }

    @property
    def busy(self) -> bool:
        """Return whether a call is running."""
        return self._lock.locked()

    async def call(self, kind: Kind, request: Any, *, timeout_s: float) -> Any:
        """Run one Reset, Step or Evaluate to its reply. Raise a `RockError`; a late call leaves the env broken."""
        async with self._lock:
            self._running = asyncio.current_task()
            try:
                self._need_open()
                async with asyncio.timeout(timeout_s) as limit:
                    with plugin_call(f"{kind.name.lower()} of {self.spec.name} {self.journal.env_id}"):
                        return await self._acts[kind](request)
            except asyncio.CancelledError:
                self._need_open()  # `close` cancelled us: an answer, not a cancellation
                raise
            except TimeoutError as error:
                if not limit.expired():
                    raise  # a DeadlineExceeded of the environment's own
                late = DeadlineExceeded(
                    f"{kind.name.lower()} of {self.spec.name} {self.journal.env_id} ran longer than {timeout_s:g} s."
                )
                raise self.journal.broke(late) from error
            except RockError as error:
                if self.journal.unsound:
                    self.journal.broke(error)
                raise
            finally:
                self._running = None

    def _need_open(self) -> None:
        if self._closed:
            raise NotFound(f"environment {self.journal.env_id} was closed.")

    async def _reset(self, request: pb.ResetRequest) -> pb.ResetResponse:
        journal = self.journal
        stored: pb.ResetResponse | None = journal.replay(request.sequence, request.idempotency_key)
        if stored is not None:
            return stored
        if request.prefix and not self.spec.replayable:
            raise Unimplemented(f"environment {self.spec.name} is not replayable: reset it without a prefix.")
        # `resume_seed` needs no act here: a SandboxEnv holds no random state beyond its box.
        task = self._catalog.task(self.spec.name, self._params, request.task_id)
        journal.touch()
        box = await self._fresh_box()
        observation, info = await self._env.reset(box, task, request.seed)
        self._compare(0, request.initial_observation_hash, observation)
        done = False
        for turn, recorded in enumerate(request.prefix, start=1):
            if done:
                raise ResetDivergence(
                    f"replay of environment {journal.env_id} diverged at turn {turn}: the episode had ended, "
                    "the recording goes on."
                )
            result = await self._env.step(box, recorded.action)
            observation, info = result.observation, result.info
            self._compare(turn, recorded.observation_hash, observation)
            done = result.terminated or result.truncated
        reply = pb.ResetResponse(
            env_id=journal.env_id,
            observation=observation,
            info_json=encode_info(info),
            instruction=task.instruction,
        )
        journal.settle(done=done)
        journal.commit(request.sequence, request.idempotency_key, reply)
        return reply

    async def _fresh_box(self) -> Sandbox:
        await self._drop_box()
        self._resets += 1
        box_id = f"{self.journal.env_id}-{self._resets}"
        self._box = await self._backend.create(self._box_spec, sandbox_id=box_id)
        return self._box

    async def _drop_box(self) -> None:
        if self._box is not None:
            await self._box.close()
            self._box = None

    def _compare(self, turn: int, recorded: bytes, observation: str) -> None:
        if recorded:
            actual = observation_hash(observation)
            check_observation(turn, recorded=recorded, actual=actual, env_id=self.journal.env_id)

    async def _step(self, request: pb.StepRequest) -> pb.StepResponse:
        journal = self.journal
        stored: pb.StepResponse | None = journal.replay(request.sequence, request.idempotency_key)
        if stored is not None:
            return stored
        journal.need_step()
        assert self._box is not None  # a sound episode has its box
        journal.touch()
        result = await self._env.step(self._box, request.action)
        reply = step_response(journal.env_id, result)
        journal.settle(done=result.terminated or result.truncated)
        journal.commit(request.sequence, request.idempotency_key, reply)
        return reply

    async def _evaluate(self, request: pb.EvaluateRequest) -> pb.EvaluateResponse:
        journal = self.journal
        stored: pb.EvaluateResponse | None = journal.replay(request.sequence, request.idempotency_key)
        if stored is not None:
            return stored
        journal.need_episode("evaluate")
        assert self._box is not None  # a sound episode has its box
        verdict = await self._env.evaluate(self._box)
        reply = pb.EvaluateResponse(
            env_id=journal.env_id, reward=verdict.reward, passed=verdict.passed, details=verdict.details
        )
        journal.commit(request.sequence, request.idempotency_key, reply)
        return reply

    async def close(self) -> None:
        """Interrupt a running call and destroy the box."""
        self._closed = True
        if self._running is not None:
            self._running.cancel()
        async with self._lock:
            await self._drop_box()
