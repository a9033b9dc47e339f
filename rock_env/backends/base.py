"""What a sandbox backend offers: lifecycle only, never behaviour.

Implemented by `rock_env/backends/*`, called by the service core and the SandboxService. What a running box
can do is `rock_env.sandbox.Sandbox`; a backend only creates boxes and destroys what is left of them.
"""

from __future__ import annotations

from typing import Protocol

from rock_env.sandbox import Sandbox
from rock_env.spec import SandboxSpec

__all__ = ["Backend"]


class Backend(Protocol):
    """One way to host sandboxes. All methods run on the server's event loop and never block it."""

    async def create(self, spec: SandboxSpec, *, sandbox_id: str) -> Sandbox:
        """Start one fresh box; `sandbox_id` is unique and chosen by the server (letters, digits, `-`).

        Raise `InvalidArgument` for a spec this backend cannot honour, `ResourceExhausted` when full and
        `InfraError` when the box did not come up; nothing is left behind in any of these cases.
        """
        ...

    async def close(self) -> None:
        """Destroy every box this backend still holds. Safe to call twice."""
        ...
