"""`ale env push`, and `ale env remove --rock`: registered environments on a server of another machine, and on its replicas.

The images stay where they are: the server's backends must find them under the names that the tasks have.
"""

from __future__ import annotations

import asyncio

from ale.terminal import stdout
from rock_env import plugins, registered
from rock_env.client.places import PlacesClient
from rock_env.errors import InvalidArgument
from rock_env.registered import Registration

__all__ = ["push_command", "remove_pushed_command"]

_MOST_BYTES = 60 << 20
"""A message to a server has at most 64 MiB."""


def push_command(name: str, rock: str) -> None:
    """Offer an environment that was registered here at a server. Raise `RockError`, with nothing changed there."""
    if name in plugins.names("ale.envs"):
        raise InvalidArgument(
            f"{name!r} was installed, not registered: install its package where the server runs."
        )
    record = registered.find(name)
    content = registered.content_of(record)
    if len(content) > _MOST_BYTES:
        raise InvalidArgument(
            f"the tasks of {name} take {len(content) >> 20} MiB, and a server takes {_MOST_BYTES >> 20} MiB at once. "
            "Register it in parts."
        )
    asyncio.run(_push(record, content, rock))
    stdout().print(
        f"{name} ({record.version}, {record.tasks} tasks) is offered at {rock}. It needs these images there:"
    )
    for image in record.images[:10]:
        stdout().print(f"  {image}")
    if len(record.images) > 10:
        stdout().print(f"  and {len(record.images) - 10} more")


def remove_pushed_command(name: str, rock: str) -> None:
    """Offer an environment no more at a server and its replicas. Raise `UnknownName`."""
    asyncio.run(_remove(name, rock))
    stdout().print(f"{name} is no longer offered at {rock}. Its images stay.")


async def _push(record: Registration, content: bytes, rock: str) -> None:
    async with PlacesClient(rock) as places:
        await places.push_env(
            record.name,
            content,
            digest=record.digest,
            source=record.source,
            registered_at=record.registered_at,
            tasks=record.tasks,
            images=record.images,
        )


async def _remove(name: str, rock: str) -> None:
    async with PlacesClient(rock) as places:
        await places.remove_env(name)
