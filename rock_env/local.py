"""Embedded mode: a ROCK server as a child process on a private unix socket.

Used where no server was named: laptops, tests, one-machine training. The child notices when its owner dies, even
by `kill -9`, and goes with it. It asks for no token: its socket lies in a folder of mode 0700, and who can open that
could as well read our memory.
"""

from __future__ import annotations

import asyncio
import shutil
import subprocess
import sys
import tempfile
import threading
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from types import TracebackType
from typing import Self

from rock_env.errors import InfraError
from rock_env.platforms import check_hosting

__all__ = ["EmbeddedServer", "embedded", "start_embedded"]

_MAX_SOCKET_PATH = 100
"""A unix socket's path may have 107 bytes (sun_path, less the final zero); keep some for its name."""
_STOP_S = 30.0
"""The server's own grace times sum to less."""
_START_S = 300.0
"""Longest that a start may take, on a machine that is busy, too."""


class EmbeddedServer:
    """A running embedded server; also a context manager that closes it."""

    def __init__(self, command: Sequence[str], folder: Path) -> None:
        """Start it with this command, which has it listen in a folder that is ours alone. Raise `InfraError`."""
        self._command, self._folder = command, folder
        self._starting = threading.Lock()
        self.address = self.http = ""
        """The latter is the URL of REST, with the option `--http=HOST:PORT`."""
        self._start()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def end(self) -> str:
        """Say how the server ended, such as "killed by signal 9"; empty while it runs."""
        code = self._process.poll()
        if code is None:
            return ""
        return f"killed by signal {-code}" if code < 0 else f"exit code {code}"

    def start_again(self) -> None:
        """Where it ended, start another one at the same address; environments are lost. Raise `InfraError`."""
        with self._starting:
            if self.end:
                _stop(self._process)
                self._folder.mkdir(mode=0o700, exist_ok=True)  # one that ended by itself removed it
                self._start()

    def _start(self) -> None:
        self._process = subprocess.Popen(
            self._command,
            stdin=subprocess.PIPE,  # closes when we die, however we die
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,  # Ctrl-C is the owner's to handle
        )
        self.pid = self._process.pid
        assert self._process.stdout is not None  # a pipe was asked for
        too_long = threading.Timer(_START_S, self._process.kill)
        too_long.start()
        self.address = self._process.stdout.readline().strip()
        too_long.cancel()
        if not self.address:
            self.close()
            raise InfraError(
                f"the embedded ROCK server did not start (exit code {self._process.returncode}); its message is above. "
                f"Command: {' '.join(self._command)}"
            )
        if any(option.startswith("--http=") for option in self._command):
            self.http = self._process.stdout.readline().strip()

    def close(self) -> None:
        """Stop the server and its environments. Safe to call twice, and after the server died."""
        _stop(self._process)
        shutil.rmtree(self._folder, ignore_errors=True)


def start_embedded(options: Sequence[str] = ()) -> EmbeddedServer:
    """Start a server with further command-line `options` and wait until it is ready.

    Raise `InfraError` if it ends instead; its own message is on stderr. Raise `FailedPrecondition` on a platform without
    servers.
    """
    check_hosting(sys.platform)
    folder = Path(tempfile.mkdtemp(prefix="rock-"))  # mode 0700: the socket is ours alone
    if len(str(folder)) > _MAX_SOCKET_PATH:
        folder.rmdir()
        folder = Path(tempfile.mkdtemp(prefix="rock-", dir="/tmp"))
    command = [sys.executable, "-P", "-m", "rock_env.server", f"--listen=unix://{folder}/s"]
    command += ["--exit-with-parent", "--remove-folder", *options]
    return EmbeddedServer(command, folder)


def _stop(process: subprocess.Popen[str]) -> None:
    for pipe in (process.stdin, process.stdout):
        if pipe is not None:
            pipe.close()
    try:
        process.wait(timeout=_STOP_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


@asynccontextmanager
async def embedded(options: Sequence[str] = ()) -> AsyncIterator[str]:
    """Run an embedded server for the time of the block; yields its address."""
    server = await asyncio.to_thread(start_embedded, options)
    try:
        yield server.address
    finally:
        await asyncio.shield(asyncio.to_thread(server.close))
