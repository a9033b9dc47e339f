"""One environment of a server and where it lives, and what an operator may set for all of them. Values only."""

from __future__ import annotations

from dataclasses import dataclass, field

from rock_env.env_workers.pool import EnvHostWorker
from rock_env.security.auth import current_tenant
from rock_env.server.envs.sandboxed import SandboxedEnv

__all__ = ["CoreOptions", "Hosted"]


@dataclass(frozen=True, slots=True)
class CoreOptions:
    """What an operator may set."""

    idle_timeout_s: float = 1800.0
    """An environment or checkpoint nobody used for this long is closed; work in its sandbox is use of an environment."""
    step_timeout_s: float = 60.0
    """Longest call on an environment in a worker, where the caller sets no deadline."""
    most_environments: int = 10_000
    """Environments of one tenant at once."""
    sandbox_timeout_s: float = 600.0
    """Longest call on an environment in a sandbox, where the caller sets no deadline."""


@dataclass(slots=True)
class Hosted:
    """One environment and where it lives: exactly one of `worker` and `sandboxed` is set."""

    env_id: str
    env: str
    params_json: str
    version: str
    last_used: float
    worker: EnvHostWorker | None = None
    sandboxed: SandboxedEnv | None = None
    tenant: str = field(default_factory=current_tenant)
    """Whose it is: to everybody else it does not exist."""
    keys: list[str] = field(default_factory=list)
    """Idempotency keys whose stored replies end with this environment."""
