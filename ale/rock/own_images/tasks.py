"""The image that the built-in tasks run in where a cluster hosts them: a Python base, pytest, and `rock-python`.

`swe`, `code` and `terminal` name no image; the operator gives this one for all that name none. It holds nothing of ROCK.
"""

from __future__ import annotations

from importlib import metadata
from pathlib import Path

from ale.rock.own_images.archive import ImageFile, write_image, write_layer
from ale.rock.own_images.server import PROJECT, USER, download, pinned, read_python_base, unpacked

__all__ = ["NAME", "build"]

NAME = "rock-tasks"
_LIB = "usr/local/lib/rock-tasks"
_RUNNER = "pytest"
"""What hidden tests run by; the process backend's boxes see the same version."""
_PYTHON = b'#!/bin/sh\nexec python "$@"\n'
"""`rock-python`, which tasks call Python by: the process backend answers it by an interpreter that has begun already."""


def build(path: Path, folder: Path, *, base: str, name: str) -> str:
    """Write the image to `path` and return its id; `folder` is for what is needed meanwhile.

    Raise `InvalidArgument` for a base that does not fit, or without pytest here, and `Unavailable` without Docker.
    """
    below, machine = read_python_base(base, folder)
    versions = {**pinned(_RUNNER, (), machine), _RUNNER: metadata.version(_RUNNER)}
    wheels = download(versions, machine, folder / "wheels")
    layers = [
        write_layer(folder / "packages.tar", unpacked(wheels, _LIB), comment="packages"),
        write_layer(
            folder / "tasks.tar", [ImageFile("usr/local/bin/rock-python", _PYTHON, True)], comment="tasks"
        ),
    ]
    settings = {
        "User": USER,
        "WorkingDir": "/",
        "Entrypoint": [],
        "Cmd": ["python"],
        "Env": [f"PYTHONPATH=/{_LIB}", "HOME=/tmp"],
        "Labels": {
            "org.opencontainers.image.title": NAME,
            "org.opencontainers.image.version": metadata.version(PROJECT),
        },
    }
    return write_image(path, below, layers, name=name, settings=settings)
