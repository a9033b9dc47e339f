"""What a sandbox does once it runs. Implemented by backends, used by the service core and `SandboxEnv`s."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

__all__ = ["ExecResult", "Sandbox"]


@dataclass(frozen=True, slots=True)
class ExecResult:
    """The truth about one command. Exactly one of exit_code and signal is set unless `infra_error` is."""

    exit_code: int | None
    signal: int | None
    stdout: bytes
    stderr: bytes
    duration_s: float
    timed_out: bool = False
    oom_killed: bool = False
    truncated: bool = False
    """Output beyond the limit was dropped; the kept part is exact."""
    infra_error: str = ""
    """Set when the service, not the command, failed."""

    @property
    def ok(self) -> bool:
        """Return whether the command ran and exited with 0."""
        return self.exit_code == 0 and not self.infra_error


class Sandbox(Protocol):
    """One running box. All methods raise `NotFound` once it is gone and `InfraError` when the box fails."""

    @property
    def id(self) -> str: ...

    async def exec(
        self,
        argv: Sequence[str],
        *,
        stdin: bytes = b"",
        env: Mapping[str, str] | None = None,
        cwd: str | None = None,
        timeout_s: float = 60.0,
        max_output_bytes: int = 1 << 20,
    ) -> ExecResult:
        """Run `argv`; at `timeout_s` the whole process group is killed and `timed_out` is set."""
        ...

    async def read_file(self, path: str) -> bytes:
        """Return a file's content. Relative paths start at the working folder. Raise `NotFound`."""
        ...

    async def write_file(self, path: str, content: bytes, *, mode: int = 0o644) -> None:
        """Create or replace a file and its parents. Raise `InvalidArgument` for a path outside the box."""
        ...

    async def close(self) -> None:
        """Destroy the box and everything in it. Safe to call twice."""
        ...
