"""A real, private PostgreSQL server for tests: its own folder, a unix socket and a loopback port nobody else has."""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from urllib.parse import quote

import psutil
import pytest

FAST = (
    "fsync=off",
    "autovacuum=off",
    "max_connections=60",
    "shared_buffers=16MB",
    "listen_addresses=127.0.0.1",
)
"""A test's database need not survive a power cut, and starts no processes of its own accord that others might count."""


@cache
def binaries() -> Path | None:
    """Return the folder of the newest PostgreSQL programs, Debian's or those on PATH."""
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"), key=lambda it: int(it.parts[-3]))
    path = shutil.which("initdb")
    if found:
        return found[-1].parent
    return Path(path).parent if path else None


@cache
def _user() -> pwd.struct_passwd | None:
    """Return whom to run as: PostgreSQL refuses to run as root. None: as we are."""
    if os.geteuid() != 0:
        return None
    for name in ("postgres", "nobody"):
        try:
            return pwd.getpwnam(name)
        except KeyError:
            continue
    return None


@dataclass
class PostgresServer:
    """One running server; `restart` and `kill` act on the whole of it."""

    folder: Path
    port: int
    process: subprocess.Popen[bytes]

    @property
    def socket_url(self) -> str:
        return f"postgresql:///postgres?host={quote(str(self.folder))}&port={self.port}&user=rock"

    def url(self, database: str = "postgres") -> str:
        return f"postgresql://rock:sesame@127.0.0.1:{self.port}/{database}"

    def stop(self, *, fast: bool = True) -> None:
        """End it as an operator does, or (not `fast`) kill it."""
        if fast:
            self.process.send_signal(signal.SIGINT)
        else:  # its children lead process groups of their own, and keep a new server from starting while they live
            family = psutil.Process(self.process.pid).children(recursive=True)
            for each in (self.process, *family):
                with suppress(psutil.NoSuchProcess):
                    each.kill()
            psutil.wait_procs(family, timeout=10)
        self.process.wait()

    def start(self, *options: str) -> None:
        self.process = _start(self.folder, self.port, options)


def _as_user(command: list[str]) -> list[str]:
    """Have a program change the user: a subprocess with a user of its own forks, which gRPC's threads do not survive."""
    user = _user()
    if user is None:
        return command
    return ["setpriv", f"--reuid={user.pw_uid}", f"--regid={user.pw_gid}", "--clear-groups", *command]


def _run(program: str, *words: str, folder: Path) -> None:
    bin_folder = binaries()
    assert bin_folder is not None
    command = _as_user([str(bin_folder / program), *words])
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    log = folder / "log"
    said = log.read_text()[-2000:] if log.exists() else ""
    assert done.returncode == 0, f"{done.stderr}\nThe server's log ends with:\n{said}"


def _start(folder: Path, port: int, options: tuple[str, ...]) -> subprocess.Popen[bytes]:
    bin_folder = binaries()
    assert bin_folder is not None
    settings = [f"port={port}", f"unix_socket_directories={folder}", *FAST, *options]
    command = [str(bin_folder / "postgres"), "-D", str(folder / "data")]
    for setting in settings:
        command += ["-c", setting]
    (folder / "data" / "postmaster.pid").unlink(missing_ok=True)  # of one that was killed
    with (folder / "log").open("ab") as log:
        process = subprocess.Popen(
            _as_user(command), cwd=folder, stdout=log, stderr=log, start_new_session=True
        )
    while not _answers(folder, port):  # its socket: on the port, somebody else's server could answer
        if process.poll() is not None:
            raise RuntimeError(f"PostgreSQL ended: {(folder / 'log').read_text()[-2000:]}")
        time.sleep(0.02)
    return process


def _answers(folder: Path, port: int) -> bool:
    bin_folder = binaries()
    assert bin_folder is not None
    words = [str(bin_folder / "pg_isready"), "-q", "-h", str(folder), "-p", str(port)]
    return subprocess.run(words, check=False).returncode == 0


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextmanager
def postgres_server(*options: str) -> Iterator[PostgresServer]:
    """Run a server, or skip the test and say what to install."""
    if binaries() is None:
        pytest.skip(
            "PostgreSQL is absent: the shared store is NOT tested. Install it: apt-get install postgresql"
        )
    folder = Path(tempfile.mkdtemp(prefix="ale-pg-"))  # short: a socket's path has at most 107 characters
    server: PostgresServer | None = None
    try:
        user = _user()
        (folder / "password").write_text("sesame")
        if user is not None:
            for path in (folder, folder / "password"):
                os.chown(path, user.pw_uid, user.pw_gid)
        _run(
            "initdb",
            *("-D", str(folder / "data"), "-U", "rock", "-E", "UTF8", "--locale=C", "--no-sync"),
            *("--auth-local=trust", "--auth-host=scram-sha-256", f"--pwfile={folder / 'password'}"),
            folder=folder,
        )
        server = _first(folder, options)
        yield server
    finally:
        if server is not None and server.process.poll() is None:
            server.stop(fast=False)
        shutil.rmtree(folder, ignore_errors=True)


def _first(folder: Path, options: tuple[str, ...]) -> PostgresServer:
    """Start it on a port that nobody else took between our looking and its own."""
    for _ in range(2):
        port = _free_port()
        try:
            return PostgresServer(folder, port, _start(folder, port, options))
        except RuntimeError as error:
            if "already in use" not in str(error):
                raise
    port = _free_port()
    return PostgresServer(folder, port, _start(folder, port, options))


def databases(server: PostgresServer) -> Callable[[], str]:
    """Return what makes a new, empty database and tells its URL."""
    numbers = iter(range(1_000_000))

    def make() -> str:
        name = f"rock{next(numbers)}"
        _run(
            "createdb",
            "-h",
            str(server.folder),
            "-p",
            str(server.port),
            "-U",
            "rock",
            name,
            folder=server.folder,
        )
        return server.url(name)

    return make
