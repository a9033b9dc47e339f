"""What `ale train --dry-run` says of the lesson, memory, places and checkpoints. It brings torch, which other settings do
without.
"""

from __future__ import annotations

import math
from itertools import pairwise

from rock_env.errors import InvalidArgument
from trainer import checkpoint
from trainer.algo.base import NeedsSnapshots
from trainer.algo.terms.lesson import lesson_of
from trainer.config import TrainConfig
from trainer.learners.versions import versions_kept
from trainer.models.chosen import learner_of, memory_of
from trainer.models.fitting import settled
from trainer.models.placed import check_placement, placement_lines
from trainer.models.roles import algorithm_of, role_lines
from trainer.protocols.memory import Parameters

__all__ = ["checkpoint_lines", "lesson_lines", "resource_lines"]

_SAVED_BYTES = 12
"""Of a trained parameter: itself and AdamW's two moments, in float32."""


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


def checkpoint_lines(config: TrainConfig) -> list[str]:
    """Return what the run's checkpoints take, how many there are at its end, and which steps they let be computed again."""
    options, steps = config.checkpoint, config.steps
    size = _checkpoint_bytes(config)
    if size is None:
        return [
            "",
            f"checkpoints: how large one is shows when the first is written. The newest {options.keep} are kept, and older "
            f"ones in up to {options.history_gb:g} GB (checkpoint.history_gb).",
        ]
    saved = sorted({*range(0, steps + 1, options.every), steps})
    older, newest = saved[: -options.keep], saved[-options.keep :]
    history = checkpoint.history(dict.fromkeys(older, size), options.history_bytes)
    kept = [*sorted(history), *newest]
    older_kept = "all" if len(history) == len(older) else f"at least {len(history)} of the"
    told = (
        f"checkpoints of about {size / 1e6:,.1f} MB (docs/debugging.md): the newest {options.keep} are kept, and with "
        f"checkpoint.history_gb={options.history_gb:g} {older_kept} {len(older)} older ones. "
    )
    if kept[0] == 0:
        behind = max((later - before for before, later in pairwise(kept)), default=1) - 1
        told += f"`ale replay train` computes any step again, after at most {behind} others."
    else:
        told += (
            f"`ale replay train` computes steps after {kept[0]} again, and any with checkpoint.history_gb="
            f"{math.ceil(size / 1e7) / 100:g}, which would keep that of the warm-up's end."
        )
    return ["", told]


def _checkpoint_bytes(config: TrainConfig) -> int | None:
    """Return about how large a checkpoint is; None where the model is not here."""
    learner, options = learner_of(config)
    try:
        if learner.parameters:
            count = learner.parameters(config.model, options)
        else:
            weights = learner.train(config.model, options, config.seed, config.optim).weights()
            each = sum(value.size for value in weights.values())
            count = Parameters(each, each)
    except InvalidArgument:
        return None
    algorithm = algorithm_of(config)[1]
    snapshots = algorithm.snapshots if isinstance(algorithm, NeedsSnapshots) else 0
    versions = versions_kept(config, snapshots) + bool(config.explore.kl_coef)
    return _SAVED_BYTES * count.trained + 4 * versions * count.published
