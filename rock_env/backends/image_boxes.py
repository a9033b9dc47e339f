"""What every backend checks and fills in whose boxes are made of images, on one machine or as pods."""

from __future__ import annotations

import posixpath
from collections.abc import Sequence

from rock_env.backends.process.box_config import process_limits
from rock_env.backends.process.seccomp import assemble_no_io_uring
from rock_env.errors import InvalidArgument, Unimplemented
from rock_env.spec import Resources, SandboxSpec
from rock_env.task_spec import check_amounts

__all__ = ["LEAST_BYTES", "check_inside", "check_resources", "guest_basics", "limits"]

LEAST_BYTES = 6 << 20
"""Engines refuse less memory."""


def check_inside(spec: SandboxSpec, closed: Sequence[str]) -> None:
    """Raise `InvalidArgument` for a working folder in a `closed` one, and `Unimplemented` for a preload."""
    workdir = spec.workdir
    inside = any(workdir == folder or workdir.startswith(folder + "/") for folder in closed)
    if not workdir.startswith("/") or posixpath.normpath(workdir) != workdir or inside or "\0" in workdir:
        raise InvalidArgument(
            f"workdir must be an absolute path in normal form outside {', '.join(closed)}, got {workdir!r}"
        )
    if spec.preload:
        raise Unimplemented(
            "an image brings a Python of its own, in which nothing can be imported ahead; leave preload empty, or use "
            "the process backend"
        )


def check_resources(spec: SandboxSpec) -> None:
    """Raise `InvalidArgument` for resources that no box can have, and for names that no variable can have."""
    check_amounts(spec)
    if 0 < spec.resources.memory_bytes < LEAST_BYTES:
        raise InvalidArgument(
            f"memory_bytes must be at least {LEAST_BYTES}, got {spec.resources.memory_bytes!r}"
        )


def limits(spec: SandboxSpec) -> Resources:
    """Return the spec's resources with the defaults of `Resources` where it says zero; GPUs are none by default."""
    asked, default = spec.resources, Resources()
    return Resources(
        asked.cpus or default.cpus,
        asked.memory_bytes or default.memory_bytes,
        asked.disk_bytes or default.disk_bytes,
        asked.pids or default.pids,
        asked.gpus,
    )


def guest_basics(spec: SandboxSpec, *, durable: bool) -> dict[str, object]:
    """Return what the guest of every image is told once; its backend adds where it is and what its commands get."""
    return {
        "roots": ["/"],  # the whole file system is the box's own
        "rlimits": process_limits(spec, fenced=False, grouped=True),
        "own": {"pids": limits(spec).pids},  # the disk is the machine's
        "filter": assemble_no_io_uring(),
        "linger_s": None if durable else 0.0,
        "deadline_s": spec.lifetime_s,
    }
