"""IPA says how much of a step is imitation, and how much of its RL is failures: by the gradient, token by token."""

from __future__ import annotations

from itertools import count

import numpy as np
import pytest
import torch
from algo_reference import CONTEXT, batch_for, computed, learners, ragged_group, tables, trajectory, winners

from trainer.algo.base import Metric
from trainer.algo.ipa import Ipa, IPAOptions
from trainer.data.build import microbatches


def tokens(trajectories):
    """Return the ids that trajectories sampled: each is an entry of the table, and so of the gradient."""
    return np.concatenate([turn.completion_ids for t in trajectories for turn in t.turns])


def reported(algorithm, group, prox, pi, most_tokens=10**6):
    """Return the shares as the engine adds them up over microbatches."""
    sums: dict[str, Metric] = {}
    for part in microbatches(batch_for(algorithm, group, prox), most_tokens):
        for name, metric in algorithm.loss(part, torch.tensor(pi)[part.tokens_BT]).metrics.items():
            before = sums.get(name, Metric(0.0, 0.0))
            sums[name] = Metric(before.total + metric.total, before.weight + metric.weight)
    return {name: metric.total / metric.weight for name, metric in sums.items() if metric.weight}


@pytest.mark.parametrize("most_tokens", [1, 10**6])
@pytest.mark.parametrize(
    "options",
    [
        {"baseline": "leave_one_out", "neg_weight": 0.3, "lambda_il": 0.6},
        {
            "baseline": "leave_one_out",
            "neg_weight": 1.0,
            "lambda_il": 0.1,
            "lambda_rl": 3.0,
            "mask_high": 1.1,
        },
        {"baseline": "none"},
    ],
)
def test_the_shares_are_those_of_the_gradient_of_the_tokens_log_probabilities(options, most_tokens):
    mu, prox, pi = tables()
    group, algorithm = ragged_group(mu), Ipa(IPAOptions(**options))
    _, grad = computed(algorithm, group, prox, pi)
    weight = np.abs(grad)
    imitated = weight[tokens(winners(group))].sum()
    failed = weight[tokens([t for t in learners(group) if t.reward <= 0])].sum()
    found = reported(algorithm, group, prox, pi, most_tokens)
    assert found["ipa/imitation_share"] == pytest.approx(imitated / weight.sum(), rel=1e-5)
    assert found["ipa/failures_share"] == pytest.approx(failed / (weight.sum() - imitated), rel=1e-5)


def test_a_step_from_whose_rollouts_nothing_is_learned_is_all_imitation():
    mu, prox, pi = tables()
    ids = count(CONTEXT + 1)
    group = [trajectory(name, [2, 2], 0.0, ids=ids, mu=mu) for name in "ab"]
    group.append(trajectory("expert", [2, 3], 1.0, ids=ids, expert=True))
    found = reported(Ipa(IPAOptions(baseline="leave_one_out", neg_weight=0.3)), group, prox, pi)
    assert found["ipa/imitation_share"] == 1
    assert "ipa/failures_share" not in found, "0 of 0 is no share"


def test_masked_entries_do_not_count():
    """A log-probability that is not finite outside the mask changes no share."""
    mu, prox, pi = tables()
    poisoned = pi.copy()
    poisoned[:CONTEXT] = np.nan
    algorithm = Ipa(IPAOptions(baseline="leave_one_out", neg_weight=1.0))
    shares = [reported(algorithm, ragged_group(mu), prox, each) for each in (pi, poisoned)]
    names = ("ipa/imitation_share", "ipa/failures_share")
    assert [shares[0][name] for name in names] == [shares[1][name] for name in names]
