"""Which workers of a server are fenced in, and whether this machine can; the control groups of those that are.

One for a server, asked by its pools whenever they start a worker. It decides; `worker_view` says what a worker sees and
`worker_fence` carries it out.
"""

from __future__ import annotations

import asyncio
import logging
import os
import platform
import secrets
import signal
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Literal

from rock_env.backends.process import cgroups
from rock_env.backends.process.seccomp import MACHINES
from rock_env.env_workers.worker_fence import MOST_PROCESSES, NO_ROOM, TMP_BYTES, UNFENCED
from rock_env.env_workers.worker_view import WorkerView
from rock_env.errors import FailedPrecondition, ResourceExhausted
from rock_env.threads import for_life

__all__ = ["Fence", "FenceWish", "Fencing", "how_it_ended"]

log = logging.getLogger(__name__)

FenceWish = Literal["always", "where possible", "never"]
_REMEDY = "Allow user namespaces (Linux 5.12 or later) or run the server as root"
_CODE_BYTES = 256 << 20
"""What a worker's group may hold beside what its limit of memory counts: libraries, page tables, sockets."""
_RETRY_S = 30.0
_SWEPT_S = 60.0
"""A younger group may be one that another server's worker is about to enter."""


@dataclass(frozen=True, slots=True)
class Fence:
    """The fence of one worker that is to be started."""

    view: WorkerView
    places: cgroups.Places
    group: str

    def command(self, command: list[str], memory_bytes: int) -> list[str]:
        """Return the command line that becomes `command` behind the fence; it may have `memory_bytes` (0: no limit)."""
        room = memory_bytes and memory_bytes + TMP_BYTES + _CODE_BYTES
        limits = {"memory_bytes": room, "pids": MOST_PROCESSES, "cpus": 0}
        return self.view.command(command, self.places, self.group, limits)

    def take_down(self) -> int:
        """Remove the group of a worker that has ended; return how many of its processes were killed for memory."""
        killed = cgroups.killed_for_memory(self.places, self.group) if self.places else 0
        cgroups.sweep(self.places, older_than_s=_SWEPT_S)
        with suppress(OSError):  # a process is still ending; a later sweep finds it
            cgroups.remove(self.places, self.group)
        return killed


class Fencing:
    """The fences of one server's workers."""

    def __init__(
        self, view: Callable[[], WorkerView], wish: FenceWish, *, trust_libraries: bool = False
    ) -> None:
        """Take how to find out what a fenced worker sees, and which are fenced.

        Workers of hosted libraries are, or are not started; where libraries are trusted, they are as all others.
        """
        self._find_view, self._wish, self._trust_libraries = view, wish, trust_libraries
        self._looking: asyncio.Task[tuple[str, WorkerView, cgroups.Places]] | None = None

    async def of(self, library: str = "") -> Fence | None:
        """Return the fence of a worker that runs a hosted library, or environments of none; None where it has none.

        Raise `FailedPrecondition` where it must have one and cannot, `ResourceExhausted` where the machine is full.
        """
        guest = bool(library) and not self._trust_libraries
        if self._wish == "never" and not guest:
            return None
        if self._looking is None:
            self._looking = asyncio.create_task(for_life(self._look))
        try:
            why, view, places = await asyncio.shield(self._looking)
        except OSError as error:  # no descriptors, processes or memory are left
            self._looking = None
            raise ResourceExhausted(
                f"the server cannot find out whether workers can be fenced in: {error}. Try again.",
                retry_after_s=_RETRY_S,
            ) from error
        if not why:
            return Fence(view, places, f"w{os.getpid()}-{secrets.token_hex(4)}")
        if guest:
            raise FailedPrecondition(
                f"environments of the hosted library {library!r} run fenced in, which this machine does not allow: {why}. "
                f"{_REMEDY}; or let such libraries do what the server's user may: `ale rock serve --trust-libraries`, "
                "rock_env.connect(trust_libraries=True), rollout.trust_libraries=true in a run."
            )
        if self._wish == "always":
            raise FailedPrecondition(
                f"environments cannot be fenced in: {why}. {_REMEDY}, or let it run without a fence (--isolation none)."
            )
        return None

    def _look(self) -> tuple[str, WorkerView, cgroups.Places]:
        """Return why no worker can be fenced in (empty: it can), what one sees, and where groups go."""
        view = self._find_view()
        why, places = _why_not(view), cgroups.Places()
        if why and self._wish == "where possible":
            log.warning("workers of environments run WITHOUT a fence: %s. %s.", why, _REMEDY)
        if not why:
            try:
                places = cgroups.find()
            except OSError as error:
                text = "workers have no control groups: %s. Memory and processes are limited one by one."
                log.warning(text, error)
        return why, view, places


def _why_not(view: WorkerView) -> str:
    """Fence a program in that does nothing; return why that cannot be. Raise `OSError` where it may be at another time."""
    if platform.machine() not in MACHINES:
        return f"no system call filter for {platform.machine()}; known: {', '.join(MACHINES)}"
    command = view.command([sys.executable, "-I", "-S", "-c", ""], {}, "", {})
    nowhere, pipe = subprocess.DEVNULL, subprocess.PIPE
    tried = subprocess.run(command, env=view.variables(os.environ), stdout=nowhere, stderr=pipe, check=False)
    said = tried.stderr.decode(errors="replace").strip()
    if tried.returncode == NO_ROOM:
        raise OSError(said)
    return (said or f"exit code {tried.returncode}") if tried.returncode else ""


def how_it_ended(code: int, fence: Fence | None) -> str:
    """Say how a worker ended that had this exit code, and take its fence down."""
    killed = fence.take_down() if fence is not None else 0
    number = -code if code < 0 else code - 128
    if killed and number == signal.SIGKILL:
        return "its memory was full, for which the kernel killed it; smaller arguments need less"
    if code in (UNFENCED, NO_ROOM):
        return "it could not be fenced in, and the server's log says why"
    return f"it was killed by signal {number}" if number > 0 else f"exit code {code}"
