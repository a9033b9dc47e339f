"""The server's end of the zygote: starts it, gives orders, hears which processes ended.

Used by `backends/process/backend`. Knows messages and processes; what a box is, it does not know. A zygote that is
gone, or does not answer and is killed for that, fails every order in progress with `ZygoteLost` and is not used again;
its boxes live on.
"""

from __future__ import annotations

import array
import asyncio
import contextlib
import itertools
import marshal
import os
import signal
import socket
import subprocess
import sys
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import rock_env
from rock_env.backends.process.zygote import MAX_FDS, MAX_MESSAGE_BYTES
from rock_env.errors import InfraError, InvalidArgument
from rock_env.threads import for_life

__all__ = ["COPY_S", "END_S", "Holder", "Launcher", "ZygoteLost", "holder_of", "recorded_process"]

END_S = 10.0
"""How long a process may take to end after it was told to, or killed."""
ORDER_S = 5.0
"""How long a zygote may take to carry an order out, or to begin a copy: it needs milliseconds, so a late one has stopped."""
_PREPARE_S = 60.0
"""How long one that begins may take for its imports and mounts."""
COPY_S = 600.0
"""How long the copy of a tree may take, which a process of its own does."""
_PROGRAM = "import os, sys; sys.path.append(os.environ['ROCK']); from rock_env.backends.process.zygote import main; main()"
"""The path comes by the environment, since boxes can read the command line of their guest."""
_REPORT_S = 1.0
_PACKAGE = str(Path(rock_env.__file__).resolve().parents[1])
_UNKNOWN = "status unknown, since the process that made it is gone"


class ZygoteLost(InfraError):
    """The zygote ended before it had carried the order out; another one can be asked."""


class Holder:
    """The process that holds one box: pid 1 of its namespace. With it all other processes of the box end."""

    def __init__(self, pid: int, handle: int) -> None:
        self.pid = pid
        self.failure = ""
        """Why it did not become a box."""
        self.cause: OSError | None = None
        """What the system said then."""
        self._handle = handle
        self.ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.status: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        """How it ended, from its zygote; soon after its end, but a zygote that is gone tells nothing."""
        asyncio.get_running_loop().add_reader(handle, self._end)

    def _end(self) -> None:
        asyncio.get_running_loop().remove_reader(self._handle)
        os.close(self._handle)
        self.ended.set_result(None)

    def kill(self) -> None:
        """Kill it, unless it has ended."""
        if not self.ended.done():
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(self._handle, signal.SIGKILL)

    async def end(self) -> None:
        """Wait until it has ended; kill it if it takes long."""
        if not await self._within(END_S):
            self.kill()
            if not await self._within(END_S):
                raise InfraError(
                    f"process {self.pid}, which holds a sandbox, does not end though it was killed"
                )

    async def explain(self) -> str:
        """Wait for the end of a box whose guest hung up, and say what became of it."""
        if not await self._within(END_S):
            return "the sandbox hung up but did not end"
        await asyncio.wait([self.status], timeout=_REPORT_S)
        how = self.status.result() if self.status.done() else _UNKNOWN
        return self.failure or f"the sandbox ended with {how}"

    async def _within(self, seconds: float) -> bool:
        await asyncio.wait([self.ended], timeout=seconds)
        return self.ended.done()

    def let_go(self) -> None:
        """Stop watching; the process lives on."""
        if not self.ended.done():
            self._end()


def recorded_process(folder: Path) -> int:
    """Return the living process that a zygote recorded in a box's folder, whoever made it; 0 if there is none."""
    try:
        pid, started = (folder / "process").read_text().split()
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except (OSError, ValueError):
        return 0
    return int(pid) if fields[19] == started and fields[0] != "Z" else 0


def holder_of(folder: Path) -> Holder | None:
    """Take up the living process that a zygote recorded in a box's folder."""
    pid = recorded_process(folder)
    if not pid:
        return None
    try:
        handle = os.pidfd_open(pid)
    except ProcessLookupError:
        return None
    if recorded_process(folder) != pid:  # with the handle open, its number cannot pass to another
        os.close(handle)
        return None
    holder = Holder(pid, handle)
    holder.status.set_result(_UNKNOWN)
    return holder


@dataclass(slots=True)
class _Order:
    message: bytes
    fds: Sequence[int]


class Launcher:
    """One zygote. Made by `start`, ended by `close`."""

    def __init__(self, process: subprocess.Popen[bytes], control: socket.socket) -> None:
        self._process = process
        self._control = control
        self._loop = asyncio.get_running_loop()
        self._requests = itertools.count(1)
        self._waiting: dict[int, asyncio.Future[object]] = {}
        self._unsent: deque[_Order] = deque()
        self._holders: dict[int, Holder] = {}
        self._births: dict[int, Holder] = {}
        self._begun: set[int] = set()
        """The requests whose work goes on in a process of its own."""
        self.lost: asyncio.Future[None] = self._loop.create_future()
        self.overlay = False
        """Boxes can start from layers without copying them."""
        self.missing: list[str] = []
        """Modules that were to be preloaded and are not there."""

    @classmethod
    async def start(cls, plan: Mapping[str, object]) -> Launcher:
        """Start a zygote and let it prepare by `plan`. Raise `InfraError` with what it said instead."""
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        argv = [sys.executable, "-I", "-S", "-c", _PROGRAM, str(theirs.fileno())]
        if plan["user"]:
            argv.append("user")
        try:
            process = await for_life(_spawn, argv, theirs.fileno())
        except BaseException:
            ours.close()
            raise
        finally:
            theirs.close()
        ours.setblocking(False)
        launcher = cls(process, ours)
        launcher._loop.add_reader(ours.fileno(), launcher._readable)
        try:
            code = _PACKAGE if plan["preload"] else ""
            order = {**plan, "op": "prepare", "forget": [_PACKAGE], "code": code}
            answer = await launcher.order(order, within_s=_PREPARE_S)
            if isinstance(answer, tuple):
                answer, launcher.missing = answer
            launcher.overlay = bool(answer)
        except BaseException:
            await launcher.close()
            raise
        return launcher

    @property
    def idle(self) -> bool:
        """Return whether no box of this zygote is left or on its way."""
        return not self._holders and not self._waiting

    @property
    def pid(self) -> int:
        """Return the zygote's process id."""
        return self._process.pid

    async def order(
        self, order: Mapping[str, object], fds: Sequence[int] = (), *, within_s: float | None = None
    ) -> object:
        """Give an order and return what it came to; `fds` stay the caller's. Raise `InfraError` if it failed, and
        `InvalidArgument` for files that cannot be copied.

        One that is late (None: `ORDER_S`) ends the zygote, which takes one order at a time: no other would be carried out.
        A copy that has begun may take `COPY_S`.
        """
        within_s = ORDER_S if within_s is None else within_s
        request = next(self._requests)
        future: asyncio.Future[object] = self._loop.create_future()
        self._waiting[request] = future
        message = marshal.dumps({**order, "request": request}, 2)
        if len(message) > MAX_MESSAGE_BYTES or len(fds) > MAX_FDS:
            raise InfraError(f"an order of {len(message)} bytes is too large for the zygote")
        try:
            if self.lost.done():
                raise ZygoteLost("the process that makes sandboxes ended")
            self._unsent.append(_Order(message, fds))
            self._flush()
            done, _ = await asyncio.wait([future], timeout=within_s)
            if not done and request in self._begun:
                within_s = COPY_S + ORDER_S
                done, _ = await asyncio.wait([future], timeout=within_s)
            if not done:
                self._process.kill()
                self._lose(
                    f"the process that makes sandboxes did not carry out an order within {within_s:g} s"
                )
            return await future
        finally:
            del self._waiting[request]
            self._begun.discard(request)

    async def bear(self, order: Mapping[str, object], listener: int) -> Holder:
        """Make the process that will be a box and serve the listening socket.

        When cancelled it waits for the birth and ends what was born: what that makes can only be removed afterwards.
        """
        birth = asyncio.ensure_future(self.order({**order, "op": "box"}, [listener]))
        try:
            holder = await asyncio.shield(birth)
        except asyncio.CancelledError:
            await asyncio.shield(self._undo(birth))
            raise
        assert isinstance(holder, Holder)
        return holder

    async def _undo(self, birth: asyncio.Future[object]) -> None:
        with contextlib.suppress(InfraError):  # nothing was born
            holder = await birth
            assert isinstance(holder, Holder)
            holder.kill()
            await holder.end()

    async def close(self) -> None:
        """Hang up, on which the zygote ends. Boxes do not."""
        self._lose("the process that makes sandboxes was closed")
        try:
            await for_life(self._process.wait, END_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            await for_life(self._process.wait)

    def _flush(self) -> None:
        while self._unsent:
            order = self._unsent[0]
            rights = (
                [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", order.fds))] if order.fds else []
            )
            try:
                self._control.sendmsg([order.message], rights)
            except BlockingIOError:
                self._loop.add_writer(self._control.fileno(), self._flush)
                return
            except OSError as error:
                self._lose(f"the process that makes sandboxes ended: {error}")
                return
            self._unsent.popleft()
        self._loop.remove_writer(self._control.fileno())

    def _readable(self) -> None:
        try:
            data, fds, _, _ = socket.recv_fds(
                self._control, MAX_MESSAGE_BYTES, MAX_FDS, socket.MSG_CMSG_CLOEXEC
            )
        except BlockingIOError:
            return
        except OSError:
            data, fds = b"", []
        if not data:
            self._lose("the process that makes sandboxes ended")
            return
        what, request, *rest = marshal.loads(data)
        if what == "ended":
            self._ended(*rest)
            return
        waiting = self._waiting.get(request)
        if what == "born":
            holder = self._holders[rest[0]] = self._births[request] = Holder(rest[0], fds[0])
            holder.ended.add_done_callback(lambda _: self._births.pop(request, None))
            if waiting is None or waiting.done():
                holder.kill()  # who ordered it has left
            else:
                waiting.set_result(holder)
        elif what == "begun":
            if waiting is not None:
                self._begun.add(request)
        elif what == "failed" and (born := self._births.get(request)) is not None:
            born.failure, born.cause = rest[0], _cause(*rest)
        elif waiting is not None and not waiting.done():
            if what == "failed":
                failure = InfraError(rest[0])
                failure.__cause__ = _cause(*rest)
                waiting.set_exception(failure)
            elif what == "refused":
                waiting.set_exception(
                    InvalidArgument(f"the files of the sandbox cannot be copied: {rest[0]}")
                )
            else:
                waiting.set_result(rest[0])

    def _ended(self, pid: int, code: int) -> None:
        if (holder := self._holders.pop(pid, None)) is not None:
            holder.status.set_result(f"status {code}")

    def _lose(self, reason: str) -> None:
        if self.lost.done():
            return
        self.lost.set_result(None)
        self._loop.remove_reader(self._control.fileno())
        self._loop.remove_writer(self._control.fileno())
        self._control.close()
        for future in self._waiting.values():
            if not future.done():
                future.set_exception(ZygoteLost(reason))
        for holder in self._holders.values():
            holder.status.set_result(_UNKNOWN)


def _cause(_: str, number: int | None = None) -> OSError | None:
    """Return the system's error that the zygote met, if it was one."""
    return None if number is None else OSError(number, os.strerror(number))


def _spawn(argv: list[str], fd: int) -> subprocess.Popen[bytes]:
    null = subprocess.DEVNULL
    return subprocess.Popen(
        argv,
        env={"ROCK": _PACKAGE},
        cwd="/",
        pass_fds=(fd,),
        stdin=null,
        stdout=null,
        stderr=null,
        start_new_session=True,
    )
