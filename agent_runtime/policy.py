"""What the runtime needs from a policy: a sampler and a chat template over its tokens.

Declared here because this is where they are consumed; the trainer implements them on its engines and passes
them in.
"""

from __future__ import annotations

import math
from collections.abc import Sequence, Sized
from dataclasses import dataclass
from itertools import groupby, pairwise
from typing import Literal, NamedTuple, Protocol

import numpy as np

from agent_runtime.errors import InvalidTrajectory
from agent_runtime.types import (
    FloatArray,
    IntArray,
    PolicyVersion,
    SamplingParams,
    Trajectory,
    TurnLabel,
    VersionTokens,
    version_spans,
)
from rock_env.errors import InvalidArgument

__all__ = [
    "ChatTemplate",
    "Completion",
    "Message",
    "PolicyError",
    "SampleRequest",
    "Sampler",
    "Thought",
    "check_completion",
    "completion_fault",
    "first_stop",
    "held_spans",
    "merged_spans",
    "thought_of",
    "thought_tokens",
    "turn_seed",
    "version_fault",
]

_MASK = (1 << 64) - 1
_INT32 = np.dtype(np.int32)
_FLOAT32 = np.dtype(np.float32)


class PolicyError(RuntimeError):
    """The inference engine failed a request. The rollout becomes a masked failure."""


@dataclass(frozen=True, slots=True)
class Message:
    """One chat message."""

    role: Literal["system", "user", "assistant"]
    content: str


@dataclass(frozen=True, slots=True, eq=False)
class SampleRequest:
    """One model call. (`rollout_id`, `turn`) orders requests, so that a batch's make-up is reproducible."""

    rollout_id: str
    turn: int
    prompt_ids: IntArray
    """The whole prompt, from the first token."""
    params: SamplingParams
    seed: int
    """Determines the sample given the distribution, whatever else is in the batch."""
    stop: tuple[str, ...] = ()
    """Sampling ends with the token that completes one of these texts. Only for samplers that `stops`."""


@dataclass(frozen=True, slots=True, eq=False)
class Completion:
    """What was sampled. `ids` ends with the template's end token, unless `finish_reason` is `length` or a text ended it."""

    ids: IntArray
    logprobs: FloatArray
    finish_reason: Literal["stop", "length"]
    policy_version: PolicyVersion
    """As in `Turn`."""
    stopped_by: str = ""
    """Which of `SampleRequest.stop` ended it: `ids` ends with that text and no end token, and `finish_reason` is `stop`."""
    entropy: float = math.nan
    """As in `Turn`."""

    @property
    def closed(self) -> bool:
        """Return whether `ids` ends with the template's end token."""
        return self.finish_reason == "stop" and not self.stopped_by

    def then(self, rest: Completion) -> Completion:
        """Return this and what was sampled right after its last token as one."""
        of, more = len(self.ids), len(rest.ids)
        spans = (*version_spans(self.policy_version, of), *version_spans(rest.policy_version, more))
        return Completion(
            ids=np.concatenate((self.ids, rest.ids)),
            logprobs=np.concatenate((self.logprobs, rest.logprobs)),
            finish_reason=rest.finish_reason,
            policy_version=merged_spans(held_spans(spans)),
            stopped_by=rest.stopped_by,
            entropy=(self.entropy * of + rest.entropy * more) / max(of + more, 1),
        )


def held_spans(spans: Sequence[VersionTokens]) -> Sequence[VersionTokens]:
    """Return the spans that have a token; the first where none has."""
    return [span for span in spans if span.tokens] or spans[:1]


def merged_spans(spans: Sequence[VersionTokens]) -> PolicyVersion:
    """Return what sampled all of it: the one version, or the spans, neighbours of one version as one."""
    by_version = groupby(spans, key=lambda span: span.version)
    found = [VersionTokens(version, sum(span.tokens for span in run)) for version, run in by_version]
    return found[0].version if len(found) == 1 else tuple(found)


def first_stop(text: str, stop: Sequence[str]) -> tuple[int, str]:
    """Return where the first of some stop texts begins in `text`, and which it is; (-1, "") for none."""
    found = [(at, one) for one in stop if (at := text.find(one)) >= 0]
    return min(found, default=(-1, ""))


def turn_seed(seed: int, turn: int) -> int:
    """Return the 63-bit sampling seed of one turn: SplitMix64 of the rollout's seed and the turn's index."""
    mixed = (seed + (turn + 1) * 0x9E3779B97F4A7C15) & _MASK
    mixed = ((mixed ^ (mixed >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    mixed = ((mixed ^ (mixed >> 27)) * 0x94D049BB133111EB) & _MASK
    return (mixed ^ (mixed >> 31)) >> 1


def completion_fault(completion: object) -> str:
    """Return what was expected and got instead, where a sampler's answer would break the record; "" for a sound one."""
    if not isinstance(completion, Completion):
        return f"expected a Completion, got {_described(completion)}"
    ids, logprobs = completion.ids, completion.logprobs
    for name, given, dtype in (("ids", ids, _INT32), ("logprobs", logprobs, _FLOAT32)):
        if not isinstance(given, np.ndarray) or given.dtype != dtype or given.ndim != 1:
            return f"expected {name} as a NumPy array of {dtype} with one axis, got {_described(given)}"
    if len(ids) != len(logprobs):
        return f"expected one log-probability per id, got {len(ids)} ids and {len(logprobs)} logprobs"
    if not (finite := np.isfinite(logprobs)).all():
        at = int(np.argmin(finite))
        return f"expected finite log-probabilities, got {logprobs[at]} for token {at} of {len(ids)}"
    return version_fault(completion.policy_version, len(ids))


def version_fault(given: PolicyVersion, tokens: int) -> str:
    """Return what is wrong with the spans of a completion of so many tokens; "" for sound ones, and for one version."""
    if not isinstance(given, tuple):
        return ""
    sound = (
        isinstance(span, VersionTokens) and all(isinstance(number, int) for number in span) for span in given
    )
    if not all(sound) or any(span.version < 0 or span.tokens < 1 for span in given):
        return f"expected policy_version as one version or a tuple of VersionTokens with a token or more each, got {given!r}"
    changes = all(before.version != after.version for before, after in pairwise(given))
    if len(given) < 2 or not changes or sum(span.tokens for span in given) != tokens:
        return f"expected spans of two versions or more in turn that hold {tokens} tokens together, got {given!r}"
    return ""


def _described(given: object) -> str:
    if isinstance(given, np.ndarray):
        return f"an array of {given.dtype} with the shape {given.shape}"
    count = f" of length {len(given)}" if isinstance(given, Sized) else ""
    return f"{type(given).__name__}{count}"


def check_completion(completion: Completion, rollout_id: str, turn: int) -> None:
    """Refuse a completion that would break the record: an engine's bug, so a crash, not a failed rollout."""
    if fault := completion_fault(completion):
        raise InvalidTrajectory(
            f"the sampler's completion for rollout {rollout_id!r}, turn {turn} is malformed: {fault}. "
            "Fix the engine's Sampler.sample."
        )


class Sampler(Protocol):
    """The policy as the runtime sees it."""

    @property
    def stops(self) -> bool:
        """Return whether it can end an answer at a text (`SampleRequest.stop`)."""
        ...

    async def sample(self, request: SampleRequest) -> Completion:
        """Sample one completion. Raise `PolicyError`."""
        ...


class ChatTemplate(Protocol):
    """Messages to token ids and sampled ids to text, without ever re-tokenising what was sampled."""

    max_context: int
    """Most tokens (prompt and completion) the model takes."""

    def open(self, messages: Sequence[Message]) -> IntArray:
        """Return the prompt for a fresh context, ending where the assistant begins to speak."""
        ...

    def extend(self, messages: Sequence[Message], *, closed: bool) -> IntArray:
        """Return the tokens after a completion that show `messages` and let the assistant speak again.

        `closed` says whether the completion ended with its end token; if not, closing it is part of the result.
        """
        ...

    def encode_completion(self, text: str, prompt_ids: IntArray | None = None) -> IntArray:
        """Return the ids of an assistant message nobody sampled (an expert's), end token included.

        A template whose answers point into the prompt needs it; others do not look at it.
        """
        ...

    def decode(self, ids: IntArray, prompt_ids: IntArray | None = None) -> str:
        """Return the text of sampled ids, without special tokens; the prompt as for `encode_completion`."""
        ...


class Thought(NamedTuple):
    """The tokens of thoughts, `<think>…</think>` at the beginning of answers: the `thought` of a template, if any."""

    open_id: int
    """The token `<think>`."""
    close_id: int
    """The token `</think>`."""
    opened: bool
    """Every prompt ends within a thought, so that no answer opens one itself."""
    closing: IntArray
    """What closes a thought that was cut off: line breaks and the token `</think>`."""

    def length(self, ids: IntArray) -> int:
        """Return how many of an answer's first tokens are its thought, tags included: all where it is not closed."""
        told = ids.tolist()
        if not self.opened and told[:1] != [self.open_id]:
            return 0
        return told.index(self.close_id) + 1 if self.close_id in told else len(told)

    def is_open(self, ids: IntArray) -> bool:
        """Return whether an answer that goes on after these tokens is within its thought."""
        told = ids.tolist()
        return (self.opened or told[:1] == [self.open_id]) and self.close_id not in told


def thought_of(template: ChatTemplate, setting: str) -> Thought:
    """Return how a model thinks. Raise `InvalidArgument`, naming the setting that asks, for one that does not."""
    thought = getattr(template, "thought", None)
    if not isinstance(thought, Thought):
        raise InvalidArgument(
            f"{setting} needs a model that thinks: got one whose tokenizer has no tokens <think> and </think> that show in "
            "its text, expected one such as Qwen 3. Leave the setting out, or choose another model."
        )
    return thought


def thought_tokens(trajectory: Trajectory, turn: int, thought: Thought) -> int:
    """Return how many of a turn's first sampled tokens are thought. A turn that goes on after one that was cut has none."""
    told = trajectory.turns[turn]
    if trajectory.label(turn) is TurnLabel.THOUGHT:
        return len(told.completion_ids)
    if told.parent is not None and trajectory.label(told.parent) is TurnLabel.THOUGHT:
        return 0
    return thought.length(told.completion_ids)
