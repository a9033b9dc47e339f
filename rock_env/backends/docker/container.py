"""What a box's container is asked to be: one pure translation from a spec and an image to the engine's words.

Used by the `docker` backend only. Every limit and every right of a container is decided here, and nothing else:
nothing of this module talks to the engine.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rock_env.backends.docker.bundle import BOX_RUN, Bundle
from rock_env.backends.image_boxes import check_inside, check_resources, guest_basics, limits
from rock_env.backends.process.box_config import SHELF_VARIABLE
from rock_env.backends.process.host_view import BOX_SHELF
from rock_env.errors import InvalidArgument, Unimplemented
from rock_env.spec import SandboxSpec

__all__ = [
    "LABEL_BOX",
    "LABEL_DURABLE",
    "LABEL_SERVER",
    "LABEL_SPEC",
    "ImageFacts",
    "check_spec",
    "container",
]

LABEL_SERVER = "rock.server"
"""Whose the container, network or image is: the id of a backend's state folder."""
LABEL_BOX = "rock.sandbox"
LABEL_SPEC = "rock.spec"
LABEL_DURABLE = "rock.durable"

DEFAULT_WORKDIR = SandboxSpec().workdir
GUEST_PIDS, GUEST_BYTES = 4, 16 << 20
"""What the guest itself may need beside the commands."""
GUEST_OPEN_FILES = 8192
SHM_BYTES = 64 << 20
_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_CLOSED = ("/proc", "/sys", "/dev", "/opt/rock", BOX_SHELF, "/etc/hosts", "/etc/hostname", "/etc/resolv.conf")


@dataclass(frozen=True, slots=True)
class ImageFacts:
    """What an image says about the commands that run in it."""

    id: str
    env: dict[str, str]
    workdir: str
    user: str
    size: int
    config: dict[str, Any]
    """The image's own configuration, for layers upon it."""

    @classmethod
    def of(cls, described: dict[str, Any]) -> ImageFacts:
        """Read what the engine's `GET /images/…/json` answers."""
        config = described.get("Config") or {}
        pairs = (pair.partition("=") for pair in config.get("Env") or ())
        return cls(
            described["Id"],
            {name: value for name, _, value in pairs},
            config.get("WorkingDir") or "",
            config.get("User") or "",
            int(described.get("Size") or 0),
            config,
        )

    @property
    def is_root(self) -> bool:
        """Return whether its commands run as root (without a single capability)."""
        return self.user.partition(":")[0] in ("", "0", "root")

    def workdir_for(self, spec: SandboxSpec) -> str:
        """Return where commands start: the spec's folder; the image's where the spec says nothing of its own."""
        if spec.workdir == DEFAULT_WORKDIR and self.workdir not in ("", "/"):
            return self.workdir
        return spec.workdir

    def env_for(self, spec: SandboxSpec, home: str) -> dict[str, str]:
        """Return the environment of commands: the image's, then the spec's; `home` where neither has one."""
        base = {"PATH": _PATH, "HOME": home, "TERM": "dumb", "LANG": "C.UTF-8"}
        return {**base, **self.env, **dict(spec.env)}


def check_spec(spec: SandboxSpec) -> None:
    """Raise `InvalidArgument` or `Unimplemented` for what no container can be."""
    if not spec.image:
        raise InvalidArgument(
            "the docker backend needs an image; a sandbox without one is the process backend's"
        )
    if re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_./:@-]*", spec.image) is None or ".." in spec.image:
        raise InvalidArgument(f"{spec.image!r} is not an image name such as 'debian:bookworm-slim'")
    check_inside(spec, _CLOSED)
    if spec.resources.gpus:
        raise Unimplemented("the docker backend gives no GPUs; ask for gpus=0")
    check_resources(spec)


def container(
    spec: SandboxSpec,
    image: ImageFacts,
    *,
    bundle: Bundle,
    run: Path,
    labels: dict[str, str],
    network: dict[str, Any] | None,
    host_cpus: int,
    shelf: Path | None = None,
) -> dict[str, Any]:
    """Return the body of the engine's `POST /containers/create`.

    `run` is the box's own folder on the host, `shelf` a folder that all boxes see, `network` what `network` adds for
    an allow list, None for none.
    """
    may = limits(spec)
    memory = may.memory_bytes + GUEST_BYTES
    host: dict[str, Any] = {
        "AutoRemove": True,
        "Binds": [*bundle.binds, f"{run}:{BOX_RUN}", *([f"{shelf}:{BOX_SHELF}:ro"] if shelf else [])],
        "CapDrop": ["ALL"],
        "SecurityOpt": ["no-new-privileges=true"],
        "CgroupnsMode": "private",
        "IpcMode": "private",
        "LogConfig": {"Type": "none"},
        "Memory": memory,
        "MemorySwap": memory,
        "NanoCpus": math.ceil(min(may.cpus, host_cpus) * 1e9),
        "PidsLimit": may.pids + GUEST_PIDS,
        "ShmSize": min(SHM_BYTES, may.memory_bytes),
        "Ulimits": [
            {"Name": name, "Soft": most, "Hard": most}
            for name, most in (("core", 0), ("nofile", GUEST_OPEN_FILES), ("fsize", may.disk_bytes))
        ],
    }
    if spec.runtime:
        host["Runtime"] = spec.runtime
    body: dict[str, Any] = {
        "Image": image.id,
        "Entrypoint": [*bundle.argv, "--listen-path", f"{BOX_RUN}/guest.sock"],
        "Cmd": [],
        "Env": [
            name for name in image.env if name.startswith("LD_")
        ],  # without "=": taken away from the guest
        "Hostname": "sandbox",
        # The engine makes a missing folder, as root's: for another user the backend must make it.
        "WorkingDir": image.workdir_for(spec) if image.is_root else image.workdir or "/",
        "Healthcheck": {"Test": ["NONE"]},
        "StopSignal": "SIGKILL",
        "Labels": labels,
        "HostConfig": host,
    }
    if network is None:
        # A network namespace of its own with a loopback alone, without the engine's network hook: 120 ms sooner
        # than "none", which runs the engine's program once more for each container.
        return {**body, "NetworkDisabled": True}
    host |= network["HostConfig"]
    host["Binds"] = [bind for bind in host["Binds"] if ":/etc/" not in bind]  # the engine writes these itself
    return {**body, **{name: value for name, value in network.items() if name != "HostConfig"}}


def guest_config(
    spec: SandboxSpec, image: ImageFacts, *, home: str, durable: bool, oom: str | None, shelf: bool = False
) -> dict[str, object]:
    """Return what the guest is told once: where it is, what its commands get, when it ends by itself.

    `oom` is the file, in the box, that counts what was killed for memory; None where a runtime has none.
    """
    workdir = image.workdir_for(spec)
    return guest_basics(spec, durable=durable) | {
        "workdir": workdir,
        "public_workdir": workdir,
        "env": ({SHELF_VARIABLE: BOX_SHELF} if shelf else {}) | image.env_for(spec, home),
        "oom": oom,
    }
