"""Who plays, what a step asks for, and which rollouts count."""

from __future__ import annotations

from typing import Literal, Self

from pydantic import (
    Field,
    NonNegativeFloat,
    NonNegativeInt,
    PositiveFloat,
    PositiveInt,
    field_validator,
    model_validator,
)

from trainer.config.section import Section

__all__ = ["AgentOptions", "CurriculumOptions", "FilterOptions", "RolloutOptions", "SamplingOptions"]

_LONG_HORIZON = ("compact_at", "summary_tokens", "memory_chars")


class AgentOptions(Section):
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


class SamplingOptions(Section):
    """How training rollouts sample: always from all tokens, because the train engine's log-probabilities are those of the
    distribution sampled from and any other would bias every ratio."""

    temperature: PositiveFloat = 1.0
    """What logits of sampled tokens are divided by, in the sampler and in the learner alike: every ratio is then between
    tempered distributions, and the tempered policy is what learns. Imitation and evaluations have their own."""

    max_tokens: PositiveInt = 256
    """Most tokens of one completion."""

    thinking_tokens: NonNegativeInt = 0
    """Most sampled tokens of an answer's thought (`<think>…</think>`), of `max_tokens`; then it is closed by tokens that
    nobody sampled, and the answer goes on after them. 0: no bound of its own (docs/token-exactness.md)."""

    @model_validator(mode="after")
    def _leaves_an_answer(self) -> Self:
        if self.thinking_tokens >= self.max_tokens:
            raise ValueError(
                f"sampling.thinking_tokens={self.thinking_tokens} leaves no answer: got sampling.max_tokens="
                f"{self.max_tokens} for thought and answer together, expected more. Raise that, or lower thinking_tokens"
            )
        return self


class RolloutOptions(Section):
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
    mode: Literal["sync", "pipeline", "stream"] = "sync"
    """`sync` samples, then learns. `pipeline` samples later plans while a step is learned, with weights that are
    `rollout.staleness` versions behind, which must be at least 1: the very batches of `sync` with that staleness, sooner.
    `stream` learns the groups that are finished first and loads new weights between two tokens: no rollout waits for a
    slower one, and no token is learned that is more than `rollout.staleness` versions old; with 0 it is `sync`."""
    staleness: NonNegativeInt = 0
    """Versions by which the weights that sample a step's rollouts are behind those that learn from them, in the first steps
    as many as there are; with `mode=stream` the most that any token may be. With `mode=sync` an exact control for
    experiments, which saves no time. Evaluations use the newest weights."""
    spare_groups: NonNegativeInt = 0
    """With `mode=stream`: groups that are played beyond those that the lag allows, so that slots are busy while the slowest
    end. None is discarded: what a batch does not need is learned in a later one."""
    allow_uncorrected_lag: bool = False
    """Learn although `rollout.staleness` is more than the algorithm's off-policy correction bears (`ale algo list`): nothing
    then corrects for what older weights sampled."""
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
    train_thinking: bool = True
    """Whether the thoughts at the beginning of answers (`<think>…</think>`) are learned. If not, they are context of the
    answers, which get the whole credit (docs/token-exactness.md)."""
    branch_credit: Literal["whole", "split", "leaf"] = "whole"
    """How the branches of such an agent's session share its reward: each gets the whole, or an equal part, or only the one
    that ended it gets any (docs/token-exactness.md)."""
    rock_address: str = ""
    """A running ROCK server (`unix:PATH`, `HOST:PORT`, `grpc://`, `grpcs://`, `http://` or `https://`); empty starts an
    embedded one."""
    outage_s: NonNegativeFloat = 3600.0
    """Longest that sampling waits for a ROCK server that cannot be reached; then the run halts, saved. Rollouts that it cost
    are played again, and are no failures. 0: a rollout whose server cannot be reached has failed."""
    games: Literal["auto", "served"] = "auto"
    """`auto` plays games that ship with ALE in the worker's own process; `served` has a server host them, as all others."""
    freeze: NonNegativeInt = 0
    """So many rollouts of each worker process that fail, or are not passed, leave their sandbox open for `ale rock shell`;
    their records name it. Its server ends it when it was not used for its idle time (`ale rock serve --idle-timeout-s`)."""
    backends: tuple[str, ...] = ()
    """What the embedded server hosts sandboxes on: installed backends (`ale.backends`), each `NAME` or
    `NAME:KEY=VALUE,KEY=VALUE`, the first of several that takes a sandbox first. Empty: `process` and `docker`."""
    trust_libraries: bool = False
    """Whether the embedded server lets hosted libraries (`gem:`, `gym:`) do what you may, instead of fencing them in."""

    @field_validator("train_labels")
    @classmethod
    def _trains_main(cls, labels: tuple[str, ...]) -> tuple[str, ...]:
        if "main" not in labels or len(set(labels)) != len(labels):
            raise ValueError(
                f"got {labels!r}, expected main and, if you like, sub_agent, summary, side and error, each once"
            )
        return labels

    @model_validator(mode="after")
    def _pipeline_is_behind(self) -> Self:
        if self.mode == "pipeline" and not self.staleness:
            raise ValueError(
                "rollout.mode='pipeline' samples a plan while the one before it is learned: got rollout.staleness=0, "
                "expected at least 1. Set rollout.staleness=1, or rollout.mode='sync'"
            )
        return self

    @model_validator(mode="after")
    def _stream_waits_for_nobody(self) -> Self:
        if self.mode == "stream" and self.batching != "eager":
            raise ValueError(
                "rollout.mode='stream' lets no rollout wait for another: got rollout.batching='lockstep', expected 'eager'. "
                "Set rollout.batching='eager', or rollout.mode='pipeline', which keeps runs reproducible"
            )
        if self.spare_groups and not self.streams:
            raise ValueError(
                f"rollout.spare_groups={self.spare_groups} would do nothing: got rollout.mode={self.mode!r} with "
                f"rollout.staleness={self.staleness}, expected 'stream' with at least 1. Set both, or leave it out"
            )
        return self

    @property
    def overlaps(self) -> bool:
        """Return whether rollouts are sampled while a step is learned."""
        return self.mode != "sync" and self.staleness > 0

    @property
    def streams(self) -> bool:
        """Return whether batches are of the groups that are finished first."""
        return self.mode == "stream" and self.staleness > 0

    def oldest(self, step: int) -> int | None:
        """Return the oldest version whose tokens a step may learn; None where no token can be too old."""
        return step - 1 - self.staleness if self.streams else None

    @model_validator(mode="after")
    def _backends_of_ours(self) -> Self:
        if self.backends and self.rock_address:
            raise ValueError(
                f"rollout.backends={self.backends!r} would do nothing: the server at {self.rock_address} chose its own. "
                "Start that server with --backend, or leave rollout.rock_address out"
            )
        if self.trust_libraries and self.rock_address:
            raise ValueError(
                f"rollout.trust_libraries would do nothing: the server at {self.rock_address} fences its workers in. Start "
                "that server with --trust-libraries, or leave rollout.rock_address out"
            )
        if self.freeze and not self.rock_address:
            raise ValueError(
                f"rollout.freeze={self.freeze} keeps nothing: the embedded server ends with the run and ends every sandbox. "
                "Start one with `ale rock serve` and name it in rollout.rock_address"
            )
        return self


class FilterOptions(Section):
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
    it goes on, and says so where they begin."""
    negative_tokens: NonNegativeInt = 0
    """Tokens of a trajectory without positive outcome beyond which it is masked; its group's baseline keeps it. 0: none."""


class CurriculumOptions(Section):
    """What is learned first, and which tasks are drawn."""

    positive_only: float = Field(default=0.0, ge=0, le=1)
    """Share of the run's steps, from the first on, in which only trajectories with positive outcome are learned."""
    tasks: Literal["uniform", "pass_rate"] = "uniform"
    """`pass_rate` draws tasks by how uncertain their outcome is, as a Beta posterior of past rollouts from their own start
    says: most often those that pass half of the time."""
    memory: float = Field(default=0.9, ge=0, le=1)
    """Pass rate: share of a task's earlier outcomes that still counts after each visit, since the policy changes."""
