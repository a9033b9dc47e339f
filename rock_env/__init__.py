"""ROCK: sandboxes and environments as a service. Knows nothing about learning.

`make` and `connect` are the synchronous face; `rock_env.client.Client` is the real, asynchronous one. Both load on
first use, so importing a core type costs no gRPC.
"""

from __future__ import annotations

import sys

# `python -m` looks into the working folder first, and what lies there is not the server's. This file runs before any other.
if sys.argv[:1] == ["-m"] and "rock_env.server" in sys.orig_argv and not sys.flags.safe_path:
    sys.path.pop(0)

from importlib import import_module
from typing import TYPE_CHECKING, Any

from rock_env.moved import tell_of_old_names
from rock_env.platforms import check_import

if TYPE_CHECKING:
    from rock_env.client.sync import connect, make

__all__ = ["connect", "make"]

check_import(sys.platform)
tell_of_old_names()


def __getattr__(name: str) -> Any:
    if name in __all__:
        return getattr(import_module("rock_env.client.sync"), name)
    raise AttributeError(f"module 'rock_env' has no attribute {name!r}")
