"""What the tools need of a box: to run programs and to reach files. Every `Sandbox` has it."""

from __future__ import annotations

from typing import Protocol

from rock_env.sandbox import FileEntry
from rock_env.shell import Executor

__all__ = ["Box"]


class Box(Executor, Protocol):
    """The part of `Sandbox` that the tools use; its methods do what they do there."""

    @property
    def failure(self) -> str:
        """Why the box can no longer be used, or an empty string."""
        ...

    async def stat(self, path: str) -> FileEntry:
        """Describe one file, with the type in its mode; a symbolic link itself."""
        ...

    async def list_files(self, path: str) -> list[FileEntry]:
        """Describe a folder's entries."""
        ...

    async def read_file(self, path: str) -> bytes:
        """Return a file's content."""
        ...

    async def write_file(self, path: str, content: bytes, *, mode: int = 0o644) -> None:
        """Create or replace a file and its parents."""
        ...
