"""The sizes of warm pools that an operator set, and where they are kept.

Used by `services/places`, which has the pools of this server's backends stocked. A server that has its store alone keeps
them in a file; servers that share a store keep them there (`replicas/pools`).
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

import msgspec

from rock_env.backends.pool import pool_key
from rock_env.errors import FailedPrecondition
from rock_env.spec import SandboxSpec
from rock_env.store.whole_file import replace_file

__all__ = ["PoolFile", "PoolKeeper", "PoolWish"]


class PoolWish(msgspec.Struct, frozen=True):
    """How many boxes of a spec are wanted in stock."""

    spec: SandboxSpec
    """As it was asked for, but with the image's content in place of its name."""
    size: int
    tenant: str = ""
    """Whose pool it is: one whose boxes ask for packages; others have none."""
    node: str = ""
    """Where the image is, among servers that share a store; empty where every server has it, or there is none."""

    @property
    def key(self) -> bytes:
        """Return 32 bytes for what the boxes are."""
        return hashlib.sha256(repr((self.tenant, self.node, pool_key(self.spec))).encode()).digest()


class PoolKeeper(Protocol):
    """Who keeps the sizes of pools for all servers of a store."""

    def begin(self, keep: Callable[[PoolWish, int], bool]) -> None:
        """Have this server's part of every pool kept from now on."""
        ...

    async def set(self, wish: PoolWish) -> None:
        """Keep so many boxes at all servers together; 0 forgets the pool. Raise `Unavailable` if that cannot be kept."""
        ...


class PoolFile:
    """The sizes of the pools of one server, kept in a file; `path` None forgets them with the server."""

    def __init__(self, path: Path | None = None) -> None:
        """Read the file. Raise `FailedPrecondition` if it is damaged."""
        self._path = path
        self.wishes: dict[bytes, PoolWish] = {}
        if path is None or not path.exists():
            return
        try:
            held = msgspec.json.decode(path.read_bytes(), type=list[PoolWish])
        except msgspec.DecodeError as error:
            raise FailedPrecondition(
                f"{path} does not hold the targets of pools: {error}. Restore it, or remove it and set them again."
            ) from error
        self.wishes = {each.key: each for each in held}

    def set(self, wish: PoolWish) -> None:
        """Keep a size; 0 forgets the pool. Raise `InfraError`, and change nothing, if that cannot be kept."""
        wishes = {**self.wishes, wish.key: wish}
        if not wish.size:
            del wishes[wish.key]
        if self._path is not None:
            replace_file(self._path, msgspec.json.encode(list(wishes.values())), "the targets of pools")
        self.wishes = wishes

    def forget(self) -> None:
        """Remove the file and all sizes: a shared store has them by now."""
        self.wishes = {}
        if self._path is not None:
            self._path.unlink(missing_ok=True)
