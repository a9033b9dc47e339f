"""How gradients become weights: AdamW over a set of parameters, and what a learner asks of whatever does it.

Used by `trainer.learners.torch_train`; `trainer.learners.parallel` brings updates whose moments are spread over ranks.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

import torch

from trainer.config import OptimOptions
from trainer.learners.spread import placed_like, whole

__all__ = ["MOMENTS", "AdamUpdate", "Update", "decayed_groups"]

MOMENTS = ("exp_avg", "exp_avg_sq")


class Update(Protocol):
    """Where several ranks share the work, every method is joint."""

    def shapes(self) -> dict[str, torch.Size]:
        """Return the whole shape of every parameter."""
        ...

    def backward(self, loss: torch.Tensor, *, last: bool) -> None:
        """Add the gradient of a part's loss; `last` says that no part follows."""
        ...

    def norm(self) -> float:
        """Return the norm of the whole gradient, once the last part was added; 0 where there is none."""
        ...

    def usual_norm(self) -> float:
        """Return the root mean square of the norms of recent gradients; 0 before the first update."""
        ...

    def apply(self, lr: float, most: float) -> None:
        """Scale the gradient down to the norm `most`, take a step at rate `lr`, and forget the gradient."""
        ...

    def forget(self) -> None:
        """Forget the gradient: nothing has moved."""
        ...

    def state(self) -> tuple[dict[str, torch.Tensor], dict[str, float]]:
        """Return parameters (`model.NAME`) and moments (`exp_avg.NAME`), whole and on the host, and each one's updates."""
        ...

    def load(self, stored: Mapping[str, torch.Tensor], steps: Mapping[str, float]) -> None:
        """Take what `state` gave, of any number of ranks."""
        ...


def decayed_groups(
    parameters: Mapping[str, torch.nn.Parameter], weight_decay: float
) -> list[dict[str, object]]:
    """Return AdamW's parameter groups: matrices decay, vectors do not; none is empty."""
    matrices = [value for value in parameters.values() if value.ndim >= 2]
    vectors = [value for value in parameters.values() if value.ndim < 2]
    groups: list[dict[str, object]] = [
        {"params": matrices, "weight_decay": weight_decay},
        {"params": vectors, "weight_decay": 0.0},
    ]
    return [group for group in groups if group["params"]]


class AdamUpdate:
    """PyTorch's AdamW in one process, or over `DTensor`s, whose gradients are those of all ranks already."""

    def __init__(self, parameters: Mapping[str, torch.nn.Parameter], optim: OptimOptions) -> None:
        self._parameters = dict(parameters)
        self._beta2 = optim.beta2
        self._total = torch.zeros(())
        self._optimizer = torch.optim.AdamW(
            decayed_groups(parameters, optim.weight_decay),
            lr=optim.lr,
            betas=(optim.beta1, optim.beta2),
            fused=True,
        )

    def shapes(self) -> dict[str, torch.Size]:
        """Return the whole shape of every parameter."""
        return {name: value.shape for name, value in self._parameters.items()}

    def backward(self, loss: torch.Tensor, *, last: bool) -> None:
        """Add the gradient of a part's loss, if it has one."""
        del last
        if loss.requires_grad:
            loss.backward()  # type: ignore[no-untyped-call]

    def norm(self) -> float:
        """Return the norm of the whole gradient."""
        grads = [value.grad for value in self._parameters.values() if value.grad is not None]
        self._total = torch.nn.utils.get_total_norm(grads) if grads else torch.zeros(())
        return float(whole(self._total))

    def usual_norm(self) -> float:
        """Return the root mean square of the norms of recent gradients of parameters that have one now."""
        with_grad = [value for value in self._parameters.values() if value.grad is not None]
        states = [state for value in with_grad if (state := self._optimizer.state.get(value))]
        squares = [whole(state["exp_avg_sq"].sum() / (1 - self._beta2 ** state["step"])) for state in states]
        return float(torch.stack(squares).sum().sqrt()) if squares else 0.0

    def apply(self, lr: float, most: float) -> None:
        """Take a step; the gradient is the one whose `norm` was asked last."""
        with_grad = [value for value in self._parameters.values() if value.grad is not None]
        torch.nn.utils.clip_grads_with_norm_(with_grad, most, self._total)
        for group in self._optimizer.param_groups:
            group["lr"] = lr
        self._optimizer.step()
        self.forget()

    def forget(self) -> None:
        """Forget the gradient."""
        self._optimizer.zero_grad(set_to_none=True)

    def state(self) -> tuple[dict[str, torch.Tensor], dict[str, float]]:
        """Return parameters and moments, whole and on the host, and how many updates each parameter had."""
        tensors = {f"model.{name}": value.detach() for name, value in self._parameters.items()}
        steps: dict[str, float] = {}
        for name, value in self._parameters.items():
            state = self._optimizer.state.get(value)
            if state:
                tensors |= {f"{moment}.{name}": state[moment] for moment in MOMENTS}
                steps[name] = float(whole(state["step"]))
        return {name: whole(value).cpu().contiguous() for name, value in tensors.items()}, steps

    @torch.no_grad()
    def load(self, stored: Mapping[str, torch.Tensor], steps: Mapping[str, float]) -> None:
        """Take what `state` gave."""
        for name, value in self._parameters.items():
            value.copy_(placed_like(value, stored[f"model.{name}"]))
            self._optimizer.state.pop(value, None)
            if name in steps:
                moments = {moment: placed_like(value, stored[f"{moment}.{name}"]) for moment in MOMENTS}
                self._optimizer.state[value] = {
                    "step": torch.tensor(steps[name], device=value.device),
                    **moments,
                }
