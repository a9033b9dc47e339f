"""Install a CLI agent once, into a folder that any number of sandboxes share read-only.

A shelf is a folder of installed agents, `NAME-DIGEST` each; a ROCK server that is started with `--shelf` shows it in
every sandbox. An install is whole or not there: it is built beside its place and renamed, by one process at a time. No
install script of an npm package is run. What was fetched of an install that ended early stays beside it: the next one
fetches the rest.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Sequence
from pathlib import Path

from agent_runtime.agents.spec import NODE, AgentSpec
from agent_runtime.shelf import Tell, build, pip, run_installer, shelf_of
from rock_env.errors import InfraError, InvalidArgument, Unimplemented

__all__ = ["MANIFEST", "default_shelf", "find_installed", "install_agent"]

MANIFEST = "agent.json"
"""In an installed folder: its name, packages and what each package's version really is."""
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
    return shelf_of("ALE_AGENTS", "agents")


def find_installed(spec: AgentSpec, shelf: Path) -> Path | None:
    """Return the folder of an installed agent, or None."""
    folder = shelf / spec.folder
    return folder if (folder / MANIFEST).is_file() else None


def install_agent(spec: AgentSpec, shelf: Path, tell: Tell = lambda _: None) -> Path:
    """Install the agent below `shelf` and return its folder; at once where it is there already.

    Blocks, for minutes where packages are large; `tell` hears what is being done whenever that changes. Raise
    `Unimplemented` for an agent that cannot be had, `InvalidArgument` where npm is missing, and `InfraError`, with what the
    installer said, where it failed; then only the packages that were fetched are left, for the next time.
    """
    if spec.unavailable:
        raise Unimplemented(f"the agent {spec.name!r} cannot be installed: {spec.unavailable}")
    if find_installed(spec, shelf) is None:
        shelf.mkdir(parents=True, exist_ok=True)
        if spec.install.node:
            package = f"{NODE}@{spec.install.node}"

            def fill_node(part: Path, fetched: Path) -> None:
                _finish(part, "node", _npm([package], part / "npm", fetched, tell))

            build(shelf / spec.install.node_folder, MANIFEST, "node", fill_node, tell)

        def fill(part: Path, fetched: Path) -> None:
            _finish(part, spec.name, _fill(spec, part, fetched, tell))

        build(shelf / spec.folder, MANIFEST, spec.name, fill, tell)
    return shelf / spec.folder


def _finish(part: Path, name: str, versions: dict[str, str]) -> None:
    (part / MANIFEST).write_text(json.dumps({"name": name, "packages": versions}, indent=1, sort_keys=True))
    _open_to_all(part)


def _fill(spec: AgentSpec, folder: Path, fetched: Path, tell: Tell) -> dict[str, str]:
    """Fetch the packages; return the version of each that is there now."""
    install = spec.install
    if install.pip:
        _pip(install.pip, folder, fetched, tell)
        module, _, function = install.program.partition(":")
        start = _START.format(program=install.program, name=spec.name, module=module, function=function)
        (folder / "start.py").write_text(start)
        return _pip_versions(folder / "pip")
    versions = _npm(install.npm, folder / "npm", fetched, tell)
    if not (folder / install.program).is_file():
        raise InfraError(
            f"the packages of {spec.name} hold no {install.program!r}, which its spec names as the program. For another "
            f"platform the file lies elsewhere; look into {', '.join(install.npm)}."
        )
    return versions


def _npm(packages: Sequence[str], folder: Path, fetched: Path, tell: Tell) -> dict[str, str]:
    """Install npm packages, each below `folder/node_modules`; return what is there."""
    npm = shutil.which("npm")
    if npm is None:
        raise InvalidArgument(
            "this agent comes from npm, which is not on PATH. Install Node.js (any version) first."
        )
    folder.mkdir()
    flags = ["--no-audit", "--no-fund", "--ignore-scripts", "--no-save", "--loglevel=http"]
    # The agent runs on a Node of its own, so what npm's own Node is does not matter.
    flags += ["--engine-strict=false", f"--cache={fetched}"]
    heard = _Heard(f"npm, which fetches {', '.join(packages)}", tell)
    run_installer([npm, "install", "--prefix", str(folder), *flags, *packages], cwd=folder, hear=heard.npm)
    said = json.loads((folder / "node_modules" / ".package-lock.json").read_text())
    return {path.removeprefix("node_modules/"): entry["version"] for path, entry in said["packages"].items()}


def _pip(packages: Sequence[str], folder: Path, fetched: Path, tell: Tell) -> None:
    """Install below `folder/pip`, where this Python has no pip with one of its own."""
    heard = _Heard(f"pip, which fetches {', '.join(packages)}", tell)
    words = ["--target", str(folder / "pip"), *packages]
    pip("install", words, cwd=folder, fetched=fetched, tell=tell, hear=heard.pip)


def _pip_versions(folder: Path) -> dict[str, str]:
    found = (entry.name.removesuffix(".dist-info").rpartition("-") for entry in folder.glob("*.dist-info"))
    return {name: version for name, _, version in found}


class _Heard:
    """What an installer's lines say of how far it is."""

    def __init__(self, what: str, tell: Tell) -> None:
        self._what, self._tell = what, tell
        self._packages: set[str] = set()
        tell(what)

    def npm(self, line: str) -> bool:
        """Count the packages that npm fetches; return whether the line says only that."""
        fetches = line.startswith("npm http ")
        if fetches and ".tgz" in line:
            self._count(next(word for word in line.split() if ".tgz" in word))
        return fetches

    def pip(self, line: str) -> bool:
        """Count the packages that pip looks at, and hear when it builds and unpacks; return whether that is all."""
        word, _, rest = line.strip().partition(" ")
        if word in ("Collecting", "Processing") and rest:
            self._count(rest.split()[0])
        elif word == "Building" and rest.startswith("wheel for"):
            self._tell(f"{self._what}: it builds {rest.split()[2]}")
        elif line.startswith("Installing collected packages"):
            self._tell(f"{self._what}: it unpacks {len(rest.split(','))}")
        return word in ("Collecting", "Processing", "Downloading", "Using", "Looking")

    def _count(self, package: str) -> None:
        self._packages.add(package)
        count = len(self._packages)
        self._tell(f"{self._what}: {count} package{'s' * (count > 1)} so far")


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


def _is_program(path: Path) -> bool:
    with path.open("rb") as file:
        return file.read(4) == b"\x7fELF"
