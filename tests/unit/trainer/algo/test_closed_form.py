"""Two tokens, two choices each: everything can be enumerated, so gradients have exact values.

The policy is a table of three logits: the first token, and the second given the first. Rows are the four sequences,
weighted by their probability under the policy that sampled, so a loss's gradient is its estimator's expectation.
"""

from __future__ import annotations

import numpy as np
import pytest
import torch
from algo_cases import CORRECTED, CORRECTIONS, SPECS, refused

from trainer.data.batch import Counts, TrainBatch

POLICY = np.array([0.55, 0.75, 0.45])
"""P(first = 1), P(second = 1 | first = 0), P(second = 1 | first = 1)."""
SAMPLER = np.array([0.75, 0.55, 0.15])
REWARDS = {(0, 0): 1.0, (0, 1): -1.0, (1, 0): 1.0, (1, 1): -1.0}
SEQUENCES = list(REWARDS)

INF = float("inf")
SUM = {"aggregation": "constant"}
UNCLIPPED = {"clip_low": 1, "clip_high": INF, **SUM}
SETTINGS = {
    "cispo": UNCLIPPED,
    "dapo": UNCLIPPED,
    "decoupled_ppo": UNCLIPPED,
    "dr_grpo": UNCLIPPED,
    "gigpo": UNCLIPPED,
    "grpo": UNCLIPPED,
    "gspo": UNCLIPPED,
    "ipa": {"mask_high": INF, "chunk_turns": 0},
    "ppo": {**UNCLIPPED, "dual_clip": INF},
    "reinforce": {"baseline": "none"},
    "reinforce_pp": UNCLIPPED,
    "rloo": SUM,
    "starpo": UNCLIPPED,
    "step_reinforce": SUM,
    "topr": SUM,
}


def estimator(name, **options):
    spec, _ = SPECS[name]
    return spec.build(spec.options(**SETTINGS[name], **options))


ESTIMATORS = {name: estimator(name) for name in SETTINGS}
CORRECTED_SUMS = {
    f"{name} {correction}": estimator(name, correction=correction)
    for name in CORRECTED
    for correction in CORRECTIONS
    if not refused(name, correction)
}


def sequence_probability(probabilities, sequence):
    first, second = sequence
    p, q = probabilities[0], probabilities[1 + first]
    return (p if first else 1 - p) * (q if second else 1 - q)


def logprobs(logits, sequence):
    """Return log-probabilities of both tokens, shape (2,)."""
    first, second = sequence
    sign = torch.tensor([1.0 if first else -1.0, 1.0 if second else -1.0], dtype=torch.float64)
    return torch.nn.functional.logsigmoid(sign * logits[[0, 1 + first]])


def exact_gradient():
    """Return d E[R] / d logits of the policy, by hand: the value of each choice under what follows."""
    p, after_0, after_1 = POLICY
    value_0 = (1 - after_0) * REWARDS[0, 0] + after_0 * REWARDS[0, 1]
    value_1 = (1 - after_1) * REWARDS[1, 0] + after_1 * REWARDS[1, 1]
    return np.array(
        [
            p * (1 - p) * (value_1 - value_0),
            (1 - p) * after_0 * (1 - after_0) * (REWARDS[0, 1] - REWARDS[0, 0]),
            p * after_1 * (1 - after_1) * (REWARDS[1, 1] - REWARDS[1, 0]),
        ]
    )


def to_logits(probabilities):
    return torch.tensor(np.log(probabilities / (1 - probabilities)))


def expected_gradient(algorithm, sampler, positive):
    """Return the expectation of minus the loss's gradient when `sampler` sampled."""
    logits = to_logits(POLICY).requires_grad_()
    mu = to_logits(sampler)
    weights = [sequence_probability(sampler, s) * REWARDS[s] for s in SEQUENCES]
    float64 = {"dtype": torch.float64}
    ones_BT = torch.ones(4, 2, dtype=torch.int64)
    batch = TrainBatch(
        tokens_BT=torch.tensor(SEQUENCES),
        segment_ids_BT=ones_BT,
        loss_mask_BT=ones_BT.bool(),
        rollout_logprobs_BT=torch.stack([logprobs(mu, s) for s in SEQUENCES]),
        prox_logprobs_BT=None,
        advantages_BT=torch.tensor(weights, **float64)[:, None].expand(4, 2),
        positive_BT=torch.full((4, 2), positive),
        chunk_index_BT=torch.arange(4)[:, None].expand(4, 2),
        chunks=4,
        trajectory_index_B=torch.arange(4),
        imitation_BT=torch.zeros(4, 2, **float64),
        policy_version_BT=ones_BT,
        normalizer=1.0,
        imitation_normalizer=1.0,
        counts=Counts(4, 8),
        trajectory_tokens_B=torch.full((4,), 2),
    )
    algorithm.loss(batch, torch.stack([logprobs(logits, s) for s in SEQUENCES])).loss.backward()
    return -logits.grad.numpy()


def weighted_gradient(weigh, sign=0):
    """Return sum over sequences of mu(s) R(s) weigh(token ratios) grad log pi(s); of rewards with that sign, if given."""
    total = torch.zeros(3, dtype=torch.float64)
    for s in (s for s in SEQUENCES if not sign or REWARDS[s] * sign > 0):
        logits = to_logits(POLICY).requires_grad_()
        ratio = (logprobs(logits, s) - logprobs(to_logits(SAMPLER), s)).detach().exp()
        (grad,) = torch.autograd.grad(logprobs(logits, s).sum(), logits)
        total += sequence_probability(SAMPLER, s) * REWARDS[s] * weigh(ratio) * grad
    return total.numpy()


def relative_error(gradient):
    return np.linalg.norm(gradient - exact_gradient()) / np.linalg.norm(exact_gradient())


@pytest.mark.parametrize("name", [*ESTIMATORS, *CORRECTED_SUMS])
def test_on_policy_every_estimator_is_exact(name):
    """All ratios are 1 here, so clipped and corrected branches are exact as well."""
    for positive in (True, False):
        gradient = expected_gradient({**ESTIMATORS, **CORRECTED_SUMS}[name], POLICY, positive)
        np.testing.assert_allclose(gradient, exact_gradient(), atol=1e-8, rtol=0)


def test_off_policy_the_product_of_ratios_is_exact():
    np.testing.assert_allclose(weighted_gradient(torch.prod), exact_gradient(), atol=1e-8, rtol=0)


def test_golden_relative_errors_of_the_estimators_off_policy():
    """The first four were computed apart from this code, by plain enumeration; other bandits give other errors."""
    errors = {
        "geometric mean": relative_error(weighted_gradient(lambda r: r.prod().sqrt())),
        "clipped product": relative_error(weighted_gradient(lambda r: r.prod().clamp(0, 1))),
        "token": relative_error(expected_gradient(ESTIMATORS["grpo"], SAMPLER, True)),
        "none": relative_error(expected_gradient(ESTIMATORS["reinforce"], SAMPLER, True)),
        "ipa, negative": relative_error(expected_gradient(ESTIMATORS["ipa"], SAMPLER, False)),
        "ipa, positive": relative_error(expected_gradient(ESTIMATORS["ipa"], SAMPLER, True)),
    }
    assert {k: round(float(v), 4) for k, v in errors.items()} == {
        "geometric mean": 0.1317,
        "clipped product": 0.2894,
        "token": 0.3787,
        "none": 0.3869,
        "ipa, negative": 0.1502,
        "ipa, positive": 0.3869,
    }


TAPERED = [(lambda r: torch.ones_like(r[0]), 1), (lambda r: r.prod().clamp(0, 1), -1)]
FAMILIES = {
    "product": (
        torch.prod,
        [
            estimator("reinforce", correction="tis_sequence", correction_high=INF),
            estimator("rloo", correction="mis_chunk", correction_high=INF),
            estimator("decoupled_ppo", correction="tis_sequence", correction_high=INF),
        ],
    ),
    "clipped product": (
        lambda r: r.prod().clamp(0, 1),
        [estimator("step_reinforce", correction="tis_sequence", correction_high=1)],
    ),
    "geometric mean": (lambda r: r.prod().sqrt(), [estimator("gspo")]),
    "none": (
        lambda r: torch.ones_like(r[0]),
        [estimator("reinforce"), estimator("rloo"), estimator("step_reinforce")],
    ),
    "rejection": (
        lambda r: ((r.prod().sqrt() >= 0.8) & (r.prod().sqrt() <= 1.5)).double(),
        [
            estimator("rloo", correction="geometric_sequence", correction_low=0.8, correction_high=1.5),
            estimator("grpo", correction="geometric_chunk", correction_low=0.8, correction_high=1.5),
        ],
    ),
}


@pytest.mark.parametrize("name", FAMILIES)
def test_off_policy_an_estimator_is_what_its_weight_says(name):
    weigh, estimators = FAMILIES[name]
    for algorithm in estimators:
        gradient = expected_gradient(algorithm, SAMPLER, True)
        np.testing.assert_allclose(gradient, weighted_gradient(weigh), atol=1e-12, rtol=0)
    if name == "product":
        np.testing.assert_allclose(gradient, exact_gradient(), atol=1e-8, rtol=0)


def test_topr_truncates_the_product_of_failures_only():
    whole, truncated = (weighted_gradient(weigh, sign) for weigh, sign in TAPERED)
    np.testing.assert_allclose(
        expected_gradient(ESTIMATORS["topr"], SAMPLER, True), whole + truncated, atol=1e-12, rtol=0
    )


@pytest.mark.parametrize("name", [n for n in CORRECTED_SUMS if n.endswith(("s_token", "icepop"))])
def test_off_policy_a_correction_per_token_weighs_tokens(name):
    """Bounds that nothing exceeds: the token estimator, whatever the algorithm and the correction."""
    algorithm, correction = name.split()
    low = {"correction_low": 0} if correction == "icepop" else {}
    unbounded = estimator(algorithm, correction=correction, correction_high=INF, **low)
    wanted = expected_gradient(ESTIMATORS["cispo"], SAMPLER, True)
    np.testing.assert_allclose(expected_gradient(unbounded, SAMPLER, True), wanted, atol=1e-12, rtol=0)


def test_ipa_clips_the_geometric_mean_at_one():
    wanted = weighted_gradient(lambda r: r.prod().sqrt().clamp(0, 1))
    np.testing.assert_allclose(
        expected_gradient(ESTIMATORS["ipa"], SAMPLER, False), wanted, atol=1e-12, rtol=0
    )
