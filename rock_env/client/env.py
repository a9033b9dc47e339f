"""One environment as async code sees it: GEM's reset and step, the grade, and branches of the episode.

Made by `Client.make`. It numbers its calls, so each happens exactly once; calls are made one after the other. It
keeps no copy of the episode.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Sequence
from typing import Any, Protocol

from rock_env.client.coalesce import Call, Coalescer, Verb, outcome
from rock_env.client.sandbox.handle import AsyncSandbox
from rock_env.client.sandbox.sandboxes import Sandboxes
from rock_env.env import Artifact, Info, StepResult, Verdict
from rock_env.errors import EnvLost, FailedPrecondition, InfraError, NotFound, RockError
from rock_env.proto.v1 import env_pb2 as pb
from rock_env.wire.envs import artifacts_of, decode_info, step_result, verdict

__all__ = ["AsyncEnv"]


class EnvCalls(Protocol):
    """What an environment needs of its client."""

    @property
    def coalescer(self) -> Coalescer: ...

    @property
    def sandboxes(self) -> Sandboxes: ...

    async def make(self, env: str, params_json: str) -> AsyncEnv: ...

    async def ask(self, rpc: str, request: Any) -> Any: ...

    def key(self) -> str: ...

    def future(self) -> asyncio.Future[Any]: ...


class AsyncEnv:
    """A remote environment. Every call raises a `RockError`; `timeout_s` None leaves the deadline to the server."""

    __slots__ = (
        "_client",
        "_last",
        "_sequence",
        "artifacts",
        "brief",
        "durable",
        "env_id",
        "image",
        "name",
        "params_json",
        "sandbox_id",
        "version",
        "workdir",
    )

    def __init__(self, client: EnvCalls, *, env_id: str, name: str, version: str, params_json: str) -> None:
        self.env_id = env_id
        self.name = name
        self.version = version
        self.params_json = params_json
        self.sandbox_id = ""
        """Of the sandbox it acts in, since `reset` or `restore`; empty for an environment without one."""
        self.image = ""
        """What that sandbox is made of, by content digest where there is one; empty without an image."""
        self.brief = ""
        """The task for an agent with tools of its own, since `reset` or `restore`; empty: the instruction."""
        self.workdir = ""
        """The folder where such an agent begins, since `reset` or `restore`; empty: where the sandbox's commands do."""
        self.durable = False
        """Whether `take_over` can go on with the episode when its server is gone, until the first step."""
        self.artifacts: tuple[Artifact, ...] = ()
        """What the newest `reset`, `restore`, `step` or `evaluate` came with, for `read_artifact`."""
        self._client = client
        self._sequence = 1
        self._last: Call | None = None

    def __repr__(self) -> str:
        return f"AsyncEnv({self.name}@{self.version}, {self.env_id})"

    async def reset(
        self,
        task_id: str,
        seed: int,
        prefix: Sequence[tuple[str, bytes]] = (),
        resume_seed: int | None = None,
        initial_hash: bytes = b"",
        *,
        durable: bool = False,
        timeout_s: float | None = None,
    ) -> tuple[str, Info, str]:
        """Start a task and return (observation, info, instruction).

        `prefix` holds (action, observation hash) turns to replay; an empty hash is not compared. `resume_seed` then
        makes the randomness from there on follow from it. `durable` asks for a sandbox that outlives its server, for
        `take_over`; `self.durable` says whether it does. Raise `ResetDivergence` if the replay differs.
        """
        request = _reset(task_id, seed, prefix, resume_seed, initial_hash)
        request.durable = durable
        return self._started(await self._numbered(Verb.RESET, request, timeout_s))

    async def recover(
        self,
        task_id: str,
        seed: int,
        *,
        prefix: Sequence[tuple[str, bytes]],
        resume_seed: int | None,
        resume_turn: int,
        initial_hash: bytes,
    ) -> tuple[str, Info, str]:
        """Reset to where an environment was that is lost: `prefix` is all its turns, after `resume_turn` of which it was
        reseeded. Return what `reset` returns.

        Raise `ResetDivergence` where the replay differs, and `FailedPrecondition` for a sandbox with a network.
        """
        request = _reset(task_id, seed, prefix, resume_seed, initial_hash)
        request.recovered_turn = resume_turn
        return self._started(await self._numbered(Verb.RESET, request, None))

    async def step(self, action: str, *, timeout_s: float | None = None) -> StepResult:
        """Apply one action."""
        call = self.begin_step(action)
        self._client.coalescer.submit(Verb.STEP, call, timeout_s or 0.0)
        reply = outcome(await call.future)
        self.artifacts = artifacts_of(reply)
        return step_result(reply)

    async def evaluate(self, *, timeout_s: float | None = None) -> Verdict:
        """Grade the current state."""
        reply = await self._numbered(Verb.EVALUATE, pb.EvaluateRequest(), timeout_s)
        self.artifacts = artifacts_of(reply)
        return verdict(reply)

    async def read_artifact(self, sha256: str) -> bytes:
        """Return the bytes of an artifact of this episode, which are those of its digest.

        Raise `NotFound` after the next reset, restore or close, and `InfraError` for bytes of another digest.
        """
        request = pb.ReadArtifactRequest(env_id=self.env_id, sha256=sha256)
        content: bytes = (await self._client.ask("ReadArtifact", request)).content
        if hashlib.sha256(content).hexdigest() != sha256:
            raise InfraError(f"the artifact {sha256} came with other bytes than its digest's.")
        return content

    async def checkpoint(self) -> str:
        """Store the current state on the server and return its id. Raise `Unimplemented` if it has no snapshots."""
        request = pb.CheckpointRequest(env_id=self.env_id, idempotency_key=self._client.key())
        reply = await self._client.ask("Checkpoint", request)
        return str(reply.checkpoint_id)

    async def restore(self, checkpoint_id: str, resume_seed: int | None = None) -> tuple[str, Info, str]:
        """Continue from a checkpoint of the same kind of environment; return what `reset` returns."""
        call = self._begin(pb.RestoreRequest(checkpoint_id=checkpoint_id, resume_seed=resume_seed))
        await self._client.coalescer.unary("Restore", call)
        return self._started(outcome(await call.future))

    async def fork(self, count: int, resume_seeds: Sequence[int] = ()) -> list[AsyncEnv]:
        """Make `count` environments that continue from this one's state, reseeded one by one if seeds are given."""
        request = pb.ForkRequest(
            env_id=self.env_id, count=count, idempotency_key=self._client.key(), resume_seeds=resume_seeds
        )
        reply = await self._client.ask("Fork", request)
        return [
            AsyncEnv(
                self._client,
                env_id=env_id,
                name=self.name,
                version=self.version,
                params_json=self.params_json,
            )
            for env_id in reply.env_ids
        ]

    async def take_over(self) -> AsyncEnv:
        """Make an environment that goes on with this one's episode in its sandbox, at whatever server has that by now.

        For an episode without a step whose reset was `durable`, and whose server is gone. Raise `FailedPrecondition` where
        it cannot be, and `NotFound` where the sandbox is gone as well.
        """
        request = pb.TakeOverRequest(sandbox_id=self.sandbox_id, idempotency_key=self._client.key())
        reply = await self._client.ask("TakeOver", request)
        env = AsyncEnv(
            self._client,
            env_id=reply.env_id,
            name=self.name,
            version=reply.version,
            params_json=self.params_json,
        )
        env.sandbox_id, env.image, env.durable = self.sandbox_id, self.image, self.durable
        env.brief, env.workdir = self.brief, self.workdir
        return env

    async def sandbox(self) -> AsyncSandbox:
        """Return the sandbox it acts in, to run commands and move files there; it ends with the episode.

        Who uses it needs the scope `sandbox`. What is done there is no action: a replay of the episode does not repeat it,
        `evaluate` grades what it left. Raise `FailedPrecondition` where there is none, and `NotFound`.
        """
        if not self.sandbox_id:
            raise FailedPrecondition(
                f"{self.name} {self.env_id} has no sandbox to work in. Reset or restore it first; if that was done, "
                f"{self.name} is an environment without one: it is played by actions alone."
            )
        return await self._client.sandboxes.attach(self.sandbox_id)

    async def again(self) -> AsyncEnv:
        """Make another environment with the same arguments."""
        return await self._client.make(self.name, self.params_json)

    async def close(self) -> None:
        """Free the environment. Safe to call twice, with a call in flight, and when it is lost already."""
        call = Call(self.env_id, pb.CloseRequest(env_id=self.env_id), self._client.future())
        self._client.coalescer.submit(Verb.CLOSE, call, 0.0)
        reply = await call.future
        if isinstance(reply, RockError) and not isinstance(reply, EnvLost | NotFound):
            raise reply

    def _started(self, reply: pb.ResetResponse) -> tuple[str, Info, str]:
        self.sandbox_id, self.image, self.durable = reply.sandbox_id, reply.image, reply.durable
        self.brief, self.workdir = reply.brief, reply.workdir
        self.artifacts = artifacts_of(reply)
        return reply.observation, decode_info(reply.info_json), reply.instruction

    # -- numbering

    def begin_step(self, action: str) -> Call:
        """Return a numbered step that was not sent yet. Raise `FailedPrecondition` if another call is in flight."""
        return self._begin(pb.StepRequest(action=action))

    async def _numbered(self, verb: Verb, request: Any, timeout_s: float | None) -> Any:
        call = self._begin(request)
        self._client.coalescer.submit(verb, call, timeout_s or 0.0)
        return outcome(await call.future)

    def _begin(self, request: Any) -> Call:
        self._need_idle()
        request.env_id = self.env_id
        request.sequence = self._sequence
        request.idempotency_key = self._client.key()
        self._last = call = Call(self.env_id, request, self._client.future())
        return call

    def _need_idle(self) -> None:
        """Take in how the last call ended, even where its caller no longer waits for it."""
        last = self._last
        if last is None:
            return
        if not last.answered:
            raise FailedPrecondition(
                f"a call on environment {self.env_id} is still in flight. Await it before the next one."
            )
        if last.in_doubt:
            raise FailedPrecondition(
                f"the outcome of the last call on environment {self.env_id} is unknown, because the connection "
                "failed. Close it and make another; reset that one with a prefix to come back here."
            )
        if last.succeeded:
            self._sequence += 1
        self._last = None


def _reset(
    task_id: str, seed: int, prefix: Sequence[tuple[str, bytes]], resume_seed: int | None, initial_hash: bytes
) -> pb.ResetRequest:
    return pb.ResetRequest(
        task_id=task_id,
        seed=seed,
        prefix=[pb.PrefixTurn(action=action, observation_hash=digest) for action, digest in prefix],
        resume_seed=resume_seed,
        initial_observation_hash=initial_hash,
    )
