"""Where environments are kept that an operator pushed to this server: its folder, or the store that it shares with others.

The other implementation is in `server/replicas/environments`.
"""

from __future__ import annotations

from typing import Protocol

from rock_env.security.auth import current_tenant
from rock_env.tasksets import registered
from rock_env.tasksets.registered import Registration
from rock_env.threads import for_callers

__all__ = ["EnvShelf", "OwnFolder"]


class EnvShelf(Protocol):
    """Where pushed environments are kept."""

    async def put(self, record: Registration, tasks: bytes) -> None:
        """Keep an environment in place of one that was pushed under its name. Raise `RockError`, nothing changed."""
        ...

    async def remove(self, name: str) -> bool:
        """Forget one that was pushed; False where there is none."""
        ...


class OwnFolder:
    """The folder of registered environments of this server's user."""

    async def put(self, record: Registration, tasks: bytes) -> None:
        """Keep an environment. Raise as `registered.keep_shared`."""
        await for_callers(current_tenant(), registered.keep_shared, record, tasks)

    async def remove(self, name: str) -> bool:
        """Forget one that was pushed."""
        return await for_callers(current_tenant(), registered.forget_shared, name)
