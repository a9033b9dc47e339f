"""Mutation gate: break the algorithms on purpose, and the reference checks must fail.

Each mutant replaces one fragment of one module's source. What is tested is the tests: a check that lets a flipped
sign or a shifted mask pass would be worthless.
"""

from __future__ import annotations

import importlib
import inspect
import sys
from types import ModuleType

import pytest
from algo_reference import (
    bc_reference,
    check,
    grpo_reference,
    ipa_reference,
    reinforce_reference,
)

import trainer.data.build
from trainer.algo import bc, grpo, ipa, reinforce
from trainer.algo.bc import Bc, BCOptions
from trainer.algo.grpo import Grpo, GRPOOptions
from trainer.algo.ipa import Ipa, IPAOptions
from trainer.algo.reinforce import Reinforce, REINFORCEOptions

USERS = (ipa, grpo, reinforce, bc)

CASES = {
    "ipa": (
        Ipa,
        IPAOptions(reward_fail=-1, neg_weight=1, turn_rewards=True, mask_high=1.6, mask_low=0.6),
        ipa_reference,
    ),
    "grpo": (Grpo, GRPOOptions(), grpo_reference),
    "reinforce": (Reinforce, REINFORCEOptions(gamma=0.9), reinforce_reference),
    "bc": (Bc, BCOptions(), bc_reference),
}

MUTANTS = [
    # The three of the gate: advantage sign, mask shifted by one, pi_old and mu swapped.
    ("ipa", "trainer.algo.ipa", "-weight_BT * advantages_BT", "weight_BT * advantages_BT"),
    ("grpo", "trainer.algo.grpo", "-torch.minimum", "torch.minimum"),
    ("reinforce", "trainer.algo.reinforce", "-surrogate_BT", "surrogate_BT"),
    ("bc", "trainer.algo.loss", "-keep(logprobs_BT, mask_BT)", "keep(logprobs_BT, mask_BT)"),
    *(
        (
            name,
            "trainer.data.build",
            "acts_N & ~expert_K[turn_N]",
            f"np.roll(acts_N & ~expert_K[turn_N], {by})",
        )
        for name in ("ipa", "grpo", "reinforce")
        for by in (-1, 1)
    ),
    ("bc", "trainer.data.build", "np.where(acts_N, imitation_K[turn_N], 0)", "np.roll(acts_N, 1)"),
    ("bc", "trainer.data.build", "np.where(acts_N, imitation_K[turn_N], 0)", "np.roll(acts_N, -1)"),
    ("ipa", "trainer.algo.ipa", "prox_BT - batch.rollout_logprobs_BT", "batch.rollout_logprobs_BT - prox_BT"),
    ("grpo", "trainer.algo.grpo", "log_ratio_BT.clamp(", "(-log_ratio_BT).clamp("),
    # Ratios that are always 1.
    ("ipa", "trainer.algo.ipa", "prox_BT - batch.rollout_logprobs_BT", "prox_BT - prox_BT"),
    (
        "ipa",
        "trainer.algo.ipa",
        "logprobs_BT if batch.prox_logprobs_BT is None else batch.prox_logprobs_BT",
        "logprobs_BT",
    ),
    (
        "grpo",
        "trainer.algo.grpo",
        "keep(batch.rollout_logprobs_BT, mask_BT)",
        "keep(logprobs_BT.detach(), mask_BT)",
    ),
    # The sign of the advantage instead of the raw outcome; the ratio's gradient; both sides of the mask.
    ("ipa", "trainer.algo.ipa", "~batch.positive_BT | (advantages_BT < 0)", "advantages_BT < 0"),
    ("ipa", "trainer.algo.chunks", "values_BT.detach()", "values_BT"),
    ("ipa", "trainer.algo.ipa", "(w_C <= options.mask_high)", "(w_C < 1e9)"),
    ("ipa", "trainer.algo.ipa", "(w_C >= options.mask_low)", "(w_C > 0)"),
    ("ipa", "trainer.algo.ipa", "rho_C.clamp(0, 1)", "rho_C"),
    ("ipa", "trainer.algo.chunks", "sums / self.count_C.clamp(min=1)", "sums"),
    # Credit: discount from the wrong end, experts in the group, a prompt's tokens in the loss.
    ("ipa", "trainer.algo.returns", "gamma ** steps[::-1]", "gamma ** steps"),
    ("reinforce", "trainer.algo.returns", "gamma ** steps[::-1]", "gamma ** steps"),
    ("grpo", "trainer.algo.grpo", "std(ddof=1)", "std()"),
    ("grpo", "trainer.algo.returns", "and not t.is_expert]", "or t.is_expert]"),
    (
        "reinforce",
        "trainer.algo.returns",
        "[t for t in group if t.failure is None and",
        "[t for t in group if",
    ),
    ("reinforce", "trainer.data.build", "rows.piece_N % 2 == 1) &", "rows.piece_N % 2 == 0) &"),
    ("reinforce", "trainer.data.build", ") & rows.first_S[step_N]", ")"),
    ("grpo", "trainer.algo.loss", "values_BT.sum() / max(counts.trajectories, 1)", "values_BT.mean()"),
]


@pytest.mark.parametrize("name", CASES)
def test_the_unchanged_algorithms_pass(name):
    build, options, reference = CASES[name]
    check(build(options), reference)


@pytest.mark.parametrize(("name", "module", "old", "new"), MUTANTS)
def test_every_mutant_is_caught(name, module, old, new, monkeypatch):
    build, options, reference = CASES[name]
    source = inspect.getsource(importlib.import_module(module))
    assert old in source, f"the mutation of {module} no longer applies; update it to the new source"
    mutant = load(module, source.replace(old, new), monkeypatch)
    if hasattr(mutant, build.__name__):
        build = getattr(mutant, build.__name__)
    for user in USERS:
        for exported in mutant.__all__:
            if hasattr(user, exported):
                monkeypatch.setattr(user, exported, getattr(mutant, exported))
    pack = getattr(mutant, "build_batch", trainer.data.build.build_batch)
    with pytest.raises((AssertionError, ValueError)):
        check(build(options), reference, build=pack)


def load(module: str, source: str, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    mutant = ModuleType(f"mutant_of_{module.replace('.', '_')}")
    monkeypatch.setitem(sys.modules, mutant.__name__, mutant)
    exec(compile(source, mutant.__name__, "exec"), mutant.__dict__)
    return mutant
