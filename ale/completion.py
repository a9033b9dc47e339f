"""What a shell may complete on the command line: names of plugins and of runs.

It reads entry points and folders, and imports no plugin: a shell asks again at every press of the key.
"""

from __future__ import annotations

from collections.abc import Iterable

from ale.training.runs import known
from rock_env.plugins import env_names, names
from trainer.models.named import named_models

__all__ = ["algorithms", "beginning", "environments", "models", "observers", "runs"]

_MODELS_OF_OURS = ("coder", "tiny")


def environments(incomplete: str) -> list[str]:
    """Return the environments, installed and registered, whose names begin so."""
    return beginning(incomplete, env_names())


def algorithms(incomplete: str) -> list[str]:
    """Return the installed algorithms whose names begin so."""
    return beginning(incomplete, names("ale.algorithms"))


def models(incomplete: str) -> list[str]:
    """Return our own models and the named ones whose names begin so; those of Hugging Face are not asked for."""
    return beginning(incomplete, (*_MODELS_OF_OURS, *named_models()))


def observers(incomplete: str) -> list[str]:
    """Return the installed observers of metrics whose names begin so."""
    return beginning(incomplete, names("ale.observers"))


def runs(incomplete: str) -> list[str]:
    """Return the runs of this folder whose names begin so."""
    return beginning(incomplete, known())


def beginning(incomplete: str, names: Iterable[str]) -> list[str]:
    """Return the names that begin so."""
    return [name for name in names if name.startswith(incomplete)]
