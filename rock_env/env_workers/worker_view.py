"""What the code of an environment sees of the host where others call the server: Python, its package, the operator's data.

Asked by the pool of env hosts (`pool`). It looks and decides; `worker_fence` carries it out.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

import rock_env
from rock_env import registered
from rock_env.backends.process.host_view import system

__all__ = ["WorkerView"]

_PROGRAM = (
    "import os, sys; sys.path.append(os.environ['ROCK']); "
    "from rock_env.env_workers.worker_fence import main; main(sys.argv[1:])"
)
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
        binds += [
            (str(path), str(path)) for path in dict.fromkeys(shown) if path.exists() and path != Path("/")
        ]
        self._plan = json.dumps({"links": links, "binds": binds, "hidden": [], "cwd": str(Path.cwd())})

    def command(self, command: Sequence[str]) -> list[str]:
        """Return the command line that becomes `command` behind the fence."""
        return [sys.executable, "-I", "-S", "-c", _PROGRAM, self._plan, *command]

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
                path for path in folder.iterdir() if path.suffix in _CODE or (path / "__init__.py").is_file()
            )
    return found
