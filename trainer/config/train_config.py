"""One training run: its sections, and what they may not be together."""

from __future__ import annotations

from pathlib import Path
from typing import Self

from pydantic import Field, NonNegativeInt, field_validator, model_validator

from rock_env import plugins
from rock_env.errors import UnknownName
from trainer.config.learning import AnchorOptions, ExploreOptions, OptimOptions, ReuseOptions, WarmupOptions
from trainer.config.mixture import Share, shares_in
from trainer.config.placement import PlacementOptions
from trainer.config.rewards import RewardOptions
from trainer.config.rollouts import (
    AgentOptions,
    CurriculumOptions,
    FilterOptions,
    RolloutOptions,
    SamplingOptions,
)
from trainer.config.section import Scalar, Section
from trainer.config.watching import CheckpointOptions, EvalOptions, GuardOptions

__all__ = ["PRETRAINED", "TrainConfig", "engine_of"]

PRETRAINED = "hf"
"""The engine of models that name none: those of Hugging Face."""


class TrainConfig(Section):
    """One training run."""

    env: str = "frozen_lake"
    """An installed environment (`ale env list`), or several with their shares of the groups: `math:0.4,frozen_lake:0.6`
    (docs/mixtures.md)."""
    env_args: dict[str, Scalar | dict[str, Scalar]] = Field(default_factory=dict)
    """The environment's own arguments (`ale env show NAME`); of several environments a table each, by name."""
    algo: str = "ipa"
    """An installed algorithm."""
    algo_options: dict[str, Scalar] = Field(default_factory=dict)
    """The algorithm's own options."""
    model: str = "tiny"
    """An engine that begins from nothing (`tiny`, `coder`, or one you installed), a folder that a run exported, or a
    Hugging Face model's folder or id."""
    learner: str = ""
    """The installed engine (`ale.engines`) that trains the model. Empty: the one that `model` names or that exported its
    folder; of any other model `hf`."""
    engine_options: dict[str, Scalar] = Field(default_factory=dict)
    """The engine's own options."""
    sampler: str = ""
    """The installed engine that samples from the model in place of the learner's own sampler; it takes the learner's
    weights."""
    sampler_options: dict[str, Scalar] = Field(default_factory=dict)
    """The sampler's own options."""
    seed: int = Field(default=0, ge=0)
    """Determines tasks, experts, initial weights and all sampling."""
    steps: NonNegativeInt = 100
    """RL steps after the warm-up."""
    train_split: str = "train"
    agent: AgentOptions = AgentOptions()
    sampling: SamplingOptions = SamplingOptions()
    rollout: RolloutOptions = RolloutOptions()
    placement: PlacementOptions = PlacementOptions()
    filter: FilterOptions = FilterOptions()
    curriculum: CurriculumOptions = CurriculumOptions()
    optim: OptimOptions = OptimOptions()
    explore: ExploreOptions = ExploreOptions()
    warmup: WarmupOptions = WarmupOptions()
    anchors: AnchorOptions = AnchorOptions()
    reward: RewardOptions = RewardOptions()
    reuse: ReuseOptions = ReuseOptions()
    eval: EvalOptions = EvalOptions()
    guard: GuardOptions = GuardOptions()
    checkpoint: CheckpointOptions = CheckpointOptions()

    @field_validator("env")
    @classmethod
    def _has_shares(cls, env: str) -> str:
        shares_in(env)
        return env

    @model_validator(mode="after")
    def _args_of_each(self) -> Self:
        if len(self.shares) == 1:
            return self
        names = [each.env for each in self.shares]
        for name, value in self.env_args.items():
            if name not in names or not isinstance(value, dict):
                raise ValueError(
                    f"env_args.{name}={value!r} is of none of the environments {', '.join(names)}: say of which, such as "
                    f"env_args.{names[0]}.{name}"
                )
        return self

    @model_validator(mode="after")
    def _no_group_to_compare(self) -> Self:
        if self.filter.dynamic == "on" and self.rollout.group_size == 1:
            raise ValueError(
                "filter.dynamic='on' compares the outcomes of a group, and rollout.group_size=1 leaves nothing to compare: "
                "set it to at least 2, or filter.dynamic to 'off'"
            )
        return self

    @model_validator(mode="after")
    def _sessions_are_no_actions(self) -> Self:
        """Refuse with a CLI agent whatever takes its turns, or an expert's, for actions of the environment."""
        if not self.agent.name:
            return self
        wanted: dict[str, tuple[object, object, str]] = {
            "warmup.trajectories": (self.warmup.trajectories, 0, "an oracle's actions are no agent's turns"),
            "warmup.data": (self.warmup.data, (), "recorded actions are no turns of an agent"),
            "anchors.scheduler": (self.anchors.scheduler, "none", "an agent begins at the task's own start"),
            "anchors.inject": (self.anchors.inject, 0, "an expert's actions are no turns of an agent"),
            "anchors.self_sampled": (
                self.anchors.self_sampled,
                False,
                "an agent's turns are no actions to replay",
            ),
            "anchors.refresh": (self.anchors.refresh, 0, "an agent's turns are no actions to replay"),
            "sampling.temperature": (self.sampling.temperature, 1.0, "an agent samples as it asks to"),
            "sampling.thinking_tokens": (
                self.sampling.thinking_tokens,
                0,
                "it bounds the answers of an agent of our own",
            ),
            "rollout.batching": (
                self.rollout.batching,
                "eager",
                "an agent asks in its own time, and one at work would hold up all others",
            ),
        }
        for name, (got, expected, why) in wanted.items():
            if got != expected:
                raise ValueError(
                    f"with the CLI agent agent.name={self.agent.name!r}, {name} must be {expected!r}, got {got!r}: {why}"
                )
        return self

    @model_validator(mode="after")
    def _thoughts_in_chats(self) -> Self:
        if self.sampling.thinking_tokens and self.agent.kind != "chat":
            raise ValueError(
                f"sampling.thinking_tokens={self.sampling.thinking_tokens} bounds the thoughts of a chat: got agent.kind="
                f"{self.agent.kind!r}, expected 'chat'. Set that, or leave thinking_tokens out"
            )
        return self

    @model_validator(mode="after")
    def _nothing_fresh_enough(self) -> Self:
        if self.reuse.trajectories and self.reuse.max_lag <= self.rollout.staleness:
            raise ValueError(
                f"reuse.max_lag={self.reuse.max_lag} drops every success before it is learned again, because "
                f"rollout.staleness={self.rollout.staleness} is its lag when it is new: set reuse.max_lag to at least "
                f"{self.rollout.staleness + 1}, or reuse.trajectories to 0"
            )
        return self

    @model_validator(mode="after")
    def _samplers_of_their_own(self) -> Self:
        placement = self.placement
        if self.rollout.overlaps and placement.pool and placement.learner in placement.samplers:
            raise ValueError(
                f"rollout.mode={self.rollout.mode!r} samples while it learns: got samplers in the learner's bundle "
                f"{placement.learner}, which sleep meanwhile, expected bundles of their own. Set "
                "placement.layout='disaggregated', or rollout.mode='sync'"
            )
        return self

    @property
    def shares(self) -> tuple[Share, ...]:
        """Return the run's environments with their shares; one has all."""
        return shares_in(self.env)

    def alone(self, env: str) -> TrainConfig:
        """Return the settings as they are for one of the run's environments."""
        if len(self.shares) == 1:
            return self
        return self.model_copy(update={"env": env, "env_args": self.env_args.get(env, {})})

    @property
    def engine(self) -> str:
        """Return the engine plugin that trains `model`."""
        return self.learner or engine_of(self.model)


def engine_of(model: str) -> str:
    """Return the engine plugin for a model of this name or in this folder, which its file `ale_ENGINE.json` marks.

    Raise `UnknownName` for the export of an engine that is not installed.
    """
    known = plugins.names("ale.engines")
    if model in known:
        return model
    marks = {path.stem.removeprefix("ale_") for path in Path(model).glob("ale_*.json")}
    if not marks:
        return PRETRAINED
    found = sorted(marks.intersection(known))
    if found:
        return found[0]
    raise UnknownName(
        f"the model in {model} was exported by an engine that is not installed here: got {', '.join(sorted(marks))}, "
        f"expected one of {', '.join(known)}. Install the package that brings it."
    )
