"""One sandbox as async code sees it: commands, files, sessions, snapshots, and a lease that renews itself.

Made by `client.sandboxes`. It numbers nothing and keeps no copy of the box: each call is the server's to answer, and a
retry carries the key of the first attempt. Every call raises a `RockError`, and `SandboxLost` once the lease is lost.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import suppress
from types import TracebackType
from typing import Any, Self

from rock_env.client.sandbox.calls import SandboxCalls, texts
from rock_env.client.sandbox.exec import CommandStream, RemoteCommand
from rock_env.client.sandbox.files import SandboxFiles
from rock_env.client.sandbox.lease import Lease
from rock_env.client.sandbox.process import RemoteProcess
from rock_env.client.sandbox.session import RemoteShell, RemoteTerminal
from rock_env.client.sandbox.types import SandboxInfo, SnapshotInfo, sandbox_info, snapshot_info
from rock_env.errors import InvalidArgument, NotFound, RockError, SandboxLost
from rock_env.proto.v1 import sandbox_pb2 as pb
from rock_env.sandbox import ExecResult, ProcessInfo
from rock_env.wire.sandboxes import duration, process_info

__all__ = ["AsyncSandbox", "HeldSandboxes"]


class AsyncSandbox:
    """A sandbox on the server. Leaving its block deletes it if it was made here, and lets go of an attached one."""

    def __init__(
        self, sandboxes: HeldSandboxes, info: SandboxInfo, *, lease_s: float | None, owned: bool
    ) -> None:
        self.id = info.id
        self.info = info
        """What was last heard of it; `refresh` asks anew."""
        self.files = SandboxFiles(sandboxes.calls, info.id)
        self._sandboxes = sandboxes
        self._calls = sandboxes.calls
        self._owned = owned
        self._lease = Lease(info.id, self.renew, lease_s)

    def __repr__(self) -> str:
        return f"AsyncSandbox({self.id}, {self.info.state})"

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._owned:
            await self.delete()
        else:
            self.let_go()

    # -- its life

    def keep(self, *, asked_at: float) -> None:
        """Start renewing the lease, which was asked for at `asked_at` of the loop's clock."""
        self._sandboxes.hold(self)
        self._lease.start(asked_at=asked_at)

    def let_go(self) -> None:
        """Stop renewing the lease and leave the sandbox as it is: without another user it ends with its lease."""
        self._lease.stop()
        self._sandboxes.forget(self)

    async def lost(self) -> SandboxLost:
        """Wait until the lease cannot be kept any more, and return why."""
        return await self._lease.lost

    async def refresh(self) -> SandboxInfo:
        """Ask for the sandbox's record. Raise `NotFound` once it is forgotten."""
        return await self._about("Get", pb.GetSandboxRequest(id=self.id))

    async def renew(self, lease_s: float) -> SandboxInfo:
        """Let the lease end `lease_s` seconds from now. The sandbox's own lease is renewed without this."""
        return await self._about("Renew", pb.RenewSandboxRequest(id=self.id, lease=duration(lease_s)))

    async def pause(self) -> SandboxInfo:
        """Let every process stand still; pausing what is paused does nothing."""
        return await self._about("Pause", pb.PauseSandboxRequest(id=self.id))

    async def resume(self) -> SandboxInfo:
        """Let the processes go on; resuming what runs does nothing."""
        return await self._about("Resume", pb.ResumeSandboxRequest(id=self.id))

    async def delete(self) -> None:
        """Destroy the sandbox. Safe to call twice, and when it is gone already."""
        self.let_go()
        with suppress(NotFound):
            await self._about("Delete", pb.DeleteSandboxRequest(id=self.id))

    async def expose(self, port: int) -> str:
        """Return the URL under which the server leads HTTP and WebSockets to `port` in the box; it holds a token.

        Raise `FailedPrecondition` where the server has no HTTP address (`--http`).
        """
        request = pb.ExposeRequest(sandbox_id=self.id, port=port)
        return str((await self._calls.unary("Expose", request, sandbox_id=self.id)).url)

    async def issue_token(self) -> str:
        """Return a new token for this sandbox alone: its commands, files, sessions and ports. It ends with the box."""
        request = pb.IssueSandboxTokenRequest(sandbox_id=self.id)
        return str((await self._calls.unary("IssueToken", request, sandbox_id=self.id)).token)

    async def _about(self, rpc: str, request: Any) -> SandboxInfo:
        self.info = sandbox_info(await self._calls.unary(rpc, request, sandbox_id=self.id))
        return self.info

    # -- the checkpoint tree

    async def snapshot(self, *, labels: Mapping[str, str] | None = None) -> SnapshotInfo:
        """Freeze the file system and go on; processes stand still meanwhile, their memory is not captured."""
        request = pb.SnapshotSandboxRequest(
            id=self.id, idempotency_key=self._calls.key(), labels=texts(labels, "labels")
        )
        reply = await self._calls.unary("Snapshot", request, sandbox_id=self.id)
        return snapshot_info(reply.snapshot)

    async def restore(self, snapshot_id: str) -> SandboxInfo:
        """Give the sandbox the file system of a snapshot; all its processes are killed. Raise `NotFound`."""
        return await self._about("Restore", pb.RestoreSandboxRequest(id=self.id, snapshot_id=snapshot_id))

    async def fork(
        self,
        count: int = 1,
        *,
        labels: Mapping[str, str] | None = None,
        idle_timeout_s: float | None = None,
    ) -> list[AsyncSandbox]:
        """Make `count` sandboxes, or none, with this one's file system as it is now, and its lease and labels."""
        lease_s = self._lease.lease_s
        request = pb.ForkSandboxRequest(
            id=self.id,
            count=count,
            idempotency_key=self._calls.key(),
            labels=texts(labels, "labels"),
            lease=duration(lease_s),
            idle_timeout=duration(idle_timeout_s),
        )
        asked_at = asyncio.get_running_loop().time()
        reply = await self._calls.unary("Fork", request, sandbox_id=self.id)
        return [
            self._sandboxes.taken(sandbox_info(made), lease_s=lease_s, asked_at=asked_at)
            for made in reply.sandboxes
        ]

    # -- commands

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
        """Run a command to its end. A command that fails is a result, not an error.

        After `timeout_s` its whole process group is killed and `timed_out` is set. Of each output stream the first
        `max_output_bytes` are kept, and `truncated` says if there was more.
        """
        command = self.start(
            argv,
            env=env,
            cwd=cwd,
            timeout_s=timeout_s,
            max_output_bytes=max_output_bytes,
            stdin=bool(stdin),
        )
        async with command:
            if not stdin:
                return await command.wait()
            feeding = asyncio.ensure_future(_feed(command, stdin))
            try:
                return await command.wait()
            finally:
                feeding.cancel()

    def start(
        self,
        argv: Sequence[str],
        *,
        env: Mapping[str, str] | None = None,
        cwd: str | None = None,
        timeout_s: float = 60.0,
        max_output_bytes: int = 1 << 20,
        resumable: bool = True,
        stdin: bool = True,
    ) -> RemoteCommand:
        """Return a command to enter as `async with`: it then runs, with input, output and signals live.

        Without `stdin` its standard input is empty from the start.

        A resumable one outlives a lost connection, for which the sandbox keeps its output, up to `max_output_bytes` of
        each stream. One that is not ends with its connection, and output of any size passes at flat memory.
        """
        asked = self._asked(argv, env, cwd, timeout_s, max_output_bytes, again=resumable)
        asked.no_stdin = not stdin
        return RemoteCommand(self._calls, CommandStream(asked), sandbox_id=self.id)

    # -- background processes and sessions

    async def start_process(
        self,
        argv: Sequence[str],
        *,
        env: Mapping[str, str] | None = None,
        cwd: str | None = None,
        timeout_s: float | None = None,
        log_bytes: int = 1 << 20,
    ) -> RemoteProcess:
        """Start a process that runs on without a caller; the last `log_bytes` of each of its outputs are kept."""
        request = pb.StartProcessRequest(start=self._asked(argv, env, cwd, timeout_s, log_bytes))
        reply = await self._calls.unary("StartProcess", request, sandbox_id=self.id)
        return RemoteProcess(self._calls, reply.process_id)

    def _asked(
        self,
        argv: Sequence[str],
        env: Mapping[str, str] | None,
        cwd: str | None,
        timeout_s: float | None,
        output_bytes: int,
        *,
        again: bool = True,
    ) -> pb.ExecStart:
        """Return what starts a program here; only `again` has it a key. Raise `InvalidArgument`, and `SandboxLost`."""
        self._lease.check()
        return pb.ExecStart(
            sandbox_id=self.id,
            argv=_words(argv),
            env=texts(env, "env"),
            cwd=cwd or "",
            timeout=duration(timeout_s),
            max_output_bytes=output_bytes,
            idempotency_key=self._calls.key() if again else "",
        )

    async def processes(self) -> list[ProcessInfo]:
        """Describe the background processes, running or ended."""
        request = pb.ListProcessesRequest(sandbox_id=self.id)
        reply = await self._calls.unary("ListProcesses", request, sandbox_id=self.id)
        return [process_info(process) for process in reply.processes]

    def process(self, name: str) -> RemoteProcess:
        """Return a background process by its name or its whole id; whether there is one shows when it is used."""
        return RemoteProcess(self._calls, name if "/" in name else f"{self.id}/{name}")

    async def shell(
        self, argv: Sequence[str] = (), *, env: Mapping[str, str] | None = None, cwd: str | None = None
    ) -> RemoteShell:
        """Open a shell that keeps its state from command to command; `argv` is a POSIX shell, by default /bin/sh."""
        return RemoteShell(self._calls, await self._open_session(argv, env, cwd, None))

    async def pty(
        self,
        argv: Sequence[str] = (),
        *,
        rows: int = 24,
        columns: int = 80,
        env: Mapping[str, str] | None = None,
        cwd: str | None = None,
    ) -> RemoteTerminal:
        """Run a program, by default /bin/sh, on a terminal of this size; enter the result as `async with`."""
        size = pb.TerminalSize(rows=rows, columns=columns)
        return RemoteTerminal(self._calls, await self._open_session(argv, env, cwd, size))

    async def _open_session(
        self,
        argv: Sequence[str],
        env: Mapping[str, str] | None,
        cwd: str | None,
        terminal: pb.TerminalSize | None,
    ) -> str:
        self._lease.check()
        request = pb.OpenSessionRequest(
            sandbox_id=self.id,
            argv=_words(argv) if argv else (),
            env=texts(env, "env"),
            cwd=cwd or "",
            terminal=terminal,
            idempotency_key=self._calls.key(),
        )
        return str((await self._calls.unary("OpenSession", request, sandbox_id=self.id)).session_id)


def _words(argv: Sequence[str]) -> Sequence[str]:
    """Return a command's words. Raise `InvalidArgument` for none, and for a string in place of a list."""
    if isinstance(argv, str):
        raise InvalidArgument(
            f"argv is one string, {argv!r}: expected its words as a list. For a shell: ['sh', '-c', {argv!r}]."
        )
    if not argv:
        raise InvalidArgument("argv is empty: expected a program and its arguments, such as ['ls', '-l'].")
    return argv


async def _feed(command: RemoteCommand, stdin: bytes) -> None:
    with suppress(RockError):  # the end of the command says what happened
        await command.write(stdin)
        await command.close_stdin()


class HeldSandboxes:
    """The sandboxes whose leases one client renews."""

    def __init__(self, calls: SandboxCalls) -> None:
        self.calls = calls
        self._held: set[AsyncSandbox] = set()

    def taken(self, info: SandboxInfo, *, lease_s: float | None, asked_at: float) -> AsyncSandbox:
        """Return a sandbox that was just made for us, with its lease, asked for at `asked_at`, being renewed."""
        box = AsyncSandbox(self, info, lease_s=lease_s, owned=True)
        box.keep(asked_at=asked_at)
        return box

    def hold(self, box: AsyncSandbox) -> None:
        """Remember whose lease is renewed, until `forget` or `close`."""
        self._held.add(box)

    def forget(self, box: AsyncSandbox) -> None:
        """Forget a sandbox that was let go."""
        self._held.discard(box)

    def close(self) -> None:
        """Renew nothing any more: sandboxes nobody deleted end with their leases."""
        for box in tuple(self._held):
            box.let_go()
