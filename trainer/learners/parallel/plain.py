"""Plain data parallelism: every rank holds the whole model and its moments; gradients are averaged once a step."""

from __future__ import annotations

from torch.distributed.device_mesh import DeviceMesh

from trainer.config import OptimOptions
from trainer.learners.parallel.base import Scores, Spread, SummedUpdate, Whole
from trainer.learners.parallel.kinds import Parallelism
from trainer.learners.spread import PLAIN

__all__ = ["PARALLELISM"]


def _spread(net: Whole, mesh: DeviceMesh, optim: OptimOptions, offload: bool) -> Spread:
    del mesh, offload
    return Spread(Scores(net), SummedUpdate(dict(net.named_parameters()), optim), PLAIN)


PARALLELISM = Parallelism(
    name="torch",
    summary="each rank holds the whole model; gradients are averaged",
    spread=_spread,
    divides=frozenset(),
)
