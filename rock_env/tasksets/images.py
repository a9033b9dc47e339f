"""The images of tasks: each distinct build done once, by the server's registry, and named in the tasks' sandboxes.

The registry builds by content: the same folder is built once, however often it is asked for. The image's name holds the
content's digest: a task keeps the image it was checked with.
"""

from __future__ import annotations

import asyncio
import hashlib
import re
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

from rock_env.client.registry import RegistryClient
from rock_env.errors import DeadlineExceeded, InvalidArgument, RockError
from rock_env.foreign.files import check_regular
from rock_env.grading.model import Build, Task

__all__ = ["BuildLog", "build_images", "image_name"]

_PARALLEL = 2
"""As many as the registry builds at a time."""

BuildLog = Callable[[Build, bytes], None]


def _unheard(build: Build, words: bytes) -> None:
    return


def image_name(build: Build) -> str:
    """Return the name under which the registry keeps a build: its folder's, and a digest of all that goes into it.

    Raise `InvalidArgument` if there is no such folder.
    """
    folder = build.context
    if folder is None or not folder.is_dir():
        raise InvalidArgument(f"no folder to build the image of a task from: {folder}.")
    digest = hashlib.sha256(repr((build.dockerfile, build.args)).encode())
    try:
        for path in sorted(folder.rglob("*")):
            digest.update(_entry(folder, path))
    except OSError as error:
        raise InvalidArgument(f"cannot read the folder {folder}: {error}.") from error
    folder = folder.resolve()
    words = [folder.parent.name, folder.name] if folder.name == "environment" else [folder.name]
    stem = re.sub(r"[^a-z0-9]+", "-", "-".join(words).lower()).strip("-")[:60] or "task"
    return f"tasks/{stem}:{digest.hexdigest()[:24]}"


def _entry(folder: Path, path: Path) -> bytes:
    name = path.relative_to(folder).as_posix()
    if path.is_symlink():
        return repr((name, "link", str(path.readlink()))).encode()
    if not path.is_file():
        return repr((name, "folder")).encode()
    check_regular(path.stat().st_mode, path)
    with path.open("rb") as file:
        content = hashlib.file_digest(file, "sha256").hexdigest()
    return repr((name, path.stat().st_mode & 0o777, content)).encode()


async def build_images(
    registry: RegistryClient, tasks: Iterable[Task], on_log: BuildLog = _unheard
) -> Mapping[Build, str]:
    """Build what the tasks need, each distinct build once, and return the name of each build's image.

    `on_log(build, words)` gets the builder's words as they come. A build that names its image is not built. Raise one
    `InvalidArgument` that says of every image that did not build which tasks need it, after all others were built; and
    whatever else the server says, such as `Unimplemented` where it builds none.
    """
    wanted: dict[Build, list[str]] = {}
    for task in tasks:
        wanted.setdefault(task.build, []).append(task.name)
    turn = asyncio.Semaphore(_PARALLEL)
    images: dict[Build, str] = {}
    failures: list[str] = []
    broken: list[RockError] = []

    async def one(build: Build, names: list[str]) -> None:
        async with turn:
            try:
                images[build] = build.image or await _built(registry, build, on_log)
            except (InvalidArgument, DeadlineExceeded) as error:
                failures.append(f"the image of {', '.join(names)} does not build: {error.message}")
            except RockError as error:  # of the server: it is raised by itself, not in a group
                broken.append(error)

    async with asyncio.TaskGroup() as group:
        for build, names in wanted.items():
            group.create_task(one(build, names))
    if broken:
        raise broken[0]
    if failures:
        raise InvalidArgument("\n".join(sorted(failures)))
    return images


async def _built(registry: RegistryClient, build: Build, on_log: BuildLog) -> str:
    name = await asyncio.to_thread(image_name, build)
    assert build.context is not None  # it has a name
    try:
        async with asyncio.timeout(build.timeout_s):
            await registry.register(
                build.context,
                name,
                dockerfile=build.dockerfile,
                build_args=dict(build.args),
                on_log=lambda words: on_log(build, words),
            )
    except TimeoutError as error:
        raise DeadlineExceeded(f"the build took longer than the task's {build.timeout_s:g} s.") from error
    return name
