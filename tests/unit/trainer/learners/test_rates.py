"""Learning rates by step and by epoch."""

import pytest

from trainer.config import OptimOptions, WarmupOptions
from trainer.learners.rates import learning_rate, warmup_rate


def test_the_rate_decays_linearly_to_its_end():
    optim = OptimOptions(lr=1e-3, lr_end=0.1)
    rates = [learning_rate(optim, step, 4) for step in (1, 2, 3, 4)]
    assert rates == pytest.approx([1e-3, 7e-4, 4e-4, 1e-4])
    assert learning_rate(optim, 1, 1) == 1e-3


def test_the_warm_up_ends_one_epoch_before_its_least_rate():
    warmup, optim = WarmupOptions(lr=2e-3, epochs=4), OptimOptions(lr_end=0.2)
    assert [warmup_rate(warmup, optim, epoch) for epoch in range(4)] == pytest.approx(
        [2e-3, 1.6e-3, 1.2e-3, 8e-4]
    )
