"""The zygote: one small process that becomes every box of a process backend by forking.

Started by `backends/process/launcher` as `python -I -S -c … FD`, with the whole guest imported, so that a box costs a
fork and its namespaces instead of the start of several programs. It reads orders from the socket FD and ends when
that closes; boxes live on until they end by themselves. It has one thread, holds no secrets (a box's configuration
goes from the server to the guest), and never runs anything for a box outside of it.

Messages, `marshal`: to the zygote a dict with "op", from it a tuple (what, request id, …). See `Launcher`.
"""

# ruff: noqa: PTH103, PTH115, PTH123
from __future__ import annotations

import array
import contextlib
import gc
import marshal
import os
import select
import signal
import socket
import sys

from rock_env.backends.process import cgroups, fence, kernel, preload, trees
from rock_env.guest import dial as _dial  # noqa: F401
from rock_env.guest import sessions as _sessions  # noqa: F401  a box cannot import: its root is another one
from rock_env.guest import trees as _trees  # noqa: F401
from rock_env.guest import watch as _watch  # noqa: F401
from rock_env.guest.init import serve

TYPE_CHECKING = False  # importing `typing` costs 5 ms
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from rock_env.guest.warm.interpreter import Program, Warm

MAX_MESSAGE_BYTES = 128 << 10
"""Of one order: a plan with every path of the system, or a box with its layers."""
MAX_FDS = 4
OOM_FD = 100
"""Where a box that is in control groups holds the file that counts processes killed for memory."""


class Zygote:
    """The loop that takes orders and reports ends."""

    def __init__(self, control: socket.socket) -> None:
        self.control = control
        self.plan: dict[str, Any] = {}
        self.children: set[int] = set()
        self.jobs: dict[int, int] = {}
        self.warm: Warm | None = None
        """In a zygote that preloads: what each of its boxes keeps beside its guest."""
        self.become: Callable[[], Program] | None = None
        """In a process of a box that is that: how to go on once the loop is left."""
        self.wake, writer = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the whole group; the server decides
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(writer, warn_on_full_buffer=False)

    def run(self) -> None:
        """Serve until the server hangs up; what it ordered and did not live to see is not carried out."""
        poll = select.poll()
        poll.register(self.control.fileno(), select.POLLIN)
        poll.register(self.wake, select.POLLIN)
        while True:
            for fd, events in poll.poll():
                if fd == self.wake:
                    self.reap()
                elif events & select.POLLHUP or not self.take():
                    return

    def take(self) -> bool:
        """Carry one order out; False when there will be no more, or this process has become another."""
        # Not inherited: a command that held the listening socket could take the server's next connection.
        room, flags = socket.CMSG_SPACE(4 * MAX_FDS), socket.MSG_CMSG_CLOEXEC
        data, ancillary, _, _ = self.control.recvmsg(MAX_MESSAGE_BYTES, room, flags)
        if not data:
            return False
        fds = array.array("i")
        for level, kind, content in ancillary:
            if (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS):
                fds.frombytes(content)
        order = marshal.loads(data)
        try:
            self.carry_out(order, list(fds))
        except OSError as error:
            self.tell("failed", order["request"], str(error), error.errno)
        finally:
            for fd in fds:
                os.close(fd)
        return self.become is None

    def carry_out(self, order: dict[str, Any], fds: list[int]) -> None:
        if order["op"] == "prepare":
            self.plan = order
            overlay = fence.prepare(order) if order["fenced"] else False
            for path in order["forget"]:
                sys.path.remove(path)
            if order["preload"]:
                preload.enter(order, self.control, overlay=overlay)
            gc.freeze()  # what boxes share stays shared: no collection touches it
            self.tell("ready", order["request"], overlay)
        elif order["op"] == "box":
            self.bear(order, fds)
        else:
            self.work(order, fds)

    def bear(self, order: dict[str, Any], fds: list[int]) -> None:
        """Fork a box. Its process is pid 1 of a namespace of its own, where boxes are fenced."""
        pid = kernel.fork(kernel.NEWPID if self.plan["fenced"] else 0)
        if pid == 0:
            self.become_box({**self.plan, **order}, fds[0])
            return
        self.children.add(pid)
        handle = os.pidfd_open(pid)
        self.tell("born", order["request"], pid, fds=[handle])
        os.close(handle)

    def become_box(self, order: dict[str, Any], listener: int) -> None:
        """Turn the forked child into a box and serve; what fails is told to the server, and this process ends.

        Returns in a second process of the box alone, made before the guest knows anything: it is to be `warm`.
        """
        try:
            self.leave_loop()
            os.setsid()
            if not order["probe"]:
                write_birth(order["folder"])
            if order["cgroups"]:
                os.dup2(
                    cgroups.join(order["cgroups"], order["group"], order["limits"]), OOM_FD, inheritable=False
                )
            if order["fenced"]:
                fence.enclose(order)
            else:
                lay_out(order)
            kernel.close_all_but({0, 1, 2, self.control.fileno(), listener, OOM_FD})
            if order["fenced"]:
                fence.renounce(order["identity"], order["filter"], user=order["user"])
            if order["probe"]:
                os._exit(0)
            self.control.close()
            kernel.prctl(
                kernel.PR_SET_DUMPABLE, 1
            )  # until the guest, before its first command, is configured
            if self.warm is None or not self.part(self.warm, order):
                serve(listener)
        except BaseException as error:  # noqa: BLE001  named boundary: a box that does not come up
            try:
                what = f"{type(error).__name__}: {error}"
                self.tell("failed", order["request"], what, getattr(error, "errno", None))
            finally:
                os._exit(1)

    def part(self, warm: Warm, order: dict[str, Any]) -> bool:
        """Fork the box's warm interpreter; return whether this is it. The socket is there before any program can ask."""
        from rock_env.guest.warm.interpreter import listen

        listener = listen()
        if os.fork():
            listener.close()
            return False
        if order["cgroups"]:
            os.close(OOM_FD)
        self.become = lambda: warm.serve(listener, order["rlimits"])
        return True

    def work(self, order: dict[str, Any], fds: list[int]) -> None:
        """Copy a tree in a process of its own: files are slow, and the zygote must not be."""
        pid = os.fork()
        if pid:
            self.jobs[pid] = order["request"]
            self.tell("begun", order["request"])
            return
        try:
            self.leave_loop()
            signal.alarm(round(order["within_s"]))
            self.tell("done", order["request"], trees.copy(fds[0], fds[1], opaque=order["opaque"]))
            os._exit(0)
        except trees.TooDeepError as error:
            self.tell("refused", order["request"], str(error))
        except BaseException as error:  # noqa: BLE001  named boundary: a copy that failed
            what = str(error) or type(error).__name__
            self.tell("failed", order["request"], what, getattr(error, "errno", None))
        finally:
            os._exit(1)

    def leave_loop(self) -> None:
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)

    def reap(self) -> None:
        """Report the processes that ended."""
        with contextlib.suppress(BlockingIOError):
            while os.read(self.wake, 512):
                pass
        while self.children or self.jobs:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if pid == 0:
                return
            code = os.waitstatus_to_exitcode(status)
            if pid in self.children:
                self.children.discard(pid)
                self.tell("ended", 0, pid, code)
            elif (request := self.jobs.pop(pid, None)) is not None and code:
                how = "took too long" if code == -signal.SIGALRM else f"ended with status {code}"
                self.tell("failed", request, f"the process that copied {how}")

    def tell(self, *message: Any, fds: list[int] | None = None) -> None:
        """Report to the server; one that is gone is noticed by the loop."""
        rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", fds))] if fds else []
        with contextlib.suppress(OSError):
            self.control.sendmsg([marshal.dumps(message, 2)], rights)


def write_birth(folder: str) -> None:
    """Record which process this is, so that the next server finds it even if both its makers are killed now."""
    pid = os.readlink("/proc/self")  # as the host counts: our own /proc comes later
    with open("/proc/self/stat") as file:
        started = file.read().rpartition(")")[2].split()[19]
    with open(f"{folder}/process", "w") as file:
        file.write(f"{pid} {started}\n")


def lay_out(order: dict[str, Any]) -> None:
    """Make the folders of a box without a fence."""
    os.makedirs(f"{order['folder']}/files", 0o755)
    if order["copied"]:
        trees.copy_folder(order["copied"], f"{order['folder']}/files")
    for part in fence.LAYER_PARTS:
        os.makedirs(f"{order['folder']}/files/{part}", 0o755, exist_ok=True)


def begin(plan: dict[str, Any], missing: list[str], before: tuple[set[str], list[str], set[str]]) -> Program:
    """Be a zygote; return in a process of a box that is to run a program."""
    from rock_env.guest.warm.interpreter import Warm

    kernel.prctl(kernel.PR_SET_DUMPABLE, 0)
    os.umask(0o022)
    sys.path.remove(preload.CODE)
    os.fchdir(preload.ROOT_FD)
    os.chroot(".")
    os.close(preload.ROOT_FD)
    fence.forget_code()
    os.set_inheritable(preload.CONTROL_FD, False)
    zygote = Zygote(socket.socket(fileno=preload.CONTROL_FD))
    zygote.plan = plan
    zygote.warm = Warm(*before)
    gc.collect()
    gc.freeze()
    zygote.tell("ready", plan["request"], (plan["overlay"], missing))
    zygote.run()
    if zygote.become is None:
        os._exit(0)
    return zygote.become()


def main() -> None:
    """Serve the inherited socket; with the word `user`, in a user namespace, entered before this program starts anew.

    Anew, so that the kernel counts this process's memory as that namespace's: else its parent, who owns the
    namespace, could not look at the files of boxes.
    """
    if sys.argv[2:] == ["user"]:
        fence.enter_user_namespace()
        os.execv(sys.executable, [*sys.orig_argv[:-1], "inside"])
    kernel.prctl(kernel.PR_SET_DUMPABLE, 0)
    os.umask(0o022)
    Zygote(socket.socket(fileno=int(sys.argv[1]))).run()
