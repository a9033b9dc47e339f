"""Samples follow the distribution whose log-probability they carry, and depend on their own row only."""

import numpy as np
import pytest
import torch

from agent_runtime.policy import PolicyError, SampleRequest
from agent_runtime.types import SamplingParams
from trainer.samplers.sampling import Distribution, next_tokens, uniforms

LOGITS_V = torch.tensor([0.3, -1.0, 2.0, 0.0, 1.1, -3.0])
# 99.99 % quantile of chi-square with 5 degrees of freedom; the seeds are fixed, so this passes or fails for good.
CHI2_5 = 25.7


def how(n, *, temperature=1.0, top_p=1.0, first_seed=0):
    params = SamplingParams(temperature=temperature, top_p=top_p)
    prompt = np.ones(1, np.int32)
    return Distribution.of([SampleRequest("r", 0, prompt, params, first_seed + i) for i in range(n)])


def draw(n, position=0, **kwargs):
    return next_tokens(LOGITS_V.expand(n, -1), how(n, **kwargs), position)


def chi2(counts, probs):
    expected = probs * counts.sum()
    return float(((counts - expected) ** 2 / expected).sum())


@pytest.mark.parametrize("temperature", [0.5, 1.0, 2.0])
@pytest.mark.parametrize("position", [0, 7])
def test_frequencies_match_the_tempered_distribution(temperature, position):
    tokens = draw(20000, position, temperature=temperature)[0]
    counts = np.bincount(tokens.numpy(), minlength=6)
    assert chi2(counts, torch.softmax(LOGITS_V / temperature, 0).double().numpy()) < CHI2_5


def test_frequencies_match_over_the_positions_of_one_seed():
    tokens = [int(next_tokens(LOGITS_V[None], how(1, first_seed=11), p)[0]) for p in range(4000)]
    counts = np.bincount(tokens, minlength=6)
    assert chi2(counts, torch.softmax(LOGITS_V, 0).double().numpy()) < CHI2_5


@pytest.mark.parametrize(("temperature", "top_p"), [(1.0, 1.0), (0.7, 1.0), (1.0, 0.8), (1.5, 0.6)])
def test_logprobs_are_those_of_the_distribution_sampled_from(temperature, top_p):
    tokens, logprobs, entropies = draw(4000, temperature=temperature, top_p=top_p)
    probs = {int(t): float(torch.exp(lp)) for t, lp in zip(tokens, logprobs, strict=True)}
    assert sum(probs.values()) == pytest.approx(1.0, abs=2e-3 if top_p == 1.0 else 1e-5)
    counts = np.bincount(tokens.numpy(), minlength=6)
    for token, prob in probs.items():
        assert counts[token] / 4000 == pytest.approx(prob, abs=0.03)
    exact = -sum(prob * np.log(prob) for prob in probs.values())
    assert entropies.tolist() == pytest.approx([exact] * 4000, abs=1e-2 if top_p == 1.0 else 1e-5)


def test_top_p_keeps_the_smallest_set_that_reaches_the_mass():
    probs = torch.softmax(LOGITS_V, 0)
    assert float(probs[2]) < 0.7 < float(probs[2] + probs[4]) < 0.9
    assert set(draw(2000, top_p=0.7)[0].tolist()) == {2, 4}
    assert set(draw(2000, top_p=1e-6)[0].tolist()) == {2}


def test_temperature_zero_takes_the_best_with_its_untempered_logprob():
    tokens, logprobs, _ = draw(3, temperature=0.0, top_p=0.1)
    assert tokens.tolist() == [2, 2, 2]
    torch.testing.assert_close(logprobs, torch.log_softmax(LOGITS_V, 0)[2].expand(3))


def test_rows_with_different_parameters_do_not_mix():
    mixed = Distribution(
        seeds_B=np.array([5, 5, 5], np.uint64),
        temperature_B=np.array([0.0, 1.0, 2.0], np.float32),
        top_p_B=np.array([1.0, 0.9, 1.0], np.float32),
    )
    together = next_tokens(LOGITS_V.expand(3, -1), mixed, 2)
    for row in range(3):
        alone = next_tokens(LOGITS_V[None], mixed.keep(np.array([row])), 2)
        assert (int(alone[0]), float(alone[1])) == (int(together[0][row]), float(together[1][row]))


def test_a_token_of_probability_zero_is_never_drawn():
    logits = torch.tensor([-torch.inf, 0.0, -torch.inf, 0.0, -torch.inf]).expand(5000, -1)
    assert set(next_tokens(logits, how(5000), 0)[0].tolist()) == {1, 3}


@pytest.mark.parametrize("temperature", [0.5, 1.0, 2.0])
def test_the_entropy_is_that_of_the_distribution_drawn_from(temperature):
    logits = torch.tensor([-torch.inf, 0.0, 1.0, -torch.inf, -2.0])
    probs = np.exp(np.array([0.0, 1.0, -2.0]) / temperature)
    probs /= probs.sum()
    found = next_tokens(logits.expand(2, -1), how(2, temperature=temperature), 0)[2]
    assert found.tolist() == pytest.approx([-(probs * np.log(probs)).sum()] * 2, abs=1e-6)


@pytest.mark.parametrize("bad", [torch.nan, torch.inf])
def test_logits_that_are_not_finite_are_refused(bad):
    with pytest.raises(PolicyError, match="not finite"):
        next_tokens(torch.tensor([[0.0, bad]]), how(1), 0)


def test_uniforms_are_uniform_over_seeds_and_positions():
    by_seed = uniforms(np.arange(20000, dtype=np.uint64), 0)
    by_position = np.array([uniforms(np.array([1], np.uint64), p)[0] for p in range(5000)])
    for values in (by_seed, by_position):
        assert values.min() >= 0.0
        assert values.max() < 1.0
        counts = np.bincount((values * 6).astype(int), minlength=6)
        assert chi2(counts, np.full(6, 1 / 6)) < CHI2_5


def test_neighbouring_positions_are_not_correlated():
    seeds = np.arange(20000, dtype=np.uint64)
    first, second = uniforms(seeds, 0), uniforms(seeds, 1)
    assert abs(np.corrcoef(first, second)[0, 1]) < 0.03
    assert abs(np.corrcoef(first[:-1], second[1:])[0, 1]) < 0.03


def test_seeds_of_any_size_are_taken():
    request = SampleRequest("r", 0, np.ones(1, np.int32), SamplingParams(), -(2**70) - 3)
    assert Distribution.of([request]).seeds_B[0] == 2**64 - 3
