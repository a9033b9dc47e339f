"""Checkpoints and forks: episode states kept by the service, so they outlive the worker or box they came from.

A state is opaque here: of an environment in a worker only env hosts read it, of one with a sandbox only `SandboxedEnv`.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass, replace
from typing import Any

import msgspec

from rock_env.env_workers.frames import Kind
from rock_env.errors import (
    FailedPrecondition,
    InvalidArgument,
    NotFound,
    ResourceExhausted,
    RockError,
    plugin_call,
)
from rock_env.proto.v1 import env_pb2 as pb
from rock_env.proto.v1 import host_pb2 as host
from rock_env.security.auth import acting_for, current_tenant
from rock_env.server.envs.batch import Reply
from rock_env.server.envs.core import EnvServiceCore, Hosted
from rock_env.server.envs.kept import BoxedState, read_kept
from rock_env.server.envs.sandboxed import SandboxedEnv
from rock_env.server.own_tasks import logged
from rock_env.wire.envs import error_of

__all__ = ["Borrowed", "Branches"]

MAX_CHECKPOINT_BYTES = 1 << 30
"""All checkpoints of one server; a game's state is a few hundred bytes, so this is hundreds of thousands."""
MAX_TENANT_BYTES = MAX_CHECKPOINT_BYTES // 2
"""Of one tenant's checkpoints."""
MOST_KEYS = 256
"""Checkpoints and forks of one environment whose replies are kept for who asks again."""
_OVERHEAD_BYTES = 1024
"""What a checkpoint takes beside its state."""
MAX_FORK = 4096


_GAME, _BOXED = b"g", b"b"
"""First byte of a state on its way to another server."""
_boxed = msgspec.msgpack.Decoder(BoxedState)


@dataclass(frozen=True, slots=True)
class Borrowed:
    """What another server lent of a checkpoint."""

    state: bytes
    with_files: bool
    """Whether its snapshot of a box is where this server can use it; else its actions are repeated in a fresh box."""


def _of_another_release(sandbox_id: str) -> FailedPrecondition:
    return FailedPrecondition(
        f"sandbox {sandbox_id!r} cannot be taken over: its episode is of another release of the environment. Make an "
        "environment and reset it."
    )


class _Checkpoint:
    __slots__ = ("last_used", "state", "tenant")

    def __init__(self, state: host.EpisodeState | BoxedState, now: float) -> None:
        self.state = state
        self.tenant = current_tenant()
        self.last_used = now

    @property
    def size(self) -> int:
        held = self.state.size if isinstance(self.state, BoxedState) else int(self.state.ByteSize())
        return held + _OVERHEAD_BYTES


class Branches:
    """The checkpoint store of one server; `borrow` asks the other servers of a shared store for one of theirs."""

    def __init__(
        self,
        core: EnvServiceCore,
        borrow: Callable[[str], Awaitable[Borrowed | None]] | None = None,
    ) -> None:
        self._core = core
        self._borrow = borrow
        core.reapers.append(self._reap)
        self._checkpoints: dict[str, _Checkpoint] = {}
        self._bytes: Counter[str] = Counter()
        """Of checkpoints, by tenant."""

    async def checkpoint(self, request: pb.CheckpointRequest) -> pb.CheckpointResponse:
        """Store the state of an environment. Idempotent by key."""
        hosted = self._core.find(request.env_id)
        reply: pb.CheckpointResponse = await self._once(hosted, request, lambda: self._checkpoint(hosted))
        return reply

    async def fork(self, request: pb.ForkRequest) -> pb.ForkResponse:
        """Make `count` environments that continue from this one's state. Idempotent by key; all or none."""
        seeds = list(request.resume_seeds)
        if not 1 <= request.count <= MAX_FORK:
            raise InvalidArgument(f"fork count out of range: got {request.count}, expected 1 to {MAX_FORK}.")
        if seeds and len(seeds) != request.count:
            raise InvalidArgument(
                f"wrong number of resume seeds: got {len(seeds)}, expected none or one per fork ({request.count})."
            )
        hosted = self._core.find(request.env_id)
        reply: pb.ForkResponse = await self._once(
            hosted, request, lambda: self._fork(hosted, request.count, seeds)
        )
        return reply

    async def restore(self, request: pb.RestoreRequest, asked_s: float | None) -> pb.ResetResponse:
        """Continue an environment from a checkpoint of the same environment, version and arguments."""
        hosted = self._core.find(request.env_id)
        state = await self._state(request.checkpoint_id)
        if isinstance(state, BoxedState) != (hosted.sandboxed is not None):
            raise InvalidArgument(
                "the checkpoint belongs to another environment; restore one of its own kind."
            )
        if isinstance(state, BoxedState):
            went_on: pb.ResetResponse = await self._in_box(hosted, Kind.RESTORE, (request, state), asked_s)
            return went_on
        message = host.HostRestoreRequest(request=request, state=state)
        answer = Reply(pb.ResetResponse)
        reply: pb.ResetResponse = await self._core.in_worker(hosted, Kind.RESTORE, message, asked_s, answer)
        error = error_of(reply)
        if error is not None:
            raise error
        return reply

    async def take_over(self, request: pb.TakeOverRequest) -> pb.MakeResponse:
        """Make an environment that goes on with a durable episode, in its box. Idempotent by key.

        Raise `FailedPrecondition` where the box has no such episode, or another release's.
        """
        name = f"{current_tenant()}\0{request.sandbox_id}/{request.idempotency_key}"
        reply: pb.MakeResponse = await self._joined(
            name if request.idempotency_key else "", lambda name: self._take_over(request.sandbox_id, name)
        )
        return reply

    async def _take_over(self, sandbox_id: str, name: str) -> pb.MakeResponse:
        core = self._core
        written, former = await core.boxes.kept_in(sandbox_id)
        episode = read_kept(written)
        if episode is None:
            raise _of_another_release(sandbox_id)
        with plugin_call(f"taking over sandbox {sandbox_id}"):
            spec = core.catalog.spec(episode.env)
            params_json = core.catalog.resolve(episode.env, episode.params_json)
        core.reserve()
        try:
            made = await core.sandboxed(core.new_id(name), spec, params_json)
            try:
                if made.kind != episode.state.env:
                    raise _of_another_release(sandbox_id)
                await made.adopt(sandbox_id, episode.state, former, timeout_s=core.sandbox_timeout_s)
                await core.leave(former)
            except BaseException:
                await made.let_go()
                raise
        except BaseException:
            core.give_back()
            raise
        core.take_in(episode.env, made, keys=[name] if name else [])
        return pb.MakeResponse(env_id=made.journal.env_id, version=spec.version)

    def lend(self, checkpoint_id: str, tenant: str) -> bytes:
        """Return a state for another server's environment of the same tenant. Raise `NotFound`."""
        state = self._own(checkpoint_id, tenant)
        if isinstance(state, BoxedState):
            return _BOXED + msgspec.msgpack.encode(state)
        return _GAME + bytes(state.SerializeToString())

    async def _state(self, checkpoint_id: str) -> host.EpisodeState | BoxedState:
        """Return a state of the present tenant, also one that another server keeps. Raise `NotFound`, `Unavailable`."""
        if checkpoint_id in self._checkpoints or self._borrow is None:
            return self._own(checkpoint_id, current_tenant())
        lent = await self._borrow(checkpoint_id)
        if lent is None:
            return self._own(checkpoint_id, current_tenant())
        if lent.state.startswith(_GAME):
            game: host.EpisodeState = host.EpisodeState.FromString(lent.state[1:])
            return game
        boxed = _boxed.decode(lent.state[1:])
        return boxed if lent.with_files else replace(boxed, snapshot_id="", rules=b"")

    def _own(self, checkpoint_id: str, tenant: str) -> host.EpisodeState | BoxedState:
        checkpoint = self._checkpoints.get(checkpoint_id)
        if checkpoint is None or checkpoint.tenant != tenant:
            raise NotFound(
                f"unknown checkpoint {checkpoint_id!r}: it was unused for too long, or its server is gone. Checkpoint "
                "again, or reset with a prefix."
            )
        checkpoint.last_used = asyncio.get_running_loop().time()
        return checkpoint.state

    async def _in_box(self, hosted: Hosted, kind: Kind, asked: Any, asked_s: float | None) -> Any:
        """Run a call of an environment with a sandbox in a task of the core's, which no hang-up interrupts."""
        assert hosted.sandboxed is not None  # the caller asked where it lives
        timeout_s = self._core.timeout_s(hosted, asked_s)
        reply: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._core.spawn(self._run("", hosted.sandboxed.call(kind, asked, timeout_s=timeout_s), reply))
        return await asyncio.shield(reply)

    async def _once(
        self,
        hosted: Hosted,
        request: pb.CheckpointRequest | pb.ForkRequest,
        work: Callable[[], Coroutine[Any, Any, Any]],
    ) -> Any:
        """Run `work` in a task of the core's, or join the one that an equal request with its key started.

        Raise `FailedPrecondition` where another request had the key.
        """

        async def noted(name: str) -> Any:
            try:
                return await work()
            except BaseException:
                if name in hosted.keys:
                    hosted.keys.remove(name)
                raise

        name, key = "", request.idempotency_key
        if key:
            of_key = f"{hosted.env_id}/{_digest(key.encode())}/"
            name = of_key + _digest(
                type(request).__name__.encode() + request.SerializeToString(deterministic=True)
            )
            if any(each.startswith(of_key) and each != name for each in hosted.keys):
                raise FailedPrecondition(
                    f"idempotency key {key!r} was already used by another Checkpoint or Fork of environment "
                    f"{hosted.env_id!r}. Take a key of its own for this one."
                )
        if name and name not in self._core.kept:
            self._forget_oldest(hosted)
            hosted.keys.append(name)
        return await self._joined(name, noted)

    def _forget_oldest(self, hosted: Hosted) -> None:
        """Make room for one more key of an environment. Raise `ResourceExhausted` where so many calls run."""
        kept = self._core.kept
        own = [name for name in hosted.keys if name.startswith(f"{hosted.env_id}/")]
        if len(own) < MOST_KEYS:
            return
        oldest = next((name for name in own if kept[name].done()), None)
        if oldest is None:
            raise ResourceExhausted(
                f"{len(own)} checkpoints and forks of environment {hosted.env_id!r} run, of at most {MOST_KEYS} with a key. "
                "Wait for one to end.",
                retry_after_s=1.0,
            )
        hosted.keys.remove(oldest)
        del kept[oldest]

    async def _joined(self, name: str, work: Callable[[str], Coroutine[Any, Any, Any]]) -> Any:
        """Run `work` as the one of its name, whose reply is kept; join the one that runs already."""
        reply = self._core.kept.get(name) if name else None
        if reply is None:
            reply = asyncio.get_running_loop().create_future()
            if name:
                self._core.kept[name] = reply
            self._core.spawn(self._run(name, work(name), reply))
        return await asyncio.shield(reply)

    async def _run(self, name: str, work: Coroutine[Any, Any, Any], reply: asyncio.Future[Any]) -> None:
        try:
            reply.set_result(await work)
        except RockError as error:
            self._core.kept.pop(name, None)  # nothing was made, so a retry may try again
            reply.set_exception(error)
            reply.exception()  # retrieved: the caller may have gone away

    async def _snapshot(self, hosted: Hosted) -> host.EpisodeState | BoxedState:
        if hosted.sandboxed is not None:
            boxed: BoxedState = await self._in_box(hosted, Kind.SNAPSHOT, None, None)
            return boxed
        message = host.HostSnapshotRequest(env_id=hosted.env_id)
        answer = Reply(host.HostSnapshotResponse)
        reply = await self._core.in_worker(hosted, Kind.SNAPSHOT, message, None, answer)
        error = error_of(reply)
        if error is not None:
            raise error
        state: host.EpisodeState = reply.state
        return state

    async def _checkpoint(self, hosted: Hosted) -> pb.CheckpointResponse:
        state = await self._snapshot(hosted)
        checkpoint = _Checkpoint(state, asyncio.get_running_loop().time())
        size, tenant = checkpoint.size, checkpoint.tenant
        for taken, most, whose in (
            (self._bytes[tenant], MAX_TENANT_BYTES, "your checkpoints"),
            (self._bytes.total(), MAX_CHECKPOINT_BYTES, "all checkpoints"),
        ):
            if taken + size > most:
                await self._give_up(state)
                raise ResourceExhausted(
                    f"checkpoint store full: {whose} take {taken} bytes, got {size} more, limit {most}. Unused ones expire "
                    "with the idle timeout.",
                    retry_after_s=60.0,
                )
        checkpoint_id = self._core.new_id()
        self._bytes[tenant] += size
        self._checkpoints[checkpoint_id] = checkpoint
        return pb.CheckpointResponse(checkpoint_id=checkpoint_id)

    async def _fork(self, hosted: Hosted, count: int, seeds: list[int]) -> pb.ForkResponse:
        state = await self._snapshot(hosted)
        if isinstance(state, BoxedState):
            try:
                return await self._fork_boxed(hosted, state, count)
            finally:  # the forks keep what they need of its layer
                await self._give_up(state)
        self._core.reserve(count)
        items = []
        for index in range(count):
            item = host.HostMakeItem(
                env_id=self._core.new_id(), env=hosted.env, params_json=hosted.params_json, state=state
            )
            if seeds:
                item.resume_seed = seeds[index]
            items.append(item)
        replies = await self._core.make_in_workers(items)
        errors = [error for error in map(error_of, replies) if error is not None]
        if errors:
            made = [pb.CloseRequest(env_id=reply.env_id) for reply in replies if not reply.HasField("error")]
            async for _ in self._core.many(Kind.CLOSE, made, 0.0):
                pass
            raise errors[0]
        return pb.ForkResponse(env_ids=[item.env_id for item in items])

    async def _fork_boxed(self, hosted: Hosted, state: BoxedState, count: int) -> pb.ForkResponse:
        """Let `count` new environments go on from the state; resume seeds change nothing, as there is no random state."""
        assert hosted.sandboxed is not None  # the caller asked where it lives
        spec = hosted.sandboxed.spec
        self._core.reserve(count)
        forks: list[SandboxedEnv] = []
        try:
            for _ in range(count):
                fork = await self._core.sandboxed(self._core.new_id(), spec, hosted.params_json)
                forks.append(fork)
        except BaseException:
            self._core.give_back(count)
            await asyncio.gather(*(fork.close() for fork in forks), return_exceptions=True)
            raise
        timeout_s = self._core.timeout_s(hosted, None)
        went = await asyncio.gather(
            *(fork.call(Kind.RESTORE, (None, state), timeout_s=timeout_s) for fork in forks),
            return_exceptions=True,
        )
        errors = [outcome for outcome in went if isinstance(outcome, BaseException)]
        if errors:
            self._core.give_back(count)
            await asyncio.gather(*(fork.close() for fork in forks), return_exceptions=True)
            raise errors[0]
        for fork in forks:
            self._core.take_in(hosted.env, fork)
        return pb.ForkResponse(env_ids=[fork.journal.env_id for fork in forks])

    async def _give_up(self, state: host.EpisodeState | BoxedState) -> None:
        if isinstance(state, BoxedState) and state.snapshot_id:
            await logged(self._core.boxes.drop(state.snapshot_id))

    def _reap(self, oldest: float) -> None:
        """Drop checkpoints not used since `oldest` (event-loop time)."""
        for checkpoint_id in [key for key, kept in self._checkpoints.items() if kept.last_used < oldest]:
            dropped = self._checkpoints.pop(checkpoint_id)
            self._bytes[dropped.tenant] -= dropped.size
            if not self._bytes[dropped.tenant]:
                del self._bytes[dropped.tenant]
            with acting_for(dropped.tenant):
                self._core.spawn(self._give_up(dropped.state))


def _digest(data: bytes) -> str:
    return hashlib.blake2b(data, digest_size=16).hexdigest()
