"""`ale env push`, and `ale env remove --rock`: registered environments on a server of another machine, and on its replicas.

With a registry, the images that were built here are pushed there first, and the tasks name them as the registry does: pods
of a cluster have no other way to them. Else they stay where they are: the server's backends must find them by their ids.
"""

from __future__ import annotations

from dataclasses import replace

import msgspec

from ale.docker import check_registry, docker
from ale.terminal import stdout
from ale.waiting import awaited
from rock_env import plugins
from rock_env.client.places import PlacesClient
from rock_env.errors import InvalidArgument
from rock_env.grading.model import Build
from rock_env.tasksets import registered
from rock_env.tasksets.registered import Registration

__all__ = ["push_command", "remove_pushed_command"]

_REPOSITORY = "task-images"
_ID = "sha256:"
_TAG_DIGITS = 32


def push_command(name: str, rock: str, registry: str = "") -> None:
    """Offer an environment that was registered here at a server, its images by way of a registry if that is named.

    Raise `RockError`, with nothing changed at the server.
    """
    if registry:
        check_registry(registry)
    if name in plugins.names("ale.envs"):
        raise InvalidArgument(
            f"{name!r} was installed, not registered: install its package where the server runs."
        )
    record = registered.find(name)
    if registry:
        record, content = _with_pushed_images(record, registry)
    else:
        content = registered.content_of(record)
    awaited(_push(record, content, rock), f"the ROCK server at {rock} to take {name}")
    stdout().print(
        f"{name} ({record.version}, {record.tasks} tasks) is offered at {rock}. It needs these images there:"
    )
    for image in record.images[:10]:
        stdout().print(f"  {image}")
    if len(record.images) > 10:
        stdout().print(f"  and {len(record.images) - 10} more")


def _with_pushed_images(record: Registration, registry: str) -> tuple[Registration, bytes]:
    """Push the images that this machine's engine built; return the environment as it names them there. The digest stays."""
    names = {
        image: f"{registry}/{_REPOSITORY}:{image.removeprefix(_ID)[:_TAG_DIGITS]}"
        for image in record.images
        if image.startswith(_ID)
    }
    for image, pushed in names.items():
        docker("tag", image, pushed)
        docker("push", pushed, shown=True)
    tasks = [
        replace(task, build=Build(image=names.get(task.build.image, task.build.image)))
        for task in registered.tasks_of(record)
    ]
    images = tuple(sorted(names.get(image, image) for image in record.images))
    return msgspec.structs.replace(record, images=images), registered.encoded(tasks)


def remove_pushed_command(name: str, rock: str) -> None:
    """Offer an environment no more at a server and its replicas. Raise `UnknownName`."""
    awaited(_remove(name, rock), f"the ROCK server at {rock}")
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
