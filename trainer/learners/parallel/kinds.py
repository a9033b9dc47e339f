"""What a parallelism is: it lays a network and its update over the ranks of a learner.

Found by entry point `ale.parallelisms`. Apart from `trainer.learners.parallel.base`, so that a learner of one process need
not import PyTorch's distributed parts.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rock_env.errors import InvalidArgument
from rock_env.plugins import load
from trainer.config import OptimOptions

if TYPE_CHECKING:
    from torch.distributed.device_mesh import DeviceMesh

    from trainer.learners.parallel.base import Spread, Whole

__all__ = ["Parallelism", "parallelism"]


@dataclass(frozen=True, slots=True)
class Parallelism:
    """A way to share a learner's work: a value of `ale.parallelisms`."""

    name: str
    summary: str
    spread: Callable[[Whole, DeviceMesh, OptimOptions, bool], Spread]
    """(network, ranks, optimizer, whether moments lie on the host) -> the network over the ranks, in each process."""
    divides: frozenset[str]
    """What a rank has a share of only: `weights`, `gradients`, `moments`. All ranks have the rest whole."""
    offloads: bool = False
    """It can keep the moments on the host."""
    masters: bool = False
    """It keeps a further float32 copy of what trains, beside the moments."""
    check: Callable[[], None] = lambda: None
    """Raise `InvalidArgument`, naming the remedy, where a package is missing."""


def parallelism(name: str, *, offload: bool = False) -> Parallelism:
    """Return the parallelism of this name. Raise `UnknownName`, or `InvalidArgument` where it cannot do what is asked."""
    found = load("ale.parallelisms", name)
    if not isinstance(found, Parallelism):
        raise InvalidArgument(
            f"the parallelism plugin {name!r} is no Parallelism: got {type(found).__name__}. Its entry point must name an "
            "object of type trainer.learners.parallel.base.Parallelism."
        )
    if offload and not found.offloads:
        raise InvalidArgument(
            f"parallelism={name!r} cannot keep moments on the host. Leave out offload, or choose fsdp2 or zero2."
        )
    return found
