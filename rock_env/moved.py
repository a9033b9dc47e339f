"""Former names of modules that docs told plugins to import: importing one says where the module is now.

It imports nothing for the caller: code that keeps a former name would break with the release after.
"""

from __future__ import annotations

import sys
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from typing import Any

__all__ = ["MOVED", "tell_of_old_names"]

MOVED = {
    "rock_env.catalog": "rock_env.env_workers.catalog",
    "rock_env.registered": "rock_env.tasksets.registered",
    "rock_env.tasksets.model": "rock_env.grading.model",
    "trainer.engine.base": "trainer.protocols.engines",
    "trainer.engine.generate": "trainer.samplers.generate",
    "trainer.engine.net": "trainer.protocols.net",
    "trainer.engine.saved": "trainer.models.saved",
    "trainer.engine.tiny.tokenizer": "trainer.models.tiny.tokenizer",
    "trainer.engine.torch_train": "trainer.learners.torch_train",
    "trainer.samplers.protocol": "trainer.protocols.token_sampler",
}


class _OldNames(MetaPathFinder):
    def find_spec(self, fullname: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        """Raise `ImportError` for a former name. Asked last, so that it costs imports that succeed nothing."""
        if (new := MOVED.get(fullname)) is not None:
            raise ImportError(f"the module {fullname} has moved: import {new} instead.", name=fullname)
        if "." in fullname and any(old.startswith(f"{fullname}.") for old in MOVED):
            return ModuleSpec(
                fullname, None, is_package=True
            )  # empty, so that the name below it is looked up
        return None


def tell_of_old_names() -> None:
    """Have every import of a former name end with the new one. Safe to call twice."""
    if not any(isinstance(finder, _OldNames) for finder in sys.meta_path):
        sys.meta_path.append(_OldNames())
