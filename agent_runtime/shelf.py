"""A shelf: a folder of things that were fetched once, each whole or not there, for any number of processes to read.

Agents (`agent_runtime.agents.install`) and models (`ale.model`) are kept so. What was fetched for a thing that was not
finished stays beside it, for the next time. It knows pip and no other source.
"""

from __future__ import annotations

import fcntl
import importlib.util
import os
import shutil
import subprocess
import sys
import tempfile
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from rock_env.errors import InfraError

__all__ = ["Tell", "build", "pip", "run_installer", "shelf_of"]

_PART, _FETCHED = ".part-", ".fetched-"
_TAIL = 600
Tell = Callable[[str], None]
"""Hears what is waited for, as "pip, which fetches aider-chat==0.86.2: 12 packages so far"."""
Hear = Callable[[str], bool]
"""Gets each line of an installer, and returns whether that is no part of an error's message."""


def shelf_of(variable: str, name: str) -> Path:
    """Return the folder that an environment variable names, or else the one of this name in the user's cache."""
    if chosen := os.environ.get(variable):
        return Path(chosen).expanduser().absolute()
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache").absolute() / "ale" / name


def build(folder: Path, mark: str, name: str, fill: Callable[[Path, Path], None], tell: Tell) -> None:
    """Let `fill` make a folder, unless its file `mark`, which it writes, is there. Raise `OSError`, and what it raises.

    It is given the folder, and one for what it fetches. Of several processes one does it, the others find it done.
    """
    tell(f"another process that installs {name}")
    with _alone(folder.parent / f".lock-{folder.name}"):
        if (folder / mark).is_file():
            return
        fetched = folder.parent / f"{_FETCHED}{folder.name}"
        for remains in folder.parent.glob(f"{_PART}{folder.name}-*"):  # of a process that was killed
            shutil.rmtree(remains)
        part = Path(tempfile.mkdtemp(prefix=f"{_PART}{folder.name}-", dir=folder.parent))
        try:
            fill(part, fetched)
            part.chmod(0o755)
            part.rename(folder)
            shutil.rmtree(fetched, ignore_errors=True)
        finally:
            shutil.rmtree(part, ignore_errors=True)


@contextmanager
def _alone(lock: Path) -> Iterator[None]:
    """Hold the lock file."""
    fd = os.open(lock, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o644)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX)
        yield
    finally:
        os.close(fd)


def pip(
    command: str, words: Sequence[str], *, cwd: Path, fetched: Path, tell: Tell, hear: Hear = lambda _: False
) -> None:
    """Run a command of pip, of a pip of its own where this Python has none. Raise as `run_installer` does.

    `fetched` is its cache; settings of the user, such as an index, hold.
    """
    flags = ["--cache-dir", str(fetched), "--no-input", "--disable-pip-version-check", "--progress-bar=off"]
    with tempfile.TemporaryDirectory(prefix="ale-pip-") as own:
        python = sys.executable
        if importlib.util.find_spec("pip") is None:
            tell("a pip of its own")
            run_installer([sys.executable, "-m", "venv", own], cwd=cwd)
            python = f"{own}/bin/python"
        run_installer([python, "-m", "pip", command, *flags, *words], cwd=cwd, hear=hear)


def run_installer(argv: Sequence[str], *, cwd: Path, hear: Hear = lambda _: False) -> None:
    """Run an installer. Raise `InfraError` with the end of what it said where it fails."""
    environment: Mapping[str, str] = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    said: deque[str] = deque(maxlen=_TAIL)
    with subprocess.Popen(
        argv,
        cwd=cwd,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
    ) as running:
        assert running.stdout is not None
        try:
            said += (line for line in running.stdout if not hear(line))
        except BaseException:
            running.kill()
            raise
    if running.returncode:
        raise InfraError(
            f"installing failed: {' '.join(argv[:3])} … ended with {running.returncode}: {''.join(said)[-_TAIL:].strip()}"
        )
