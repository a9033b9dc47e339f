"""Names that modules had before they moved into folders: importing one says where it is now.

For one release. It imports nothing for the caller: code that keeps an old name would break with the release after.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import cache
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import Any, Never

__all__ = ["former", "tell_of_old_names"]


class _Emptied(Loader):
    """Makes a package that is gone, but held modules that have moved, so that their names are looked up as well."""

    def create_module(self, spec: ModuleSpec) -> None:
        """Leave making the module to Python."""

    def exec_module(self, module: ModuleType) -> None:
        """Have it say where its names are now."""
        module.__getattr__ = former(module.__name__)  # type: ignore[method-assign]


class _OldNames(MetaPathFinder):
    def find_spec(self, fullname: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        """Raise `ImportError` for an old name. Asked last, so that it costs imports that succeed nothing."""
        if not fullname.startswith(("rock_env.", "agent_runtime.", "trainer.", "ale.")):
            return None
        new = _table().get(fullname)
        if new is None:
            return None
        if any(old.startswith(f"{fullname}.") for old in _table()):
            return ModuleSpec(fullname, _Emptied(), is_package=True)
        raise ImportError(f"the module {fullname} has moved: import {new} instead.", name=fullname)


def tell_of_old_names() -> None:
    """Have every import of an old module name end with the new one. Safe to call twice."""
    if not any(isinstance(finder, _OldNames) for finder in sys.meta_path):
        sys.meta_path.append(_OldNames())


def former(package: str) -> Callable[[str], Never]:
    """Return a `__getattr__` for a package whose name was a module's: it says where that module's names are now."""

    def missing(name: str) -> Never:
        if name.startswith("_") or find_spec(f"{package}.{name}") is not None:
            raise AttributeError(f"module {package!r} has no attribute {name!r}", name=name)
        raise ImportError(
            f"{package} is a package now: import {name} from {_table()[package]} instead.", name=package
        )

    return missing


@cache
def _table() -> dict[str, str]:
    lines = Path(__file__).with_name("moved.txt").read_text(encoding="utf-8").splitlines()
    return dict(line.split() for line in lines)
