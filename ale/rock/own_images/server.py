"""What the images of the server and of the trainer hold: a Python base, packages in the versions that are installed here,
and this project.

Packages come as wheels for the base's platform, so that the image can be built on another one. The local Docker engine hands
out the base and takes the result; every layer of ours is written here.
"""

from __future__ import annotations

import importlib.util
import subprocess
import sys
import zipfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from importlib import metadata
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from ale.docker import docker
from ale.rock.own_images.archive import BaseImage, ImageFile, read_base, write_image, write_layer
from rock_env.errors import InfraError, InvalidArgument, Unavailable

__all__ = [
    "PROJECT",
    "SERVER",
    "TRAINER",
    "USER",
    "Own",
    "build",
    "download",
    "pinned",
    "read_python_base",
    "unpacked",
]

PROJECT = "ale-rl"
_LIB = "opt/rock/lib"
USER = "1000:1000"
_PYTHON = "3.11"
_MACHINES = {"amd64": "x86_64", "arm64": "aarch64"}
_GLIBC = range(36, 16, -1)
"""Minor versions of glibc that the base may run wheels of: Debian 12 has 2.36."""


@dataclass(frozen=True, slots=True)
class Own:
    """What an image is for."""

    title: str
    extras: tuple[str, ...]
    packages: tuple[str, ...]
    """Of this project."""
    entrypoint: tuple[str, ...]
    programs: Mapping[str, str] = field(default_factory=dict)
    """Commands on the path, and the module that each runs."""


SERVER = Own("rock-server", ("postgres",), ("rock_env", "sandboxes"), ("python", "-m", "rock_env.server"))
"""The trainer, the agents and the command line stay outside."""
TRAINER = Own(
    "rock-trainer",
    ("train", "kuberay"),
    ("rock_env", "sandboxes", "agent_runtime", "trainer", "ale"),
    (),
    {"ale": "ale", "ray": "ray.scripts.scripts"},
)
"""Ray's own operator runs `ray` in it."""


def build(path: Path, folder: Path, *, base: str, name: str, own: Own = SERVER) -> str:
    """Write the image to `path` and return its id; `folder` is for what is needed meanwhile.

    Raise `InvalidArgument` for a base that does not fit or a package that is not installed, `Unavailable` without Docker.
    """
    below, machine = read_python_base(base, folder)
    versions = pinned(PROJECT, own.extras, machine)
    wheels = download(versions, machine, folder / "wheels")
    layers = [
        write_layer(folder / "packages.tar", unpacked(wheels, _LIB), comment="packages"),
        write_layer(folder / "rock.tar", _own(own), comment="ROCK"),
    ]
    settings = {
        "User": USER,
        "WorkingDir": "/tmp",
        "Entrypoint": list(own.entrypoint),
        "Env": [
            f"PYTHONPATH=/{_LIB}",
            "PYTHONPYCACHEPREFIX=/tmp/pycache",  # the root file system is read-only
            "PYTHONUNBUFFERED=1",
            "HOME=/tmp",
            "USER=rock",
        ],
        "Labels": {
            "org.opencontainers.image.title": own.title,
            "org.opencontainers.image.version": _version(),
        },
    }
    return write_image(path, below, layers, name=name, settings=settings)


def _version() -> str:
    return metadata.version(PROJECT)


def read_python_base(name: str, folder: Path) -> tuple[BaseImage, str]:
    """Return a base image of the local engine, pulled if it is not there, and its machine as wheels name it.

    Raise `InvalidArgument` for one of another system, and `Unavailable` without Docker.
    """
    try:
        docker("image", "inspect", name)
    except Unavailable:
        docker("version")  # its absence is another matter than the image's
        docker("pull", name, shown=True)
    saved = folder / "base.tar"
    docker("save", "--output", str(saved), name)
    base = read_base(saved, folder)
    machine = _MACHINES.get(base.config["architecture"])
    if machine is None or base.config["os"] != "linux":
        raise InvalidArgument(
            f"the base image {name} is for {base.config['os']}/{base.config['architecture']}, expected linux and one of "
            f"{', '.join(_MACHINES)}. Name another one with --base."
        )
    return base, machine


def pinned(project: str, extras: tuple[str, ...], machine: str) -> dict[str, str]:
    """Return the versions that are installed here of all that the project needs, itself left out.

    Raise `InvalidArgument` for a package that is needed and not installed.
    """
    target = {
        "python_version": _PYTHON,
        "python_full_version": f"{_PYTHON}.0",
        "sys_platform": "linux",
        "platform_system": "Linux",
        "platform_machine": machine,
        "os_name": "posix",
    }
    found: dict[str, str] = {}
    seen: set[tuple[str, str]] = set()
    open_ = [(project, extra) for extra in ("", *extras)]
    while open_:
        name, extra = open_.pop()
        if (name, extra) in seen:
            continue
        seen.add((name, extra))
        try:
            installed = metadata.distribution(name)
        except metadata.PackageNotFoundError as error:
            raise InvalidArgument(
                f"the image needs the package {name}, which is not installed here. Install it: "
                f"pip install '{PROJECT}[{','.join(extras)}]'"
            ) from error
        found[name] = installed.version
        for requirement in map(Requirement, installed.requires or ()):
            if requirement.marker is None or requirement.marker.evaluate({**target, "extra": extra}):
                needed = canonicalize_name(requirement.name)
                open_ += [(needed, each) for each in ("", *requirement.extras)]
    del found[project]
    return dict(sorted(found.items()))


def download(versions: Mapping[str, str], machine: str, folder: Path) -> list[Path]:
    """Fetch the wheels of these versions with pip. Raise `InfraError` with what it says."""
    platforms = [f"manylinux_2_{minor}_{machine}" for minor in _GLIBC] + [f"manylinux2014_{machine}"]
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary=:all:"]
    command += [f"--dest={folder}", f"--python-version={_PYTHON}", "--implementation=cp"]
    command += [f"--platform={each}" for each in platforms]
    command += [f"{name}=={version}" for name, version in versions.items()]
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    if done.returncode:
        raise InfraError(
            f"pip did not fetch the image's packages as wheels for Python {_PYTHON} on Linux {machine}: "
            f"{done.stderr.strip()[-1000:]}"
        )
    return sorted(folder.glob("*.whl"))


def unpacked(wheels: list[Path], folder: str) -> Iterator[ImageFile]:
    """Yield the modules of wheels, as files below a folder of the image."""
    for wheel in wheels:
        with zipfile.ZipFile(wheel) as archive:
            for entry in archive.infolist():
                name = _place(entry.filename)
                if name and not entry.is_dir():
                    yield ImageFile(
                        f"{folder}/{name}", archive.read(entry), bool(entry.external_attr >> 16 & 0o111)
                    )


def _place(name: str) -> str:
    """Return where a wheel's file belongs; empty for scripts, headers and data, which a server does not use."""
    first, _, rest = name.partition("/")
    if not first.endswith(".data"):
        return name
    kind, _, inner = rest.partition("/")
    return inner if kind in ("purelib", "platlib") else ""


def _own(own: Own) -> Iterator[ImageFile]:
    """Yield this project's own files as they are here, what makes its plugins known, and the programs."""
    for program, module in own.programs.items():
        yield ImageFile(
            f"usr/local/bin/{program}", f'#!/bin/sh\nexec python -m {module} "$@"\n'.encode(), True
        )
    for package in own.packages:
        spec = importlib.util.find_spec(package)
        assert spec is not None
        for place in spec.submodule_search_locations or ():
            for path in sorted(Path(place).rglob("*")):
                inner = path.relative_to(place)
                hidden = any(part.startswith(".") or part == "__pycache__" for part in inner.parts)
                if path.is_file() and not hidden and path.suffix != ".pyc":
                    executable = bool(path.stat().st_mode & 0o100)
                    yield ImageFile(f"{_LIB}/{package}/{inner.as_posix()}", path.read_bytes(), executable)
    about = metadata.distribution(PROJECT)
    folder = f"{_LIB}/{PROJECT.replace('-', '_')}-{about.version}.dist-info"
    for name in ("METADATA", "entry_points.txt"):
        yield ImageFile(f"{folder}/{name}", (about.read_text(name) or "").encode())
