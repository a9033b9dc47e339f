"""One task, and the sandbox it asks for, as frozen values. `rock_env.spec` names them, too.

It holds no behaviour beyond digests and the check of what any machine can hold.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field

from rock_env.errors import InvalidArgument

__all__ = [
    "LONGEST_S",
    "NetworkPolicy",
    "Resources",
    "SandboxSpec",
    "TaskSpec",
    "check_amounts",
    "check_variables",
]

LONGEST_S = 10 * 366 * 86400.0
"""The longest time that anybody may ask for, about ten years, in seconds."""
_MOST = {
    "cpus": 100_000,
    "memory_bytes": 1 << 50,
    "disk_bytes": 1 << 50,
    "pids": 4_000_000,
    "gpus": 4096,
}
"""What kernels and engines hold beside the guest: Linux has at most 4,194,304 processes, and sizes have 63 bits."""


@dataclass(frozen=True, slots=True)
class Resources:
    """What one sandbox may use. Zero means the backend's default."""

    cpus: float = 1.0
    memory_bytes: int = 1 << 30
    disk_bytes: int = 1 << 30
    pids: int = 256
    gpus: int = 0


@dataclass(frozen=True, slots=True)
class NetworkPolicy:
    """Network off unless asked for; `allow` lists host names or CIDR blocks."""

    enabled: bool = False
    allow: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class SandboxSpec:
    """One kind of sandbox. Equal specs have equal digests, so a pool can hand out either."""

    image: str = ""
    """Image name for image backends; empty means the host's own file system, read-only (process backend)."""
    resources: Resources = field(default_factory=Resources)
    network: NetworkPolicy = field(default_factory=NetworkPolicy)
    env: tuple[tuple[str, str], ...] = ()
    """Environment variables, as sorted pairs."""
    workdir: str = "/workspace"
    runtime: str = ""
    """Container runtime of an image backend, such as "runsc" (gVisor); empty means the engine's own."""
    lifetime_s: float = 3600.0
    """Absolute age after which the sandbox is destroyed."""
    preload: tuple[str, ...] = ()
    """Modules that `rock-python` in the box finds imported (process backend; one that is not installed is left out)."""
    ready: tuple[str, ...] = ()
    """A command that makes a box ready, such as by starting a browser; it runs in the background and writes a line to
    standard output once it has. A warm pool keeps boxes that are ready; in another box, whoever uses it starts the command
    by the key `rock_env.sandbox.READY_KEY`."""

    @property
    def digest(self) -> str:
        """Return the content digest (sha256, 16 hex digits) of the canonical JSON form."""
        fields = {
            **asdict(self),
            "ports": (),
        }  # a field there was once: specs recorded with it keep their digest
        if not self.preload:
            del fields["preload"]  # specs recorded before there was such a thing keep their digest
        if not self.ready:
            del fields["ready"]  # likewise
        text = json.dumps(fields, sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(text.encode()).hexdigest()[:16]


def check_amounts(spec: SandboxSpec) -> None:
    """Raise `InvalidArgument` for a number or a variable of a spec that no machine can hold."""
    for name, most in _MOST.items():
        amount = getattr(spec.resources, name)
        if not 0 <= amount <= most:  # also where it is not a number
            raise InvalidArgument(f"{name} must be from 0 to {most}, got {amount!r}")
    if not 0 < spec.lifetime_s <= LONGEST_S:
        raise InvalidArgument(
            f"lifetime must be above 0 and at most {LONGEST_S:g} seconds, got {spec.lifetime_s!r}"
        )
    check_variables(spec.env)


def check_variables(pairs: Iterable[tuple[str, str]]) -> None:
    """Raise `InvalidArgument` for an environment variable that no process can have."""
    for name, value in pairs:
        if not name or "=" in name or "\0" in name + value:
            raise InvalidArgument(
                f"an environment variable needs a name without = and NUL, and a value without NUL, got {name!r}"
            )


@dataclass(frozen=True, slots=True)
class TaskSpec:
    """One task of an environment. `id` is `split/index` and resolves to the same task everywhere."""

    id: str
    split: str
    index: int
    instruction: str
    """Told to the agent once, as the system message."""
    payload: str = ""
    """The environment's own description of the task (a map, a level): never shown to the agent as such."""
    files: tuple[tuple[str, bytes], ...] = ()
    """Files placed in the sandbox before the agent starts, as (relative path, content)."""
    time_limit_s: float = 600.0
    sandbox: SandboxSpec | None = None
    """The task's own sandbox, such as one with an image of its own; None is the environment's."""
    brief: str = ""
    """The instruction for an agent that brings tools of its own: what is wanted, without how the environment's tools are
    called. Empty: the instruction says nothing of tools."""
    workdir: str = ""
    """Absolute path of the folder in the sandbox where such an agent begins. Empty: where the sandbox's commands do."""
