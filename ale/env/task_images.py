"""The images of a task set, built on a server one by one: a build that fails is the affair of its own tasks alone.

On standard error there is a line per image, and on a terminal what its builder says just now.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field

from ale.terminal import redraw
from ale.waiting import unsaid, waiting_for
from rock_env.client.registry import RegistryClient
from rock_env.errors import DeadlineExceeded, InvalidArgument, Unimplemented
from rock_env.grading.model import Build, Task
from rock_env.tasksets.images import build_images

__all__ = ["BuiltImages", "built_images"]

_AT_ONCE = 2
"""As many as a server builds at a time."""
_LINE = 150


@dataclass(slots=True)
class BuiltImages:
    """What was built, and what was not."""

    images: dict[Build, str] = field(default_factory=dict)
    """The id by which the engine knows each image, or its name where the task named it."""
    contents: dict[Build, str] = field(default_factory=dict)
    """The digest of what each was built from, or its name."""
    failures: dict[Build, str] = field(default_factory=dict)


async def built_images(registry: RegistryClient, tasks: Sequence[Task]) -> BuiltImages:
    """Build each distinct image once. Raise `RockError` where no image at all can be built."""
    built, turn, log = BuiltImages(), asyncio.Semaphore(_AT_ONCE), _Log()

    async def one(build: Build) -> None:
        user = next(task for task in tasks if task.build == build)
        async with turn:
            try:
                name = (await build_images(registry, [user], log))[build]
            except (InvalidArgument, DeadlineExceeded) as error:
                built.failures[build] = error.message
                return
        if build.image:  # a ready one; what it is made of is its maker's affair
            built.images[build] = built.contents[build] = build.image
        else:
            image = await registry.get(name)
            built.images[build], built.contents[build] = image.image_id, image.context_digest

    builds = dict.fromkeys(task.build for task in tasks)
    try:
        with log.waiting(
            lambda: f"images ({len(built.images) + len(built.failures)} of {len(builds)} there)"
        ):
            async with asyncio.TaskGroup() as group:
                for build in builds:
                    group.create_task(one(build))
    except* Unimplemented as failed:
        raise Unimplemented(
            "this ROCK server builds no images. Use one on a machine with Docker."
        ) from failed
    finally:
        log.end()
    return built


class _Log:
    """What the user sees of the builds."""

    def __init__(self) -> None:
        self._seen: set[Build] = set()
        self._live = sys.stderr.isatty()

    def __call__(self, build: Build, words: bytes) -> None:
        if build not in self._seen:
            self._seen.add(build)
            if not self._live:
                sys.stderr.write(f"building {build.context}\n")
        if self._live:
            said = words.decode(errors="replace").strip().splitlines()
            line = f"building {build.context}: {said[-1] if said else ''}"
            redraw(line[:_LINE])

    def waiting(self, what: Callable[[], str]) -> AbstractContextManager[object]:
        """Say what is waited for, where no builder's words are shown."""
        return unsaid() if self._live else waiting_for(what)

    def end(self) -> None:
        """Leave the line of a terminal."""
        if self._live and self._seen:
            sys.stderr.write("\n")
