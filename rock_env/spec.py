"""What is asked for: sandboxes, environments and tasks, as frozen values.

Called by every layer; holds no behaviour beyond digests. Nothing here runs, connects or imports a plugin.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Annotated, Protocol

from pydantic import BaseModel, ConfigDict

if TYPE_CHECKING:
    from rock_env.env import Env, Oracle, SandboxEnv

__all__ = [
    "EnvParams",
    "EnvSpec",
    "HostPath",
    "NetworkPolicy",
    "OnHost",
    "Resources",
    "SandboxSpec",
    "TaskSource",
    "TaskSpec",
]


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

    @property
    def digest(self) -> str:
        """Return the content digest (sha256, 16 hex digits) of the canonical JSON form."""
        fields = {
            **asdict(self),
            "ports": (),
        }  # a field there was once: specs recorded with it keep their digest
        if not self.preload:
            del fields["preload"]  # specs recorded before there was such a thing keep their digest
        text = json.dumps(fields, sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(text.encode()).hexdigest()[:16]


@dataclass(frozen=True, slots=True)
class OnHost:
    """Marks an argument that names a file or folder where the environment runs."""


HostPath = Annotated[str, OnHost()]
"""The type of such an argument. A server that others call takes the name of data that its operator chose, and no path."""


class EnvParams(BaseModel):
    """Base of an environment's own arguments: validated at the edge, frozen, unknown names refused.

    Fields are bool, int, float, str, None, literals, enumerations and `HostPath`, or unions, lists and tuples of these; a
    server that others call refuses an environment with any other (`rock_env.arguments`).
    """

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)

    def canonical(self) -> str:
        """Return canonical JSON: equal parameters give equal text."""
        return json.dumps(self.model_dump(mode="json"), sort_keys=True, separators=(",", ":"))


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


class TaskSource(Protocol):
    """The tasks of an environment, addressable without enumeration."""

    splits: tuple[str, ...]

    def count(self, split: str) -> int:
        """Return how many tasks `split` has. Raise `UnknownName` for an unknown split."""
        ...

    def get(self, split: str, index: int) -> TaskSpec:
        """Return task `index` of `split`. Raise `InvalidArgument` when out of range. Pure: same input, same task."""
        ...


@dataclass(frozen=True, slots=True)
class EnvSpec:
    """An environment plugin: the value of an `ale.envs` entry point.

    `factory(params)` builds one environment. Where `sandbox` is None it returns an `Env`, hosted in an
    env-host worker process; otherwise a `SandboxEnv`, which acts through the sandbox it is handed.
    """

    name: str
    version: str
    summary: str
    params: type[EnvParams]
    factory: Callable[[EnvParams], Env | SandboxEnv]
    tasks: Callable[[EnvParams], TaskSource]
    oracle: Callable[[EnvParams, TaskSpec], Oracle]
    """A reference policy for one task, which must succeed where success is certain."""
    optimum: Callable[[EnvParams, TaskSpec], float]
    """Success probability of an optimal policy on one task (1.0 where the task is deterministic and solvable)."""
    sandbox: SandboxSpec | None = None
    graded_as_it_lies: bool = True
    """What lies in the sandbox is graded, so that an agent which never gives an action can do the task. Where an action is
    the answer, no such agent is let in: it would fail every task."""
    replayable: bool = True
    """The same seed and actions give the same observations, so a prefix of turns can be replayed."""
    snapshots: bool = False
    """`snapshot` and `restore` work, so that an episode is copied as it stands; for an environment with a sandbox,
    where its backend has layers. Without, a checkpoint of one that is replayable is its recorded actions."""

    @property
    def key(self) -> str:
        """Return `name@version`, the form written into records."""
        return f"{self.name}@{self.version}"
