"""What the runtime needs from a policy: a sampler and a chat template over its tokens.

Declared here because this is where they are consumed; the trainer implements them on its engines and passes
them in.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

from agent_runtime.types import FloatArray, IntArray, SamplingParams

__all__ = ["ChatTemplate", "Completion", "Message", "PolicyError", "SampleRequest", "Sampler"]


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


@dataclass(frozen=True, slots=True, eq=False)
class Completion:
    """What was sampled. `ids` ends with the template's end token unless `finish_reason` is `length`."""

    ids: IntArray
    logprobs: FloatArray
    finish_reason: Literal["stop", "length"]
    policy_version: int


class Sampler(Protocol):
    """The policy as the runtime sees it."""

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
