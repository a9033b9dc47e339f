"""DeepSpeed's ZeRO: ranks share moments (stage 1), gradients too (stage 2), or weights as well (stage 3).

Its engine is asked for passes and steps only. Clipping, refusing and the checkpoint's format stay this project's, so that
every parallelism moves weights alike and reads the others' checkpoints.

Two acts have no public call in DeepSpeed and use its private ones, which is why one version of it is pinned: dropping the
gradients of an update that is refused (`forget`; the public `step` would apply them), and linking moments to parameters
after the first step (`_link_moments`; the public reader of moments finds none before).
"""

from __future__ import annotations

import importlib
import logging
import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import AbstractContextManager
from functools import partial
from importlib.util import find_spec
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh

from rock_env.errors import InvalidArgument
from trainer.config import OptimOptions
from trainer.learners.parallel.base import Scores, Spread, Whole
from trainer.learners.parallel.kinds import Parallelism
from trainer.learners.spread import PLAIN, Placement
from trainer.learners.update import MOMENTS, decayed_groups

__all__ = ["ZERO1", "ZERO2", "ZERO3"]

_BUCKET = 1 << 24
"""Numbers of one message between ranks, and of the buffer it is put together in: 64 MiB."""


class _Partitioned(Placement):
    """Parameters of stage 3, which DeepSpeed gathers; what is none of them is whole."""

    def __init__(self, deepspeed: Any) -> None:
        self._zero = deepspeed.zero

    def shape(self, value: torch.Tensor) -> torch.Size:
        return torch.Size(getattr(value, "ds_shape", value.shape))

    @torch.no_grad()
    def whole(self, value: torch.Tensor) -> torch.Tensor:
        if not hasattr(value, "ds_id"):
            return value.detach()
        partitioned: Any = value
        if partitioned.ds_status.name == "AVAILABLE":
            return value.detach().clone()
        with self._zero.GatheredParameters([value]):
            return value.detach().clone()

    @torch.no_grad()
    def put(self, value: torch.Tensor, given: torch.Tensor) -> None:
        with self._zero.GatheredParameters([value], modifier_rank=0):
            value.copy_(given)

    def together(self, values: Iterable[torch.Tensor]) -> AbstractContextManager[None]:
        gathered: AbstractContextManager[None] = self._zero.GatheredParameters(list(values))
        return gathered


class _ZeroUpdate:
    """AdamW by DeepSpeed's engine; a gradient is the mean of the ranks'."""

    def __init__(
        self,
        deepspeed: Any,
        engine: Any,
        parameters: Mapping[str, torch.nn.Parameter],
        placement: Placement,
        optim: OptimOptions,
    ) -> None:
        self._utils = deepspeed.utils
        self._engine = engine
        self._zero = engine.optimizer
        self._sharded = engine.zero_optimization_stage() == 3
        self._parameters = dict(parameters)
        self._placement = placement
        self._beta2 = optim.beta2
        self._has_gradient = False

    def shapes(self) -> dict[str, torch.Size]:
        return {name: self._placement.shape(value) for name, value in self._parameters.items()}

    def backward(self, loss: torch.Tensor, *, last: bool) -> None:
        self._engine.set_gradient_accumulation_boundary(last)
        self._engine.backward(loss)
        self._has_gradient = True

    def norm(self) -> float:
        if not self._has_gradient:
            return 0.0
        squares = torch.zeros((), dtype=torch.float64, device=self._engine.device)
        for grad in self._own_gradients():
            squares += grad.double().square().sum().to(squares.device)
        return float(_summed(squares).sqrt())

    def usual_norm(self) -> float:
        squares = torch.zeros((), dtype=torch.float64, device=self._engine.device)
        for state in self._states():
            fading = 1 - self._beta2 ** float(state["step"])
            squares += state["exp_avg_sq"].double().sum().to(squares.device) / fading
        return float(_summed(squares).sqrt())

    def apply(self, lr: float, most: float) -> None:
        for group in self._zero.param_groups:
            group["lr"] = lr
        self._zero.clip_grad = most
        self._engine.step()
        self._has_gradient = False

    def forget(self) -> None:
        if not self._has_gradient:
            return
        self._has_gradient = False
        zero = self._zero
        zero.zero_grad(set_to_none=True)
        if self._sharded:  # what `step` does after an overflow
            zero._pre_step()
            zero._partition_all_parameters()
            zero._overflow_clean_up(1.0)
            return
        zero.micro_step_id = -1  # the next part's gradients take the place of what was added up
        zero.averaged_gradients.clear()
        zero.all_grad_tensors.clear()
        if zero.cpu_offload:
            zero._offload_accumulated_param_ids = set()
            zero.reset_cpu_buffers()

    def state(self) -> tuple[dict[str, torch.Tensor], dict[str, float]]:
        tensors = {f"model.{name}": self._placement.whole(value) for name, value in self._parameters.items()}
        tensors = {name: value.cpu().contiguous() for name, value in tensors.items()}
        steps = {float(state["step"]) for state in self._states()}
        if not steps or steps == {0.0}:
            return tensors, {}
        self._link_moments()
        for name, value in self._parameters.items():
            for moment in MOMENTS:
                found = self._utils.safe_get_full_optimizer_state(value, moment)
                tensors[f"{moment}.{name}"] = found.cpu().contiguous()
        return tensors, dict.fromkeys(self._parameters, steps.pop())

    @torch.no_grad()
    def load(self, stored: Mapping[str, torch.Tensor], steps: Mapping[str, float]) -> None:
        for name, value in self._parameters.items():
            self._placement.put(value, stored[f"model.{name}"])
        self._zero.refresh_fp32_params()
        if not self._states():
            self._begin_moments()
        self._link_moments()
        for name, value in self._parameters.items():
            for moment in MOMENTS:
                given = (
                    stored[f"{moment}.{name}"] if name in steps else torch.zeros(self._placement.shape(value))
                )
                self._put_moment(value, given, moment)
        for state in self._states():
            state["step"].fill_(max(steps.values(), default=0.0))

    def _begin_moments(self) -> None:
        """Have the optimizer make its moments, by a step at rate 0."""
        with torch.enable_grad():
            nothing = torch.zeros(1, 1, dtype=torch.int64, device=self._engine.device)
            scored = self._engine(nothing, nothing, nothing[0], nothing[0])[0]
            self.backward(scored.sum() * 0.0, last=True)
        self.apply(0.0, 1.0)

    def _link_moments(self) -> None:
        """Tell each parameter where its moments are: DeepSpeed does it once, when only the first group has any."""
        if not self._sharded:
            self._zero._hp_optimizer_states_linked = False
            self._zero._lazy_init_hp_params_optimizer_state()

    def _put_moment(self, value: torch.Tensor, given: torch.Tensor, moment: str) -> None:
        given = given.to(self._engine.device)
        if not self._sharded:
            self._utils.safe_set_full_optimizer_state(value, given, moment)
            return
        share = self._utils.safe_get_local_optimizer_state(value, moment)
        padded = given.new_zeros(share.numel() * dist.get_world_size())
        padded[: given.numel()] = given.flatten()
        own = padded.narrow(0, share.numel() * dist.get_rank(), share.numel())
        self._utils.safe_set_local_optimizer_state(value, own, moment)

    def _states(self) -> list[Any]:
        return [state for state in self._zero.optimizer.state.values() if state]

    def _own_gradients(self) -> Iterator[torch.Tensor]:
        """Return this rank's share of the gradient."""
        if self._sharded:
            for group in self._zero.get_fp32_grad_partitions().values():
                yield from group.values()
        elif self._zero.cpu_offload:
            yield from (value.grad for value in self._zero.single_partition_of_fp32_groups)
        else:
            for grads in self._zero.averaged_gradients.values():
                yield from (grad for grad in grads or () if grad is not None)


def _summed(value: torch.Tensor) -> torch.Tensor:
    dist.all_reduce(value)
    return value


def _spread(stage: int, net: Whole, mesh: DeviceMesh, optim: OptimOptions, offload: bool) -> Spread:
    deepspeed = _deepspeed(mesh)
    if stage == 3 and list(net.model.get_output_embeddings().children()):
        raise InvalidArgument(
            "zero3 cannot train an adapter of the output layer. Choose lora_targets without it, or parallelism='zero2'."
        )
    parameters = dict(net.named_parameters())
    adam = torch.optim.AdamW(
        decayed_groups(parameters, optim.weight_decay),
        lr=optim.lr,
        betas=(optim.beta1, optim.beta2),
        fused=True,
    )
    engine, *_ = deepspeed.initialize(
        model=Scores(net), optimizer=adam, config=_config(stage, offload), dist_init_required=False
    )
    placement = _Partitioned(deepspeed) if stage == 3 else PLAIN
    return Spread(engine, _ZeroUpdate(deepspeed, engine, parameters, placement, optim), placement)


def _config(stage: int, offload: bool) -> dict[str, Any]:
    zero: dict[str, Any] = {
        "stage": stage,
        "overlap_comm": False,
        "reduce_bucket_size": _BUCKET,
        "allgather_bucket_size": _BUCKET,
        # Stage 3 gathers what a module needs when it is called, and lets go of it then. Looking ahead follows the order of
        # the modules in earlier passes, which is not the same at a rank that has nothing.
        "stage3_prefetch_bucket_size": 0,
        "stage3_param_persistence_threshold": 0,
        "stage3_max_live_parameters": 0,
        "stage3_max_reuse_distance": 0,
    }
    if offload:
        zero["offload_optimizer"] = {"device": "cpu", "pin_memory": False}
    return {
        "train_micro_batch_size_per_gpu": 1,
        "gradient_accumulation_steps": 1,
        "zero_allow_untested_optimizer": True,
        "zero_force_ds_cpu_optimizer": False,
        "zero_optimization": zero,
    }


def _deepspeed(mesh: DeviceMesh) -> Any:
    """Import DeepSpeed for a rank whose group is there already."""
    _check()
    os.environ.setdefault("DS_ACCELERATOR", mesh.device_type)
    os.environ.setdefault("LOCAL_RANK", str(mesh.get_rank()))
    logging.getLogger("DeepSpeed").setLevel(logging.WARNING)
    deepspeed = importlib.import_module("deepspeed")
    # Would be compiled at the first message between ranks; gloo does its work.
    importlib.import_module("deepspeed.ops").__compatible_ops__["deepspeed_shm_comm"] = False
    return deepspeed


def _check() -> None:
    if find_spec("deepspeed") is None:
        raise InvalidArgument(
            "DeepSpeed is not installed here, which zero1, zero2 and zero3 need. Install it: pip install "
            "'ale-rl[deepspeed]'; or choose parallelism='fsdp2', which comes with PyTorch."
        )


def _stage(stage: int, summary: str, *divides: str) -> Parallelism:
    return Parallelism(
        name=f"zero{stage}",
        summary=f"DeepSpeed's ZeRO-{stage}: {summary}",
        spread=partial(_spread, stage),
        divides=frozenset(divides),
        offloads=True,
        masters=True,
        check=_check,
    )


ZERO1 = _stage(1, "ranks share the moments", "moments")
ZERO2 = _stage(2, "ranks share moments and gradients", "moments", "gradients")
ZERO3 = _stage(3, "ranks share moments, gradients and weights", "moments", "gradients", "weights")
