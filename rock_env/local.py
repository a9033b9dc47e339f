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


class EmbeddedServer:
    """A running embedded server; also a context manager that closes it."""

    def __init__(self, process: subprocess.Popen[str], folder: Path, address: str, *, http: str = "") -> None:
        self.address = address
        self.http = http
        """The URL of REST, with the option `--http=HOST:PORT`."""
        self.pid = process.pid
        self._process = process
        self._folder = folder

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
    process = subprocess.Popen(
        command,
        stdin=subprocess.PIPE,  # closes when we die, however we die
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,  # Ctrl-C is the owner's to handle
    )
    assert process.stdout is not None  # a pipe was asked for
    address = process.stdout.readline().strip()
    if not address:
        _stop(process)
        shutil.rmtree(folder, ignore_errors=True)
        raise InfraError(
            f"the embedded ROCK server did not start (exit code {process.returncode}); its message is above. "
            f"Command: {' '.join(command)}"
        )
    asked = any(option.startswith("--http=") for option in options)
    return EmbeddedServer(process, folder, address, http=process.stdout.readline().strip() if asked else "")


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
