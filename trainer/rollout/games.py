"""Which environments are played in the rollout worker's own process: games whose code is ALE's own.

Such a game cannot hang or crash and needs nothing of a server, and a call to it takes microseconds. Everything else is
hosted by a ROCK server, whose processes may end without the run's.
"""

from __future__ import annotations

from rock_env.plugins import load_env
from rock_env.spec import EnvSpec
from trainer.config import TrainConfig

__all__ = ["is_played_here"]

_OURS = "sandboxes."
"""The package of the environments that ship with ALE."""


def is_played_here(config: TrainConfig) -> bool:
    """Return whether the run's environments need no server: neither they nor its agents and rewards have sandboxes."""
    rollout = config.rollout
    if rollout.games == "served" or rollout.rock_address or rollout.backends:
        return False
    if config.agent.name or config.reward.routes:
        return False
    return all(_is_a_game_of_ours(load_env(each.env)) for each in config.shares)


def _is_a_game_of_ours(spec: EnvSpec) -> bool:
    ours = all(f"{part.__module__}.".startswith(_OURS) for part in (spec.factory, spec.tasks, spec.params))
    return ours and spec.sandbox is None and not spec.library
