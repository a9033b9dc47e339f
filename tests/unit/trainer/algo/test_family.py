"""Every algorithm under every setting against its NumPy reference, on ragged groups, and what must not change it."""

from __future__ import annotations

from dataclasses import fields, replace
from itertools import count

import numpy as np
import pytest
import torch
from algo_cases import CASES, SPECS
from algo_reference import (
    BUDGET,
    batch_for,
    credited,
    differentiated,
    in_float64,
    ragged_group,
    tables,
    trajectory,
)
from family_reference import family_group
from pydantic import ValidationError

from rock_env import plugins
from trainer.algo.base import credit_step
from trainer.config import Scalar
from trainer.data.build import build_batch, microbatches, split_rows

TOLERANCE = 1e-12
"""Of losses and gradients of order 1, in float64."""


def group_for(case):
    """IPA's reference knows one group, the family's any number."""
    mu, _, _ = tables()
    return ragged_group(mu) if case.name in ("ipa", "bc") else family_group(mu)


def close(got, wanted, tolerance=TOLERANCE):
    np.testing.assert_allclose(got[0], wanted[0], rtol=tolerance, atol=tolerance)
    np.testing.assert_allclose(got[1], wanted[1], rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_equals_the_reference(case):
    mu, prox, pi = tables()
    algorithm, group = case.build(), group_for(case)
    batch = in_float64(algorithm, group, batch_for(algorithm, group, prox))
    wanted = case.reference(group, mu, prox, pi, algorithm.options)
    assert np.abs(wanted[1]).max() > 1e-4
    close(differentiated(algorithm, batch, pi), wanted)


def test_every_built_in_algorithm_is_covered():
    own = {
        name
        for name in plugins.names("ale.algorithms")
        if plugins.load("ale.algorithms", name) is SPECS[name][0]
    }
    assert own == set(SPECS)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_a_record_of_all_options_gives_the_same_options(case):
    """A run writes down every option, defaults included, and resumes from that: they must be scalars and valid."""
    options = case.build().options
    record = options.model_dump()
    assert all(isinstance(value, Scalar) for value in record.values())
    assert type(options)(**record) == options


@pytest.mark.parametrize("name", SPECS)
def test_one_update_per_batch_needs_no_prox(name):
    """Without stored prox log-probabilities, prox is the present policy: the ratio is 1 and the gradient is not."""
    mu, _, pi = tables()
    algorithm, group = SPECS[name][0].build(SPECS[name][0].options()), family_group(mu)
    without = differentiated(algorithm, batch_for(algorithm, group, None), pi)
    close(differentiated(algorithm, batch_for(algorithm, group, pi), pi), without)
    assert without[1].any()


@pytest.mark.parametrize("case", CASES, ids=str)
def test_microbatches_and_shards_add_up_to_the_batch(case):
    """Microbatches of a shard of a batch, as data-parallel trainers would cut it: sums equal the batch, metrics too."""
    _, prox, pi = tables()
    algorithm, group = case.build(), group_for(case)
    batch = batch_for(algorithm, group, prox)
    parts = [part for shard in split_rows(batch, 2) for part in microbatches(shard, 40)]
    assert len(parts) >= 2
    assert sum(len(part.tokens_BT) for part in parts) == len(batch.tokens_BT)
    done = [differentiated(algorithm, part, pi) for part in parts]
    close((sum(d[0] for d in done), sum(d[1] for d in done)), differentiated(algorithm, batch, pi))
    logprobs = torch.tensor(pi)
    pieces = [algorithm.loss(part, logprobs[part.tokens_BT]).metrics for part in parts]
    for name, whole in algorithm.loss(batch, logprobs[batch.tokens_BT]).metrics.items():
        for of in ("total", "weight"):
            assert sum(getattr(piece[name], of) for piece in pieces) == pytest.approx(getattr(whole, of))


@pytest.mark.parametrize("case", CASES, ids=str)
def test_order_padding_and_packing_change_nothing(case):
    _, prox, pi = tables()
    algorithm, group = case.build(), group_for(case)
    batch = batch_for(algorithm, group, prox)
    wanted = differentiated(algorithm, batch, pi)
    order = np.random.default_rng(0).permutation(len(group))
    shuffled = batch_for(algorithm, [group[i] for i in order], prox)
    close(differentiated(algorithm, shuffled, pi), wanted, 1e-6)  # group means round differently in float32
    wide = build_batch(group, credited(algorithm, group), token_budget=BUDGET, pad_to=64)[0]
    assert wide.tokens_BT.shape[1] == 64 > batch.tokens_BT.shape[1]
    filled = batch_for(algorithm, group, prox, build=lambda *_, **__: (wide, None))
    close(differentiated(algorithm, filled, pi), wanted)
    packed = pack(batch)
    assert len(packed.tokens_BT) < len(batch.tokens_BT)
    close(differentiated(algorithm, packed, pi), wanted)


def pack(batch):
    """Put the rows of each trajectory into one row."""
    rows = [torch.nonzero(batch.trajectory_index_B == i)[:, 0] for i in batch.trajectory_index_B.unique()]
    changed = {}
    for each in fields(batch):
        value = getattr(batch, each.name)
        if each.name.endswith("_BT") and value is not None:
            joined = [value[index].reshape(-1) for index in rows]
            empty = -1 if each.name in ("chunk_index_BT", "policy_version_BT", "opens_turn_BT") else 0
            changed[each.name] = torch.nn.utils.rnn.pad_sequence(
                joined, batch_first=True, padding_value=empty
            )
        elif each.name.endswith("_B"):
            changed[each.name] = torch.stack([value[index[0]] for index in rows])
    return replace(batch, **changed)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_a_broken_log_probability_is_never_silent(case):
    """NaN at trained tokens makes the loss NaN, which the engine refuses to apply; no mask or clip swallows it."""
    _, prox, pi = tables()
    algorithm, group = case.build(), group_for(case)
    pi[[t.turns[0].completion_ids[0] for t in group if not t.failure]] = np.nan
    loss, _ = differentiated(algorithm, batch_for(algorithm, group, prox), pi)
    assert np.isnan(loss)


@pytest.mark.parametrize("name", SPECS)
def test_an_absurd_ratio_gives_no_silent_nonsense(name):
    """Policies e^5000 times apart: finite, or a loss that the engine refuses to apply."""
    mu, prox, pi = tables()
    algorithm, group = SPECS[name][0].build(SPECS[name][0].options()), family_group(mu)
    for far_prox, far_pi in ((mu + 5000, pi), (mu - 5000, pi), (prox, mu + 5000), (prox, mu - 5000)):
        loss, grad = differentiated(algorithm, batch_for(algorithm, group, far_prox), far_pi)
        unbounded = name == "decoupled_ppo" and far_prox is not prox and far_prox[0] > 0
        assert np.isfinite(loss) != unbounded
        assert np.isfinite(grad).all()


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("grpo", {"correction_high": 2}, "correction_high=2 has no effect with correction='none'"),
        ("grpo", {"correction": "tis_token", "correction_low": 0.1}, "correction_low=0.1 has no effect"),
        ("grpo", {"correction": "icepop", "correction_low": 6}, "must not exceed"),
        ("grpo", {"correction": "nonsense"}, "tis_token"),
        ("grpo", {"dual_clip": 1.1}, "must exceed 1 \\+ clip_high"),
        ("grpo", {"kl_estimator": "k2"}, "has no effect while kl_weight is 0"),
        ("gspo", {"kl_reference": "frozen"}, "has no effect while kl_weight is 0"),
        ("grpo", {"kl_weight": 0.1, "kl_estimator": "k1"}, "zero expected gradient"),
        ("gspo", {"correction": "tis_chunk"}, "tokens and sequences"),
        ("topr", {"correction": "tis_token"}, "Extra inputs"),
    ],
)
def test_options_that_could_have_no_effect_are_refused(name, options, message):
    with pytest.raises(ValidationError, match=message):
        SPECS[name][0].options(**options)


@pytest.mark.parametrize("size", [3, 4, 6, 7])
@pytest.mark.parametrize(
    ("name", "options"),
    [
        *((name, {}) for name in ("cispo", "decoupled_ppo", "dr_grpo", "grpo", "gspo", "reinforce")),
        *((name, {}) for name in ("reinforce_pp", "rloo", "starpo", "step_reinforce", "gigpo")),
        ("ipa", {"baseline": "group_mean"}),
        ("ipa", {"baseline": "leave_one_out"}),
    ],
)
def test_equal_outcomes_have_no_credit_whatever_they_are(name, options, size):
    """A share of tests passed is no sum of powers of two, and a mean of equal ones not the same number."""
    ids = count(9)
    group = [trajectory(str(n), [2], 0.7, ids=ids, mu=tables()[0]) for n in range(size)]
    spec, _ = SPECS[name]
    for credit in credit_step(spec.build(spec.options(**options)), group):
        assert credit.advantage_K.tolist() == [0.0]


CLIPS = [
    (name, option)
    for name, (spec, _) in SPECS.items()
    for option in ("clip_low", "clip_high", "dual_clip")
    if option in spec.options.model_fields
]


@pytest.mark.parametrize("value", [-0.5, float("nan")])
@pytest.mark.parametrize(("name", "option"), CLIPS)
def test_no_algorithm_takes_a_clip_that_is_none(name, option, value):
    """A default of its own must not cost an option its bounds."""
    with pytest.raises(ValidationError, match=option):
        SPECS[name][0].options(**{option: value})
