"""Objects that a script gave to `ale.train` on their way to other processes: names for them, and environments for a server.

Ray's actors get them as they are, with the folders of this process. The embedded server is started anew and takes a file: a
module that unpickles the environment, where the script's own modules are found too. What stands in a script or a notebook
travels by value.
"""

from __future__ import annotations

import hashlib
import pickle
import re
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import cloudpickle

from rock_env.plugins import Own, own
from trainer.errors import ConfigError

__all__ = ["Carried", "digest_of", "name_of", "own_env", "packed"]

_MODULE = """import pickle, sys
from pathlib import Path

sys.path += [folder for folder in {path!r} if folder not in sys.path]
ENV = pickle.loads(Path(__file__).with_name("env.pickle").read_bytes())
"""


def packed(what: str, given: object) -> bytes:
    """Return an object as it travels to other processes. Raise `ConfigError` for one that cannot."""
    try:
        return bytes(cloudpickle.dumps(given))
    except Exception as error:  # boundary: pickling runs a user's code
        raise ConfigError(
            f"the {what} you gave cannot be sent to other processes: {type(error).__name__}: {error}. Have it hold no open "
            "file, lock or connection: make those where they are used."
        ) from error


class Carried:
    """Objects on their way to an actor, which gets them as a mapping, and the folders in which their modules are found."""

    def __init__(self, objects: Own) -> None:
        self._objects = objects

    def __reduce__(self) -> tuple[object, ...]:
        return _arrived, (_folders(), packed("objects", dict(self._objects)))


def _arrived(folders: list[str], data: bytes) -> Own:
    sys.path += [folder for folder in folders if folder not in sys.path]
    found: Own = pickle.loads(data)
    return found


def _folders() -> list[str]:
    return [str(Path(folder).absolute()) for folder in sys.path]


def digest_of(given: object) -> str:
    """Return a digest that changes with a function's code."""
    return hashlib.sha256(packed("function", given)).hexdigest()[:12]


def name_of(given: object) -> str:
    """Return a name for an object without one: that of its function or class, such as `short_answers`."""
    name = str(getattr(given, "__name__", type(given).__name__))
    return re.sub(r"\W+", "", re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name)).lower() or "own"


@contextmanager
def own_env(name: str) -> Iterator[list[str]]:
    """Yield the embedded server's options for an environment that this process was given; nothing for an installed one."""
    spec = own().get(("ale.envs", name))
    if spec is None:
        yield []
        return
    with tempfile.TemporaryDirectory(prefix="ale-own-") as folder:
        (Path(folder) / "env.pickle").write_bytes(packed("environment", spec))
        module = Path(folder) / "own_env.py"
        module.write_text(_MODULE.format(path=_folders()))
        yield [f"--env={module}:ENV"]
