"""What a shell may complete on the command line: names of plugins and of runs.

It reads entry points and folders, and imports no plugin: a shell asks again at every press of the key. What it asks is
imported then, since every command imports this module.
"""

from __future__ import annotations

from collections.abc import Iterable

__all__ = ["agents", "algorithms", "environments", "models", "runs"]

_MODELS_OF_OURS = ("coder", "tiny")


def environments(incomplete: str) -> list[str]:
    """Return the environments, installed and registered, whose names begin so."""
    from rock_env.plugins import env_names

    return _beginning(incomplete, env_names())


def algorithms(incomplete: str) -> list[str]:
    """Return the installed algorithms whose names begin so."""
    from rock_env.plugins import names

    return _beginning(incomplete, names("ale.algorithms"))


def agents(incomplete: str) -> list[str]:
    """Return the CLI agents whose names begin so."""
    from agent_runtime.agents.spec import agent_names

    return _beginning(incomplete, agent_names())


def models(incomplete: str) -> list[str]:
    """Return our own models whose names begin so; those of Hugging Face are not asked for."""
    return _beginning(incomplete, _MODELS_OF_OURS)


def runs(incomplete: str) -> list[str]:
    """Return the runs of this folder whose names begin so."""
    from ale.training.runs import known

    return _beginning(incomplete, known())


def _beginning(incomplete: str, names: Iterable[str]) -> list[str]:
    return [name for name in names if name.startswith(incomplete)]
