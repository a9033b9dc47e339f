"""Train LLM agents by reinforcement learning in real environments: `ale.train`, and the command line.

Importing it is cheap: what needs torch and Ray is imported when it is first asked for.
"""

from importlib import import_module
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ale.python import train

__all__ = ["__version__", "train"]

__version__ = version("ale-rl")

if not TYPE_CHECKING:

    def __getattr__(name: str) -> Any:
        """Import `train` when it is asked for."""
        if name == "train":
            return import_module("ale.python").train
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}", name=name)
