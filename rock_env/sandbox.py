"""What a sandbox does once it runs. Implemented by backends, used by the service core and `SandboxEnv`s."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterable, AsyncIterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Literal, Protocol, runtime_checkable

from rock_env.errors import RockError

__all__ = [
    "READY_KEY",
    "READY_LOG_BYTES",
    "Command",
    "CommandEnd",
    "ExecResult",
    "FileChange",
    "FileEntry",
    "OutputChunk",
    "ProcessInfo",
    "Sandbox",
    "TreeSummary",
    "limit_that_ended",
]

READY_KEY = "rock-ready"
"""Of the process of `SandboxSpec.ready`: who starts it by this key in a box out of a warm pool gets the one that runs."""
READY_LOG_BYTES = 4 << 20
"""What is kept of its output streams."""


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
    """It failed, and meanwhile the kernel killed something in this box for memory: it, or a child of it. Another
    command that failed at that very time may be marked, too. Only where the backend has a control group."""
    truncated: bool = False
    """Output beyond the limit was dropped; the kept part is exact."""
    infra_error: str = ""
    """Set when the service, not the command, failed."""
    orphans: bool = False
    """Processes ended, since the last command before did, that had outlived what started them. Clients are not told."""

    @property
    def ok(self) -> bool:
        """Return whether the command ran and exited with 0."""
        return self.exit_code == 0 and not self.infra_error


@dataclass(frozen=True, slots=True)
class OutputChunk:
    """A piece of a command's output, in order within its stream."""

    stream: Literal["stdout", "stderr"]
    data: bytes
    offset: int = 0
    """Of its first byte; beyond the end of the chunk before only where a log no longer had what was between."""


@dataclass(frozen=True, slots=True)
class CommandEnd:
    """How a command ended; the fields mean what they mean in `ExecResult`."""

    exit_code: int | None
    signal: int | None
    duration_s: float
    timed_out: bool = False
    truncated: bool = False
    oom_killed: bool = False
    infra_error: str = ""
    orphans: bool = False

    def with_output(self, stdout: bytes, stderr: bytes) -> ExecResult:
        """Return the whole result of the command that wrote this."""
        return ExecResult(stdout=stdout, stderr=stderr, **asdict(self))


@dataclass(frozen=True, slots=True)
class FileEntry:
    """One file of the box; `path` as asked for, or relative to the listed folder."""

    path: str
    size: int
    mode: int
    modified_at: float
    symlink_target: str


@dataclass(frozen=True, slots=True)
class FileChange:
    """One change below a watched path; `path` is relative to it, empty for itself."""

    path: str
    kind: Literal["created", "modified", "deleted", "overflow"]
    """`overflow`: changes were lost; look at the files."""


@dataclass(frozen=True, slots=True)
class TreeSummary:
    """What an upload made."""

    files: int
    bytes: int


@dataclass(frozen=True, slots=True)
class ProcessInfo:
    """A background process as it was when it was asked about. `end` is None while it runs."""

    id: str
    """As the box names it; `SANDBOX/NAME` on the wire."""
    argv: tuple[str, ...]
    pid: int
    """In the box."""
    running_for_s: float
    end: CommandEnd | None


class Command(Protocol):
    """One running command. Use it with `async with`: leaving that ends it, unless it has a key or name of its own."""

    async def __aenter__(self) -> Command: ...

    async def __aexit__(self, *_: object) -> None: ...

    def write_stdin(self, data: bytes | memoryview) -> None:
        """Send bytes to its standard input. They wait here until there is room; see `drain`."""
        ...

    async def drain(self) -> None:
        """Wait until little of what was written still waits."""
        ...

    def close_stdin(self) -> None:
        """End its standard input."""
        ...

    def kill(self, number: int) -> None:
        """Send a signal to its process group."""
        ...

    def events(self) -> AsyncGenerator[OutputChunk | CommandEnd]:
        """Yield output as it comes and, last, its end. A log that is not followed ends without one."""
        ...

    async def result(self) -> ExecResult:
        """Wait for the end and return everything at once."""
        ...


@runtime_checkable
class Sandbox(Protocol):
    """One running box. All methods raise `NotFound` once it is gone and `InfraError` when the box fails.

    A key makes an act happen once: the same key again, also after a reconnection, gives the first one's outcome.
    Paths are relative to the working folder or absolute; one that leads out of the box's own folders is refused with
    `InvalidArgument`.
    """

    @property
    def id(self) -> str: ...

    @property
    def failure(self) -> str:
        """Why the box can no longer be used, or an empty string."""
        ...

    async def lost(self) -> str:
        """Wait until the box can no longer be used, by failure or by `close`, and return why."""
        ...

    # -- commands

    def start(
        self,
        argv: Sequence[str],
        *,
        env: Mapping[str, str] | None = None,
        cwd: str | None = None,
        timeout_s: float = 60.0,
        max_output_bytes: int = 1 << 20,
        key: str = "",
        stdout_offset: int = 0,
        stderr_offset: int = 0,
    ) -> Command:
        """Start a command whose output is streamed. With the key of one that runs or ended, listen to that one from the
        offsets on; `argv` may then be empty.
        """
        ...

    async def exec(
        self,
        argv: Sequence[str],
        *,
        stdin: bytes = b"",
        env: Mapping[str, str] | None = None,
        cwd: str | None = None,
        timeout_s: float = 60.0,
        max_output_bytes: int = 1 << 20,
        key: str = "",
    ) -> ExecResult:
        """Run `argv`; at `timeout_s` the whole process group is killed and `timed_out` is set."""
        ...

    async def kill_all(self) -> None:
        """Kill every process in the box, however far it detached itself. The box stays usable."""
        ...

    async def pause(self) -> None:
        """Stop every process in the box. Their memory stays; meanwhile no command's timeout counts."""
        ...

    async def resume(self) -> None:
        """Let what `pause` stopped go on."""
        ...

    async def lease(self, seconds: float) -> None:
        """Let the box end by itself so long from now, even without a server, unless this is called again before."""
        ...

    # -- background processes and sessions

    async def start_process(
        self,
        argv: Sequence[str],
        *,
        env: Mapping[str, str] | None = None,
        cwd: str | None = None,
        timeout_s: float | None = None,
        log_bytes: int = 1 << 20,
        key: str = "",
    ) -> str:
        """Start a background process and return its id; the last `log_bytes` of each output stream are kept."""
        ...

    def process_logs(
        self, process_id: str, *, stdout_offset: int = 0, stderr_offset: int = 0, follow: bool = False
    ) -> Command:
        """Listen to a background process. Writing to the returned command writes to the process."""
        ...

    async def signal_process(self, process_id: str, number: int) -> None:
        """Send a signal to the process group of a background process."""
        ...

    async def processes(self) -> list[ProcessInfo]:
        """Describe the background processes, running or ended."""
        ...

    async def open_session(
        self,
        argv: Sequence[str] = (),
        *,
        env: Mapping[str, str] | None = None,
        cwd: str | None = None,
        terminal: tuple[int, int] | None = None,
        key: str = "",
    ) -> str:
        """Open a session and return its id: `argv` on a terminal of (rows, columns), or a shell that keeps its state."""
        ...

    def session(self, session_id: str, *, offset: int = 0) -> Command:
        """Listen to a terminal session and write to it; its output is stdout."""
        ...

    def session_command(
        self,
        session_id: str,
        command: str,
        *,
        timeout_s: float = 60.0,
        max_output_bytes: int = 1 << 20,
        key: str = "",
    ) -> Command:
        """Run a command in a shell session, after those given before."""
        ...

    async def resize_session(self, session_id: str, rows: int, columns: int) -> None:
        """Change the size of a session's terminal."""
        ...

    async def close_session(self, session_id: str) -> None:
        """End a session and what runs in it."""
        ...

    # -- files

    async def read_file(self, path: str) -> bytes:
        """Return a file's content. Raise `NotFound`, or `InvalidArgument` for one too large to be returned at once."""
        ...

    async def read_range(self, path: str, *, offset: int, length: int) -> bytes:
        """Return up to `length` bytes from `offset`."""
        ...

    def read_stream(self, path: str, *, offset: int = 0, length: int | None = None) -> AsyncGenerator[bytes]:
        """Yield a file, or part of it, in blocks."""
        ...

    async def write_file(
        self, path: str, content: bytes, *, mode: int = 0o644, append: bool = False, key: str = ""
    ) -> None:
        """Create or replace a file (atomically) and its parents, or append to it (all or nothing)."""
        ...

    async def write_stream(
        self,
        path: str,
        blocks: AsyncIterable[bytes],
        *,
        mode: int = 0o644,
        append: bool = False,
        key: str = "",
    ) -> None:
        """Do what `write_file` does with content that comes in blocks."""
        ...

    async def stat(self, path: str) -> FileEntry:
        """Describe one file; a symbolic link itself, not what it points to."""
        ...

    async def list_files(self, path: str, *, recursive: bool = False) -> list[FileEntry]:
        """Describe a folder's entries by their paths from it; links are not followed."""
        ...

    def watch_files(self, path: str, *, recursive: bool = False) -> AsyncGenerator[FileChange | None]:
        """Yield None once the watch stands, then each change as it happens."""
        ...

    async def upload(self, path: str, tar: AsyncIterator[bytes | memoryview]) -> TreeSummary:
        """Unpack a tar stream into a folder, made if absent. Raise `InvalidArgument` for a member that is no file,
        folder or link, or leads out of the folder; what came before it stays.
        """
        ...

    def download(self, path: str) -> AsyncGenerator[bytes]:
        """Yield a file or a folder's content as a tar stream; links as links, pipes and sockets left out."""
        ...

    # -- its end

    async def let_go(self) -> None:
        """Close the connection alone: a durable box lives on for the next server. This object is of no more use."""
        ...

    async def close(self) -> None:
        """Destroy the box and everything in it. Safe to call twice."""
        ...


async def limit_that_ended(box: Sandbox) -> str:
    """Return how a box came to its end by using up what its own limits give it; empty for any other, and one that lives."""
    try:
        await box.stat(".")
    except RockError as error:
        return error.message if error.own_limit else ""
    return ""
