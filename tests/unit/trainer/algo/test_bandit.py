"""IPA on a two-armed bandit: the gradient over many samples against its expectation in closed form.

Arm 1 pays 1, arm 0 pays -1. The policy plays arm 1 with probability p = sigmoid(theta), so grad log pi is 1 - p and -p.
Samples come from another policy and go the whole way: trajectory, credit, batch, loss, autograd. The bound is 4 standard
errors, computed from the exact variance; another seed would break it once in 16,000 cases.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from algo_reference import CONTEXT, TABLE, trajectory

from trainer.algo.ipa import Ipa, IPAOptions
from trainer.data.build import build_batch

SAMPLES = 1000
ARMS = (CONTEXT + 1, CONTEXT + 2)
"""Token ids of arm 0 and arm 1."""
PI, OLD, MU = 0.7, 0.55, 0.45
"""P(arm 1) of the policy that learns, of the trainer as it was when arms were drawn, and of the engine that drew them."""
UNBOUNDED, BOUND = float("inf"), 1.25
"""The second lies between old / mu = 1.22 and pi / old = 1.27: it drops arm 1 wherever staleness is compared."""
MODES = ["stored", "snapshots", "paper"]


def table(p):
    """Return log-probabilities by token id; the arms' are those of a Bernoulli(p)."""
    values = np.zeros(TABLE)
    values[list(ARMS)] = np.log([1 - p, p])
    return values


def sampled_gradient(behaviour, mask_high, pi, old, mu):
    """Return d (mean objective) / d theta over samples drawn from `mu`."""
    options = IPAOptions(
        behaviour=behaviour, mask_high=mask_high, reward_fail=-1, neg_weight=1, lambda_il=0, gamma=0.5
    )
    drawn = (np.random.default_rng(7).random(SAMPLES) < mu).astype(int)
    group = [
        trajectory(str(n), [1], 1.0 if arm else -1.0, ids=iter([ARMS[arm]]), mu=table(mu))
        for n, arm in enumerate(drawn)
    ]
    algorithm = Ipa(options)
    batch, _ = build_batch(group, algorithm.credit(group), token_budget=1)
    batch = replace(batch, old_logprobs_BT=torch.tensor(table(old))[batch.tokens_BT])
    theta = torch.tensor(np.log(pi / (1 - pi)), requires_grad=True)
    sign_BT = torch.where(batch.tokens_BT == ARMS[1], 1.0, -1.0).double()
    algorithm.loss(batch, torch.nn.functional.logsigmoid(sign_BT * theta)).loss.backward()
    assert theta.grad is not None
    return -theta.grad.item()


def expectation(behaviour, mask_high, pi, old, mu):
    """Return the expectation of the gradient and its standard error, by hand."""
    base = mu if behaviour == "stored" else old
    arms = {}
    for arm in (0, 1):
        p, b, o, m = (value if arm else 1 - value for value in (pi, base, old, mu))
        compared = o / m if behaviour == "paper" else p / b
        weight = 1.0 if arm else min(p / b, 1.0)
        reward_times_score = 1 - pi if arm else pi
        arms[arm] = weight * reward_times_score if compared <= mask_high else 0.0
    mean = mu * arms[1] + (1 - mu) * arms[0]
    variance = mu * arms[1] ** 2 + (1 - mu) * arms[0] ** 2 - mean**2
    return mean, np.sqrt(variance / SAMPLES)


@pytest.mark.parametrize("mask_high", [UNBOUNDED, BOUND])
@pytest.mark.parametrize("behaviour", MODES)
def test_off_policy_the_gradient_is_the_closed_form(behaviour, mask_high):
    setting = (mask_high, PI, OLD, MU)
    mean, error = expectation(behaviour, *setting)
    assert abs(sampled_gradient(behaviour, *setting) - mean) < 4 * error


@pytest.mark.parametrize("p", [0.3, PI])
@pytest.mark.parametrize("behaviour", MODES)
def test_on_policy_it_is_the_gradient_of_the_expected_reward(behaviour, p):
    """d/d theta of p - (1 - p): no clip and no mask has a say."""
    mean, error = expectation(behaviour, BOUND, p, p, p)
    assert mean == pytest.approx(2 * p * (1 - p))
    assert abs(sampled_gradient(behaviour, BOUND, p, p, p) - mean) < 4 * error


@pytest.mark.parametrize(("one", "other"), [(a, b) for a in MODES for b in MODES if a != b])
def test_the_bound_tells_the_modes_apart(one, other):
    setting = (BOUND, PI, OLD, MU)
    mean, error = expectation(other, *setting)
    assert abs(sampled_gradient(one, *setting) - mean) > 4 * error
