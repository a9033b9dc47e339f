"""What `ale train --dry-run` says of the lesson, memory and places. It brings torch, which other settings do without."""

from __future__ import annotations

from rock_env.errors import InvalidArgument
from trainer.algo.terms.lesson import lesson_of
from trainer.config import TrainConfig
from trainer.models.chosen import memory_of
from trainer.models.fitting import settled
from trainer.models.placed import check_placement, placement_lines
from trainer.models.roles import algorithm_of, role_lines

__all__ = ["lesson_lines", "resource_lines"]


def lesson_lines(config: TrainConfig) -> list[str]:
    """Return one sentence on what the run's algorithm will learn from, under its options and the size of its groups."""
    return ["", f"{config.algo} {lesson_of(*algorithm_of(config), config.rollout.group_size)}"]


def resource_lines(config: TrainConfig, *, elsewhere: bool = False) -> list[str]:
    """Return what the run's processes would take in memory, as far as its engines can say without loading the model, what a
    run that began now would choose by that, and where they would be. `elsewhere`: on other machines.

    Raise `ConfigError` where they do not fit there.
    """
    told, chosen = [], ""
    try:
        config, chosen = settled(config, elsewhere=elsewhere)
        roles = memory_of(config)
    except InvalidArgument as error:
        roles, told = [], [f"memory: not known. {' '.join(str(error).split())}"]
    check_placement(config, roles)
    if roles:
        lines = role_lines(roles, placed=bool(config.placement.pool))
        told = ["", f"{chosen}."] if chosen else []
        told += ["", "memory, worked out from the model's config (docs/learners.md):", *lines]
    if config.placement.pool:
        told += [
            "",
            f"placement, {config.placement.layout} (docs/placement.md):",
            *placement_lines(config, roles),
        ]
    return told
