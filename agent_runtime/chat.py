"""What an agent asks the policy for, whatever wire format it speaks: messages, tools, the answer, the ways to fail.

Built by `dialects` from a request's body, read by `session`, turned into tokens by a `ToolTemplate`. Values only.
Arguments of tools and their schemas are JSON text: they are passed through, never interpreted here.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Literal, Protocol

from agent_runtime.types import IntArray

__all__ = [
    "Asked",
    "ChatMessage",
    "ChatReply",
    "ChatRequest",
    "Parsed",
    "Refusal",
    "RefusalKind",
    "ToolSpec",
    "ToolTemplate",
    "ToolUse",
    "Usage",
]


@dataclass(frozen=True, slots=True)
class ToolSpec:
    """A tool that the agent offers the model."""

    name: str
    description: str
    parameters: str
    """JSON schema of the arguments, as the agent sent it."""
    kind: Literal["function", "custom", "local_shell"] = "function"
    """How its calls are told to the agent; only OpenAI's responses have others than functions. A model sees functions."""
    namespace: str = ""
    """The group of tools it is in, where the agent has such; `name` then begins with it."""


@dataclass(frozen=True, slots=True)
class ToolUse:
    """A call of a tool by the model."""

    id: str
    name: str
    arguments: str
    """JSON text; as sampled in an answer (perhaps malformed), as the agent echoes it in a history."""


@dataclass(frozen=True, slots=True)
class ChatMessage:
    """One message of a history."""

    role: Literal["system", "user", "assistant", "tool"]
    content: str
    reasoning: str = ""
    tool_calls: tuple[ToolUse, ...] = ()
    tool_call_id: str = ""
    """Which call a `tool` message answers."""


class Asked(StrEnum):
    """What an agent says a request is for, in a header or field of its own; most say nothing."""

    UNSAID = ""
    MAIN = "main"
    SUB_AGENT = "sub_agent"
    SUMMARY = "summary"
    SIDE = "side"


@dataclass(frozen=True, slots=True)
class ChatRequest:
    """One request for an answer."""

    messages: tuple[ChatMessage, ...]
    tools: tuple[ToolSpec, ...] = ()
    model: str = ""
    stream: bool = False
    max_tokens: int | None = None
    """What the agent asks for; the session's sampling settings bound it."""
    tool_choice: Literal["auto", "none"] = "auto"
    """With `none` the answer has no calls, whatever was sampled; the model is shown the tools all the same."""
    stop: tuple[str, ...] = ()
    """Texts at the first of which the answer ends."""
    seed: int | None = None
    """Makes the request another one, and steers no sampling: the session has seeds of its own."""
    asked: Asked = Asked.UNSAID
    conversation: str = ""
    """What tells an agent's conversations apart where it says so (a sub-agent's id); empty: the main one, or unsaid."""
    n: int = 1
    """How many answers are asked for, each a sample of its own; only OpenAI chat has more than one."""
    include_usage: bool = True
    """Whether a stream ends with the usage; only OpenAI chat lets an agent choose."""


@dataclass(frozen=True, slots=True)
class Usage:
    """Tokens of one call, as they truly were."""

    prompt_tokens: int
    completion_tokens: int
    cached_tokens: int = 0
    """Of the prompt, those that an earlier call of the conversation had already shown."""


@dataclass(frozen=True, slots=True)
class ChatReply:
    """The answer to a request."""

    id: str
    model: str
    text: str
    finish: Literal["stop", "length", "tool_calls"]
    usage: Usage
    reasoning: str = ""
    tool_calls: tuple[ToolUse, ...] = ()
    created_s: int = 0
    """Unix time."""
    stop: str = ""
    """Which of the request's stop texts ended the answer, and is not part of it."""
    others: tuple[ChatReply, ...] = ()
    """The request's further answers, where it asked for several; each has the usage of its own sample."""


class RefusalKind(StrEnum):
    """Why a request gets no answer. Each dialect has its own status, type and code for it."""

    BAD_REQUEST = "bad_request"
    UNAUTHORIZED = "unauthorized"
    NOT_FOUND = "not_found"
    TOO_LARGE = "too_large"
    CONTEXT_OVERFLOW = "context_overflow"
    """Prompt and answer exceed the model's context: always 400, in the dialect's own words, since agents look for them."""
    BUDGET = "budget"
    """The session's turns, tokens or time are used up: no repetition helps."""
    RATE_LIMIT = "rate_limit"
    UPSTREAM = "upstream"
    """The engine failed; a repetition may help."""
    CLOSED = "closed"
    """The session has ended."""


@dataclass(eq=False)
class Refusal(Exception):
    """A request that gets an error instead of an answer."""

    kind: RefusalKind
    message: str
    retry_after_s: float | None = None
    """Sent as Retry-After; always set with `RATE_LIMIT`."""
    details: tuple[tuple[str, int], ...] = ()
    """Numbers that a dialect's error names, as `("limit", 4096), ("got", 5000)`."""
    param: str = ""
    """The field that is refused, where it is one."""
    code: str = ""
    """OpenAI's word for what is wrong with it, where it has one."""

    def __str__(self) -> str:
        return self.message


@dataclass(frozen=True, slots=True)
class Parsed:
    """What an answer's tokens say."""

    text: str
    reasoning: str = ""
    tool_calls: tuple[ToolUse, ...] = ()
    malformed: str = ""
    """What is wrong with a tool call that was begun; its text is then in `text` or in `arguments`, as sampled."""


class ToolTemplate(Protocol):
    """A chat template with tools: histories to token ids, sampled ids to an answer; samples are never tokenised again."""

    name: str
    """Of the family: `qwen`, `llama`, `smollm`, `generic`."""
    max_context: int
    """Most tokens (prompt and completion) the model takes."""

    def open(self, messages: Sequence[ChatMessage], tools: Sequence[ToolSpec]) -> IntArray:
        """Return the prompt of a fresh context, ending where the assistant begins to speak.

        Raise `Refusal` (`BAD_REQUEST`) for a history that the template cannot show.
        """
        ...

    def extend(self, messages: Sequence[ChatMessage], tools: Sequence[ToolSpec], *, closed: bool) -> IntArray:
        """Return the tokens after a completion that show `messages` (none of the assistant's) and let it speak again.

        `closed` says whether the completion ended with its end token; if not, closing it is part of the result.
        """
        ...

    def parse(self, ids: IntArray, tools: Sequence[ToolSpec]) -> Parsed:
        """Return what sampled ids say. Never raises: what is no tool call is text."""
        ...
