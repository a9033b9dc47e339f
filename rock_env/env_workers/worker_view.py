"""What the code of a fenced worker sees of the host: Python, its package, the operator's data.

Asked by `fencing`. It looks and decides; `worker_fence` carries it out.
"""

from __future__ import annotations

import marshal
import os
import platform
import sys
import zlib
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

import rock_env
from rock_env.backends.process.cgroups import Places
from rock_env.backends.process.host_view import box_identity, system
from rock_env.backends.process.seccomp import MACHINES, assemble
from rock_env.tasksets import registered

__all__ = ["WorkerView"]

_PROGRAM = """import os, sys, types
for name in "rock_env", "rock_env.backends.process":
    package = sys.modules[name] = types.ModuleType(name)
    package.__path__ = [os.path.join(os.environ["ROCK"], *name.split("."))]
from rock_env.env_workers.worker_fence import main
main(sys.argv[1:])"""
"""It does without what these packages themselves import, which would cost more than the fence."""
_KEPT = ("LANG", "LD_LIBRARY_PATH", "PATH", "TZ")
_KEPT_BEGINNINGS = ("LC_", "OMP_", "PYTHON")
"""Variables of the server that a worker gets; others may be secrets."""
_CODE = (".py", ".so", ".dist-info", ".egg-info")


class WorkerView:
    """How the workers of one server are started. Made once, when the server starts."""

    def __init__(self, references: Iterable[str], data: Iterable[str]) -> None:
        """Take the references of `--env` and the paths of `--data`."""
        links, binds = system()
        self._home = registered.home()
        with suppress(OSError):  # one that is registered or pushed later has to be seen as well
            (self._home / "envs").mkdir(mode=0o700, parents=True, exist_ok=True)
        files = [reference.rpartition(":")[0] for reference in references]
        shown = [Path(sys.prefix), Path(sys.executable).resolve().parents[1], *_code(), self._home / "envs"]
        shown += [Path(name).absolute() for name in files if name.endswith(".py")]
        shown += map(Path, data)
        machine = platform.machine()
        self._plan = {
            "links": links,
            "binds": binds,
            "hidden": [],
            "shown": [
                (str(path), str(path))
                for path in dict.fromkeys(shown)
                if os.access(path, os.R_OK) and path != Path("/")
            ],
            "cwd": str(Path.cwd()),
            "filter": assemble(machine) if machine in MACHINES else b"",
            "parent": os.getpid(),
            "user": os.geteuid() != 0,
        }

    def command(
        self, command: Sequence[str], places: Places, group: str, limits: Mapping[str, float]
    ) -> list[str]:
        """Return the command line that becomes `command` behind the fence, at a user of its own, in a control group.

        Without places for groups it has none.
        """
        own = {"identity": box_identity(), "cgroups": places, "group": group, "limits": limits}
        packed = zlib.compress(marshal.dumps({**self._plan, **own}, 2), 1)  # an argument has at most 128 KiB
        return [sys.executable, "-I", "-S", "-c", _PROGRAM, packed.hex(), *command]

    def variables(self, ours: Mapping[str, str]) -> dict[str, str]:
        """Return the worker's variables, of the server's."""
        kept = {
            name: text for name, text in ours.items() if name in _KEPT or name.startswith(_KEPT_BEGINNINGS)
        }
        package = str(Path(rock_env.__file__).resolve().parents[1])
        return {**kept, "HOME": "/tmp", "TMPDIR": "/tmp", "ALE_HOME": str(self._home), "ROCK": package}


def _code() -> list[Path]:
    """Return packages and modules of `sys.path` outside of Python's own folders, such as those of a checkout."""
    own = [Path(prefix) for prefix in ("/usr", sys.prefix, sys.base_prefix)]
    found: list[Path] = []
    for entry in map(Path, sys.path):
        folder = entry.absolute()
        if any(folder.is_relative_to(prefix) for prefix in own):
            continue
        if folder.is_file():  # a zip
            found.append(folder)
        elif folder.is_dir():
            found += sorted(
                path
                for path in folder.iterdir()
                if path.suffix in _CODE or os.access(path / "__init__.py", os.R_OK)
            )
    return found
