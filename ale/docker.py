"""Docker on this machine, as the command line needs it: its client, and what to do where no engine answers."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Sequence

from ale.terminal import stderr
from rock_env.backends.docker.engine import Engine
from rock_env.errors import InvalidArgument, RockError, Unavailable

__all__ = ["INSTALL", "check_registry", "docker", "engine_version", "run_shown"]

INSTALL = (
    "Install Docker (Debian, Ubuntu: `apt-get install docker.io`; others: docs.docker.com/engine/install), start it "
    "(`systemctl start docker`), and let this user use it (group `docker`)."
)
_LINE = 8192
_REGISTRY = re.compile(r"[A-Za-z0-9][A-Za-z0-9.-]*(:[0-9]{1,5})?(/[a-z0-9][a-z0-9._-]*)*", re.ASCII)


async def engine_version() -> str:
    """Return the version of the engine of this machine. Raise `Unavailable` with `INSTALL`, or `InvalidArgument`."""
    engine = Engine()
    try:
        return str((await engine.call("GET", "/version"))["Version"])
    except InvalidArgument:  # of DOCKER_HOST, which says what to do
        raise
    except RockError as error:
        what = error.message.partition(". Start it")[0]  # what else it advises is for who needs no images
        raise Unavailable(f"{what}. {INSTALL}") from error
    finally:
        await engine.close()


def docker(*words: str, shown: bool = False) -> str:
    """Run Docker's client and return what it wrote; `shown`: on standard error as it comes. Raise `Unavailable`."""
    try:
        if shown:
            run_shown(["docker", *words])
            return ""
        done = subprocess.run(
            ["docker", *words], stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False
        )
    except FileNotFoundError as error:
        raise Unavailable(f"there is no program docker. {INSTALL}") from error
    if done.returncode:
        said = done.stderr.strip()
        raise Unavailable(f"`docker {' '.join(words)}` ended with status {done.returncode}: {said}.")
    return done.stdout


def run_shown(command: Sequence[str]) -> None:
    """Run a program and show what it writes on standard error as it comes. Raise `Unavailable` where it fails."""
    with subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="backslashreplace",
    ) as process:
        assert process.stdout is not None  # a pipe was asked for
        while line := process.stdout.readline(_LINE):
            stderr().print(line, end="")
    if process.returncode:
        raise Unavailable(f"`{' '.join(command)}` ended with status {process.returncode}; it says why above.")


def check_registry(registry: str) -> None:
    """Raise `InvalidArgument` for what names no place of a registry."""
    if not _REGISTRY.fullmatch(registry):
        raise InvalidArgument(
            f"bad registry {registry!r}: expected HOST[:PORT][/FOLDER] without a scheme or tag, such as "
            "registry.example.org/team."
        )
