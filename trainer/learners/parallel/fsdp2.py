"""PyTorch's FSDP2: each rank holds a share of every weight, gradient and moment.

A rank gathers a layer's weights while it computes that layer, and lets go of them.
"""

from __future__ import annotations

from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import CPUOffloadPolicy, OffloadPolicy, fully_shard

from trainer.config import OptimOptions
from trainer.learners.parallel.base import Scores, Spread, Whole
from trainer.learners.parallel.kinds import Parallelism
from trainer.learners.recompute import layers_of
from trainer.learners.spread import PLAIN
from trainer.learners.update import AdamUpdate

__all__ = ["PARALLELISM"]


def _spread(net: Whole, mesh: DeviceMesh, optim: OptimOptions, offload: bool) -> Spread:
    scores = Scores(net)
    policy = CPUOffloadPolicy(pin_memory=mesh.device_type == "cuda") if offload else OffloadPolicy()
    # Weights are let go of after every forward pass, the root's too: its parameters are then always the shares.
    for layer in layers_of(net.model):
        fully_shard(layer, mesh=mesh, reshard_after_forward=True, offload_policy=policy)
    fully_shard(scores, mesh=mesh, reshard_after_forward=True, offload_policy=policy)
    return Spread(scores, AdamUpdate(dict(net.named_parameters()), optim), PLAIN)


PARALLELISM = Parallelism(
    name="fsdp2",
    summary="PyTorch's FSDP2: each rank holds a share of weights, gradients and moments",
    spread=_spread,
    divides=frozenset({"weights", "gradients", "moments"}),
    offloads=True,
)
