"""The program that becomes a worker behind the fence of a process sandbox: `backends/process/fence` and its neighbours.

Started as `worker_view` says, with one thread and the standard library alone. Three processes come of it. This one stays on
the host: it passes on what the worker prints and ends as the worker does; when it is killed, or its server is, all end.
Pid 1 of the worker's own namespace reaps. The worker has namespaces, a user, limits and a filter as a sandbox has; of the
host's files it keeps what a plan names, read-only, /proc is not there, and /tmp is its own. Where that cannot be had it
does not start.
"""

# pathlib would cost more than the fence.
# ruff: noqa: PTH102, PTH103
from __future__ import annotations

import errno
import marshal
import os
import resource
import select
import signal
import zlib

from rock_env.backends.process import cgroups, fence, kernel

TYPE_CHECKING = False  # importing `typing` costs 5 ms
if TYPE_CHECKING:
    from typing import Any, NoReturn

__all__ = ["MOST_PROCESSES", "NO_ROOM", "TMP_BYTES", "UNFENCED", "main"]

UNFENCED = 78
"""The exit code of a worker that could not be fenced in."""
NO_ROOM = 75
"""The exit code of one that may be fenced in at another time: the machine has no processes, descriptors or memory left."""
MOST_PROCESSES = 1024
"""Processes and threads of one worker."""
TMP_BYTES = 64 << 20
_TOP = "/proc"
"""Where the worker's root is put together: a folder of every machine, of which nothing is to be seen."""
_FULL = (errno.EAGAIN, errno.EMFILE, errno.ENFILE, errno.ENOMEM)


def main(arguments: list[str]) -> None:
    """Take the plan (`marshal`, packed, in hexadecimal) and a command line; run it behind the fence, and end as it does."""
    text, *command = arguments
    plan: dict[str, Any] = marshal.loads(zlib.decompress(bytes.fromhex(text)))
    del os.environ["ROCK"]
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the whole group; the server decides
    try:
        child, said = _bear(plan, command)
    except OSError as error:
        raise SystemExit(_failed(error)) from None
    kernel.close_all_but({0, 1, 2, said})  # the socket is the worker's alone
    while data := os.read(said, 1 << 16):
        try:
            os.write(2, data)
        except OSError:  # nobody reads it
            continue
    raise SystemExit(_code(os.waitpid(child, 0)[1]))


def _bear(plan: dict[str, Any], command: list[str]) -> tuple[int, int]:
    """Fork pid 1 of the worker's namespace; return it, and where what the worker prints can be read."""
    if plan["user"]:
        fence.enter_user_namespace()
    kernel.prctl(kernel.PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != plan["parent"]:  # it died before
        raise SystemExit(1)
    owners = -1 if plan["user"] else _owned_by(plan["identity"])
    alive = os.pidfd_open(os.getpid())
    said, saying = os.pipe()
    child = kernel.fork(kernel.NEWPID)
    if child:
        return child, said
    try:
        os.dup2(saying, 1)
        os.dup2(saying, 2)
        os.setsid()  # away from the server's terminal
        _enclose(plan, owners)
        kernel.prctl(kernel.PR_SET_PDEATHSIG, signal.SIGKILL)  # which a change of user resets
        if select.select([alive], [], [], 0)[0]:
            os._exit(1)
        _become(command)
    except BaseException as error:  # noqa: BLE001  named boundary: a worker that does not come up
        os._exit(_failed(error))


def _owned_by(identity: int) -> int:
    """Return a user namespace (a descriptor) that reads files of root, whose user the server is, as those of `identity`."""
    holder = kernel.fork(kernel.NEWUSER)
    if holder == 0:
        kernel.prctl(kernel.PR_SET_PDEATHSIG, signal.SIGKILL)
        signal.pause()
        os._exit(0)
    try:
        for name in ("uid_map", "gid_map"):
            with open(f"/proc/{holder}/{name}", "w") as file:  # noqa: PTH123
                file.write(f"0 {identity} 1")
        return os.open(f"/proc/{holder}/ns/user", os.O_RDONLY)
    finally:
        os.kill(holder, signal.SIGKILL)
        os.waitpid(holder, 0)


def _enclose(plan: dict[str, Any], owners: int) -> None:
    """Leave the host but for the files of the plan, and every right, for ever."""
    if plan["cgroups"]:
        os.close(cgroups.join(plan["cgroups"], plan["group"], plan["limits"]))
    own = os.open("/proc/self", os.O_RDONLY | os.O_DIRECTORY)
    fence.leave_host()
    kernel.mount("", "/", flags=kernel.REC | kernel.PRIVATE)
    kernel.mount("root", _TOP, "tmpfs", kernel.NOSUID | kernel.NODEV, "mode=0755,size=1m")
    os.mkdir(f"{_TOP}/tmp")
    options = f"mode=1777,size={TMP_BYTES},nr_inodes=16k"
    kernel.mount(
        "tmp", f"{_TOP}/tmp", "tmpfs", kernel.NOSUID | kernel.NODEV, options
    )  # what is shown may lie in it
    fence.lay_system(_TOP, plan)
    for host, inside in plan["shown"]:
        fence.lay_read_only(host, _TOP + inside, owners)
    fence.lay_devices(_TOP)
    os.makedirs(f"{_TOP}{plan['cwd']}", 0o755, exist_ok=True)
    fence.enter_root(_TOP, plan["cwd"])
    fence.renounce(plan["identity"], plan["filter"], user=plan["user"], own=own)


def _become(command: list[str]) -> NoReturn:
    """Start the worker as a child of this process, pid 1, and reap until it has ended; nothing outlives that."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_NPROC, (MOST_PROCESSES, MOST_PROCESSES))
    worker = os.fork()
    if worker == 0:
        os.execv(command[0], command)
    kernel.close_all_but(set())
    while True:
        pid, status = os.wait()
        if pid == worker:
            os._exit(_code(status))


def _failed(error: BaseException) -> int:
    """Say why there is no fence; return the exit code for that."""
    os.write(2, f"{error}\n".encode())
    return NO_ROOM if isinstance(error, OSError) and error.errno in _FULL else UNFENCED


def _code(status: int) -> int:
    """Return the exit code that tells how a process ended: above 128 by a signal, as shells say it."""
    code = os.waitstatus_to_exitcode(status)
    return code if code >= 0 else 128 - code
