"""Learning rates by step and by epoch. Pure."""

from __future__ import annotations

from trainer.config import OptimOptions, WarmupOptions

__all__ = ["learning_rate", "warmup_rate"]


def learning_rate(optim: OptimOptions, step: int, steps: int) -> float:
    """Return the rate of step 1, 2, ... of `steps`, which falls linearly from `lr`."""
    return _decayed(optim.lr, (step - 1) / max(1, steps - 1), optim.lr_end)


def warmup_rate(warmup: WarmupOptions, optim: OptimOptions, epoch: int) -> float:
    """Return the rate of the warm-up's epoch 0, 1, ...; the decay would end one epoch after the last."""
    return _decayed(warmup.lr, epoch / warmup.epochs, optim.lr_end)


def _decayed(peak: float, done: float, end: float) -> float:
    return peak * (1 - done * (1 - end))
