"""The sampler protocol, version 2: one asynchronous request each, prompt ids in, sampled ids out.

A request that fails fails alone. Weights change between two tokens, never inside one, and every token says which version
it was sampled with. Needs torch's neighbours only (numpy), so that it can be imported wherever a sampler runs.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, Protocol

from agent_runtime.policy import Completion, PolicyError, SampleRequest, merged_spans
from agent_runtime.types import FloatArray, IntArray, PolicyVersion, VersionTokens

__all__ = ["PROTOCOL", "Aborted", "Sampled", "TokenSampler", "VersionSpan", "check_request"]

PROTOCOL = 2
"""Goes up when a sampler of the version before could not serve a caller of this one: 2 brought `sleep` and `wake`."""


class Aborted(PolicyError):
    """The request was ended by `TokenSampler.abort` or because its sampler closed."""


@dataclass(frozen=True, slots=True)
class VersionSpan:
    """Tokens `start` to `end` (exclusive) of a completion were sampled with the weights of one version."""

    version: int
    start: int
    end: int


@dataclass(frozen=True, slots=True, eq=False)
class Sampled:
    """What one request got."""

    ids: IntArray
    logprobs: FloatArray
    """Log-probability of each id under the distribution it was sampled from."""
    finish_reason: Literal["stop", "length"]
    spans: tuple[VersionSpan, ...]
    """In order, without gaps, over all of `ids`."""
    cached_tokens: int = 0
    """How many of the prompt's tokens were not computed for this request, because the sampler still had their keys and
    values."""
    stopped_by: str = ""
    """As in `Completion`."""

    def completion(self) -> Completion:
        """Return it as the runtime keeps it."""
        return Completion(
            ids=self.ids,
            logprobs=self.logprobs,
            finish_reason=self.finish_reason,
            policy_version=self._policy_version(),
            stopped_by=self.stopped_by,
        )

    def _policy_version(self) -> PolicyVersion:
        """Return the one version, or the spans; neighbours of one version, which a sampler may tell apart, are one span."""
        return merged_spans([VersionTokens(span.version, span.end - span.start) for span in self.spans])


class TokenSampler(Protocol):
    """Answers single requests. All methods are called from one event loop."""

    @property
    def protocol(self) -> int:
        """Return the version of this protocol that it implements (`PROTOCOL`)."""
        ...

    @property
    def stops(self) -> bool:
        """Return whether it can end an answer at a text (`SampleRequest.stop`)."""
        ...

    async def sample(self, request: SampleRequest) -> Sampled:
        """Answer one request. Raise `PolicyError` where this request failed, `Aborted` where it was ended.

        A cancelled call ends its request.
        """
        ...

    async def abort(self, rollout_id: str) -> int:
        """End all requests of a rollout, which raise `Aborted`; return how many there were."""
        ...

    async def pause(self) -> None:
        """Return once nothing is computed any more. Requests wait, also new ones."""
        ...

    async def resume(self) -> None:
        """Go on after `pause`."""
        ...

    async def sleep(self) -> None:
        """Return once nothing is computed any more and what memory it can do without is given back. Requests wait."""
        ...

    async def wake(self) -> None:
        """Go on after `sleep`, with the weights of before; nothing that was computed before is used again."""
        ...

    async def load(self, weights: Mapping[str, Any], version: int) -> None:
        """Take weights by the learner's names; tokens sampled after it carry `version`.

        Requests in flight go on with the new weights, as a full forward over what they have would: nothing that older
        weights computed is used again. Raise `InvalidArgument` where the weights do not fit; nothing changed then.
        """
        ...

    async def close(self) -> None:
        """End every request and release what the sampler holds."""
        ...


def check_request(request: SampleRequest, max_context: int, *, stops: bool = False) -> None:
    """Raise `PolicyError` for a prompt that cannot be continued by a network of so many positions.

    `stops`: the engine can end an answer at a text.
    """
    length = len(request.prompt_ids)
    if not 0 < length < max_context:
        raise PolicyError(
            f"cannot continue the prompt of rollout {request.rollout_id!r}, turn {request.turn}: "
            f"got {length} tokens, expected 1 to {max_context - 1}. "
            "Stop the rollout when its context is full, or raise max_context."
        )
    if request.params.max_tokens < 1:
        raise PolicyError(f"max_tokens must be at least 1, got {request.params.max_tokens}.")
    if request.stop and not stops:
        raise PolicyError(f"this engine cannot stop at a text, got {request.stop!r}. Send no stop texts.")
