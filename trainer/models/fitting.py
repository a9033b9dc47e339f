"""Whether a learner recomputes its layers, where its user left `checkpointing` at `auto`: only where a run fits by it alone.

Called before a run's settings are written, which then hold what was chosen; a resumed run chooses nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import NamedTuple

import torch

from trainer.config import TrainConfig
from trainer.models.chosen import learner_of, memory_of
from trainer.models.placed import bytes_in
from trainer.models.roles import together
from trainer.protocols.engines import AUTO

__all__ = ["Fit", "available_bytes", "device_bytes", "settled"]

_ERROR = 0.15
"""By which share an estimate may be too low (docs/learners.md)."""
_LIMITS = (
    ("memory.max", "memory.current", "inactive_file"),
    ("memory/memory.limit_in_bytes", "memory/memory.usage_in_bytes", "total_inactive_file"),
)
"""A container's limit, what is used of it, and what of that the kernel gives back: of both versions of control groups."""


class Fit(NamedTuple):
    """What is expected to be taken of the memory that the learner is in, in bytes."""

    needed: int
    room: int
    where: str

    @property
    def is_enough(self) -> bool:
        """Return whether it fits although the estimate may be too low."""
        return self.needed * (1 + _ERROR) <= self.room


def available_bytes(proc: Path = Path("/proc"), groups: Path = Path("/sys/fs/cgroup")) -> int | None:
    """Return the memory that this machine, or the container that this process is in, has left; None where neither says."""
    left = []
    try:
        lines = (proc / "meminfo").read_text().splitlines()
        left += [int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable:")]
    except OSError:
        return None
    for limit, used, cached in _LIMITS:
        try:
            most, now = ((groups / name).read_text().strip() for name in (limit, used))
            stat = dict(
                line.split() for line in (groups / limit).with_name("memory.stat").read_text().splitlines()
            )
        except OSError:
            continue
        if most.isdigit():  # "max" has none
            left.append(max(0, int(most) - int(now) + int(stat.get(cached, 0))))
    return min(left, default=None)


def device_bytes() -> tuple[int, int] | None:
    """Return how many CUDA devices this machine has, and the memory of the first; None where it has none."""
    if not torch.cuda.is_available():
        return None
    return torch.cuda.device_count(), torch.cuda.get_device_properties(0).total_memory


def settled(
    config: TrainConfig,
    *,
    elsewhere: bool = False,
    machine: Callable[[], int | None] = available_bytes,
    device: Callable[[], tuple[int, int] | None] = device_bytes,
) -> tuple[TrainConfig, str]:
    """Return the settings with a choice for `checkpointing`, and a sentence that says why; as they are, and "", where its
    user or the engine leaves nothing to choose.

    `elsewhere`: processes are on other machines. `machine` and `device` say what memory there is. Raise `InvalidArgument`
    where the model is not here.
    """
    if getattr(learner_of(config)[1], "checkpointing", None) != AUTO:
        return config, ""
    off, on = (
        config.model_copy(update={"engine_options": {**config.engine_options, "checkpointing": choice}})
        for choice in (False, True)
    )
    machine, device = cache(machine), cache(device)  # both are compared with the same memory
    told = "engine_options.checkpointing={} was chosen, because ".format
    without = _fit(off, elsewhere, machine, device)
    if without is None:
        return off, told("false") + (
            "the memory of the learner's machine is not known here: set it, or name a bundle with memory_gb in "
            "placement.pool"
        )
    expected = (
        f"{without.needed / 1e9:.2f} GB are expected to be taken of the {without.room / 1e9:.2f} GB of {without.where} "
        "without it"
    )
    if without.is_enough:
        return off, told("false") + expected
    with_it = _fit(on, elsewhere, machine, device)
    assert with_it is not None
    remedy = "" if with_it.is_enough else ": lower optim.microbatch_tokens if memory runs out"
    return on, told("true") + f"{expected}, {with_it.needed / 1e9:.2f} GB with it{remedy}"


def _fit(
    config: TrainConfig,
    elsewhere: bool,
    machine: Callable[[], int | None],
    device: Callable[[], tuple[int, int] | None],
) -> Fit | None:
    """Return how a run fits; None where nobody says how much memory there is, or what is taken."""
    roles = memory_of(config)
    pool, number = config.placement.pool, config.placement.learner
    if pool and pool[number].memory_gb:
        room = round(pool[number].memory_gb * 1e9)
        return Fit(bytes_in(config, roles, number), room, f"bundle {number} of placement.pool")
    own = [role for role in roles if role.name in {"learner", "reference"}]
    if elsewhere or not own:
        return None
    if own[0].device == "cuda":
        found = device()
        if found is None:
            return None
        shared = max(together(roles, "cuda") // found[0], sum(role.total for role in own))
        return Fit(bytes_in(config, roles, number) if pool else shared, found[1], "the GPU")
    left = machine()
    return None if left is None else Fit(together(roles, "cpu"), left, "this machine's free memory")
