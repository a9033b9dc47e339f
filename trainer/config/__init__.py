"""Everything a training run is determined by. Read by every layer above and by the actors; imports no torch, no ray.

Frozen, unknown names refused, units in the names, a docstring under each field. Validators reject, never rewrite. Defaults
here suit a pretrained Hugging Face model; recipes (`ale/recipes/ENV.toml`) hold what suits an environment, and an engine.
"""

from __future__ import annotations

from trainer.config.learning import AnchorOptions, ExploreOptions, OptimOptions, ReuseOptions, WarmupOptions
from trainer.config.mixture import Share, dealt, shares_in
from trainer.config.placement import Bundle, PlacementOptions
from trainer.config.rewards import RewardOptions, RewardRoute
from trainer.config.rollouts import (
    AgentOptions,
    CurriculumOptions,
    FilterOptions,
    RolloutOptions,
    SamplingOptions,
)
from trainer.config.section import Scalar
from trainer.config.train_config import PRETRAINED, TrainConfig, engine_of
from trainer.config.watching import CheckpointOptions, EvalOptions, GuardOptions

__all__ = [
    "PRETRAINED",
    "AgentOptions",
    "AnchorOptions",
    "Bundle",
    "CheckpointOptions",
    "CurriculumOptions",
    "EvalOptions",
    "ExploreOptions",
    "FilterOptions",
    "GuardOptions",
    "OptimOptions",
    "PlacementOptions",
    "ReuseOptions",
    "RewardOptions",
    "RewardRoute",
    "RolloutOptions",
    "SamplingOptions",
    "Scalar",
    "Share",
    "TrainConfig",
    "WarmupOptions",
    "dealt",
    "engine_of",
    "shares_in",
]
