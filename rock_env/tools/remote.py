"""A sandbox of a server, reached through the client, as the box of the tools. Used by the MCP server."""

from __future__ import annotations

import stat
from collections.abc import Sequence

from rock_env.client.sandbox.handle import AsyncSandbox
from rock_env.client.sandbox.types import FileInfo
from rock_env.errors import InfraError, NotFound
from rock_env.lifecycle import SandboxState
from rock_env.sandbox import ExecResult, FileEntry

__all__ = ["RemoteBox"]


class RemoteBox:
    """A sandbox of a server, as the tools need it. Raises `InfraError` once it runs no more."""

    def __init__(self, sandbox: AsyncSandbox) -> None:
        self._sandbox = sandbox
        self.failure = ""

    async def exec(
        self,
        argv: Sequence[str],
        *,
        stdin: bytes = b"",
        timeout_s: float = 60.0,
        max_output_bytes: int = 1 << 20,
    ) -> ExecResult:
        """Run `argv` to its end."""
        return await self._sandbox.exec(
            argv, stdin=stdin, timeout_s=timeout_s, max_output_bytes=max_output_bytes
        )

    async def stat(self, path: str) -> FileEntry:
        """Describe one file."""
        try:
            return _entry(await self._sandbox.files.stat(path))
        except NotFound:  # of the file, or of the whole box?
            await self._check()
            raise

    async def list_files(self, path: str) -> list[FileEntry]:
        """Describe a folder's entries."""
        return [_entry(info) for info in await self._sandbox.files.list(path)]

    async def read_file(self, path: str) -> bytes:
        """Return a file's content."""
        return await self._sandbox.files.read(path)

    async def write_file(self, path: str, content: bytes, *, mode: int = 0o644) -> None:
        """Create or replace a file and its parents."""
        await self._sandbox.files.write(path, content, mode=mode)

    async def _check(self) -> None:
        try:
            state = (await self._sandbox.refresh()).state
        except NotFound as forgotten:
            raise InfraError(str(forgotten)) from forgotten
        if state != SandboxState.RUNNING:
            raise InfraError(f"sandbox {self._sandbox.id} is {state} and takes no more calls")


def _entry(info: FileInfo) -> FileEntry:
    kind = stat.S_IFLNK if info.symlink_target else stat.S_IFDIR if info.directory else stat.S_IFREG
    mode = kind | stat.S_IMODE(info.mode)
    return FileEntry(info.path, info.size, mode, info.modified_at, info.symlink_target)
