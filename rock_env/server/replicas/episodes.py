"""Calls of the EnvService among replicas: an environment lives in the server that made it, and any of them may be asked.

Whose an environment is stands in its id. A Make with a key is claimed in the store, so that it makes one environment
whichever replicas get it, also at once. A batch is cut into the parts of their replicas, and answered as they answer.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import ExitStack
from typing import Any

import grpc

from rock_env.errors import RockError, Unavailable
from rock_env.proto.v1 import env_pb2 as pb
from rock_env.server.calls import fail
from rock_env.server.envs.keys import claim_of, own_key, prefix_of
from rock_env.server.replicas.carrying import ForwardedCall, answered, fail_like
from rock_env.store.postgres.members import Member
from rock_env.wire.envs import fill_error

__all__ = ["EnvCall", "episode_call"]

_REPLIES: Mapping[str, Callable[..., Any]] = {
    "MakeMany": pb.MakeResponse,
    "ResetMany": pb.ResetResponse,
    "StepMany": pb.StepResponse,
    "EvaluateMany": pb.EvaluateResponse,
    "CloseMany": pb.CloseResponse,
}
_RESPONSES: Mapping[str, Any] = {
    "MakeMany": pb.MakeManyResponse,
    "ResetMany": pb.ResetManyResponse,
    "StepMany": pb.StepManyResponse,
    "EvaluateMany": pb.EvaluateManyResponse,
    "CloseMany": pb.CloseManyResponse,
}
Context = Any
_Place = tuple[Member, grpc.aio.Channel]


def episode_call(name: str) -> type[ForwardedCall] | None:
    """Return what carries calls of this method on; None for one that every replica answers by itself."""
    if name in ("ListEnvs", "ListSplits"):
        return None
    if name in _REPLIES:
        return _BatchCall
    return _MakeCall if name == "Make" else EnvCall


class EnvCall(ForwardedCall):
    """A call about one environment."""

    async def where(self, message: Any) -> _Place | None:
        """Return the replica whose environments' ids begin as this one does."""
        env_id: str = message.env_id  # as every one of these requests has
        prefix = prefix_of(env_id)
        return await self.place((await self.interceptor.replica.homes({prefix}))[prefix])

    async def place(self, member: Member | None) -> _Place | None:
        """Return a replica with a channel to it; None for this one, and for one that is gone."""
        if member is None:
            return None
        channel = await self.interceptor.reach(member)
        return None if channel is None else (member, channel)


class _MakeCall(EnvCall):
    """Make."""

    async def _handle(self, request: Any, context: Context) -> Any:
        with ExitStack() as self._held:
            return await self._carried(request, context)

    async def _carried(self, request: Any, context: Context) -> Any:
        return await super()._handle(request, context)

    async def where(self, message: Any) -> _Place | None:
        return await self.place((await self.claimed([message]))[0])

    async def claimed(self, items: Sequence[Any]) -> list[Member | None]:
        """Return for each Make which replica's it is; None: this one's."""
        own = list(map(own_key, items))
        keys = [claim_of(key) if key else b"" for key in own]
        asked = {key: name for key, name in zip(keys, own, strict=True) if key}
        self._held.enter_context(self.interceptor.replica.makes.making(asked))
        homes = await self.interceptor.replica.claim_makes(asked) if asked else {}
        return [homes.get(key) for key in keys]


class _BatchCall(_MakeCall):
    """A call about many environments, of one replica or several."""

    async def _carried(self, request: Any, context: Context) -> Any:
        try:
            message: Any = await self.read(request)
            homes = await self._homes(message.items)
        except RockError as error:
            return await fail(context, error)
        parts: dict[str, list[int]] = {}
        for at, home in enumerate(homes):
            parts.setdefault(home.id if home else "", []).append(at)
        if set(parts) <= {""}:
            return await self.locally(request, None, context)
        members = {home.id: home for home in homes if home is not None}
        replies: asyncio.Queue[bytes | None] = asyncio.Queue()
        answering = asyncio.ensure_future(self._answer(message, parts, members, context, replies))
        try:
            while (chunk := await replies.get()) is not None:
                await context.write(chunk)
            await answering
        except ExceptionGroup as several:  # a part ended the call, here or there
            first = several.exceptions[0]
            if isinstance(first, grpc.aio.AioRpcError):
                await fail_like(context, first, next(iter(members.values())))
            raise first from several
        finally:
            answering.cancel()
        return None

    async def _homes(self, items: Sequence[Any]) -> list[Member | None]:
        if self._name == "MakeMany":
            return await self.claimed(items)
        prefixes = [prefix_of(item.env_id) for item in items]
        homes = await self.interceptor.replica.homes(set(prefixes))
        return [homes[prefix] for prefix in prefixes]

    @property
    def _name(self) -> str:
        return self.path.rpartition("/")[2]

    async def _answer(
        self,
        message: Any,
        parts: Mapping[str, list[int]],
        members: Mapping[str, Member],
        context: Context,
        replies: asyncio.Queue[bytes | None],
    ) -> None:
        try:
            async with asyncio.TaskGroup() as group:
                for owner, places in parts.items():
                    part = self._part(message, places)
                    if owner:
                        group.create_task(self._ask(members[owner], part, places, context, replies))
                    else:
                        group.create_task(self._own(part, places, context, replies))
        finally:
            replies.put_nowait(None)

    def _part(self, message: Any, places: Sequence[int]) -> Any:
        part: Any = self.request_type(items=[message.items[at] for at in places])
        if self._name != "MakeMany" and self._name != "CloseMany":
            part.item_timeout_s = message.item_timeout_s
        return part

    async def _own(
        self, part: Any, places: Sequence[int], context: Context, replies: asyncio.Queue[bytes | None]
    ) -> None:
        """Have this server answer its part."""
        async for chunk in self.inner.unary_stream(part, context):
            replies.put_nowait(self._placed(bytes(chunk), places))

    async def _ask(
        self,
        member: Member,
        part: Any,
        places: Sequence[int],
        context: Context,
        replies: asyncio.Queue[bytes | None],
    ) -> None:
        """Have another replica answer its part; what it does not answer fails, and the rest of the batch does not."""
        left = [getattr(item, "env_id", "") for item in part.items]
        try:
            async for chunk in self._asked(member, part.SerializeToString(), context):
                answer = _RESPONSES[self._name].FromString(chunk)
                for at in self._answered(answer, left):
                    left[at] = None
                replies.put_nowait(self._placed(chunk, places))
        except RockError as error:
            self._fail(
                [(at, env_id) for at, env_id in enumerate(left) if env_id is not None], places, error, replies
            )

    def _answered(self, answer: Any, left: Sequence[str | None]) -> list[int]:
        if self._name == "MakeMany":
            return list(answer.indices)
        found = {item.env_id for item in answer.items}
        return [at for at, env_id in enumerate(left) if env_id in found]

    async def _asked(self, member: Member, request: bytes, context: Context) -> AsyncIterator[bytes]:
        place = await self.place(member)
        if place is None:
            raise _gone(member)
        call = place[1].stream_stream(self.path)(
            timeout=context.time_remaining(), metadata=self.interceptor.metadata(context, member, self.path)
        )
        gone = asyncio.ensure_future(self.interceptor.departed(member))
        gone.add_done_callback(lambda _: call.cancel())  # it may hang without hanging up
        try:
            await call.write(request)
            await call.done_writing()
            async for chunk in call:
                yield chunk
        except (grpc.aio.AioRpcError, asyncio.CancelledError) as failure:
            if isinstance(failure, asyncio.CancelledError):
                if not gone.done() or gone.cancelled():
                    raise  # by the caller
            elif answered(failure):
                raise  # by what the call asks for, as this server would
            raise _gone(member) from failure
        finally:
            gone.cancel()
            call.cancel()

    def _placed(self, chunk: bytes, places: Sequence[int]) -> bytes:
        """Return a reply whose indices are those of the whole batch; only those of Make have any."""
        if self._name != "MakeMany":
            return chunk
        answer = pb.MakeManyResponse.FromString(chunk)
        moved = [places[index] for index in answer.indices]
        return bytes(pb.MakeManyResponse(indices=moved, items=answer.items).SerializeToString())

    def _fail(
        self,
        left: Sequence[tuple[int, str]],
        places: Sequence[int],
        error: RockError,
        replies: asyncio.Queue[bytes | None],
    ) -> None:
        failed = [fill_error(_REPLIES[self._name](env_id=env_id), error) for _, env_id in left]
        answer = _RESPONSES[self._name](items=failed)
        if self._name == "MakeMany":
            answer.indices.extend(places[at] for at, _ in left)
        replies.put_nowait(answer.SerializeToString())


def _gone(member: Member) -> Unavailable:
    return Unavailable(
        f"replica {member.id}, whose environments these are, is gone: make them again. Another replica makes them.",
        retry_after_s=1.0,
    )
