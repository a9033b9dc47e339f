"""Install a CLI agent once, into a folder that any number of sandboxes share read-only.

A shelf is a folder of installed agents, `NAME-DIGEST` each; a ROCK server that is started with `--shelf` shows it in
every sandbox. An install is whole or not there: it is built beside its place and renamed, by one process at a time. No
install script of an npm package is run.
"""

from __future__ import annotations

import fcntl
import importlib.util
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from agent_runtime.agents.spec import NODE, AgentSpec
from rock_env.errors import InfraError, InvalidArgument, Unimplemented

__all__ = ["MANIFEST", "default_shelf", "find_installed", "install_agent"]

MANIFEST = "agent.json"
"""In an installed folder: its name, packages and what each package's version really is."""
_PART = ".part-"
_TAIL = 600
_START = '''"""Start {program} of {name}, without a look at any other installed package."""
import os
import site
import sys

site.addsitedir(os.path.join(os.path.dirname(os.path.abspath(__file__)), "pip"))
sys.argv[0] = {name!r}
from {module} import {function}

sys.exit({function}())
'''


def default_shelf() -> Path:
    """Return where agents are installed unless one says otherwise: `ALE_AGENTS`, or a folder of the user's cache."""
    if chosen := os.environ.get("ALE_AGENTS"):
        return Path(chosen).expanduser().absolute()
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache").absolute() / "ale" / "agents"


def find_installed(spec: AgentSpec, shelf: Path) -> Path | None:
    """Return the folder of an installed agent, or None."""
    folder = shelf / spec.folder
    return folder if (folder / MANIFEST).is_file() else None


def install_agent(spec: AgentSpec, shelf: Path) -> Path:
    """Install the agent below `shelf` and return its folder; at once where it is there already.

    Blocks, for minutes where packages are large. Raise `Unimplemented` for an agent that cannot be had, `InvalidArgument`
    where npm is missing, and `InfraError`, with what the installer said, where it failed; then nothing is left.
    """
    if spec.unavailable:
        raise Unimplemented(f"the agent {spec.name!r} cannot be installed: {spec.unavailable}")
    if find_installed(spec, shelf) is None:
        shelf.mkdir(parents=True, exist_ok=True)
        if spec.install.node:
            package = f"{NODE}@{spec.install.node}"
            _build(shelf / spec.install.node_folder, "node", lambda part: _npm([package], part / "npm"))
        _build(shelf / spec.folder, spec.name, lambda part: _fill(spec, part))
    return shelf / spec.folder


def _build(folder: Path, name: str, fill: Callable[[Path], dict[str, str]]) -> None:
    """Let `fill`, which returns the packages' versions, make a folder, unless it is there."""
    with _alone(folder.parent / f".lock-{folder.name}"):
        if (folder / MANIFEST).is_file():
            return
        for remains in folder.parent.glob(f"{_PART}{folder.name}-*"):  # of a process that was killed
            shutil.rmtree(remains)
        part = Path(tempfile.mkdtemp(prefix=f"{_PART}{folder.name}-", dir=folder.parent))
        try:
            manifest = {"name": name, "packages": fill(part)}
            (part / MANIFEST).write_text(json.dumps(manifest, indent=1, sort_keys=True))
            _open_to_all(part)
            part.rename(folder)
        finally:
            shutil.rmtree(part, ignore_errors=True)


@contextmanager
def _alone(lock: Path) -> Iterator[None]:
    """Hold the lock file: of processes that install the same agent one does it, the others find it done."""
    fd = os.open(lock, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o644)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX)
        yield
    finally:
        os.close(fd)


def _fill(spec: AgentSpec, folder: Path) -> dict[str, str]:
    """Fetch the packages; return the version of each that is there now."""
    install = spec.install
    if install.pip:
        _pip(install.pip, folder)
        module, _, function = install.program.partition(":")
        start = _START.format(program=install.program, name=spec.name, module=module, function=function)
        (folder / "start.py").write_text(start)
        return _pip_versions(folder / "pip")
    versions = _npm(install.npm, folder / "npm")
    if not (folder / install.program).is_file():
        raise InfraError(
            f"the packages of {spec.name} hold no {install.program!r}, which its spec names as the program. For another "
            f"platform the file lies elsewhere; look into {', '.join(install.npm)}."
        )
    return versions


def _npm(packages: Sequence[str], folder: Path) -> dict[str, str]:
    """Install npm packages, each below `folder/node_modules`; return what is there."""
    npm = shutil.which("npm")
    if npm is None:
        raise InvalidArgument(
            "this agent comes from npm, which is not on PATH. Install Node.js (any version) first."
        )
    folder.mkdir()
    flags = ["--no-audit", "--no-fund", "--ignore-scripts", "--no-save", "--loglevel=error"]
    # The agent runs on a Node of its own, so what npm's own Node is does not matter.
    _run([npm, "install", "--prefix", str(folder), *flags, "--engine-strict=false", *packages], cwd=folder)
    said = json.loads((folder / "node_modules" / ".package-lock.json").read_text())
    return {path.removeprefix("node_modules/"): entry["version"] for path, entry in said["packages"].items()}


def _pip(packages: Sequence[str], folder: Path) -> None:
    """Install below `folder/pip`, where this Python has no pip with one of its own."""
    flags = [
        "--target",
        str(folder / "pip"),
        "--no-input",
        "--disable-pip-version-check",
        "--quiet",
    ]
    with tempfile.TemporaryDirectory(prefix="ale-pip-") as own:
        python = sys.executable
        if importlib.util.find_spec("pip") is None:
            _run([sys.executable, "-m", "venv", own], cwd=folder)
            python = f"{own}/bin/python"
        _run([python, "-m", "pip", "install", *flags, *packages], cwd=folder)


def _pip_versions(folder: Path) -> dict[str, str]:
    found = (entry.name.removesuffix(".dist-info").rpartition("-") for entry in folder.glob("*.dist-info"))
    return {name: version for name, _, version in found}


def _run(argv: Sequence[str], *, cwd: Path) -> None:
    environment: Mapping[str, str] = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    try:
        subprocess.run(
            argv,
            cwd=cwd,
            env=environment,
            check=True,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
    except subprocess.CalledProcessError as error:
        raise InfraError(
            f"installing failed: {' '.join(argv[:3])} … ended with {error.returncode}: {error.stdout[-_TAIL:].strip()}"
        ) from error


def _open_to_all(folder: Path) -> None:
    """Let every user read, and nobody write: sandboxes run as users of their own.

    Some packages make their programs executable in an install script, which is not run.
    """
    for top, folders, files in os.walk(folder):
        for name in files:
            path = Path(top, name)
            if not path.is_symlink():
                path.chmod(0o555 if path.stat().st_mode & 0o100 or _is_program(path) else 0o444)
        for name in folders:
            path = Path(top, name)
            if not path.is_symlink():
                path.chmod(0o755)
    folder.chmod(0o755)


def _is_program(path: Path) -> bool:
    with path.open("rb") as file:
        return file.read(4) == b"\x7fELF"
