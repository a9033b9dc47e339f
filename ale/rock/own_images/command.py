"""`ale rock image build` and `push`: the images of server, guest, built-in tasks and trainer, for clusters.

What a command makes goes to standard output.
"""

from __future__ import annotations

import re
import shutil
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path
from typing import Annotated

import typer

from ale.docker import check_registry, docker, run_shown
from ale.rock.own_images import guest, server, tasks
from rock_env.errors import InvalidArgument, Unavailable

__all__ = ["build_command", "push_command"]

_MIB = 1 << 20
_SERVER, _GUEST, _TASKS, _TRAINER = "rock-server", "rock-guest", "rock-tasks", "rock-trainer"
_LOADERS = {
    "kind": (("kind", "load", "image-archive"), "--name"),
    "k3d": (("k3d", "image", "import"), "--cluster"),
    "minikube": (("minikube", "image", "load"), "--profile"),
}
"""How a cluster on this machine takes an archive, and which option names the cluster."""
_LOCAL = "docker.io/library"
"""Where these tools put names without a registry."""
_TAG = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}", re.ASCII)
_CLUSTER = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,62}", re.ASCII)

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

TrainerOption = Annotated[
    bool,
    typer.Option(
        "--trainer", help="The image that trains on a Ray cluster, some gigabytes, instead of the server's."
    ),
]


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
    trainer: TrainerOption = False,
) -> None:
    """Build the server's own image, or the guest's, the tasks' or the trainer's, from what is installed here, and load it
    into Docker.
    """
    asked = [each for each, wanted in ((_GUEST, guest), (_TASKS, tasks), (_TRAINER, trainer)) if wanted]
    if len(asked) > 1:
        raise InvalidArgument(f"{' and '.join(asked)} are two images; build one after the other")
    name = f"{asked[0] if asked else _SERVER}:{_tag(tag)}"
    with _built(base, name) as (image_id, archive):
        if output is not None:
            shutil.move(archive, output)
            _say(f"{name} is in {output}. Load it: docker load --input {output}")
        else:
            docker("load", "--input", str(archive))
            _say(f"{name} is in Docker. For a cluster: ale rock image push REGISTRY")
    sys.stdout.write(f"{image_id}\n")


def push_command(
    registry: Annotated[
        str,
        typer.Argument(
            metavar="REGISTRY", help="Host and folder, such as registry.example.org/team; none with --load."
        ),
    ] = "",
    *,
    base: BaseOption = "python:3.11-slim",
    tag: TagOption = "",
    trainer: Annotated[
        bool, typer.Option("--trainer", help="Also the image that trains on a Ray cluster, some gigabytes.")
    ] = False,
    load: Annotated[
        str,
        typer.Option(
            "--load", metavar="TOOL", help="kind, k3d or minikube: into its cluster, and no registry."
        ),
    ] = "",
    cluster: Annotated[
        str, typer.Option("--cluster", metavar="NAME", help="With --load; none: the tool's own choice.")
    ] = "",
) -> None:
    """Build the images of the server, the guest and the tasks, and push them where a cluster pulls from.

    `docker login` first, where the registry asks for it.
    """
    if bool(registry) == bool(load) or (cluster and not load):
        raise InvalidArgument(
            "push to a REGISTRY, or --load kind, k3d or minikube [--cluster NAME]: one of both"
        )
    if load:
        _loader(load, "", cluster)
    else:
        check_registry(registry)
    images = (_SERVER, _GUEST, _TASKS, *((_TRAINER,) if trainer else ()))
    names = [f"{f'{registry}/' if registry else ''}{each}:{_tag(tag)}" for each in images]
    for name in names:
        with _built(base, name) as (_, archive):
            if load:
                run_shown(_loader(load, str(archive), cluster))
            else:
                docker("load", "--input", str(archive))
                docker("push", name, shown=True)
    more = f" --set image.tag={tag}" if tag else ""
    _say(f"Done. Install it: helm install rock ./helm/rock --set image.registry={registry or _LOCAL}{more}")
    sys.stdout.write("".join(f"{name}\n" for name in names))


def _loader(tool: str, archive: str, cluster: str) -> list[str]:
    """Return the command that has a cluster take an archive. Raise `InvalidArgument` or `Unavailable`."""
    if tool not in _LOADERS:
        raise InvalidArgument(f"bad --load {tool!r}: expected one of {', '.join(_LOADERS)}")
    if cluster and not _CLUSTER.fullmatch(cluster):
        raise InvalidArgument(f"bad --cluster {cluster!r}: expected letters, digits, '_', '.' and '-'")
    if shutil.which(tool) is None:
        raise Unavailable(
            f"there is no program {tool} here. Install it, or push to a registry that the cluster pulls from: ale rock "
            "image push REGISTRY"
        )
    words, option = _LOADERS[tool]
    return [*words, archive, *([option, cluster] if cluster else [])]


@contextmanager
def _built(base: str, name: str) -> Iterator[tuple[str, Path]]:
    """Yield the id and the archive of the image that the name says; the archive goes afterwards. The guest's has no base."""
    what = name.rpartition("/")[2].partition(":")[0]
    with tempfile.TemporaryDirectory(prefix="rock-image-") as folder:
        archive = Path(folder) / "image.tar"
        _say("building from nothing" if what == _GUEST else f"building upon {base}")
        if what == _GUEST:
            image_id = guest.build(archive, Path(folder), name=name)
        else:
            if what == _TASKS:
                image_id = tasks.build(archive, Path(folder), base=base, name=name)
            else:
                own = server.TRAINER if what == _TRAINER else server.SERVER
                image_id = server.build(archive, Path(folder), base=base, name=name, own=own)
        _say(f"{image_id}: {archive.stat().st_size / _MIB:.0f} MiB")
        yield image_id, archive


def _tag(given: str) -> str:
    tag = given or version("ale-rl")
    if not _TAG.fullmatch(tag):
        raise InvalidArgument(f"bad --tag {tag!r}: expected up to 128 letters, digits, '_', '.' and '-'.")
    return tag


def _say(text: str) -> None:
    sys.stderr.write(f"{text}\n")
