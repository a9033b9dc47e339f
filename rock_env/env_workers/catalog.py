"""The environments one server offers: what is installed and registered here, plus what its command line names.

It loads plugins; it never runs an environment.
"""

from __future__ import annotations

import importlib
import importlib.util
import re
import sys
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path

from rock_env import plugins
from rock_env.arguments import Data, shown
from rock_env.errors import InvalidArgument
from rock_env.foreign.files import check_regular
from rock_env.spec import EnvParams, EnvSpec, TaskSource, TaskSpec

__all__ = ["Catalog", "load_reference", "parse_task_id"]

_TASK_ID = re.compile(r"(.+)/(0|[1-9][0-9]{0,17})", re.DOTALL)
"""A task has one name: its index in ASCII digits, without leading zeros."""


def load_reference(reference: str) -> EnvSpec:
    """Import the `EnvSpec` that `module:OBJECT` or `path/to/file.py:OBJECT` names.

    Raise `InvalidArgument` if the reference is malformed, does not import or is not an `EnvSpec`.
    """
    place, colon, attribute = reference.rpartition(":")
    if not (colon and place and attribute):
        raise InvalidArgument(
            f"bad environment reference {reference!r}: expected module:OBJECT or file.py:OBJECT."
        )
    try:
        module = _load_file(Path(place)) if place.endswith(".py") else importlib.import_module(place)
        spec = getattr(module, attribute)
    except (ImportError, OSError, AttributeError, SyntaxError) as error:
        raise InvalidArgument(f"environment reference {reference!r} does not load: {error}.") from error
    if not isinstance(spec, EnvSpec):
        raise InvalidArgument(f"{reference!r} is a {type(spec).__name__}, expected a rock_env.spec.EnvSpec.")
    return spec


def _load_file(path: Path) -> object:
    check_regular(path.stat().st_mode, path)  # the import would wait for a FIFO's writer
    name = f"rock_extra_{path.stem}"
    found = importlib.util.spec_from_file_location(name, path)
    if found is None or found.loader is None:
        raise ImportError(f"{path} is not a Python file")
    module = importlib.util.module_from_spec(found)
    sys.modules[name] = module  # dataclasses and pickle look their module up here
    found.loader.exec_module(module)
    return module


def parse_task_id(task_id: str) -> tuple[str, int]:
    """Split `split/index`. Raise `InvalidArgument` for any other form."""
    found = _TASK_ID.fullmatch(task_id)
    if found is None:
        raise InvalidArgument(
            f"bad task id {shown(task_id)}: expected split/index, such as 'train/0', where the index has 1 to 18 digits and "
            "does not begin with a 0 unless it is 0."
        )
    return found[1], int(found[2])


class Catalog:
    """Environments by name; `extra` references win over installed and registered ones of the same name."""

    def __init__(self, extra: Sequence[str] = (), *, data: Data | None = None) -> None:
        """Take more references, and what callers' arguments may name of the host; without it, any path."""
        self.references = tuple(extra)
        self._data = data or Data()
        self._extra = {spec.name: spec for spec in map(load_reference, self.references)}
        # Parsing arguments and opening a task source may be slow, and thousands of Makes repeat few of them. By version,
        # since a registered environment may be brought up to date while the server runs.
        self._parsed = lru_cache(maxsize=256)(self._parse)
        self._opened = lru_cache(maxsize=64)(self._open)

    def names(self) -> tuple[str, ...]:
        """Return all names, sorted; imports no plugin."""
        return tuple(sorted({*plugins.env_names(), *self._extra}))

    def spec(self, name: str) -> EnvSpec:
        """Return the environment `name`. Raise `UnknownName` listing the known ones."""
        if name in self._extra:
            return self._extra[name]
        if not plugins.knows_env(name):
            raise plugins.unknown_env(name, self.names())
        return plugins.load_env(name)

    def resolve(self, name: str, params_json: str) -> str:
        """Return a caller's arguments with data in place of their names; the plugin has not checked them yet.

        Raise `UnknownName` or `InvalidArgument`.
        """
        return self._data.resolve(name, self.spec(name).params, params_json)

    def params(self, name: str, params_json: str) -> EnvParams:
        """Validate an environment's arguments, as `resolve` returns them. Raise `UnknownName` or `InvalidArgument`."""
        return self._parsed(name, self.spec(name).version, params_json)

    def tasks(self, name: str, canonical: str) -> TaskSource:
        """Return an environment's tasks with the arguments of this canonical form."""
        return self._opened(name, self.spec(name).version, canonical)

    def _parse(self, name: str, version: str, params_json: str) -> EnvParams:
        return plugins.env_params(self.spec(name), params_json)

    def _open(self, name: str, version: str, canonical: str) -> TaskSource:
        return self.spec(name).tasks(self.params(name, canonical))

    def task(self, name: str, params: EnvParams, task_id: str) -> TaskSpec:
        """Resolve a task id. Raise `InvalidArgument`, or `UnknownName` for an unknown split."""
        split, index = parse_task_id(task_id)
        return self.tasks(name, params.canonical()).get(split, index)
