"""That files which are still read count as those which are kept: many at once stay within a tenant's bytes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from typing import cast

from rock_env.env import Attachment
from rock_env.errors import NotFound
from rock_env.sandbox import Sandbox
from rock_env.server.envs.artifacts import ArtifactBounds, ArtifactRoom, EpisodeArtifacts


class SlowFile:
    """Stands for a sandbox with files of 40 bytes, whose end comes when it may."""

    def __init__(self) -> None:
        self.rest = asyncio.Event()

    async def read_stream(
        self, path: str, *, offset: int = 0, length: int | None = None
    ) -> AsyncGenerator[bytes]:
        """Yield a file of its path's first letter."""
        yield path[:1].encode() * 39
        await self.rest.wait()
        if "gone" in path:
            raise NotFound("no such file")
        yield b"."


async def test_what_is_being_read_takes_room() -> None:
    room, file = ArtifactRoom(ArtifactBounds(tenant_bytes=100)), SlowFile()
    box = cast("Sandbox", file)
    episodes = [EpisodeArtifacts(room) for _ in range(3)]
    reading = [
        asyncio.create_task(episode.take(box, [Attachment(name, "text/plain", path)]))
        for episode, (name, path) in zip(
            episodes, [("one", "a"), ("two", "b gone"), ("three", "c")], strict=True
        )
    ]
    (third,) = await reading[2]
    assert "more than 100 bytes" in third.missing
    file.rest.set()
    (first,), (second,) = await reading[0], await reading[1]
    assert (first.size, first.missing) == (40, "")
    assert "no such file" in second.missing
    (again,) = await episodes[0].take(box, [Attachment("again", "text/plain", "a")])
    assert again.sha256 == first.sha256
    assert room._taken.total() == 40, "what failed, and what is kept already, gave its room back"
    episodes[0].forget()
    assert not room._taken
