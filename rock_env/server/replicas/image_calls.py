"""Calls that belong where an image or its build is: a sandbox or a check of a named image, and the log of a build.

Used by `forward`. The names are in the store, so every other call about images is answered by any server.
"""

from __future__ import annotations

from itertools import islice
from typing import Any

import grpc

from rock_env.server.images.builds import maker_of
from rock_env.server.replicas.carrying import ForwardedCall
from rock_env.server.replicas.episodes import EnvCall
from rock_env.store.postgres.members import Member

__all__ = ["image_call"]

_MOST_IMAGES = 8
"""How many images of one group are looked for: each costs a query."""


def image_call(name: str) -> type[ForwardedCall] | None:
    """Return what carries calls of this method on; None for one that every replica answers by itself."""
    if name == "WatchBuild":
        return _BuildCall
    return {"Create": _StartCall, "CreateMany": _GroupCall, "Validate": _StartCall}.get(name)


class _StartCall(ForwardedCall):
    """A call that starts a sandbox."""

    async def where(self, message: Any) -> tuple[Member, grpc.aio.Channel] | None:
        return await self.interceptor.image_place(message.spec)


class _GroupCall(ForwardedCall):
    """A call that starts several sandboxes, where the first image is that another node has."""

    async def where(self, message: Any) -> tuple[Member, grpc.aio.Channel] | None:
        specs = {item.spec.image: item.spec for item in message.items}
        for spec in islice(specs.values(), _MOST_IMAGES):
            if (place := await self.interceptor.image_place(spec)) is not None:
                return place
        return None


class _BuildCall(EnvCall):
    """A call about a build, whose id begins as those of its server's environments do."""

    async def where(self, message: Any) -> tuple[Member, grpc.aio.Channel] | None:
        prefix = maker_of(message.build_id)
        return await self.place((await self.interceptor.replica.homes({prefix}))[prefix])
