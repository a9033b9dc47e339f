"""The replies of one call or batch on their way from workers and tasks to whoever asked.

Used by the service core. A worker's chunk passes through as the bytes it is; only errors are built here.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import Any, NamedTuple

from google.protobuf.message import DecodeError

from rock_env.env_workers.frames import Frame, Kind
from rock_env.errors import EnvLost, RockError
from rock_env.proto.v1 import env_pb2 as pb
from rock_env.wire.envs import fill_error

__all__ = ["MESSAGES", "Batch", "Messages", "Reply", "Shard"]


class Messages(NamedTuple):
    """The protobuf types of one kind of call."""

    many_request: Any
    many_response: Any
    reply: Any


MESSAGES: dict[Kind, Messages] = {
    Kind.RESET: Messages(pb.ResetManyRequest, pb.ResetManyResponse, pb.ResetResponse),
    Kind.STEP: Messages(pb.StepManyRequest, pb.StepManyResponse, pb.StepResponse),
    Kind.EVALUATE: Messages(pb.EvaluateManyRequest, pb.EvaluateManyResponse, pb.EvaluateResponse),
    Kind.CLOSE: Messages(pb.CloseManyRequest, pb.CloseManyResponse, pb.CloseResponse),
}


class Reply:
    """A future for the only frame of a one-item call: a message, or the one item in it that is an environment's."""

    __slots__ = ("_env_id", "_future", "_kind")

    def __init__(self, kind: Any, env_id: str = "") -> None:
        """Take the message's type, and the id of the environment where it has items."""
        self._kind = kind
        self._env_id = env_id
        self._future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()

    def frame(self, frame: Frame) -> None:
        if self._future.done():  # cancelled where the caller went away
            return
        try:
            message = self._kind.FromString(frame.payload)
        except DecodeError as error:
            raise ValueError(f"what is no {self._kind.DESCRIPTOR.name}") from error
        if self._env_id:
            if [item.env_id for item in message.items] != [self._env_id]:
                raise ValueError("a reply for another environment")
            message = message.items[0]
        self._future.set_result(message)

    def lost(self, answered: int, error: EnvLost) -> None:
        if not self._future.done():
            self._future.set_exception(error)

    async def message(self) -> Any:
        """Wait for the reply. Raise `EnvLost` if the worker died first."""
        return await self._future


class Batch:
    """Collects the replies of a batch of `count` items and yields them in chunks as they finish."""

    def __init__(self, kind: Kind, count: int) -> None:
        self._messages = MESSAGES[kind]
        self._missing = count
        self._chunks: asyncio.Queue[tuple[int, bytes]] = asyncio.Queue()

    def put(self, count: int, chunk: bytes) -> None:
        """Add a serialised response of `count` items."""
        self._chunks.put_nowait((count, chunk))

    def reply(self, reply: Any) -> None:
        """Add one reply."""
        self.put(1, self._messages.many_response(items=[reply]).SerializeToString())

    def fail(self, env_ids: Sequence[str], error: RockError) -> None:
        """Answer all of `env_ids` with `error`."""
        replies = [fill_error(self._messages.reply(env_id=env_id), error) for env_id in env_ids]
        self.put(len(replies), self._messages.many_response(items=replies).SerializeToString())

    async def chunk(self) -> bytes:
        """Return the next serialised response."""
        count, chunk = await self._chunks.get()
        self._missing -= count
        return chunk

    async def chunks(self) -> AsyncIterator[bytes]:
        """Yield serialised responses until every item is answered."""
        while self._missing > 0:
            yield await self.chunk()


class Shard:
    """The part of a batch that went to one worker."""

    __slots__ = ("_batch", "env_ids")

    def __init__(self, batch: Batch) -> None:
        self._batch = batch
        self.env_ids: list[str] = []

    def frame(self, frame: Frame) -> None:
        self._batch.put(frame.items, frame.payload)

    def lost(self, answered: int, error: EnvLost) -> None:
        unanswered = self.env_ids[answered:]
        if unanswered:
            self._batch.fail(unanswered, error)
