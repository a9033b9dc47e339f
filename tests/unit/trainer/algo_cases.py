"""Every algorithm under several settings, with its reference: what the tests and the alignment table go through."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, get_args

import family_reference as ref
from algo_reference import bc_reference, ipa_reference

from trainer.algo.base import AlgorithmSpec
from trainer.algo.bc import BC
from trainer.algo.cispo import CISPO
from trainer.algo.dapo import DAPO
from trainer.algo.decoupled_ppo import DECOUPLED_PPO
from trainer.algo.dr_grpo import DR_GRPO
from trainer.algo.gigpo import GIGPO
from trainer.algo.grpo import GRPO
from trainer.algo.gspo import GSPO
from trainer.algo.ipa import IPA
from trainer.algo.ppo import PPO
from trainer.algo.reinforce import REINFORCE
from trainer.algo.reinforce_pp import REINFORCE_PP
from trainer.algo.rloo import RLOO
from trainer.algo.starpo import STARPO
from trainer.algo.step_reinforce import STEP_REINFORCE
from trainer.algo.terms.corrections import Correction
from trainer.algo.terms.loss import Aggregation
from trainer.algo.topr import TOPR

SPECS: dict[str, tuple[AlgorithmSpec, Callable[..., Any]]] = {
    "bc": (BC, bc_reference),
    "cispo": (CISPO, ref.cispo_reference),
    "dapo": (DAPO, ref.dapo_reference),
    "decoupled_ppo": (DECOUPLED_PPO, ref.decoupled_reference),
    "dr_grpo": (DR_GRPO, ref.clipping_reference),
    "gigpo": (GIGPO, ref.gigpo_reference),
    "grpo": (GRPO, ref.clipping_reference),
    "gspo": (GSPO, ref.gspo_reference),
    "ipa": (IPA, ipa_reference),
    "ppo": (PPO, ref.ppo_reference),
    "reinforce": (REINFORCE, ref.reinforce_family_reference),
    "reinforce_pp": (REINFORCE_PP, ref.reinforce_pp_reference),
    "rloo": (RLOO, ref.rloo_reference),
    "starpo": (STARPO, ref.starpo_reference),
    "step_reinforce": (STEP_REINFORCE, ref.step_reinforce_reference),
    "topr": (TOPR, ref.topr_reference),
}

CORRECTIONS = [name for name in get_args(Correction) if name != "none"]
CORRECTED = [name for name in SPECS if name not in ("bc", "ipa", "topr")]
"""Algorithms that take a `correction`."""
AGGREGATED = [name for name in SPECS if name not in ("ipa", "reinforce")]
"""Algorithms that take an `aggregation`."""

_EXTRA: dict[str, list[dict[str, Any]]] = {
    "ipa": [
        {"reward_fail": -1, "neg_weight": 1, "mask_high": 1.5},
        {"baseline": "leave_one_out", "chunk_turns": 2},
        {"chunk_turns": 0, "turn_rewards": True, "mask_low": 0.6},
        {"behaviour": "snapshots", "reward_fail": -1, "neg_weight": 1, "mask_high": 1.4, "mask_low": 0.7},
        {"behaviour": "paper", "reward_fail": -1, "neg_weight": 1, "mask_high": 1.2, "mask_low": 0.8},
    ],
    "grpo": [
        {"dual_clip": 1.3, "clip_low": 0.1, "normalize_std": False},
        {"kl_weight": 0.3, "kl_place": "loss", "kl_estimator": "k2", "kl_reference": "frozen"},
        {"kl_weight": 0.3, "kl_place": "reward", "kl_estimator": "k1"},
        {"kl_weight": 0.3, "kl_reference": "prox"},
    ],
    "dr_grpo": [{"clip_high": 0.05}],
    "dapo": [{"drop_flat": False, "dual_clip": 3}],
    "decoupled_ppo": [{"correction": "none"}, {"dual_clip": 1.3}],
    "gspo": [{"clip_low": 0.1, "clip_high": 0.1}, {"kl_weight": 0.1, "kl_place": "reward"}],
    "cispo": [{"clip_low": 0.3, "clip_high": 0.2}, {"normalize_std": False}],
    "topr": [
        {"baseline": "group_mean"},
        {"baseline": "leave_one_out", "reward_fail": 0},
        {"kl_weight": 0.2, "kl_estimator": "k3", "kl_place": "loss", "kl_reference": "frozen"},
    ],
    "ppo": [
        {"gamma": 1.0, "trace": 1.0, "whiten": False},
        {"turn_rewards": True, "trace": 0.5, "gamma": 0.7},
        {"bootstrap": False, "trace": 0.0, "value_clip": float("inf")},
        {"dual_clip": 1.3, "clip_low": 0.1, "value_clip": 0.02},
        {"kl_weight": 0.3, "kl_place": "reward", "kl_estimator": "k1", "kl_reference": "prox"},
    ],
    "reinforce": [{"gamma": 0.7, "baseline": "leave_one_out"}, {"baseline": "none", "kl_weight": 0.1}],
    "reinforce_pp": [{"baseline": "group_mean"}, {"clip_high": 0.5, "baseline": "leave_one_out"}],
    "rloo": [{"kl_weight": 0.2, "kl_place": "reward", "kl_estimator": "k1", "kl_reference": "frozen"}],
    "gigpo": [{"normalize_std": False, "gamma": 0.7}, {"turn_rewards": True, "step_weight": 0.5}],
    "starpo": [{"keep_share": 0.5}, {"turn_rewards": True, "normalize_std": False}],
    "step_reinforce": [{"normalize_std": True, "turn_rewards": True}, {"baseline": "none", "gamma": 1}],
}


@dataclass(frozen=True, slots=True)
class Case:
    """One algorithm under one setting."""

    name: str
    options: Mapping[str, Any]

    def __str__(self) -> str:
        return " ".join([self.name, *(f"{key}={value}" for key, value in self.options.items())])

    @property
    def reference(self) -> Callable[..., Any]:
        return SPECS[self.name][1]

    def build(self) -> Any:
        spec, _ = SPECS[self.name]
        return spec.build(spec.options(**self.options))


def refused(name: str, correction: str) -> bool:
    return name == "gspo" and correction.endswith("_chunk")


CASES = [
    *(Case(name, {}) for name in SPECS),
    *(Case(name, options) for name, settings in _EXTRA.items() for options in settings),
    *(Case(name, {"aggregation": mode}) for name in AGGREGATED for mode in get_args(Aggregation)),
    *(
        Case(name, {"correction": correction})
        for name in CORRECTED
        for correction in CORRECTIONS
        if not refused(name, correction)
    ),
]
