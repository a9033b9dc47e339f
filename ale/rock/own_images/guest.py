"""The image that brings the guest into pods: the interpreter of this machine, the guest, and the program that copies both.

It has no base: nothing else is in it. The `kubernetes` backend runs it before each sandbox's own image.
"""

from __future__ import annotations

import platform
import py_compile
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path

from ale.rock.own_images.archive import BaseImage, ImageFile, write_image, write_layer
from rock_env.backends.docker.bundle import BOX_TOOLS, Bundle
from rock_env.backends.kubernetes import carry
from rock_env.backends.kubernetes.manifest import CARRIER
from rock_env.errors import InvalidArgument

__all__ = ["NAME", "build"]

NAME = "rock-guest"
_MACHINES = {"x86_64": "amd64", "aarch64": "arm64"}


def build(path: Path, folder: Path, *, name: str) -> str:
    """Write the image to `path` and return its id; `folder` is for what is needed meanwhile.

    Raise `InvalidArgument` on a machine that no node is like, and `InfraError` for an interpreter that cannot be carried.
    """
    machine = _MACHINES.get(platform.machine())
    if machine is None:
        raise InvalidArgument(
            f"the guest's image holds this machine's interpreter, and {platform.machine()} is none of "
            f"{', '.join(_MACHINES)}. Build it on a machine like the cluster's nodes."
        )
    bundle = Bundle.build(folder / "bundles").folder
    py_compile.compile(
        carry.__file__,
        cfile=str(bundle / "carry.pyc"),
        dfile="carry.py",
        doraise=True,
        invalidation_mode=py_compile.PycInvalidationMode.UNCHECKED_HASH,
    )
    layer = write_layer(folder / "guest-layer.tar", _files(bundle), comment="guest")
    about = {
        "org.opencontainers.image.title": NAME,
        "org.opencontainers.image.version": metadata.version("ale-rl"),
    }
    settings = {"User": f"{CARRIER}:{CARRIER}", "WorkingDir": "/", "Labels": about}
    nothing = BaseImage({"config": {}, "architecture": machine, "os": "linux"}, [])
    return write_image(path, nothing, [layer], name=name, settings=settings)


def _files(bundle: Path) -> Iterator[ImageFile]:
    for file in sorted(bundle.rglob("*")):
        if file.is_file():
            inner = file.relative_to(bundle).as_posix()
            yield ImageFile(
                f"{BOX_TOOLS.strip('/')}/{inner}", file.read_bytes(), bool(file.stat().st_mode & 0o100)
            )
