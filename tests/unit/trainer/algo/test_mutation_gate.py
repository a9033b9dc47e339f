"""Mutation gate: break the algorithms on purpose, and the reference checks must fail.

What is tested is the tests: a check that lets a flipped sign or a shifted mask pass would be worthless. Every algorithm is
broken in the three ways of the gate; beyond that, mutants replace one fragment of one module's source.
"""

from __future__ import annotations

import importlib
import inspect
import sys
from dataclasses import replace
from types import FunctionType, ModuleType

import pytest
from algo_cases import CORRECTED, SPECS, Case
from algo_reference import check, ragged_group, tables
from family_reference import family_group

import trainer.data.build

NOTICED = (AssertionError, ValueError)

GATE = {
    **{name: Case(name, {}) for name in SPECS},
    **{f"{name} corrected": Case(name, {"correction": "mis_token"}) for name in CORRECTED},
    "ipa": Case(
        "ipa", {"reward_fail": -1, "neg_weight": 1, "turn_rewards": True, "mask_high": 1.6, "mask_low": 0.6}
    ),
    "ipa snapshots": Case(
        "ipa",
        {"behaviour": "snapshots", "reward_fail": -1, "neg_weight": 1, "mask_high": 1.4, "mask_low": 0.7},
    ),
    "ipa paper": Case(
        # Not symmetric: the reciprocal of its ratio must not pass the same chunks.
        "ipa",
        {"behaviour": "paper", "reward_fail": -1, "neg_weight": 1, "mask_high": 1.1, "mask_low": 0.8},
    ),
    "reinforce": Case("reinforce", {"gamma": 0.9}),
}
BLIND = {"bc", "reinforce", "rloo", "step_reinforce"}
"""Settings that read neither pi_old nor mu: there is nothing to swap."""


class Wrapped:
    """An algorithm that is shown a changed batch."""

    def __init__(self, algorithm, change):
        self.algorithm, self.change, self.options = algorithm, change, algorithm.options
        self.credit = algorithm.credit
        for name in ("across_groups", "criticised", "bootstraps", "warmup_loss", "value_lr", "value_warmup"):
            if hasattr(algorithm, name):
                setattr(self, name, getattr(algorithm, name))

    def loss(self, batch, logprobs_BT):
        return self.algorithm.loss(self.change(batch), logprobs_BT)


def checked(case, *, change=None, build=trainer.data.build.build_batch, algorithm=None):
    """Run the reference check of a case on changed batches, batches of another builder, or another algorithm."""
    mu, _, _ = tables()
    group = ragged_group(mu) if case.name in ("ipa", "bc") else family_group(mu)
    algorithm = algorithm or case.build()
    if change is not None:
        algorithm = Wrapped(algorithm, change)
    check(algorithm, case.reference, build=build, group=group)


def flipped(batch):
    return replace(batch, advantages_BT=-batch.advantages_BT, imitation_BT=-batch.imitation_BT)


def swapped(batch):
    return replace(
        batch, rollout_logprobs_BT=batch.prox_logprobs_BT, prox_logprobs_BT=batch.rollout_logprobs_BT
    )


def swapped_old(batch):
    """Return the batch with pi_old and mu exchanged, as a snapshot mode could mistake them."""
    return replace(
        batch, rollout_logprobs_BT=batch.old_logprobs_BT, old_logprobs_BT=batch.rollout_logprobs_BT
    )


def recomputed(batch):
    """Return the batch with pi_old computed from the weights of now: every ratio to it is about 1."""
    return replace(batch, old_logprobs_BT=batch.prox_logprobs_BT)


@pytest.mark.parametrize("change", [swapped_old, recomputed])
@pytest.mark.parametrize("name", ["ipa snapshots", "ipa paper"])
def test_another_policy_in_place_of_pi_old_is_noticed(name, change):
    with pytest.raises(NOTICED):
        checked(GATE[name], change=change)


@pytest.mark.parametrize("name", GATE)
def test_the_unchanged_algorithms_pass(name):
    checked(GATE[name])
    checked(GATE[name], change=lambda batch: batch)


@pytest.mark.parametrize("name", GATE)
def test_a_flipped_advantage_is_noticed(name):
    with pytest.raises(NOTICED):
        checked(GATE[name], change=flipped)


@pytest.mark.parametrize("by", [-1, 1])
@pytest.mark.parametrize("name", GATE)
def test_a_mask_shifted_by_one_is_noticed(name, by, monkeypatch):
    old, new = "acts_N & ~expert_K[turn_N]", f"np.roll(acts_N & ~expert_K[turn_N], {by})"
    if name == "bc":
        old, new = "np.where(acts_N, imitation_K[turn_N], 0)", f"np.where(np.roll(acts_N, {by}), 1.0, 0)"
    mutant = mutate("trainer.data.build", old, new, monkeypatch)
    with pytest.raises(NOTICED):
        checked(GATE[name], build=mutant.build_batch)


@pytest.mark.parametrize("name", [name for name in GATE if name not in BLIND])
def test_pi_old_and_mu_swapped_are_noticed(name):
    with pytest.raises(NOTICED):
        checked(GATE[name], change=swapped)


@pytest.mark.parametrize("name", sorted(BLIND))
def test_what_reads_neither_pi_old_nor_mu_is_left_alone(name):
    """If one of these starts to read them, it belongs among the swapped."""
    checked(GATE[name], change=swapped)


CLIPPED, OPTIONS = Case("grpo", {"dual_clip": 1.3, "clip_low": 0.1}), "trainer.algo.terms.objective"
BEHAVIOUR = "trainer.algo.terms.behaviour"
MUTANTS = [
    # IPA: ratios that are always 1, the sign of the advantage for the raw outcome's, the ratio's gradient, both bounds.
    (GATE["ipa"], "trainer.algo.ipa", "-weight_BT * advantages_BT", "weight_BT * advantages_BT"),
    (GATE["ipa"], BEHAVIOUR, "prox_BT - base_BT", "prox_BT - prox_BT"),
    (
        GATE["ipa"],
        BEHAVIOUR,
        "begun_BT if batch.prox_logprobs_BT is None else batch.prox_logprobs_BT",
        "begun_BT",
    ),
    (
        GATE["ipa"],
        "trainer.algo.ipa",
        "~batch.positive_BT | (batch.advantages_BT < 0)",
        "batch.advantages_BT < 0",
    ),
    (GATE["ipa"], "trainer.algo.terms.chunks", "values_BT.detach()", "values_BT"),
    (GATE["ipa"], "trainer.algo.ipa", "(compared_C <= options.mask_high)", "(compared_C < 1e9)"),
    (GATE["ipa"], "trainer.algo.ipa", "(compared_C >= options.mask_low)", "(compared_C > 0)"),
    # Its behaviour modes: whom the ratio is against, what the mask compares, and which way round.
    (GATE["ipa snapshots"], BEHAVIOUR, "base_BT = old_BT", "base_BT = mu_BT"),
    (GATE["ipa snapshots"], BEHAVIOUR, 'behaviour == "paper"', "True"),
    (GATE["ipa paper"], BEHAVIOUR, 'behaviour == "paper"', "False"),
    (GATE["ipa paper"], BEHAVIOUR, "base_BT - mu_BT", "mu_BT - base_BT"),
    (GATE["ipa paper"], BEHAVIOUR, "base_BT = old_BT", "base_BT = logprobs_BT"),
    (GATE["ipa paper"], "trainer.algo.ipa", "(compared_C >= options.mask_low)", "(compared_C > 0)"),
    (GATE["ipa"], "trainer.algo.ipa", "rho_C.clamp(0, 1)", "rho_C"),
    (GATE["ipa"], "trainer.algo.terms.chunks", " / self.count_C.clamp(min=1)", ""),
    # Credit: discount from the wrong end, experts in the group, a prompt's tokens in the loss.
    (GATE["ipa"], "trainer.algo.terms.returns", "gamma ** steps[::-1]", "gamma ** steps"),
    (GATE["reinforce"], "trainer.algo.terms.returns", "gamma ** steps[::-1]", "gamma ** steps"),
    (GATE["grpo"], "trainer.algo.terms.returns", "scores_G.std(ddof=1)", "scores_G.std()"),
    (GATE["grpo"], "trainer.algo.terms.returns", "and not t.is_expert]", "or t.is_expert]"),
    (
        GATE["reinforce"],
        "trainer.algo.terms.returns",
        "[t for t in group if t.has_reward and",
        "[t for t in group if",
    ),
    (GATE["rloo"], "trainer.algo.terms.returns", "/ (len(scores_G) - 1)", "/ len(scores_G)"),
    (GATE["reinforce"], "trainer.data.build", "rows.piece_N % 2 == 1) &", "rows.piece_N % 2 == 0) &"),
    (GATE["reinforce"], "trainer.data.build", ") & rows.first_S[step_N]", ")"),
    (
        GATE["grpo"],
        "trainer.algo.terms.loss",
        "values_BT.sum() / max(counts.trajectories, 1)",
        "values_BT.mean()",
    ),
    (GATE["bc"], "trainer.algo.terms.loss", "-keep(logprobs_BT, mask_BT)", "keep(logprobs_BT, mask_BT)"),
    # The shared objective: sign, which old policy, the correction, each part of the clip.
    (GATE["grpo"], OPTIONS, "- terms.weight_BT * objective_BT", "+ terms.weight_BT * objective_BT"),
    (GATE["rloo corrected"], OPTIONS, "- terms.weight_BT * objective_BT", "- objective_BT"),
    (GATE["grpo"], OPTIONS, "prox_BT if decoupled else mu_BT", "prox_BT"),
    (GATE["grpo corrected"], OPTIONS, "        decoupled = True\n", ""),
    (GATE["decoupled_ppo"], OPTIONS, "prox_BT - mu_BT", "mu_BT - prox_BT"),
    (GATE["reinforce corrected"], OPTIONS, " and not score_function", ""),
    (CLIPPED, OPTIONS, "torch.minimum(", "torch.maximum("),
    (
        CLIPPED,
        OPTIONS,
        "1 - options.clip_low, 1 + options.clip_high",
        "1 - options.clip_high, 1 + options.clip_low",
    ),
    (CLIPPED, OPTIONS, "torch.maximum(objective_BT, floor_BT)", "objective_BT"),
    # Corrections and KL estimates.
    (GATE["grpo corrected"], "trainer.algo.terms.corrections", "w_BT <= high", "w_BT <= 1e9"),
    (Case("grpo", {"correction": "icepop"}), "trainer.algo.terms.corrections", "w_BT >= low", "w_BT >= 0"),
    (
        Case("rloo", {"correction": "tis_token"}),
        "trainer.algo.terms.corrections",
        "w_BT.clamp(max=high)",
        "w_BT",
    ),
    (
        Case("cispo", {"correction": "tis_chunk"}),
        "trainer.algo.terms.corrections",
        "else chunks.total(log_w_BT)",
        "else chunks.mean(log_w_BT)",
    ),
    (
        Case("gigpo", {"correction": "geometric_sequence"}),
        "trainer.algo.terms.corrections",
        "1.0 if kind.shape",
        "w_BT if kind.shape",
    ),
    (Case("grpo", {"kl_weight": 0.3}), "trainer.algo.terms.kl", "(-x_BT)", "x_BT"),
    (
        Case("topr", {"kl_weight": 0.3, "kl_place": "reward", "kl_reference": "frozen"}),
        "trainer.algo.terms.kl",
        "reference_BT = batch.reference_logprobs_BT",
        "reference_BT = batch.rollout_logprobs_BT",
    ),
    (
        Case("rloo", {"kl_weight": 0.3, "kl_place": "reward", "kl_estimator": "k2"}),
        OPTIONS,
        "kl_BT.detach()",
        "0 * kl_BT",
    ),
    # What is one algorithm's own.
    (GATE["gspo"], "trainer.algo.gspo", "chunks.mean(", "chunks.total("),
    (GATE["gspo"], "trainer.algo.gspo", "chunk_turns=0", "chunk_turns=1"),
    (GATE["cispo"], "trainer.algo.cispo", "terms.log_ratio_BT.detach()", "terms.log_ratio_BT"),
    (GATE["cispo"], "trainer.algo.cispo", "* terms.current_BT", "* terms.current_BT.exp()"),
    (GATE["topr"], "trainer.algo.topr", "chunks.total(", "chunks.mean("),
    (GATE["topr"], "trainer.algo.topr", "rho_BT.clamp(max=1)", "rho_BT"),
    (GATE["topr"], "trainer.algo.topr", "terms.advantages_BT < 0", "~batch.loss_mask_BT"),
    (
        Case("decoupled_ppo", {"correction": "none"}),
        "trainer.algo.decoupled_ppo",
        "decoupled = True",
        "decoupled = False",
    ),
    (GATE["gigpo"], "trainer.algo.gigpo", "np.concatenate(state_ids(learners))", "np.zeros(0, int)"),
    (GATE["gigpo"], "trainer.algo.gigpo", "visits_S - 1", "visits_S"),
    (GATE["reinforce_pp"], "trainer.algo.terms.returns", ", weights=tokens_K", ""),
    # The critic: the trace, the discount, turns that decide nothing, cut episodes, what it learns and how it is clipped.
    (GATE["ppo"], "trainer.algo.terms.critic", "gamma * trace * ahead", "gamma * ahead"),
    (
        GATE["ppo"],
        "trainer.algo.terms.critic",
        "rewards_K[k] + gamma * following",
        "rewards_K[k] + following",
    ),
    (GATE["ppo"], "trainer.algo.terms.critic", "            ahead = gamma * ahead\n", ""),
    (GATE["ppo"], "trainer.algo.terms.critic", "0.0, float(values_L[-1])", "0.0, 0.0"),
    (GATE["ppo"], "trainer.algo.terms.critic", "torch.maximum(free_BT, bound_BT)", "free_BT"),
    (GATE["ppo"], "trainer.algo.terms.critic", "batch.counts.turns", "batch.counts.trajectories"),
    (GATE["ppo"], "trainer.algo.ppo", " and trajectory.reward == 0", ""),
    (GATE["ppo"], "trainer.algo.ppo", "StopReason.TRUNCATED, StopReason.MAX_TURNS", "StopReason.TRUNCATED,"),
    (GATE["ppo"], "trainer.algo.ppo", "return_K=advantage_K + value_K", "return_K=advantage_K"),
    (GATE["ppo"], "trainer.algo.ppo", "if self.options.whiten else judged", "and judged"),
    (GATE["ppo"], "trainer.algo.ppo", "np.where(decides_K, values_L[:-1], np.nan)", "0 * values_L[:-1]"),
    (GATE["ppo"], "trainer.data.build", "np.diff(rows.piece_N, prepend=-1) != 0", "rows.piece_N > 0"),
    (Case("starpo", {"keep_share": 0.5}), "trainer.algo.starpo", "-deviations[name]", "deviations[name]"),
    (GATE["step_reinforce"], "trainer.algo.step_reinforce", "mean_of(every_N)", "every_N.max()"),
]


@pytest.mark.parametrize(("case", "module", "old", "new"), MUTANTS)
def test_every_mutant_is_caught(case, module, old, new, monkeypatch):
    mutant = mutate(module, old, new, monkeypatch)
    build = getattr(mutant, "build_batch", trainer.data.build.build_batch)
    own = getattr(mutant, SPECS[case.name][0].build.__name__, None)
    with pytest.raises(NOTICED):
        checked(case, build=build, algorithm=own and own(case.build().options))


def mutate(module: str, old: str, new: str, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """Return the module with a fragment replaced; whoever imported its functions calls the mutant's from now on."""
    source = inspect.getsource(importlib.import_module(module))
    assert old in source, f"the mutation of {module} no longer applies; update it to the new source"
    mutant = ModuleType(f"mutant_of_{module.replace('.', '_')}")
    monkeypatch.setitem(sys.modules, mutant.__name__, mutant)
    exec(compile(source.replace(old, new), mutant.__name__, "exec"), mutant.__dict__)
    users = [user for name, user in sys.modules.items() if name.startswith("trainer.algo.")]
    for name in mutant.__all__:
        if isinstance(getattr(mutant, name), FunctionType):
            for user in users:
                if hasattr(user, name):
                    monkeypatch.setattr(user, name, getattr(mutant, name))
    return mutant
