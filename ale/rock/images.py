"""`ale rock image`: the images that a server's sandboxes start from.

What a command makes goes to standard output, the builder's words and the upload's progress to standard error.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from ale.rock.own_images.command import build_command, push_command
from ale.rock.reach import ADDRESS_IN_USE, ServerOption
from ale.terminal import print_table, redraw, stdout
from ale.waiting import awaited
from rock_env.client.places import PlacesClient
from rock_env.client.registry import CheckReport, Image, RegistryClient
from rock_env.errors import InvalidArgument
from rock_env.inventory import Collection
from rock_env.security.auth import utc
from rock_env.spec import SandboxSpec

__all__ = ["image_app"]

image_app = typer.Typer(
    no_args_is_help=True,
    help="Build, list, check, delete and evict the images that sandboxes start from; build and push the server's own.",
)

JsonOption = Annotated[bool, typer.Option("--json", help="For programs: JSON on standard output.")]
NameArgument = Annotated[str, typer.Argument(metavar="NAME", help="As it was registered.")]
_MIB = 1 << 20
_GIB = 1 << 30
_MOST_GIB = 1 << 20
"""A bound in the request's unit that no disk has."""


@image_app.command("register")
def image_register(
    source: Annotated[
        str, typer.Argument(metavar="FOLDER", help="With a Dockerfile; or with --adopt, an image's name.")
    ],
    *,
    name: Annotated[str, typer.Option("--name", help="What sandboxes call it, such as tools or tools:v2.")],
    dockerfile: Annotated[
        str, typer.Option("--file", "-f", metavar="PATH", help="The Dockerfile, within the folder.")
    ] = "Dockerfile",
    build_args: Annotated[
        list[str] | None, typer.Option("--build-arg", metavar="KEY=VALUE", help="Repeat for several.")
    ] = None,
    adopt: Annotated[
        bool, typer.Option("--adopt", help="Build nothing: take over an image that the server's engine has.")
    ] = False,
    rock: ServerOption = ADDRESS_IN_USE,
    as_json: JsonOption = False,
) -> None:
    """Build a folder on the server, without what its .dockerignore names. The same folder is built once."""
    arguments = dict(_pair(text) for text in build_args or ())

    async def act() -> Image:
        async with RegistryClient(rock) as registry:
            if adopt:
                return await registry.adopt(source, name)
            return await registry.register(
                Path(source),
                name,
                dockerfile=dockerfile,
                build_args=arguments,
                on_upload=_upload_line(),
                on_log=_log,
            )

    image = awaited(act(), f"the ROCK server at {rock}")
    if as_json:
        _print_json(asdict(image))
    else:
        how = "built" if image.built_now else "found" if image.context_digest else "taken over"
        sys.stderr.write(f"{image.name} is {how}: {image.size_bytes / _MIB:.1f} MiB\n")
        sys.stdout.write(f"{image.image_id}\n")


@image_app.command("list")
def image_list(*, rock: ServerOption = ADDRESS_IN_USE, as_json: JsonOption = False) -> None:
    """List your images."""

    async def act() -> list[Image]:
        async with RegistryClient(rock) as registry:
            return await registry.list()

    images = awaited(act(), f"the ROCK server at {rock}")
    if as_json:
        _print_json([asdict(image) for image in images])
        return
    rows = [
        [
            image.name,
            _short(image.image_id),
            f"{image.size_bytes / _MIB:.1f}",
            utc(image.created_at),
            utc(image.used_at),
            "evicted" if image.evicted else "",
        ]
        for image in images
    ]
    print_table(["name", "image", "MiB", "created", "last used", ""], rows)


@image_app.command("show")
def image_show(
    name: NameArgument, *, rock: ServerOption = ADDRESS_IN_USE, as_json: JsonOption = False
) -> None:
    """Show what is known of one image."""

    async def act() -> Image:
        async with RegistryClient(rock) as registry:
            return await registry.get(name)

    image = awaited(act(), f"the ROCK server at {rock}")
    if as_json:
        _print_json(asdict(image))
        return
    state = "evicted to free the disk; register its folder again" if image.evicted else "there"
    for key, value in {
        "name": image.name,
        "image": image.image_id,
        "context": image.context_digest or f"none, taken over as {image.source}",
        "MiB": f"{image.size_bytes / _MIB:.1f}",
        "created": utc(image.created_at),
        "last used": utc(image.used_at),
        "state": state,
    }.items():
        stdout().print(f"{key:<10}{value}")


@image_app.command("delete")
def image_delete(name: NameArgument, *, rock: ServerOption = ADDRESS_IN_USE) -> None:
    """Take the name away; the image goes when nothing uses it."""

    async def act() -> Image:
        async with RegistryClient(rock) as registry:
            return await registry.delete(name)

    image = awaited(act(), f"the ROCK server at {rock}")
    sys.stderr.write(f"{image.name} is deleted ({_short(image.image_id)}).\n")


@image_app.command("validate")
def image_validate(
    name: NameArgument, *, rock: ServerOption = ADDRESS_IN_USE, as_json: JsonOption = False
) -> None:
    """Start sandboxes from an image and check what environments need of them; exits with 1 if a check fails."""

    async def act() -> list[CheckReport]:
        found = []
        async with RegistryClient(rock) as registry:
            async for report in registry.validate(SandboxSpec(image=name)):
                found.append(report)
                if not as_json:
                    line = f"{report.result:<5} {report.name:<25} {report.duration_s * 1000:6.0f} ms  {report.evidence}"
                    stdout().print(line)
        return found

    reports = awaited(act(), f"the ROCK server at {rock}")
    if as_json:
        _print_json([asdict(report) for report in reports])
    raise typer.Exit(int(any(report.result == "FAIL" for report in reports)))


@image_app.command("gc")
def image_gc(
    *,
    free_gib: Annotated[
        int,
        typer.Option(
            "--free-gib",
            min=0,
            max=_MOST_GIB,
            help="Until so much of the engine's disk is free; 0: the server's own bound.",
        ),
    ] = 0,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what would be removed.")] = False,
    rock: ServerOption = ADDRESS_IN_USE,
    as_json: JsonOption = False,
) -> None:
    """Remove built images that nothing uses, least recently used first; needs the scope admin.

    They keep their names: registering their folders again builds them anew.
    """

    async def act() -> Collection:
        async with PlacesClient(rock) as places:
            return await places.collect_images(free_bytes=free_gib * _GIB, dry_run=dry_run)

    done = awaited(act(), f"the ROCK server at {rock}")
    if as_json:
        _print_json({**asdict(done), "dry_run": dry_run})
        return
    what = "would be removed" if dry_run else "removed"
    rows = [
        [
            " ".join(image.names),
            _short(image.image_id),
            f"{image.size_bytes / _MIB:.1f}",
            utc(image.used_at),
            f"kept: {image.kept_because}" if image.kept_because else what,
        ]
        for image in (*done.removed, *done.kept)
    ]
    print_table(["names", "image", "MiB", "last used", ""], rows)
    sys.stderr.write(
        f"{len(done.removed)} {what}, {len(done.kept)} kept; {done.free_bytes / _GIB:.1f} GiB of the engine's disk "
        f"{'would be' if dry_run else 'are'} free.\n"
    )


image_app.command("build")(build_command)
image_app.command("push")(push_command)


def _upload_line() -> Callable[[int, int], None]:
    """Return what shows an upload: one line, kept up to date in a terminal, written once elsewhere."""

    def show(sent: int, total: int) -> None:
        line = f"sending the folder: {sent / _MIB:.1f} of {total / _MIB:.1f} MiB"
        if sys.stderr.isatty():
            redraw(f"{line}{'' if sent < total else chr(10)}")
        elif sent >= total:
            sys.stderr.write(f"{line}\n")

    return show


def _log(data: bytes) -> None:
    sys.stderr.write(data.decode(errors="replace"))
    sys.stderr.flush()


def _pair(text: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    if not key or not equals:
        raise InvalidArgument(f"bad --build-arg {text!r}: expected KEY=VALUE.")
    return key, value


def _short(image_id: str) -> str:
    return image_id.removeprefix("sha256:")[:12]


def _print_json(value: object) -> None:
    sys.stdout.write(f"{json.dumps(value, indent=1)}\n")
