"""One box, on whatever backend: all of its behaviour, by way of the guest inside it.

Satisfies `rock_env.sandbox.Sandbox`. Backends make it from a connected link and say how to clean up after it; what
a command or a file request does is the same everywhere, because the same guest does it.
"""

from __future__ import annotations

import asyncio
import logging
import marshal
import zlib
from collections.abc import (
    AsyncGenerator,
    AsyncIterable,
    AsyncIterator,
    Awaitable,
    Callable,
    Mapping,
    Sequence,
)
from contextlib import aclosing

from rock_env.errors import InfraError, InvalidArgument, NotFound, UnfitFiles
from rock_env.guest import protocol as guest
from rock_env.guest.steering import TOLD, Steering
from rock_env.guest_host.command import GuestCommand
from rock_env.guest_host.dial import GuestDial
from rock_env.guest_host.forms import (
    MAX_KEPT_BYTES,
    MOST_BYTES,
    check_argv,
    check_kept,
    check_numbers,
    check_tree,
    command_spec,
    file_entry,
    left_out,
    only_block,
    process_info,
    text_of,
    tree_summary,
)
from rock_env.guest_host.link import GuestLink
from rock_env.guest_host.transfer import ChangeReader, FileReader, FileWriter
from rock_env.sandbox import ExecResult, FileChange, FileEntry, OutputChunk, ProcessInfo, TreeSummary

__all__ = ["MAX_KEPT_BYTES", "MAX_READ_BYTES", "GuestBox"]

MAX_READ_BYTES = 64 << 20
"""What `read_file` returns at most; a larger file can be read with `read_stream`."""
log = logging.getLogger(__name__)
_RESUME_S = 60.0
_MOST_SAID = 16 << 20
"""Of what a guest says about a tree that it unpacked: the longest list of what it left out, and far more than a summary."""
_SLICE = 1000
"""Files of a huge folder that are read in one turn of the event loop."""


class GuestBox:
    """One box. `clean_up` removes, after its guest was told to end, whatever the backend made for it."""

    def __init__(
        self,
        sandbox_id: str,
        link: GuestLink,
        *,
        isolation: str,
        clean_up: Callable[[], Awaitable[None]],
        pid: int = 0,
    ) -> None:
        self._id = sandbox_id
        self._link = link
        self._clean_up = clean_up
        self._closing: asyncio.Task[None] | None = None
        self.isolation = isolation
        """What fences the box in, in a word, such as "namespaces", "docker" or "none"."""
        self.pid = pid
        """Process id, on the host, of the program that holds the box; 0 where there is none."""

    @property
    def id(self) -> str:
        return self._id

    @property
    def failure(self) -> str:
        """Return why the box can no longer be used, or an empty string."""
        return str(self._link.failure)

    async def lost(self) -> str:
        """Wait until the box can no longer be used, by failure or by `close`, and return why."""
        return str(await asyncio.shield(self._link.lost))

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
    ) -> GuestCommand:
        """Start a command whose output is streamed; use it with `async with`, which kills what is left of one
        without a key. With the key of one that runs or ended, listen to that one; `argv` may then be empty.
        """
        if argv or not key:
            check_argv(argv)
        check_kept(max_output_bytes if key else 0)
        check_numbers(
            max_output_bytes=max_output_bytes, stdout_offset=stdout_offset, stderr_offset=stderr_offset
        )
        spec = command_spec(argv, env, cwd, timeout_s=timeout_s, limit=max_output_bytes)
        return self._execute(spec, key, timeout_s, (stdout_offset, stderr_offset))

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
        """Run `argv` to its end. `max_output_bytes` bounds stdout and stderr each; their heads are kept.

        A program that cannot be run exits with 127 (not found) or 126, as in a shell. Processes the command
        left in the background live on until the box closes; their later output is not collected.
        """
        command = self.start(
            argv, env=env, cwd=cwd, timeout_s=timeout_s, max_output_bytes=max_output_bytes, key=key
        )
        async with command:
            command.write_stdin(stdin)
            command.close_stdin()
            return await command.result()

    async def kill_all(self) -> None:
        """Kill every process in the box, however far it detached itself. The box stays usable."""
        await self._ask(guest.KILL_ALL)

    async def pause(self) -> None:
        """Stop every process in the box. Their memory stays; meanwhile no command's timeout counts."""
        await self._ask(guest.PAUSE)

    async def resume(self) -> None:
        """Let what `pause` stopped go on. What a command itself had stopped before stays stopped.

        A box whose guest does not do it is given up: whoever else needs the box would wait for it.
        """
        try:
            async with asyncio.timeout(_RESUME_S):
                await self._ask(guest.RESUME)
        except TimeoutError:
            self._link.fail(f"its guest did not let its processes go on within {_RESUME_S:g} s")
            raise InfraError(self.failure) from None

    async def lease(self, seconds: float) -> None:
        """Let the box end by itself so long from now, even without a server, unless this is called again before."""
        self._check_open()
        await self._link.lease(seconds)

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
        check_argv(argv)
        check_kept(log_bytes)
        spec = command_spec(argv, env, cwd, timeout_s=timeout_s, limit=log_bytes, mode="ring")
        return text_of(only_block(await self._ask(guest.START, marshal.dumps((key, (0, 0), spec), 2))))

    def process_logs(
        self, process_id: str, *, stdout_offset: int = 0, stderr_offset: int = 0, follow: bool = False
    ) -> GuestCommand:
        """Listen to a background process. Writing to the returned command writes to the process."""
        self._check_open()
        check_numbers(stdout_offset=stdout_offset, stderr_offset=stderr_offset)
        return self._attach(process_id, (stdout_offset, stderr_offset), follow=follow)

    async def signal_process(self, process_id: str, number: int) -> None:
        """Send a signal to the process group of a process, or to the foreground of a terminal session."""
        check_numbers(signal=number)
        await self._ask(guest.SIGNAL, bytes([number]) + process_id.encode())

    async def processes(self) -> list[ProcessInfo]:
        """Describe the background processes, running or ended."""
        return [process_info(block) for block in await self._ask(guest.PROCESSES)]

    async def open_session(
        self,
        argv: Sequence[str] = (),
        *,
        env: Mapping[str, str] | None = None,
        cwd: str | None = None,
        terminal: tuple[int, int] | None = None,
        key: str = "",
    ) -> str:
        """Open a session and return its id: `argv` on a terminal of (rows, columns), or a shell that keeps its state.

        Without `argv` it is /bin/sh. A shell session's `argv` is a POSIX shell and its options.
        """
        if argv:
            check_argv(argv)
        rows, columns = terminal or (0, 0)
        if terminal is not None:
            check_numbers(rows=rows, columns=columns)
        spec = command_spec(argv, env, cwd, timeout_s=None, limit=0, more={"rows": rows, "columns": columns})
        return text_of(only_block(await self._ask(guest.OPEN, marshal.dumps((key, spec), 2))))

    def session(self, session_id: str, *, offset: int = 0) -> GuestCommand:
        """Listen to a terminal session and write to it; its output is stdout."""
        self._check_open()
        check_numbers(offset=offset)
        return self._attach(session_id, (offset, 0), follow=True)

    def session_command(
        self,
        session_id: str,
        command: str,
        *,
        timeout_s: float = 60.0,
        max_output_bytes: int = 1 << 20,
        key: str = "",
    ) -> GuestCommand:
        """Run a command in a shell session, after those given before.

        Its end has the exit code as the shell tells it. At `timeout_s` what the shell started is killed; the shell
        itself, and so the session, only when that does not bring it to the command's end.
        """
        check_argv([command])
        check_kept(max_output_bytes)
        more = {"session": session_id}
        spec = command_spec([command], None, None, timeout_s=timeout_s, limit=max_output_bytes, more=more)
        # Its time counts from its turn, which may be late: so the guest is not asked when it is overdue.
        return self._execute(spec, key and f"{session_id} {key}", None, (0, 0))

    async def resize_session(self, session_id: str, rows: int, columns: int) -> None:
        """Change the size of a session's terminal."""
        check_numbers(rows=rows, columns=columns)
        await self._ask(guest.RESIZE, guest.SIZE.pack(rows, columns) + session_id.encode())

    async def close_session(self, session_id: str) -> None:
        """End a session and what runs in it."""
        await self._ask(guest.CLOSE, session_id.encode())

    # -- files

    async def read_file(self, path: str) -> bytes:
        """Return a whole file of at most `MAX_READ_BYTES`. Raise `InvalidArgument` beyond that."""
        content = await self.read_range(path, offset=0, length=MAX_READ_BYTES + 1)
        if len(content) > MAX_READ_BYTES:
            raise InvalidArgument(f"{path!r} is larger than {MAX_READ_BYTES} bytes; read it in parts")
        return content

    async def read_range(self, path: str, *, offset: int, length: int) -> bytes:
        """Return up to `length` bytes from `offset`."""
        blocks = [block async for block in self.read_stream(path, offset=offset, length=length)]
        return blocks[0] if len(blocks) == 1 else b"".join(blocks)

    async def read_stream(
        self, path: str, *, offset: int = 0, length: int | None = None
    ) -> AsyncGenerator[bytes]:
        """Yield a file, or part of it, in blocks."""
        self._check_open()
        length = MOST_BYTES if length is None else length
        check_numbers(offset=offset, length=length)
        what = marshal.dumps((path, offset, length), 2)
        reader = self._link.begin(lambda request: FileReader(self._link, request), guest.READ, what)
        async with reader:
            while (block := await reader.take()) is not None:
                yield bytes(block)
                reader.used(len(block))

    async def write_file(
        self, path: str, content: bytes, *, mode: int = 0o644, append: bool = False, key: str = ""
    ) -> None:
        """Create or replace a file (atomically), or append to it (all or nothing); parents are made."""
        await self._write(path, [content], mode, append, key)

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
        await self._write(path, blocks, mode, append, key)

    async def _write(
        self,
        path: str,
        blocks: Sequence[bytes] | AsyncIterable[bytes],
        mode: int,
        append: bool,
        key: str,
    ) -> None:
        self._check_open()
        check_numbers(mode=mode)
        what = marshal.dumps(
            (path, mode, append, key, zlib.crc32(f"{path}\0{append}".encode(errors="replace"))), 2
        )
        writer = self._link.begin(lambda request: FileWriter(self._link, request), guest.WRITE, what)
        async with writer:
            if isinstance(blocks, Sequence):
                for block in blocks:
                    await writer.write(block)
            else:
                async for block in blocks:
                    await writer.write(block)
            await writer.finish()

    async def stat(self, path: str) -> FileEntry:
        """Describe one file; a symbolic link itself, not what it points to."""
        return file_entry(only_block(await self._ask(guest.STAT, path.encode(errors="surrogateescape"))))

    async def list_files(self, path: str, *, recursive: bool = False) -> list[FileEntry]:
        """Describe a folder's entries by their paths from it; links are not followed."""
        blocks = await self._ask(guest.LIST, marshal.dumps((path, recursive), 2))
        found: list[FileEntry] = []
        for start in range(0, len(blocks), _SLICE):
            found += map(file_entry, blocks[start : start + _SLICE])
            await asyncio.sleep(0)
        return found

    async def watch_files(self, path: str, *, recursive: bool = False) -> AsyncGenerator[FileChange | None]:
        """Yield None once the watch stands, then each change as it happens."""
        self._check_open()
        what = marshal.dumps((path, recursive), 2)
        reader = self._link.begin(lambda request: ChangeReader(self._link, request), guest.WATCH, what)
        async with reader:
            while (change := await reader.take()) is not None:
                yield None if change == "begun" else change

    async def upload(self, path: str, tar: AsyncIterator[bytes | memoryview]) -> TreeSummary:
        """Unpack a tar stream into a folder, made if absent. Raise `InvalidArgument` for a member that is no file,
        folder or link, or leads out of the folder; what came before it stays.
        """
        tree = self._tree("unpack", path, {"tree": "unpack"})
        return tree_summary(await self._unpacked(tree, tar, f"unpacking a tar stream into {path!r}"))

    async def _unpacked(
        self, tree: GuestCommand, tar: AsyncIterator[bytes | memoryview], doing: str
    ) -> bytes:
        async with tree as command, asyncio.TaskGroup() as group:
            feeding = group.create_task(command.feed(tar))
            result = await command.result(_MOST_SAID)
            feeding.cancel()
        check_tree(result, doing)
        return result.stdout

    async def download(self, path: str) -> AsyncGenerator[bytes]:
        """Yield a file or a folder's content as a tar stream; links as links, pipes and sockets left out."""
        tree = self._tree("pack", path, {"tree": "pack"})
        async with aclosing(self._packed(tree, f"packing {path!r}")) as blocks:
            async for block in blocks:
                yield block

    async def _packed(self, tree: GuestCommand, doing: str) -> AsyncGenerator[bytes]:
        said = b""
        async with tree as command, aclosing(command.events()) as events:
            command.close_stdin()
            async for event in events:
                if not isinstance(event, OutputChunk):
                    check_tree(event.with_output(b"", said), doing)
                elif event.stream == "stdout":
                    yield event.data
                else:
                    said += event.data[: 4096 - len(said)]

    async def changes(self, *, most_bytes: int) -> AsyncGenerator[bytes]:
        """Yield what is no more as the image has it, for `take_changes`; nothing else may run in the box meanwhile.

        Raise `InvalidArgument` for files of more than `most_bytes` in all, before anything is yielded.
        """
        tree = self._tree("pack", "", {"changes": "pack", "most_bytes": most_bytes})
        async with aclosing(self._packed(tree, "packing the changes of the box")) as blocks:
            async for block in blocks:
                yield block

    async def take_changes(self, blocks: AsyncIterator[bytes | memoryview]) -> TreeSummary:
        """Make this box, in which nothing ran, as another one of its image was. Raise `InfraError` where that cannot be."""
        tree = self._tree("unpack", "", {"changes": "unpack", "steering": None})
        return tree_summary(await self._unpacked(tree, blocks, "unpacking the changes of a box"))

    async def take_over(self, blocks: AsyncIterator[bytes | memoryview], steering: Steering) -> list[str]:
        """Do so, but for what could steer a grade (see `steering`); return what was left out. Raise `UnfitFiles`."""
        asked = {name: list(getattr(steering, name)) for name in TOLD} | {"workdir": steering.workdir}
        tree = self._tree("unpack", "", {"changes": "unpack", "steering": asked})
        try:
            return left_out(await self._unpacked(tree, blocks, "taking over the changes of a box"))
        except InvalidArgument as error:
            raise UnfitFiles(error.message) from error

    # -- ports

    def dial(self, port: int) -> GuestDial:
        """Connect to whoever listens on the box's loopback address. Raise `FailedPrecondition` where nobody does."""
        self._check_open()
        return self._link.begin(
            lambda request: GuestDial(self._link, request), guest.DIAL, guest.COUNT.pack(port)
        )

    # -- its end

    async def let_go(self) -> None:
        """Close the connection alone: a durable box lives on for the next server. This object is of no more use."""
        await self._link.close(end=False)

    async def close(self) -> None:
        if self._closing is None:
            self._closing = asyncio.ensure_future(self._destroy())
        # Shielded: a cancelled caller must not leave half a box; another call waits for the same end.
        await asyncio.shield(self._closing)

    async def _destroy(self) -> None:
        await self._link.close()
        await self._clean_up()
        log.debug("sandbox closed sandbox_id=%s", self._id)

    def _check_open(self) -> None:
        if self._closing is not None:
            raise NotFound(f"sandbox {self._id!r} is closed")

    async def _ask(self, kind: int, payload: bytes = b"") -> list[bytes | bytearray]:
        self._check_open()
        return await self._link.ask(kind, payload)

    def _execute(
        self, spec: bytes, key: str, timeout_s: float | None, offsets: tuple[int, int]
    ) -> GuestCommand:
        self._check_open()

        def make(request: int) -> GuestCommand:
            return GuestCommand(self._link, request, named=bool(key), timeout_s=timeout_s, offsets=offsets)

        return self._link.begin(make, guest.EXEC, marshal.dumps((key, offsets, spec), 2))

    def _attach(self, name: str, offsets: tuple[int, int], *, follow: bool) -> GuestCommand:
        def make(request: int) -> GuestCommand:
            return GuestCommand(
                self._link, request, named=True, timeout_s=None, offsets=offsets, resends=False
            )

        return self._link.begin(make, guest.ATTACH, marshal.dumps((name, offsets, follow), 2))

    def _tree(self, act: str, path: str, more: Mapping[str, object]) -> GuestCommand:
        spec = command_spec([act, path], None, None, timeout_s=None, limit=None, mode="stream", more=more)
        self._check_open()

        def make(request: int) -> GuestCommand:
            wide = guest.BULK_WINDOW_BYTES
            return GuestCommand(self._link, request, named=False, timeout_s=None, offsets=(0, 0), window=wide)

        return self._link.begin(make, guest.EXEC, marshal.dumps(("", (0, 0), spec), 2))
