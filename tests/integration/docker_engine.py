"""A Docker engine and small images for tests: what is there is used; what is missing is made, or skipped over loudly.

The running engine is used. Where none runs, this user is root and `dockerd` is installed, one is started for all test
processes of the run and ends with the last of them. Images are made from this machine's files: nothing is pulled.
"""

from __future__ import annotations

import asyncio
import fcntl
import json
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Awaitable, Callable
from functools import cache
from pathlib import Path

import pytest

BUSYBOX = "rock-test:busybox"
TOOLS = "rock-test:tools"
IMAGES = Path(__file__).parents[2] / "scripts" / "test_images.sh"
GVISOR = ["--host-uds=all", "--host-fifo=open", "--network=none"]
"""What runsc must be told to let a guest listen on a socket that the host connects to."""
_LOCK = Path(tempfile.gettempdir()) / f"rock-test-engine-{os.getuid()}.lock"
_START_S = 90.0

# Starts the engine, waits until no test process holds the lock any more, then ends what it started.
_KEEPER = """
dockerd --config-file "$3" >"$2" 2>&1 & engine=$!
exec 9>"$1"
flock --exclusive 9
kill "$engine"
wait "$engine"
"""


def _answers() -> str:
    """Return why no engine can be used here; empty where one can."""
    if shutil.which("docker") is None:
        return "docker is not installed (Debian: apt-get install docker.io)"
    asked = subprocess.run(["docker", "version"], capture_output=True, text=True, check=False)
    return "" if asked.returncode == 0 else f"no Docker engine answers: {asked.stderr.strip()}"


def _start() -> str:
    """Start an engine for this run; return why that cannot be."""
    if os.geteuid() != 0:
        return "and only root can start one"
    if shutil.which("dockerd") is None:
        return "and dockerd is not installed (Debian: apt-get install docker.io)"
    log, settings = Path(f"{_LOCK}.log"), Path(f"{_LOCK}.json")
    gvisor = {"path": shutil.which("runsc"), "runtimeArgs": GVISOR}
    settings.write_text(json.dumps({"runtimes": {"runsc": gvisor}} if gvisor["path"] else {}))
    argv = ["setsid", "--fork", "bash", "-c", _KEEPER, "keeper", str(_LOCK), str(log), str(settings)]
    subprocess.run(
        argv, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=True
    )
    ends = time.monotonic() + _START_S
    while time.monotonic() < ends:
        if not _answers():
            return ""
        time.sleep(0.1)
    return f"and dockerd did not come up in {_START_S:g} s: {log.read_text()[-500:]}"


@cache
def why_no_engine() -> str:
    """Make sure of an engine and the images; return what is missing and how to get it, or an empty string."""
    in_use, first = (_open(_LOCK), _open(Path(f"{_LOCK}.first")))
    fcntl.flock(in_use, fcntl.LOCK_SH)  # held, and never closed, until this process ends
    fcntl.flock(first, fcntl.LOCK_EX)  # one test process looks and starts, the others wait for it
    try:
        problem = _answers()
        if problem and (worse := _start()):
            return f"{problem}, {worse}"
        made = subprocess.run(["bash", IMAGES], capture_output=True, text=True, check=False)
        return f"the test images cannot be made: {made.stderr.strip()[-500:]}" if made.returncode else ""
    finally:
        os.close(first)


def _open(path: Path) -> int:
    return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)


@pytest.fixture(scope="session")
def engine() -> None:
    """Skip, saying what is missing, where no Docker engine can be had."""
    if problem := why_no_engine():
        pytest.skip(f"no Docker here: {problem}")


@pytest.fixture
def reachable_layers(engine: None) -> None:
    """Skip, saying what is missing, where the layers of containers cannot be reached from here."""
    driver, root = docker("info", "--format", "{{.Driver}} {{.DockerRootDir}}").split()
    if os.geteuid() != 0 or driver != "overlay2" or not Path(root, driver).is_dir():
        pytest.skip(f"needs root and the overlay2 storage of this machine's own engine, which has {driver}")


@pytest.fixture(scope="session")
def bundles(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return where the guest's bundle is kept for all backends of a test process."""
    return tmp_path_factory.mktemp("bundles")


async def until(true: Callable[[], Awaitable[object]]) -> None:
    """Wait until something is true; fail after half a minute."""
    for _ in range(1500):
        if await true():
            return
        await asyncio.sleep(0.02)
    pytest.fail("it did not become true in 30 s")


def skip_without(*images: str) -> None:
    """Skip, saying how to get it, where the engine lacks an image that others are built upon."""
    for image in images:
        if subprocess.run(["docker", "image", "inspect", image], capture_output=True, check=False).returncode:
            pytest.skip(
                f"the image {image} is absent: what builds upon it is NOT tested. Pull it, or import one as that."
            )


def docker(*words: str) -> str:
    """Run the engine's own client; return what it printed."""
    return subprocess.run(["docker", *words], capture_output=True, text=True, check=True).stdout.strip()
