"""What each algorithm must reduce to: identities between them, and the credit that is one algorithm's own."""

from __future__ import annotations

from dataclasses import replace
from itertools import count

import numpy as np
import pytest
import torch
from algo_cases import CORRECTIONS, SPECS, refused
from algo_reference import CONTEXT, batch_for, computed, differentiated, learners, tables, trajectory
from family_reference import family_group
from local_fleet import config_of, local_run

from agent_runtime.types import TurnFault, TurnLabel
from trainer.algo.base import credit_step
from trainer.algo.terms.kl import KLOptions, kl_estimate, kl_per_token
from trainer.algo.terms.returns import chunk_returns, faulty_turns, state_advantages, state_ids
from trainer.data.build import build_batch
from trainer.metrics import read_summary

INF = float("inf")


def made(name, **options):
    spec, _ = SPECS[name]
    return spec.build(spec.options(**options))


def same(one, other, *, group=None, prox=None, pi=None, scale=1.0):
    """Assert that two algorithms have the same gradient, up to a factor."""
    mu, usual, current = tables()
    group = family_group(mu) if group is None else group
    prox, pi = usual if prox is None else prox, current if pi is None else pi
    (_, first), (_, second) = (computed(algorithm, group, prox, pi) for algorithm in (one, other))
    assert np.abs(first).max() > 1e-4
    np.testing.assert_allclose(first, scale * second, rtol=1e-6, atol=1e-9)


ON_POLICY = [
    *(("reinforce", {"correction": correction}) for correction in CORRECTIONS),
    ("cispo", {"normalize_std": False, "aggregation": "constant"}),
    ("cispo", {"normalize_std": False, "aggregation": "constant", "correction": "tis_token"}),
    ("topr", {"baseline": "group_mean", "aggregation": "constant", "reward_fail": 0}),
    ("grpo", {"normalize_std": False, "aggregation": "constant"}),
    ("dr_grpo", {}),
    ("dapo", {"normalize_std": False, "aggregation": "constant"}),
    ("decoupled_ppo", {"normalize_std": False, "aggregation": "constant"}),
    ("gspo", {"normalize_std": False, "aggregation": "constant"}),
    ("starpo", {"normalize_std": False, "aggregation": "constant"}),
    ("gigpo", {"normalize_std": False, "aggregation": "constant", "step_weight": 0}),
    ("ipa", {"baseline": "group_mean", "gamma": 1, "neg_weight": 1}),
]


@pytest.mark.parametrize(("name", "options"), ON_POLICY)
def test_where_nothing_is_stale_all_are_reinforce(name, options):
    """Without discount, deviation and a second mean: ratios of 1 weigh nothing, clip nothing and mask nothing."""
    mu, _, _ = tables()
    group = [t for t in family_group(mu) if t.failure or t.reward >= 0]
    same(made(name, **options), made("reinforce"), group=group, prox=mu, pi=mu)


def test_rloo_is_the_group_mean_stretched_by_n_over_n_minus_1():
    mu, _, _ = tables()
    group = [t for t in family_group(mu) if t.group_id == "g" and not t.is_expert]
    n = len(learners(group))
    for pi in (mu, tables()[2]):
        same(made("rloo", aggregation="constant"), made("reinforce"), group=group, pi=pi, scale=n / (n - 1))


def test_the_names_are_the_settings():
    same(made("dr_grpo"), made("grpo", normalize_std=False, aggregation="constant"))
    same(made("dapo"), made("grpo", clip_high=0.28, aggregation="token_mean"))
    same(made("decoupled_ppo"), made("grpo", correction="tis_token", correction_high=INF))
    same(made("starpo"), made("grpo"))
    same(made("gigpo", step_weight=0), made("grpo"))
    same(
        made("step_reinforce", baseline="none", aggregation="constant"),
        made("reinforce", baseline="none", gamma=0.95),
    )


def test_starpo_at_its_defaults_is_grpo_to_the_last_bit(tmp_path):
    mu, prox, pi = tables()
    (loss, gradient), (other_loss, other) = (
        computed(made(name), family_group(mu), prox, pi) for name in ("starpo", "grpo")
    )
    assert loss == other_loss
    assert np.abs(gradient).max() > 1e-4
    assert gradient.tobytes() == other.tobytes()
    for name in ("starpo", "grpo"):
        local_run(tmp_path / name, config_of(algo=name), change=first_succeeds)
    digests = {read_summary(tmp_path / name).model_digest for name in ("starpo", "grpo")}
    assert len(digests) == 1


def first_succeeds(trajectory):
    """Let the first rollout of each group succeed: without a difference nothing would be learned."""
    return replace(trajectory, reward=float(not trajectory.index), passed=not trajectory.index)


def test_a_batch_of_one_group_is_normalised_like_the_group():
    """One group of turns of equal length: REINFORCE++ is GRPO with the deviation of n instead of n - 1."""
    mu, _, _ = tables()
    ids = count(CONTEXT + 1)
    group = [trajectory(str(n), [2], reward, ids=ids, mu=mu) for n, reward in enumerate((1.0, 0.0, 0.5, 0.0))]
    same(
        made("reinforce_pp"),
        made("grpo", aggregation="token_mean"),
        group=group,
        scale=np.sqrt(4 / 3),
    )


def test_the_chunk_ratio_of_one_turn_is_gspos():
    """IPA on failures of one turn each, all less likely than when sampled: its weight is GSPO's sequence ratio."""
    mu, _, _ = tables()
    pi = mu - np.random.default_rng(1).uniform(0.1, 1.0, len(mu))
    ids = count(CONTEXT + 1)
    group = [trajectory(str(n), [n + 1], 0.0, ids=ids, mu=mu) for n in range(4)]
    ipa = made("ipa", gamma=1, mask_high=INF, neg_weight=1, reward_fail=-1)
    gspo = made("gspo", clip_low=1, clip_high=INF, aggregation="constant")
    batch = batch_for(ipa, group, None)
    (_, chunk), (_, sequence) = (differentiated(algorithm, batch, pi) for algorithm in (ipa, gspo))
    assert chunk.any()
    np.testing.assert_allclose(chunk, sequence, rtol=1e-12)


@pytest.mark.parametrize("correction", [c for c in CORRECTIONS if not refused("gspo", c)])
def test_what_a_correction_leaves_out_never_inflates_the_rest(correction):
    mu, prox, pi = tables()
    group = family_group(mu, experts=False)
    wide, tight = (made("rloo", correction=correction, correction_high=high) for high in (1e6, 0.9))
    _, free = computed(wide, group, prox, pi)
    _, cut = computed(tight, group, prox, pi)
    if correction.startswith("tis"):
        assert (np.abs(cut) <= np.abs(free) + 1e-15).all()
        assert (np.abs(cut) < np.abs(free) - 1e-6).any()
    else:
        assert 0 < (cut != 0).sum() < (free != 0).sum()
        np.testing.assert_array_equal(cut[cut != 0], free[cut != 0])


# -- KL -------------------------------------------------------------------------------------------------------


def kl_gradients(estimator):
    """Return the expected gradient of an estimate, and the gradients of both divergences, for a softmax of three."""
    reference = torch.tensor([0.2, 0.5, 0.3], dtype=torch.float64).log()
    logits = torch.tensor([0.3, -0.4, 0.9], dtype=torch.float64, requires_grad=True)
    logprobs = logits.log_softmax(0)
    estimates = kl_estimate(logprobs - reference, estimator)
    expected = (logprobs.detach().exp() * estimates).sum()
    reverse = (logprobs.exp() * (logprobs - reference)).sum()
    forward = (reference.exp() * (reference - logprobs)).sum()
    return [
        torch.autograd.grad(v, logits, retain_graph=True)[0].numpy() for v in (expected, reverse, forward)
    ]


def test_in_the_loss_k2_is_the_reverse_divergence_k3_the_forward_one_and_k1_nothing():
    for estimator, which in (("k2", 1), ("k3", 2)):
        gradients = kl_gradients(estimator)
        np.testing.assert_allclose(gradients[0], gradients[which], atol=1e-12)
        assert np.abs(gradients[0]).max() > 0.01
    np.testing.assert_allclose(kl_gradients("k1")[0], np.zeros(3), atol=1e-12)


def test_k1_in_the_reward_is_k2_in_the_loss():
    kl = {"kl_weight": 0.3, "kl_reference": "frozen"}
    same(
        made("rloo", kl_estimator="k1", kl_place="reward", **kl),
        made("rloo", kl_estimator="k2", kl_place="loss", **kl),
    )


def test_a_kl_term_acts_on_tokens_without_credit():
    """A group without variance has no rows to train unless a divergence pulls on them."""
    mu, prox, pi = tables()
    group = [replace(t, reward=1.0) for t in learners(family_group(mu))]
    assert not computed(made("dr_grpo"), group, prox, pi)[1].any()
    _, pulled = computed(made("dr_grpo", kl_weight=0.1), group, prox, pi)
    for t in group:
        for turn in t.turns:
            assert pulled[turn.completion_ids].all()


def test_a_frozen_reference_that_nobody_scored_is_an_error():
    mu, _, pi = tables()
    group = family_group(mu)
    batch, _ = build_batch(group, made("grpo").credit(group), token_budget=1)
    assert made("grpo", kl_weight=1, kl_reference="frozen").needs_reference
    with pytest.raises(ValueError, match="needs reference_logprobs_BT"):
        kl_per_token(KLOptions(kl_weight=1, kl_reference="frozen"), batch, torch.tensor(pi)[batch.tokens_BT])


@pytest.mark.parametrize("name", SPECS)
def test_prox_is_asked_for_where_it_is_read(name):
    """What reads prox log-probabilities changes with them, and says so; nothing else does."""
    mu, prox, pi = tables()
    settings = [{}, {"correction": "tis_token"}, {"kl_weight": 0.1, "kl_reference": "prox"}]
    known = SPECS[name][0].options.model_fields
    for options in (o for o in settings if set(o) <= set(known)):
        algorithm, group = made(name, **options), family_group(mu)
        batches = [batch_for(algorithm, group, p) for p in (prox, prox + 0.1 * np.sin(np.arange(len(mu))))]
        one, other = (differentiated(algorithm, batch, pi)[1] for batch in batches)
        reads = not np.array_equal(one, other)
        assert algorithm.needs_prox or not reads


# -- credit ---------------------------------------------------------------------------------------------------


def flat_and_mixed():
    """Return two groups: outcomes all equal in one, a success and a failure in the other."""
    ids, mu = count(CONTEXT + 1), tables()[0]
    return [
        trajectory("f1", [2], 1.0, ids=ids, mu=mu, group="flat"),
        trajectory("f2", [2], 1.0, ids=ids, mu=mu, group="flat"),
        trajectory("m1", [2], 1.0, ids=ids, mu=mu, group="mixed"),
        trajectory("m2", [2], 0.0, ids=ids, mu=mu, group="mixed"),
    ]


def test_dapo_leaves_flat_groups_out_of_the_divisors():
    group = flat_and_mixed()
    for drop, tokens in ((True, 4), (False, 8)):
        batch, ledger = build_batch(group, credit_step(made("dapo", drop_flat=drop), group), token_budget=1)
        assert batch.counts.tokens == tokens
        assert ledger.dropped == ({"group without variance": 4} if drop else {})
        assert ledger.masked == ({} if drop else {"zero credit": 4})


def test_starpo_trains_on_the_groups_that_disagree_most():
    group = flat_and_mixed()
    for share, dropped in ((1.0, []), (0.5, ["f1", "f2"]), (0.01, ["f1", "f2"])):
        credits = credit_step(made("starpo", keep_share=share), group)
        assert [t.id for t, c in zip(group, credits, strict=True) if c.dropped] == dropped


def test_reinforce_pp_whitens_the_batch_by_tokens():
    ids, mu = count(CONTEXT + 1), tables()[0]
    group = [
        trajectory("a", [3, 1], 1.0, ids=ids, mu=mu, group="g"),
        trajectory("b", [2], 0.0, ids=ids, mu=mu, group="h"),
        trajectory("c", [1], 5.0, ids=ids, mu=mu, group="h", failed=True),
    ]
    credits = credit_step(made("reinforce_pp"), group)
    values = np.concatenate([c.advantage_K for c in credits[:2]])
    tokens = np.array([3, 1, 2])
    assert np.average(values, weights=tokens) == pytest.approx(0, abs=1e-12)
    assert np.average(values**2, weights=tokens) == pytest.approx(1, rel=1e-5)
    assert credits[2].dropped
    assert not credit_step(made("reinforce_pp"), group[2:])[0].advantage_K.any()


def test_gigpos_turns_are_compared_as_ipas_state_means_are():
    """The same states, the same means: only the deviation and the outcome's part are GiGPO's own."""
    mu, _, _ = tables()
    group = [t for t in learners(family_group(mu)) if t.group_id == "g"]
    credits = made("gigpo", normalize_std=False, gamma=0.9).credit(group)
    returns = [chunk_returns(t.reward, len(t.turns), 0.9) for t in group]
    steps = state_advantages(group, returns, gamma=0.9, trace=1.0, size=1)
    mean = np.mean([t.reward for t in group])
    for t, credit, step in zip(group, credits, steps, strict=True):
        np.testing.assert_allclose(credit.advantage_K, t.reward - mean + step, atol=1e-12)


def test_states_are_told_apart_by_the_recorded_hashes():
    mu, _, _ = tables()
    (one,) = (t for t in family_group(mu) if t.id == "long")
    assert state_ids([one])[0].tolist() == [0, 1, 2, 3]
    again = replace(one, observations=("x",) * 4)  # the hashes stay
    assert [ids.tolist() for ids in state_ids([one, again])] == [[0, 1, 2, 3], [0, 1, 2, 3]]
    assert state_ids([one], size=2)[0].tolist() == [0, 1]


def test_a_thought_that_was_cut_and_its_answer_are_states_apart():
    mu, _, _ = tables()
    (one,) = (t for t in family_group(mu) if t.id == "long")
    first, answer, *others = one.turns
    cut = replace(
        one,
        turns=(first, replace(answer, parent=0), *others),
        turn_labels=(TurnLabel.THOUGHT, *[TurnLabel.MAIN] * 3),
        internal_turns=(0,),
    )
    assert state_ids([cut])[0].tolist() == [0, 1, 2, 3]
    faulty = replace(cut, turn_faults=(TurnFault.NONE, TurnFault.ILLEGAL, TurnFault.NONE, TurnFault.NONE))
    assert list(faulty_turns(faulty)) == [0, 1], "the thought led to the answer"
