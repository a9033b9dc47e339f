"""The process of one episode of a hosted library, and its parent's handle on it.

Forked by `episode_host`, warm, and confined before it hears of anything: it may compute and read files, and from its first
action on an answer that makes it run code ends it. What was left of it ends with it.
"""

from __future__ import annotations

import logging
import os
import platform
import resource
import signal
import socket
from contextlib import suppress

from rock_env.backends.process import kernel
from rock_env.backends.process.seccomp import MACHINES
from rock_env.env_workers.answer_guard import AnswerGuard
from rock_env.env_workers.catalog import Catalog
from rock_env.env_workers.episode_calls import assemble_episode
from rock_env.env_workers.frames import MOST_BYTES, Frame, Kind, WorkerFrameReader, pack
from rock_env.env_workers.host import PR_SET_PDEATHSIG, EnvHost
from rock_env.errors import ResourceExhausted

__all__ = ["EpisodeProcess"]

_RETRY_S = 30.0
_UNCONFINED = 77
"""The exit code of a process that could not be confined."""


class EpisodeProcess:
    """One process, forked as this is made. Raise `ResourceExhausted` where none can be."""

    def __init__(self, catalog: Catalog) -> None:
        self.numbered = 0
        """How many numbered calls it has answered: the sequence of its own journal."""
        self.used = False
        """Whether an episode has begun in it."""
        self.reader = WorkerFrameReader(MOST_BYTES)
        self._unsent = bytearray()
        parent = os.getpid()
        try:
            self.connection, theirs = socket.socketpair()
            with theirs:
                try:
                    self.pid = os.fork()
                except BaseException:
                    self.connection.close()
                    raise
                if not self.pid:
                    _live(theirs, catalog, parent)
        except OSError as error:  # no descriptors, processes or memory are left
            raise ResourceExhausted(
                f"no process can be started for an episode: {error}. Close other environments, or try again.",
                retry_after_s=_RETRY_S,
            ) from error
        self.connection.setblocking(False)

    def send(self, data: bytes = b"") -> bool:
        """Send `data` after what could not be sent before; return whether something is left. Raise `OSError`."""
        self._unsent += data
        with suppress(BlockingIOError):
            while self._unsent:
                del self._unsent[: self.connection.send(self._unsent)]
        return bool(self._unsent)

    def end(self) -> str:
        """End it, and return of what it had died by itself, if it had."""
        self.connection.close()
        os.kill(self.pid, signal.SIGKILL)  # one that has died is there until it is waited for
        code = os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
        if code == _UNCONFINED:
            return "it could not be confined: that needs Linux with seccomp, on x86-64 or arm64"
        if code == -signal.SIGKILL:
            return "signal 9, which the kernel sends where memory is full"
        return f"signal {-code}" if code < 0 else f"exit code {code}"


def _live(connection: socket.socket, catalog: Catalog, parent: int) -> None:
    """Serve one environment in a process that was just forked, and end it."""
    try:
        _confine(connection, parent)
        guard = AnswerGuard(
            lambda event: connection.sendall(pack(Frame(0, Kind.ENDED, 1, 0.0, event.encode())))
        )
        EnvHost(connection, catalog, guard.arm).serve()
    finally:
        os._exit(1)


def _confine(connection: socket.socket, parent: int) -> None:
    try:
        nowhere = os.open(os.devnull, os.O_RDWR)
        for descriptor in range(3):  # what an episode prints is without end
            os.dup2(nowhere, descriptor)
        kernel.close_all_but({0, 1, 2, connection.fileno()})
        logging.disable()
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        kernel.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:  # it died before the request
            os._exit(1)
        kernel.prctl(kernel.PR_SET_DUMPABLE, 0)
        kernel.prctl(kernel.PR_SET_NO_NEW_PRIVS, 1)
        machine = platform.machine()
        if machine not in MACHINES:
            os._exit(_UNCONFINED)
        kernel.install_filter(assemble_episode(machine, os.getpid()))
    except OSError:
        os._exit(_UNCONFINED)
