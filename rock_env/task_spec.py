"""One task, and the sandbox it asks for, as frozen values. `rock_env.spec` names them, too.

It holds no behaviour beyond digests.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass, field

__all__ = ["NetworkPolicy", "Resources", "SandboxSpec", "TaskSpec"]


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
