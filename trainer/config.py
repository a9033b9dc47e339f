"""Everything a training run is determined by. Read by every layer above and by the actors; imports no torch, no ray.

Frozen, unknown names refused, units in the names, a docstring under each field. Validators reject, never rewrite. Defaults
here suit a pretrained Hugging Face model; recipes (`ale/recipes/ENV.toml`) hold what suits an environment, and an engine.
"""

from __future__ import annotations

from pathlib import Path
from typing import Literal, Self

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    NonNegativeFloat,
    NonNegativeInt,
    PositiveFloat,
    PositiveInt,
    field_validator,
    model_validator,
)

from rock_env import plugins
from rock_env.errors import UnknownName

__all__ = [
    "PRETRAINED",
    "AgentOptions",
    "AnchorOptions",
    "CheckpointOptions",
    "CurriculumOptions",
    "EvalOptions",
    "FilterOptions",
    "GuardOptions",
    "OptimOptions",
    "ReuseOptions",
    "RewardOptions",
    "RewardRoute",
    "RolloutOptions",
    "SamplingOptions",
    "Scalar",
    "TrainConfig",
    "WarmupOptions",
    "engine_of",
]

PRETRAINED = "hf"
"""The engine of models that name none: those of Hugging Face."""
_LONG_HORIZON = ("compact_at", "summary_tokens", "memory_chars")

Scalar = bool | int | float | str


class _Section(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)


class AgentOptions(_Section):
    """Who talks to the policy, and how: an agent of our own, or a CLI agent by its name."""

    name: str = ""
    """A CLI agent that works in the environment's sandbox: a name of `ale agent list`, or its YAML file (docs/agents.md).
    Empty: an agent of our own, whose actions are the environment's."""
    session_tokens: PositiveInt = 1_000_000
    """Most tokens that are sampled for one rollout of a CLI agent, side calls included; then it is ended (name)."""
    window_turns: NonNegativeInt = 0
    """Newest observations a prompt keeps: 0 keeps all, 1 only the current one (a Markov policy)."""
    max_turns: PositiveInt = 100
    """Most model calls of one rollout, summaries and calls of the memory or beside the task included."""
    system: bool = True
    """Send the task's instruction as a system message."""
    kind: Literal["chat", "long_horizon"] = "chat"
    """`long_horizon` lets the policy write a summary before its context is full, go on in a fresh one, and keep notes
    (docs/agents-long-horizon.md)."""
    compact_at: float = Field(default=0.75, gt=0, le=1)
    """Share of the model's context beyond which a prompt makes way for a summary (long_horizon)."""
    summary_tokens: PositiveInt = 512
    """Most tokens of a summary (long_horizon)."""
    memory_chars: NonNegativeInt = 2000
    """Most characters of all notes together; 0 leaves the memory tool out (long_horizon)."""

    @model_validator(mode="after")
    def _of_an_agent_of_ours(self) -> Self:
        names = ("kind", "window_turns", "system", *_LONG_HORIZON) if self.name else ("session_tokens",)
        for name in names:
            value, default = getattr(self, name), type(self).model_fields[name].default
            if value != default:
                expected = "an agent of our own" if self.name else "a CLI agent"
                raise ValueError(
                    f"agent.{name}={value!r} would do nothing: got agent.name={self.name!r}, expected {expected}. Set "
                    f"agent.{name}={default!r}, or agent.name"
                )
        return self

    @model_validator(mode="after")
    def _of_the_other_kind(self) -> Self:
        names = ("window_turns",) if self.kind == "long_horizon" else _LONG_HORIZON
        set_in_vain = [name for name in names if getattr(self, name) != type(self).model_fields[name].default]
        if set_in_vain:
            other = "chat" if self.kind == "long_horizon" else "long_horizon"
            fields = type(self).model_fields
            named = ", ".join(f"agent.{name}={getattr(self, name)!r}" for name in set_in_vain)
            unset = ", ".join(f"agent.{name}={fields[name].default!r}" for name in set_in_vain)
            raise ValueError(
                f"{named} would do nothing: got agent.kind={self.kind!r}, expected {other!r}. Set that, or {unset}"
            )
        return self


class SamplingOptions(_Section):
    """How training rollouts sample: always from the model's own distribution (temperature 1, all tokens), because the train
    engine's log-probabilities are those of that distribution and any other would bias every ratio."""

    max_tokens: PositiveInt = 256
    """Most tokens of one completion."""


class RolloutOptions(_Section):
    """How many rollouts a step asks for, and who runs them."""

    groups_per_step: PositiveInt = 16
    """Groups (one task and one anchor each) a step draws."""
    group_size: PositiveInt = 8
    """Rollouts of one group."""
    workers: PositiveInt = 2
    """Rollout worker actors."""
    engines: PositiveInt = 2
    """Inference engine actors; worker i uses engine i modulo this number."""
    concurrency: PositiveInt = 512
    """Most rollouts one worker runs at once."""
    staleness: NonNegativeInt = 0
    """Versions by which the weights that sample a step's rollouts are behind those that learn from them, in the first steps
    as many as there are. An exact control for experiments, which saves no time. Evaluations use the newest weights."""
    batching: Literal["lockstep", "eager"] = "lockstep"
    """`lockstep` samples when every live rollout waits, so that runs reproduce bit for bit; `eager` as soon as the engine is
    idle, for environments of uneven speed, and with one that steps (`hf`) at once, between two tokens of the others."""
    time_limit_s: PositiveFloat = 600.0
    """Longest a rollout may take; beyond, it is a failure. A CLI agent is ended then, and what it left is graded."""
    max_failure_rate: float = Field(default=0.5, ge=0, le=1)
    """Share of the rollouts asked for in one step that may be rejected (`filter`), sampled again or not; above it, and where
    nothing is left, the run halts. Of evaluations and recorded experts it is the share that may fail."""
    token_budget: PositiveInt = 64
    """Tokens by which each trajectory's part of the loss is divided: a constant, so that masking never re-inflates what
    survives (docs/ipa.md section 2)."""
    train_labels: tuple[Literal["main", "sub_agent", "summary", "side", "error"], ...] = ("main",)
    """What the calls of an agent of its own are for that are learned (docs/token-exactness.md); all others are context, and
    superseded ones always are: the agent never had them. The turns of a chat loop are all main."""
    branch_credit: Literal["whole", "split", "leaf"] = "whole"
    """How the branches of such an agent's session share its reward: each gets the whole, or an equal part, or only the one
    that ended it gets any (docs/token-exactness.md)."""
    rock_address: str = ""
    """A running ROCK server (`unix:PATH`, `HOST:PORT`, `grpc://`, `grpcs://`, `http://` or `https://`); empty starts an
    embedded one."""
    games: Literal["auto", "served"] = "auto"
    """`auto` plays games that ship with ALE in the worker's own process; `served` has a server host them, as all others."""
    freeze: NonNegativeInt = 0
    """So many rollouts of each worker process that fail, or are not passed, leave their sandbox open for `ale rock shell`;
    their records name it. Its server ends it when it was not used for its idle time (`ale rock serve --idle-timeout-s`)."""
    backends: tuple[str, ...] = ()
    """What the embedded server hosts sandboxes on: installed backends (`ale.backends`), each `NAME` or
    `NAME:KEY=VALUE,KEY=VALUE`, the first of several that takes a sandbox first. Empty: `process` and `docker`."""

    @field_validator("train_labels")
    @classmethod
    def _trains_main(cls, labels: tuple[str, ...]) -> tuple[str, ...]:
        if "main" not in labels or len(set(labels)) != len(labels):
            raise ValueError(
                f"got {labels!r}, expected main and, if you like, sub_agent, summary, side and error, each once"
            )
        return labels

    @model_validator(mode="after")
    def _backends_of_ours(self) -> Self:
        if self.backends and self.rock_address:
            raise ValueError(
                f"rollout.backends={self.backends!r} would do nothing: the server at {self.rock_address} chose its own. "
                "Start that server with --backend, or leave rollout.rock_address out"
            )
        if self.freeze and not self.rock_address:
            raise ValueError(
                f"rollout.freeze={self.freeze} keeps nothing: the embedded server ends with the run and ends every sandbox. "
                "Start one with `ale rock serve` and name it in rollout.rock_address"
            )
        return self


class FilterOptions(_Section):
    """Which rollouts are no sample of the policy, and which groups are replaced (docs/ipa.md section 6)."""

    resamples: NonNegativeInt = 2
    """Times a rejected rollout is sampled again from the same start; after them it is a placeholder, fully masked."""
    illegal_turns: NonNegativeInt = 0
    """Turns in a row that are no action by which a rollout is rejected; 0 rejects none, so that they are learned from."""
    dynamic: Literal["algorithm", "on", "off"] = "algorithm"
    """Replace groups of the task's own start whose outcomes are all the same by groups of other tasks; `algorithm` does
    where the algorithm's source does (dapo)."""
    dynamic_extra: NonNegativeFloat = 1.0
    """Most groups drawn for that in one step, as a share of `rollout.groups_per_step`."""
    empty_steps: NonNegativeInt = 0
    """Steps in a row from which nothing is learned (all groups are filtered, or all credit is 0) by which the run halts; 0:
    it goes on, and says so each time."""
    negative_tokens: NonNegativeInt = 0
    """Tokens of a trajectory without positive outcome beyond which it is masked; its group's baseline keeps it. 0: none."""


class CurriculumOptions(_Section):
    """What is learned first, and which tasks are drawn."""

    positive_only: float = Field(default=0.0, ge=0, le=1)
    """Share of the run's steps, from the first on, in which only trajectories with positive outcome are learned."""
    tasks: Literal["uniform", "pass_rate"] = "uniform"
    """`pass_rate` draws tasks by how uncertain their outcome is, as a Beta posterior of past rollouts from their own start
    says: most often those that pass half of the time."""
    memory: float = Field(default=0.9, ge=0, le=1)
    """Pass rate: share of a task's earlier outcomes that still counts after each visit, since the policy changes."""


class OptimOptions(_Section):
    """AdamW and its schedule, common to all train engines."""

    lr: PositiveFloat = 1e-6
    """Peak learning rate of the RL phase."""
    lr_end: NonNegativeFloat = 0.1
    """Learning rate at the last step, as a share of `lr` (linear decay; 1 is constant)."""
    beta1: float = Field(default=0.9, ge=0, lt=1)
    beta2: float = Field(default=0.95, ge=0, lt=1)
    weight_decay: NonNegativeFloat = 0.0
    grad_clip: PositiveFloat = 1.0
    """Largest global gradient norm, in the loss's own units; those of IPA are about 0.01 to 0.1."""
    grad_clip_usual: NonNegativeFloat = 0.0
    """Largest multiple of the usual norm: the root of AdamW's mean square over recent gradients. 0: no such bound."""
    minibatches: PositiveInt = 1
    """Optimizer updates per batch; each trajectory takes part in one of them."""
    microbatch_tokens: PositiveInt = 16384
    """Most tokens (padding included) of one forward and backward pass."""
    threads: PositiveInt = 1
    """CPU threads of the train engine."""


class WarmupOptions(_Section):
    """Imitation of a few expert trajectories before reinforcement learning."""

    trajectories: NonNegativeInt = 32
    """Successful oracle trajectories to record, unless `data` is given; 0 starts RL from the model as it is."""
    data: tuple[str, ...] = ()
    """Trajectories to imitate in place of the oracle's: folders of runs, other folders, `.rollouts` files. Whole successes
    on tasks of `train_split` are taken."""
    held_out: float = Field(default=0.0, ge=0, lt=1)
    """Share of the experts' tasks that is not imitated: every epoch reports its loss on them."""
    epochs: NonNegativeInt = 4
    """Passes over them; 0 records experts (for anchors and injection) without a warm-up."""
    batch_trajectories: PositiveInt = 8
    """How many updates a pass takes: one for this many trajectories. Each sees turns of all of them, in a new order."""
    lr: PositiveFloat = 1e-5
    """Learning rate of the first epoch; falls linearly towards `optim.lr_end` of it. `ale sft` reaches that in its last
    epoch, the warm-up of a run would in one more."""


class AnchorOptions(_Section):
    """Environment resets: where rollouts start and what is imitated beside RL (docs/ipa.md sections 4 and 5)."""

    scheduler: Literal["none", "sequential", "parallel", "hint"] = "none"
    """`sequential` rolls one anchor per expert back from its last turn; `parallel` spreads up to `per_expert` anchors;
    `hint` starts at the beginning and tells the expert's first actions, fewer as success allows."""
    start_share: float = Field(default=0.25, ge=0.2, le=1)
    """Least share of groups that start at the task's own beginning, with no hint. Below 0.2 the policy would forget how
    tasks begin (docs/ipa.md section 4)."""
    per_expert: PositiveInt = 4
    """Anchors one expert trajectory keeps, the true start among them (parallel)."""
    hint_turns: NonNegativeInt = 0
    """Actions that an expert's first hint tells (hint); 0 tells all."""
    pool: PositiveInt = 256
    """Most expert trajectories kept; the oldest self-sampled ones leave first. As many failures are kept."""
    self_sampled: bool = True
    """Successful rollouts from the true start join the pool, so that experts follow the policy."""
    refresh: NonNegativeInt = 0
    """Steps between refreshes: an expert gives way to a shorter success of the present policy on its task, and what older
    policies did counts half in prefix values. 0: never."""
    replay_share: float = Field(default=0, ge=0, le=1)
    """Share of anchored groups that start where earlier rollouts left an expert's way at a crucial turn and failed, while
    there are any."""
    max_age: NonNegativeInt = 0
    """Steps after which self-sampled experts and failures are no starts any more; 0: never."""
    advance: float = Field(default=0.5, ge=0, le=1)
    """Success (moving average over at least 8 rollouts) at which the anchor moves one turn earlier or the hint shrinks."""
    retreat: float = Field(default=0.1, ge=0, le=1)
    """Success below which, three visits in a row, the anchor moves one turn later or the hint grows."""
    inject: NonNegativeInt = 0
    """Expert trajectories imitated beside RL in each step (weight `lambda_il` of the algorithm)."""
    inject_turns: NonNegativeInt = 0
    """Turns of these trajectories to imitate, drawn evenly in each step and weighted up to stand for all; 0 imitates all."""
    inject_gate: Literal["dry", "none"] = "dry"
    """`dry` imitates an expert only where the last 8 rollouts from its anchor had no success, up to its crucial turn (while
    that is unknown, the anchor's); `none` draws whole expert trajectories at random."""
    inject_until: float = Field(default=0.5, ge=0, le=1)
    """Share of the run's steps over which the imitation weight falls linearly to 0."""


class RewardRoute(_Section):
    """Which rollouts one reward worker rewards."""

    worker: str
    """An installed reward worker (`ale.rewards`)."""
    match: dict[str, str] = Field(default_factory=dict)
    """Patterns (`*`, `?`, `[abc]`) that all must fit: `env`, `split`, or a field of the task's payload where that is a JSON
    object, such as `family`. Empty fits every rollout."""
    turn_weight: float = Field(default=1.0, allow_inf_nan=False)
    """Factor on the worker's rewards per turn."""
    options: dict[str, Scalar] = Field(default_factory=dict)
    """The worker's own options (docs/rewards.md)."""


class RewardOptions(_Section):
    """Reward workers: who says what a training rollout earned, where that is not its environment."""

    routes: tuple[RewardRoute, ...] = ()
    """Tables of `worker`, `match`, `turn_weight` and `options`: the first that fits a rollout rewards it (docs/rewards.md).
    A rollout that none fits keeps its environment's reward."""
    concurrency: PositiveInt = 16
    """Most batches open at once: of a judge or a sandbox one question, of a rule or a model in a run many."""
    attempts: PositiveInt = 4
    """Times a sample is put to its worker before it counts as failed, never as a reward of 0."""
    time_limit_s: PositiveFloat = 120.0
    """Longest one attempt may take."""


class ReuseOptions(_Section):
    """Training again on successes of earlier steps, with the log-probabilities that were stored when they were sampled."""

    trajectories: NonNegativeInt = 0
    """Earlier successes that join each step's batch."""
    max_lag: PositiveInt = 4
    """Most versions that may lie between the weights that sampled a token and those that learn from it. Older successes are
    dropped, and the ledger says so."""
    capacity: PositiveInt = 256
    """Most successes kept; the oldest leave first."""


class EvalOptions(_Section):
    """Success on held-out tasks, always from the true start."""

    split: str = "held_out"
    apart: tuple[str, ...] = ()
    """Splits measured beside it, after the warm-up and at the end; reported apart."""
    apart_tasks: NonNegativeInt = 0
    """Tasks of each of those splits; 0: as many as `tasks`."""
    tasks: PositiveInt = 200
    """Tasks of the evaluations after the warm-up and at the end."""
    every: NonNegativeInt = 10
    """Steps between evaluations in between; 0 evaluates only after warm-up and at the end."""
    progress_tasks: PositiveInt = 64
    """Tasks of those in between: the first so many of `tasks`."""
    temperature: NonNegativeFloat = 0.0
    """0 is greedy."""


class GuardOptions(_Section):
    """What halts a run that damages the model it began with, or samples with another one (docs/algorithms.md)."""

    text_rise: NonNegativeFloat = 1.0
    """Most that a plain English text may cost more than at the run's beginning, in nats per token, after every pass of the
    warm-up and every step; of Hugging Face models. 0 does not look."""
    legal_fall: float = Field(default=0.2, ge=0, le=1)
    """Most by which the share of legal actions may fall, over a warm-up and from the first evaluation on, beyond what is
    chance. 0 does not look."""
    tasks: PositiveInt = 16
    """Tasks of `eval.split` played before and after the warm-up for that, of a model that brings its weights."""
    turns: PositiveInt = 4
    """First turns of them that are played."""
    mismatch: NonNegativeFloat | None = None
    """Most that the log-probabilities of learner and sampler may differ by in the first batch, with equal weights: of any
    token in float32 (unset: 0.001), on average in bfloat16 (unset: 0.05). 0 does not look."""


class CheckpointOptions(_Section):
    """When the state is saved. Ctrl-C saves as well."""

    every: PositiveInt = 10
    """Steps between checkpoints."""
    keep: PositiveInt = 2
    """Newest checkpoints kept."""


class TrainConfig(_Section):
    """One training run."""

    env: str = "frozen_lake"
    """An installed environment (`ale env list`)."""
    env_args: dict[str, Scalar] = Field(default_factory=dict)
    """The environment's own arguments (`ale env show NAME`)."""
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
    filter: FilterOptions = FilterOptions()
    curriculum: CurriculumOptions = CurriculumOptions()
    optim: OptimOptions = OptimOptions()
    warmup: WarmupOptions = WarmupOptions()
    anchors: AnchorOptions = AnchorOptions()
    reward: RewardOptions = RewardOptions()
    reuse: ReuseOptions = ReuseOptions()
    eval: EvalOptions = EvalOptions()
    guard: GuardOptions = GuardOptions()
    checkpoint: CheckpointOptions = CheckpointOptions()

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
    def _nothing_fresh_enough(self) -> Self:
        if self.reuse.trajectories and self.reuse.max_lag <= self.rollout.staleness:
            raise ValueError(
                f"reuse.max_lag={self.reuse.max_lag} drops every success before it is learned again, because "
                f"rollout.staleness={self.rollout.staleness} is its lag when it is new: set reuse.max_lag to at least "
                f"{self.rollout.staleness + 1}, or reuse.trajectories to 0"
            )
        return self

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
