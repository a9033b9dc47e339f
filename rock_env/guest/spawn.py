"""Starting a process of the box: its streams, limits, folder and environment.

Used by `commands`, `sessions` and `trees`. It forks; who is told of the end is `commands`' part.
"""

from __future__ import annotations

import _signal as signal  # type: ignore[import-not-found]
import os
import resource
import sys
from errno import ENOENT

from .libc import PR_SET_PDEATHSIG, prctl
from .places import BoxFolders

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Any, NoReturn

_LEAST_SPACE = 256 << 20
_MOST_FDS = 1 << 16  # where the kernel cannot close a range at once, each costs a call
_KNOWN_VERSIONS = ((3, 11), (3, 12), (3, 13))
_OURS = (signal.SIGPIPE, signal.SIGXFSZ, signal.SIGINT, signal.SIGCHLD)
"""Signals that this interpreter ignores or handles, and no program should inherit so."""


class Spawner:
    """Starts processes that are commands of the box and not its guest."""

    def __init__(self, config: dict[str, Any], places: BoxFolders) -> None:
        self._env: dict[str, str] = config["env"]
        self._env_list = _encoded(self._env)
        self._rlimits: list[tuple[int, int]] = config["rlimits"]
        self._places = places
        # Opened now: once the guest is undumpable it cannot open its own files of /proc.
        self._oom_fd = _open_if_writable("/proc/self/oom_score_adj")
        self._oom_own = os.pread(self._oom_fd, 16, 0) if self._oom_fd >= 0 else b""
        self._fork_exec = self._find_fork_exec()
        if self._fork_exec is not None:
            self._limit()  # nothing of ours runs in such a child, so it must inherit them

    def start(
        self,
        what: dict[str, Any],
        fds: Sequence[int],
        *,
        act: Callable[[], int] | None = None,
        tty: bool = False,
    ) -> tuple[int, int | None]:
        """Return the pid of a process with `fds` as 0, 1, 2 and so on, leader of a session of its own, and if it
        could not become the program, the exit code to report instead of its own; then stderr says why.

        It runs `what["argv"]`, or the function `act`, whose result is its exit code. `tty`: 0 becomes its terminal.
        """
        # When the box's memory is full the kernel shall choose a command and never the guest. The child cannot write
        # its own value: it is undumpable like the guest until it becomes the command.
        self._set_oom(b"1000")
        try:
            if self._fork_exec is not None and act is None and not tty and len(fds) == 3:
                return self._start_at_once(what, fds)
            leads, tell = os.pipe2(os.O_CLOEXEC)
            try:
                pid = os.fork()
            except OSError:
                os.close(leads)
                os.close(tell)
                raise
        finally:
            self._set_oom(self._oom_own)
        if pid == 0:
            self._become(what, fds, act, tty, tell)
        os.close(tell)
        os.read(leads, 1)  # ends when it leads its group: before, a signal to that would be lost
        os.close(leads)
        return pid, None

    def _find_fork_exec(self) -> Callable[..., int] | None:
        """Return what starts a process without copying this one, where it can serve: it takes a third of the time off.

        Not where the box can outlive its guest (see PDEATHSIG below), nor where a limit on address space would be tight
        for the guest itself; and only in interpreters whose internal function this is known to be.
        """
        tight = any(limit == resource.RLIMIT_AS and value < _LEAST_SPACE for limit, value in self._rlimits)
        if os.getpid() != 1 or tight or sys.version_info[:2] not in _KNOWN_VERSIONS:
            return None
        try:
            from _posixsubprocess import fork_exec
        except ImportError:
            return None
        return fork_exec

    def _start_at_once(self, what: dict[str, Any], fds: Sequence[int]) -> tuple[int, int | None]:
        assert self._fork_exec is not None
        name, own = what["argv"][0], what["env"]
        env = {**self._env, **own} if own else self._env
        if "/" in name:
            programs = [os.fsencode(name)]
        else:
            programs = [
                os.fsencode(f"{folder}/{name}") for folder in env.get("PATH", "/usr/bin:/bin").split(":")
            ]
        told, tell = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        try:
            stdin, stdout, stderr = fds
            ends = (stdin, -1, -1, stdout, -1, stderr, told, tell)
            cwd = self._places.absolute(what["cwd"])
            argv = [os.fsencode(part) for part in what["argv"]]
            env_list = _encoded(env) if own else self._env_list
            # restore_signals, start_new_session, process_group, gid, gids, uid, umask, preexec_fn, allow_vfork
            rest = (True, True, -1, None, None, None, -1, None, True)
            pid = self._fork_exec(argv, programs, False, (tell,), cwd, env_list, *ends, *rest)
        finally:
            os.close(tell)
            failure = _read(told)
            os.close(told)
        if not failure:
            return pid, None
        number = int(failure.split(b":")[1], 16)
        early = failure.split(b":", 2)[2].startswith(b"noexec")  # it came as far as entering the folder
        os.write(stderr, _unable(name, what["cwd"] if early else "", os.strerror(number)))
        return pid, 127 if number == ENOENT else 126

    def _set_oom(self, value: bytes) -> None:
        if self._oom_fd >= 0:
            os.pwrite(self._oom_fd, value, 0)

    def _limit(self) -> None:
        for limit, value in self._rlimits:
            hard = resource.getrlimit(limit)[1]
            value = value if hard == resource.RLIM_INFINITY else min(value, hard)
            resource.setrlimit(limit, (value, value))

    def _become(
        self, what: dict[str, Any], fds: Sequence[int], act: Callable[[], int] | None, tty: bool, tell: int
    ) -> NoReturn:
        """Turn the forked child into the command; a failure is told the way a shell tells it (126, 127)."""
        code, name, entering = 126, what["argv"][0], ""
        try:
            os.setsid()
            os.close(tell)
            for target, fd in enumerate(fds):
                os.dup2(fd, target)
            if tty:
                import fcntl
                import termios

                fcntl.ioctl(0, termios.TIOCSCTTY, 0)
            if os.getppid() != 1:  # the end of pid 1 is the end of all anyway
                prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
            signal.set_wakeup_fd(-1)
            for number in _OURS:
                signal.signal(number, signal.SIG_DFL)
            self._limit()
            entering = what["cwd"]
            os.chdir(self._places.absolute(entering))
            entering = ""
            if act is not None:
                os.closerange(len(fds), _MOST_FDS)
                os._exit(act())
            os.execvpe(name, what["argv"], {**self._env, **what["env"]})
        except FileNotFoundError as error:
            code = 127
            os.write(2, _unable(name, entering, error.strerror))
        except BaseException as error:  # noqa: BLE001  the child must never return into the guest's loop
            os.write(2, _unable(name, entering, error))
        os._exit(code)


def _unable(name: str, entering: str, why: object) -> bytes:
    where = f" in {entering!r}" if entering else ""
    return f"cannot run {name!r}{where}: {why}\n".encode(errors="replace")


def _open_if_writable(path: str) -> int:
    try:
        return os.open(path, os.O_RDWR | os.O_CLOEXEC)
    except OSError:  # a container may be given /proc for reading alone
        return -1


def _encoded(env: dict[str, str]) -> list[bytes]:
    return [os.fsencode(f"{name}={value}") for name, value in env.items()]


def _read(fd: int) -> bytes:
    try:
        return os.read(fd, 256)
    except BlockingIOError:
        return b""
