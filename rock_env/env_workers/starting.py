"""Starts the process of a worker, of whichever kind: what it is told, and its end of the socket to the server."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence

from rock_env.env_workers.fencing import Fence
from rock_env.errors import ResourceExhausted
from rock_env.telemetry.shown import output_of_children

__all__ = ["start_worker"]

_RETRY_S = 30.0


def start_worker(
    module: str,
    references: Sequence[str],
    memory_bytes: int,
    fence: Fence | None,
    variables: Mapping[str, str],
) -> tuple[subprocess.Popen[bytes], socket.socket]:
    """Return the process and the server's end of its socket. Raise `ResourceExhausted` where none can be started."""
    command = [sys.executable, "-P", "-m", module]
    try:
        ours, theirs = socket.socketpair()
        try:
            with theirs:  # vfork and exec, about a millisecond; the worker's stdout joins the server's log
                command += [f"--fd={theirs.fileno()}", f"--parent={os.getpid() if fence is None else 1}"]
                command += [f"--env={reference}" for reference in references]
                command += [f"--memory-bytes={memory_bytes}"]
                if fence is not None:
                    command = fence.command(command, memory_bytes)
                    variables = fence.view.variables(variables)
                process = subprocess.Popen(
                    command,
                    env=variables,
                    pass_fds=[theirs.fileno()],
                    stdin=subprocess.DEVNULL,
                    stdout=output_of_children(),
                    stderr=output_of_children(),
                )
        except BaseException:
            ours.close()
            raise
    except OSError as error:  # no descriptors, processes or memory are left
        raise ResourceExhausted(
            f"the server cannot start a process for environments: {error}. Try again.",
            retry_after_s=_RETRY_S,
        ) from error
    return process, ours
