"""Environments without a sandbox in this very process: no worker, no wire, and no time limit.

Used by the trainer for games that ship with it, and by `server/envs/here` for the one who debugs an environment. Journal and
replay are those of an env host. What a plugin raises comes back as the `RockError` that a caller would see, with the
plugin's own as its cause.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from itertools import count
from typing import Any

from rock_env.env import Info, StepResult, Verdict
from rock_env.env_workers.catalog import Catalog
from rock_env.env_workers.frames import Kind
from rock_env.env_workers.hosted import HostedEnv
from rock_env.errors import plugin_call
from rock_env.proto.v1 import env_pb2 as pb
from rock_env.proto.v1 import host_pb2 as host
from rock_env.wire.envs import decode_info, step_result, verdict

__all__ = ["HereEnv", "HereGames"]


class HereEnv:
    """One environment, as the agent runtime uses it. `plugin` is the object that its package made."""

    def __init__(
        self,
        plugin: object,
        version: str,
        *,
        call: Callable[[Kind, Any], Awaitable[Any]],
        close: Callable[[], Awaitable[None]],
    ) -> None:
        self.plugin = plugin
        self.version = version
        self.sandbox_id = ""
        self.image = ""
        self._close = close
        self._call = call
        self._sequence = 0

    async def reset(
        self,
        task_id: str,
        seed: int,
        prefix: Sequence[tuple[str, bytes]] = (),
        resume_seed: int | None = None,
        initial_hash: bytes = b"",
    ) -> tuple[str, Info, str]:
        """Start a task, replay `prefix`, and return (observation, info, instruction). Raise `RockError`."""
        turns = [pb.PrefixTurn(action=action, observation_hash=digest) for action, digest in prefix]
        request = pb.ResetRequest(
            task_id=task_id,
            seed=seed,
            prefix=turns,
            resume_seed=resume_seed,
            initial_observation_hash=initial_hash,
        )
        reply = await self._numbered(Kind.RESET, request)
        self.sandbox_id, self.image = reply.sandbox_id, reply.image
        return reply.observation, decode_info(reply.info_json), reply.instruction

    async def step(self, action: str) -> StepResult:
        """Apply one action. Raise `RockError`."""
        return step_result(await self._numbered(Kind.STEP, pb.StepRequest(action=action)))

    async def evaluate(self) -> Verdict:
        """Grade the current state. Raise `RockError`."""
        return verdict(await self._numbered(Kind.EVALUATE, pb.EvaluateRequest()))

    async def close(self) -> None:
        """Free the environment."""
        await self._close()

    async def _numbered(self, kind: Kind, request: Any) -> Any:
        self._sequence += 1
        request.sequence, request.idempotency_key = self._sequence, str(self._sequence)
        return await self._call(kind, request)


class HereGames:
    """Makes environments without a sandbox in this process."""

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog
        self._numbers = count(1)

    async def make(self, env: str, params_json: str) -> HereEnv:
        """Make an environment. Raise `RockError`."""
        with plugin_call(f"making environment {env}"):
            arguments = self._catalog.resolve(env, params_json)
            item = host.HostMakeItem(env_id=f"here-{next(self._numbers)}", env=env, params_json=arguments)
            hosted = HostedEnv(self._catalog, item)
        acts: dict[Kind, Callable[[Any], Any]] = {
            Kind.RESET: hosted.reset,
            Kind.STEP: hosted.step,
            Kind.EVALUATE: hosted.evaluate,
        }

        async def call(kind: Kind, request: Any) -> Any:
            with plugin_call(f"{kind.name.lower()} of {hosted.spec.name}"):
                return acts[kind](request)

        async def close() -> None:
            hosted.close()

        return HereEnv(hosted.env, hosted.spec.version, call=call, close=close)
