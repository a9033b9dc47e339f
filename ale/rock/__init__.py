"""`ale rock`: servers and sandboxes from the command line.

`connected` loads on first use, so that help costs no gRPC.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ale.rock.reach import connected

__all__ = ["connected"]


def __getattr__(name: str) -> Any:
    if name in __all__:
        return getattr(import_module("ale.rock.reach"), name)
    raise AttributeError(f"module 'ale.rock' has no attribute {name!r}")
