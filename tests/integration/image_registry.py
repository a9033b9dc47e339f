"""A container registry on loopback for tests, where engines push and pull without TLS."""

from __future__ import annotations

import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

LOG = "registry.log"
"""In the registry's folder: one line a request."""
_CONFIG = """
version: 0.1
storage:
  filesystem:
    rootdirectory: {folder}/blobs
http:
  addr: {address}
"""


@contextmanager
def running_registry(folder: Path) -> Iterator[str]:
    """Serve a registry out of `folder` and yield its address; skip, saying how to get one, where none is installed."""
    program = shutil.which("docker-registry")
    if program is None:
        pytest.skip("docker-registry is not installed (Debian: apt-get install docker-registry)")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    config = folder / "registry.yml"
    config.write_text(_CONFIG.format(folder=folder, address=f"127.0.0.1:{port}"))
    with (folder / LOG).open("w") as log:
        process = subprocess.Popen([program, "serve", str(config)], stdout=log, stderr=log)
        try:
            _until_it_listens(port, folder / LOG)
            yield f"127.0.0.1:{port}"
        finally:
            process.kill()
            process.wait()


def _until_it_listens(port: int, log: Path) -> None:
    until = time.monotonic() + 60
    while True:
        try:
            socket.create_connection(("127.0.0.1", port)).close()
            return
        except OSError:
            assert time.monotonic() < until, log.read_text()
            time.sleep(0.05)
