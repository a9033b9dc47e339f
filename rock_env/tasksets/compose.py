"""Reads the one service of a task's docker-compose file that can be a box here. Used by the Terminal-Bench reader.

What a box cannot be (several services, volumes of the host, privileges) is named in the error.
"""

from __future__ import annotations

import math
import re
import shlex
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from rock_env.errors import InvalidArgument
from rock_env.foreign.files import parsed, plain_values
from rock_env.foreign.folder import place_inside
from rock_env.foreign.yaml_text import load_yaml
from rock_env.grading.model import Build
from rock_env.spec import NetworkPolicy
from rock_env.tasksets.fields import MOST, MOST_BYTES, Fields, text_of
from rock_env.tasksets.folder import PUBLIC, is_idle, resolved

__all__ = ["Service", "read_service", "yaml_of"]

_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*([kmg]?)b?", re.IGNORECASE | re.ASCII)
_UNITS = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30}
_NAMES = ("container_name", "init", "pull_policy", "restart", "stdin_open", "tty")
"""They name a container, or say how it is kept alive: a box has a name of its own and lives by itself."""

_NO_BOX = ("a box cannot have this", "Take it out, or leave this task out.")
"""Why a field of the service is refused, and what to do."""


@dataclass(frozen=True, slots=True)
class Service:
    """What a compose file says of the box."""

    build: Build | None
    """None where it names an image that only the harness knows, or none: the folder's Dockerfile is built."""
    env: tuple[tuple[str, str], ...] = ()
    workdir: str = ""
    user: str | None = None
    network: NetworkPolicy = field(default_factory=NetworkPolicy)
    cpus: float = 0.0
    memory_bytes: int = 0
    command: tuple[str, ...] | None = None
    """None: the image's own."""
    entrypoint: tuple[str, ...] | None = None
    setup: tuple[str, ...] = ()
    """Shell commands that make the box what a container of the service is when it starts."""


def yaml_of(file: Path, root: Path) -> object:
    """Read a YAML file of the task's folder `root`. Raise `InvalidArgument` if it is none."""
    found: object = parsed(load_yaml, text_of(file, root), f"{file} is no YAML")
    return plain_values(found, str(file))


def read_service(
    file: Path, name: str, variables: Mapping[str, str], leave_out: Collection[str] = ()
) -> Service:
    """Read the service `name`, the only one. Raise one `InvalidArgument` for all that cannot be a box."""
    top = Fields(yaml_of(file, file.parent), file=file, leave_out=leave_out)
    top.raw("version"), top.raw("name")  # of the file's form, and of the project: neither makes a box
    top.refuse("networks", "a box has no network but its own", "Take it out.")
    top.refuse("volumes", "a box has no disk but its own", "COPY the files in the Dockerfile.")
    services = top.table("services")
    if not services.has(name):
        services.wrong(name, "the service that the agent works in is missing", "The format requires it.")
    service = services.table(name)
    services.close_with("a task has one box here, and this is another service", "Put it into the Dockerfile.")
    read = _service(service, file, variables)
    service.close_with(*_NO_BOX)
    top.end()
    return read


def _service(service: Fields, file: Path, variables: Mapping[str, str]) -> Service:
    image = service.text("image")
    env = _environment(service, variables)
    _volumes(service)
    for name in _NAMES:
        service.raw(name)
    platform = service.text("platform", "linux/amd64")
    if platform != "linux/amd64":
        service.wrong("platform", f"a box cannot be {platform!r}", "Take it out.")
    network = service.text("network_mode")
    if network not in ("", "bridge", "none"):
        service.wrong("network_mode", f"a box cannot have {network!r}", "Make it 'bridge' or 'none'.")
    build = _build(service, file, variables)
    if build is None and image and "$" not in image:
        build = Build(image=image)
    deploy = service.table("deploy")
    resources = deploy.table("resources")
    limits = resources.table("limits")
    cpus = _amount(service, "cpus") or _amount(limits, "cpus")
    memory_bytes = _size(service, "mem_limit") or _size(limits, "memory")
    for inner in (limits, resources, deploy):
        inner.close_with(*_NO_BOX)
    return Service(
        build=build,
        env=tuple(sorted(env.items())),
        workdir=service.text("working_dir"),
        user=str(user) if (user := service.raw("user")) is not None else None,
        network=PUBLIC if network == "bridge" else NetworkPolicy(),
        cpus=cpus,
        memory_bytes=memory_bytes,
        command=_words(service, "command"),
        entrypoint=_words(service, "entrypoint"),
        setup=_tmpfs(service),
    )


def _environment(service: Fields, variables: Mapping[str, str]) -> dict[str, str]:
    said = service.raw("environment")
    found = {}
    for variable, text in _table(service, "environment", said).items():
        found[variable], missing = resolved(text, dict(variables))
        if missing:
            why = f"nothing says what {', '.join(missing)} is; this machine's environment is never looked at"
            service.wrong(f"environment.{variable}", why, "Give it by the option variables.")
    return found


def _volumes(service: Fields) -> None:
    """The harness's own folders for logs are not needed here; any other volume is."""
    said = service.raw("volumes")
    for volume in said if isinstance(said, list) else [said] if said else []:
        if not (isinstance(volume, str) and volume.startswith(("${T_BENCH_", "$T_BENCH_"))):
            service.wrong("volumes", f"{volume!r} is not in the box", "COPY it in the Dockerfile.")


def _tmpfs(service: Fields) -> tuple[str, ...]:
    """Return what empties the folders that are in memory there; here they are on the box's disk."""
    said = service.raw("tmpfs")
    commands = []
    for entry in said if isinstance(said, list) else [said] if said else []:
        folder, _, options = str(entry).partition(":")
        mode = re.fullmatch(r"(?:mode=)?([0-7]{3,4})?", options)
        if mode is None or not folder.startswith("/") or folder == "/":
            why = f"{entry!r}: expected an absolute folder, with no option but its mode"
            service.wrong("tmpfs", why, "A box's disk has one limit of size: take the option out.")
            continue
        place = shlex.quote(folder)
        commands.append(
            f"mkdir -p {place} && find {place} -mindepth 1 -delete && chmod {mode[1] or 1777} {place}"
        )
    return tuple(commands)


def _build(service: Fields, file: Path, variables: Mapping[str, str]) -> Build | None:
    said = service.raw("build")
    if said is None:
        return None
    build = service.inner("build", {"context": said} if isinstance(said, str) else said)
    context, dockerfile = build.text("context", "."), build.text("dockerfile", "Dockerfile")
    args, missing = {}, []
    for name, text in _table(build, "args", build.raw("args")).items():
        args[name], absent = resolved(text, dict(variables))
        missing += absent
    if missing:
        build.wrong("args", f"nothing says what {', '.join(missing)} is", "Give it by the option variables.")
    folder = file.parent
    try:
        folder = place_inside(folder, folder / context)
    except InvalidArgument:
        build.wrong("context", f"{context!r} leads out of the task's folder", "Put what it needs there.")
    build.close()
    return Build(context=folder, dockerfile=dockerfile, args=tuple(sorted(args.items())))


def _table(fields: Fields, name: str, said: object) -> dict[str, str]:
    """Return a table that compose lets one write as a list, too; a name without a value is the variable of that name."""
    if isinstance(said, list):
        cut = (str(line).partition("=") for line in said)
        said = {key: value if equals else None for key, equals, value in cut}
    if not isinstance(said, dict | None):
        fields.wrong(name, f"got {said!r}, expected a table or a list", "Correct it.")
        said = None
    return {str(key): f"${{{key}}}" if value is None else str(value) for key, value in (said or {}).items()}


def _words(service: Fields, name: str) -> tuple[str, ...] | None:
    said = service.raw(name)
    if said is None:
        return None
    return tuple(map(str, said)) if isinstance(said, list) else tuple(shlex.split(str(said)))


def _amount(fields: Fields, name: str) -> float:
    said = fields.raw(name)
    try:
        amount = float(said or 0)
    except (TypeError, ValueError, OverflowError):
        amount = math.nan
    if not 0 <= amount <= MOST:
        fields.wrong(name, f"got {said!r}, expected a number from 0 to {MOST:.0f}", "Correct it.")
        return 0.0
    return amount


def _size(fields: Fields, name: str) -> int:
    said = fields.raw(name)
    size = _SIZE.fullmatch(str(said or 0))
    amount = float(size[1]) * _UNITS[size[2].lower()] if size is not None else math.inf
    if amount > MOST_BYTES:
        why = f"got {said!r}, expected a size such as '512m', at most {MOST_BYTES} bytes"
        fields.wrong(name, why, "Correct it.")
        return 0
    return int(amount)


def check_idle(fields: Fields, name: str, argv: tuple[str, ...]) -> None:
    """Note a program that would run beside the agent: no box starts one."""
    if not is_idle(argv):
        why = f"no program is started with a box, and {shlex.join(argv)!r} would be missing"
        fields.wrong(name, why, "Start it in a script that the agent or the tests run.")
