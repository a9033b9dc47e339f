"""`ale rock image build` and `push`: the images of the server, the guest in pods and the built-in tasks, for helm/rock.

As in `ale/rock/cli.py`, nothing heavy is imported before a command runs. What a command makes goes to standard output.
"""

from __future__ import annotations

import re
import shutil
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer

__all__ = ["add_server_image_commands"]

_MIB = 1 << 20
_SERVER, _GUEST, _TASKS = "rock-server", "rock-guest", "rock-tasks"
_TAG = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}", re.ASCII)

BaseOption = Annotated[
    str, typer.Option("--base", metavar="IMAGE", help="Debian or Ubuntu with Python 3.11 as `python`.")
]
TagOption = Annotated[str, typer.Option("--tag", help="Instead of ALE's version.")]
TasksOption = Annotated[
    bool,
    typer.Option("--tasks", help="The image that swe, code and terminal run in, instead of the server's."),
]
GuestOption = Annotated[
    bool, typer.Option("--guest", help="The image that brings the guest into pods, instead of the server's.")
]


def add_server_image_commands(app: typer.Typer) -> None:
    """Add `build` and `push` to the commands of `ale rock image`."""
    app.command("build")(build_command)
    app.command("push")(push_command)


def build_command(
    *,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", metavar="FILE", help="Write the archive there, and load it nowhere."),
    ] = None,
    base: BaseOption = "python:3.11-slim",
    tag: TagOption = "",
    guest: GuestOption = False,
    tasks: TasksOption = False,
) -> None:
    """Build the server's own image, or the guest's or the tasks', from what is installed here, and load it into Docker."""
    from rock_env.errors import InvalidArgument

    if guest and tasks:
        raise InvalidArgument("--guest and --tasks name two images; build one after the other")
    name = f"{_GUEST if guest else _TASKS if tasks else _SERVER}:{_tag(tag)}"
    with _built(base, name) as (image_id, archive):
        if output is not None:
            shutil.move(archive, output)
            _say(f"{name} is in {output}. Load it: docker load --input {output}")
        else:
            from ale.docker import docker

            docker("load", "--input", str(archive))
            _say(f"{name} is in Docker. For a cluster: ale rock image push REGISTRY")
    sys.stdout.write(f"{image_id}\n")


def push_command(
    registry: Annotated[
        str, typer.Argument(metavar="REGISTRY", help="Host and folder, such as registry.example.org/team.")
    ],
    *,
    base: BaseOption = "python:3.11-slim",
    tag: TagOption = "",
) -> None:
    """Build the images of the server, the guest and the tasks, and push them where a cluster pulls from.

    `docker login` first, where the registry asks for it.
    """
    from ale.docker import check_registry, docker

    check_registry(registry)
    names = [f"{registry}/{each}:{_tag(tag)}" for each in (_SERVER, _GUEST, _TASKS)]
    for name in names:
        with _built(base, name) as (_, archive):
            docker("load", "--input", str(archive))
            docker("push", name, shown=True)
    more = f" --set image.tag={tag}" if tag else ""
    _say(f"Pushed. Install it: helm install rock ./helm/rock --set image.registry={registry}{more}")
    sys.stdout.write("".join(f"{name}\n" for name in names))


@contextmanager
def _built(base: str, name: str) -> Iterator[tuple[str, Path]]:
    """Yield the id and the archive of the image that the name says; the archive goes afterwards. The guest's has no base."""
    from ale.rock import guest_image, server_image, tasks_image

    what = name.rpartition("/")[2].partition(":")[0]
    with tempfile.TemporaryDirectory(prefix="rock-image-") as folder:
        archive = Path(folder) / "image.tar"
        _say("building from nothing" if what == _GUEST else f"building upon {base}")
        if what == _GUEST:
            image_id = guest_image.build(archive, Path(folder), name=name)
        else:
            build = tasks_image.build if what == _TASKS else server_image.build
            image_id = build(archive, Path(folder), base=base, name=name)
        _say(f"{image_id}: {archive.stat().st_size / _MIB:.0f} MiB")
        yield image_id, archive


def _tag(given: str) -> str:
    from importlib.metadata import version

    from rock_env.errors import InvalidArgument

    tag = given or version("ale-rl")
    if not _TAG.fullmatch(tag):
        raise InvalidArgument(f"bad --tag {tag!r}: expected up to 128 letters, digits, '_', '.' and '-'.")
    return tag


def _say(text: str) -> None:
    sys.stderr.write(f"{text}\n")
