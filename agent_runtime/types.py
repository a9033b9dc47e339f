"""The records of a rollout: what was asked, what the model saw and sampled, what came of it.

Written by `run`, read by the store, the trainer and the replay tools. Values only; nothing here acts.
Token arrays are NumPy and read-only by convention, so that slices stay views.

Four invariants (tested as properties): along any branch, contexts and completions concatenate to exactly the
ids the engine saw; sampled tokens are never re-tokenised; `len(logprobs) == len(completion_ids)`; each
sampled token belongs to exactly one turn of exactly one trajectory.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from enum import StrEnum
from itertools import accumulate
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

__all__ = [
    "OF_FIRST",
    "OF_GRADE",
    "SCHEMA_VERSION",
    "TURNS",
    "AgentConfig",
    "Branch",
    "FloatArray",
    "Hosting",
    "IntArray",
    "PolicyVersion",
    "PrefixTurn",
    "RecordedArtifact",
    "RewardSource",
    "RolloutFailure",
    "RolloutRequest",
    "SamplingParams",
    "Start",
    "StopReason",
    "Trajectory",
    "Turn",
    "TurnFault",
    "TurnLabel",
    "VersionTokens",
    "oldest_version",
    "version_spans",
]

SCHEMA_VERSION = 3
OF_FIRST, OF_GRADE = -1, -2
"""Whose an artifact is that belongs to no turn."""

IntArray = NDArray[np.int32]
FloatArray = NDArray[np.float32]


class VersionTokens(NamedTuple):
    """So many tokens in a row that one version of the weights sampled."""

    version: int
    tokens: int


PolicyVersion = int | tuple[VersionTokens, ...]
"""Which weights sampled a completion: their version, or, where they changed between two tokens, a span for each of them in
order. -1 for an expert's, which nobody sampled."""


def version_spans(given: PolicyVersion, tokens: int) -> tuple[VersionTokens, ...]:
    """Return the spans of a completion of so many tokens, one where one version sampled all of it."""
    return given if isinstance(given, tuple) else (VersionTokens(given, tokens),)


def oldest_version(given: PolicyVersion) -> int:
    """Return the oldest version that sampled a token; -1 for an expert's completion."""
    return min(version for version, _ in given) if isinstance(given, tuple) else given


class StopReason(StrEnum):
    """Why a rollout ended."""

    TERMINATED = "terminated"
    """The environment ended the task, or a CLI agent its work."""
    TRUNCATED = "truncated"
    """The environment cut the task off; a CLI agent's tokens or time were used up, or it was killed."""
    MAX_TURNS = "max_turns"
    CONTEXT_FULL = "context_full"
    """The next prompt would not fit the model's context, or a CLI agent was told so and gave up."""
    FAILED = "failed"
    """See `Trajectory.failure`; such a trajectory is masked, never a reward of 0."""


class TurnFault(StrEnum):
    """What went wrong with a turn, although the trajectory may have succeeded. It stays context."""

    NONE = ""
    ILLEGAL = "illegal"
    """It was no action."""
    TOOL_FAILED = "tool_failed"
    """It was an action, but the environment refused it."""
    UNDONE = "undone"
    """A later turn took back what it did."""
    TOOL_BROKE = "tool_broke"
    """It was the right kind of action, but its tool did not work: not the policy's fault, so it stays an example."""


class TurnLabel(StrEnum):
    """What a model call was for, where an agent makes calls of its own accord."""

    MAIN = "main"
    SIDE = "side"
    """Beside the task: a title, a commit message, a closing summary."""
    SUB_AGENT = "sub_agent"
    SUMMARY = "summary"
    """Compaction: what the next context begins with."""
    SUPERSEDED = "superseded"
    """Asked again with the same prompt, because the answer did not arrive."""
    ERROR = "error"
    """Sampled, but the agent could not use it."""
    THOUGHT = "thought"
    """A thought that `SamplingParams.thinking_tokens` cut off: the turn that goes on from it is its answer."""


@dataclass(frozen=True, slots=True)
class SamplingParams:
    """How to sample. The stored log-probabilities are those of the distribution really sampled."""

    temperature: float = 1.0
    """0 takes the most likely token (its log-probability is then that of the untempered distribution)."""
    top_p: float = 1.0
    max_tokens: int = 16
    """Bound on the tokens of one completion."""
    thinking_tokens: int = 0
    """Bound on the tokens of its thought, tags included, below `max_tokens`; 0: none of its own. Kept by the chat loop."""


@dataclass(frozen=True, slots=True)
class AgentConfig:
    """The settings of the agents of our own."""

    window_turns: int = 0
    """How many observations the prompt shows, the newest included; 0 shows all (one growing context)."""
    max_turns: int = 100
    """Most turns from the true start; those of a replayed prefix count, and so do summaries and calls of the memory."""
    system: bool = True
    """Send the task's instruction as a system message."""
    kind: Literal["chat", "long_horizon"] = "chat"
    """`long_horizon` has a summary written where the context gets full, goes on in a fresh one, and keeps notes."""
    compact_at: float = 0.75
    """Share of the model's context beyond which a prompt makes way for a summary (long_horizon)."""
    summary_tokens: int = 512
    """Most tokens of a summary (long_horizon)."""
    memory_chars: int = 2000
    """Most characters of all notes together; 0: there is no memory tool (long_horizon)."""


@dataclass(frozen=True, slots=True)
class PrefixTurn:
    """One recorded turn of somebody else (an expert): the action and the observation that followed."""

    action: str
    observation: str
    memory: tuple[str, ...] = ()
    """The calls of the agent's own memory between the turn before and this one: carried out again, not shown."""


@dataclass(frozen=True, slots=True)
class Start:
    """Where a rollout begins: the task's own start, or after a replayed prefix (the anchor)."""

    env_seed: int
    """Seed of the environment's reset."""
    first_observation: str = ""
    """The observation after reset, needed when `prefix` is not empty."""
    prefix: tuple[PrefixTurn, ...] = ()
    resume_seed: int | None = None
    """Reseeds the environment after the prefix, so that rollouts from one anchor differ."""
    source_id: str = ""
    """The trajectory the prefix was taken from."""
    hint: str = ""
    """Told to the agent below the first observation of every context: read, never sampled, so never trained on."""

    @property
    def anchor(self) -> int:
        """Return the index of the first turn the policy plays itself; 0 is the true start."""
        return len(self.prefix)


@dataclass(frozen=True, slots=True)
class RolloutRequest:
    """Everything that determines a rollout. A reset to a turn is a request, not a second code path."""

    id: str
    env: str
    params_json: str
    task_id: str
    group_id: str
    index: int
    """Position in its group."""
    seed: int
    """Seed of all sampling in this rollout."""
    agent: AgentConfig
    sampling: SamplingParams
    start: Start
    time_limit_s: float = 600.0


TURNS = "the rollout's turns"
"""What has run out of time, as a failure's message begins, where a rollout was ended before it could be graded."""


@dataclass(frozen=True, slots=True)
class RolloutFailure:
    """A failed rollout is data: who failed, with what."""

    code: str
    """A name of `rock_env.errors.CODES`; `policy` for an engine's failure; `agent_never_spoke`, `agent_refused` or
    `agent_gone` for a program behind the gateway that asked nothing, asked only what cannot be answered, or hung up;
    `reward_unanswered` or `reward_unreadable` where the reward that was asked for did not come."""
    message: str
    turn: int


@dataclass(frozen=True, slots=True)
class RewardSource:
    """Who rewarded a trajectory in its environment's place, on what grounds, and what the environment had said."""

    worker: str
    """A name of `ale.rewards`."""
    version: str
    """Of the worker, and of the model it asked, if any."""
    digest: str
    """Of what was judged: the worker, its options, the task, and everything said and seen."""
    raw: str
    """The worker's own words: a judge's whole answer."""
    latency_s: float
    """From the first question to the answer, all attempts; that of the answer itself, also where it was kept and reused.
    NaN where none came."""
    prompt_tokens: int
    completion_tokens: int
    env_reward: float
    env_turn_rewards: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Hosting:
    """Where a rollout was played, and how long it took beside its turns. Seconds, each 0 where it did not come to that."""

    sandbox_id: str = ""
    """Of the sandbox that it began in; "" for an environment without one."""
    image: str = ""
    """What that sandbox was made of: the image's content digest where the engine has one, "" without an image."""
    made_s: float = 0.0
    """Making the environment."""
    reset_s: float = 0.0
    """Resetting it to the start, replayed prefix included."""
    graded_s: float = 0.0
    """Evaluating it."""


@dataclass(frozen=True, slots=True)
class RecordedArtifact:
    """A file that the environment attached to an observation or to the grade, by its digest (`rock_env.env.Artifact`)."""

    turn: int
    """Of the turn whose observation it belongs to, or `OF_FIRST` (that after the reset) or `OF_GRADE`."""
    name: str
    media_type: str
    sha256: str
    """In hexadecimal; "" where the server did not keep it."""
    size: int
    """Bytes."""
    missing: str = ""
    """Why the server did not keep it."""


@dataclass(frozen=True, slots=True, eq=False)
class Turn:
    """One model call. `context_ids` are the tokens since `parent` that this policy did not sample."""

    index: int
    parent: int | None
    """Index of the turn this one continues, or None where a fresh context begins."""
    context_ids: IntArray
    completion_ids: IntArray
    logprobs: FloatArray
    """Log-probability of each completion token under the distribution sampled from; NaN for an expert's."""
    finish_reason: str
    """`stop`, `length`, or `expert`."""
    policy_version: PolicyVersion
    """Which weights sampled the completion: `spans` has each version's tokens, `oldest_version` one number."""
    started_s: float = 0.0
    """Seconds since the rollout began."""
    sampled_s: float = 0.0
    """Duration of the model call."""
    stepped_s: float = 0.0
    """Duration of the environment's step."""
    entropy: float = math.nan
    """Mean over the completion's tokens of the entropy (nats) of the distribution each was drawn from; NaN where the
    sampler did not say."""

    @property
    def spans(self) -> tuple[VersionTokens, ...]:
        """Return which version sampled how many of the completion's tokens, in order."""
        return version_spans(self.policy_version, len(self.completion_ids))

    @property
    def versions(self) -> NDArray[np.int64]:
        """Return which version sampled each token of the completion; -1 for an expert's."""
        return np.concatenate([np.full(tokens, version, np.int64) for version, tokens in self.spans])

    @property
    def oldest_version(self) -> int:
        """Return the oldest version that sampled a token of the completion; -1 for an expert."""
        return oldest_version(self.policy_version)


@dataclass(frozen=True, slots=True)
class Branch:
    """A root-to-leaf path of turns: one sequence the engine saw."""

    turns: tuple[Turn, ...]
    shared: int = 0
    """How many leading turns an earlier branch holds too; they train there, not here."""


@dataclass(frozen=True, slots=True, eq=False)
class Trajectory:
    """The record of one rollout. `actions[i]`, `observations[i]` and `turn_rewards[i]` belong to `turns[i]`.

    `observations[i]` is what action i led to; before the first action stands `first_observation` (that after
    the prefix, if any).
    """

    id: str
    env: str
    """`name@version`."""
    params_json: str
    task_id: str
    group_id: str
    index: int
    seed: int
    start: Start
    first_observation: str
    turns: tuple[Turn, ...]
    actions: tuple[str, ...]
    observations: tuple[str, ...]
    observation_hashes: tuple[bytes, ...]
    turn_rewards: tuple[float, ...]
    illegal_actions: int
    reward: float
    """The verdict's reward; meaningless (NaN) when `failure` is set."""
    passed: bool
    stop_reason: StopReason
    failure: RolloutFailure | None = None
    duration_s: float = 0.0
    policy_step: int = 0
    """The training step that asked for it."""
    schema_version: int = SCHEMA_VERSION
    turn_faults: tuple[TurnFault, ...] = ()
    """What the environment said against each turn; empty where no turn has a fault, and in records of before."""
    lost_tokens: int = 0
    """Tokens sampled for a turn that is not here, because the environment failed before it answered."""
    turn_labels: tuple[TurnLabel, ...] = ()
    """What each turn was for; empty where all are main, as the turns of a chat loop are."""
    reward_source: RewardSource | None = None
    """Where `reward` and `turn_rewards` come from, where that is not the environment."""
    internal_turns: tuple[int, ...] = ()
    """Indices, rising, of the turns that asked nothing of the environment: a summary, a call of the agent's own memory. The
    action of such a turn is what was said, its observation what the agent itself replied ("" to a summary)."""
    grader_output: str = ""
    """What the environment's grader said beside the reward; "" if nothing, and in records of schema 1."""
    hosting: Hosting | None = None
    """None where the rollout never began, and in records of schema 1."""
    artifacts: tuple[RecordedArtifact, ...] = ()
    """What the environment attached, in order; the bytes are in the folder `artifacts` beside the record, where they were
    kept."""

    @property
    def why_no_reward(self) -> str:
        """Return why the reward means nothing, as a reason for the token ledger: the rollout failed. "" where it does."""
        return "" if self.failure is None else f"failed: {self.failure.code}"

    @property
    def has_reward(self) -> bool:
        """Return whether the rollout may be learned from, and counts in what is measured."""
        return not self.why_no_reward

    def as_failed(self, failure: RolloutFailure) -> Trajectory:
        """Return the record of the same rollout as a failure: without a reward, and not passed."""
        return replace(self, reward=math.nan, passed=False, stop_reason=StopReason.FAILED, failure=failure)

    @property
    def env_turns(self) -> tuple[int, ...]:
        """Return the indices of the turns whose actions the environment got, in order."""
        internal = frozenset(self.internal_turns)
        return tuple(turn for turn in range(len(self.turns)) if turn not in internal)

    @property
    def env_steps_before(self) -> tuple[int, ...]:
        """Return for each turn how many actions the environment had got from this rollout before it."""
        internal = frozenset(self.internal_turns)
        return tuple(accumulate((turn not in internal for turn in range(len(self.turns))), initial=0))[:-1]

    @property
    def final_action(self) -> str:
        """Return the last action that the environment got; "" if there was none."""
        return next((self.actions[turn] for turn in reversed(self.env_turns)), "")

    @property
    def env_reward(self) -> float:
        """Return what the environment's own verdict said."""
        return self.reward if self.reward_source is None else self.reward_source.env_reward

    @property
    def env_turn_rewards(self) -> tuple[float, ...]:
        """Return what the environment itself gave each turn."""
        return self.turn_rewards if self.reward_source is None else self.reward_source.env_turn_rewards

    @property
    def is_expert(self) -> bool:
        """Return whether an oracle or teacher, not the policy, acted."""
        return bool(self.turns) and self.turns[0].oldest_version < 0

    @property
    def is_session(self) -> bool:
        """Return whether an agent of somebody else played, behind the gateway: its turns are no actions to send again."""
        return bool(self.turn_labels) and not self.internal_turns

    @property
    def sampled_tokens(self) -> int:
        """Return the number of completion tokens over all turns."""
        return sum(len(turn.completion_ids) for turn in self.turns)

    def label(self, turn: int) -> TurnLabel:
        """Return what a turn was for."""
        return self.turn_labels[turn] if self.turn_labels else TurnLabel.MAIN

    def played(self) -> tuple[PrefixTurn, ...]:
        """Return what was done in the environment, as somebody else replays it, with the notes taken on the way."""
        found: list[PrefixTurn] = []
        calls: list[str] = []
        internal = frozenset(self.internal_turns)
        for turn, (action, observation) in enumerate(zip(self.actions, self.observations, strict=True)):
            if turn not in internal:
                found.append(PrefixTurn(action, observation, tuple(calls)))
                calls = []
            elif self.label(turn) is TurnLabel.MAIN and not self.is_faulty(turn):
                calls.append(action)
        return tuple(found)

    def is_faulty(self, turn: int) -> bool:
        """Return whether a turn is no example to follow: it failed by itself, or was taken back by a later one."""
        return bool(self.turn_faults) and self.turn_faults[turn] not in (TurnFault.NONE, TurnFault.TOOL_BROKE)

    def branches(self) -> Iterator[Branch]:
        """Yield the root-to-leaf paths in order of their leaves. What two share trains in the first only."""
        parents = {turn.parent for turn in self.turns}
        seen: set[int] = set()
        for leaf in self.turns:
            if leaf.index in parents:
                continue
            path = [leaf]
            while path[-1].parent is not None:
                path.append(self.turns[path[-1].parent])
            path.reverse()
            yield Branch(tuple(path), shared=sum(turn.index in seen for turn in path))
            seen.update(turn.index for turn in path)
