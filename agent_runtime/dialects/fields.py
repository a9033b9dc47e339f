"""Fields of a request that a provider knows and that are no history: honoured, or refused in the provider's words.

Read by the three dialects. What a field may be, and what is overridden by the session's own settings, is the table in
docs/gateway-dialects.md. Nothing is dropped in silence that would make an answer another one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import msgspec

from agent_runtime.chat import Refusal, RefusalKind

__all__ = [
    "MOST_STOP_CHARS",
    "Format",
    "choice_of",
    "format_of",
    "none_of",
    "stop_of",
    "tokens_of",
    "unsupported",
]

MOST_STOP_CHARS = 256
"""Of one stop text: an engine looks for it after every token."""


class Format(msgspec.Struct, gc=False):
    """The form in which an answer is asked for: `response_format`, `text.format`, `output_format`."""

    type: str = "text"


def unsupported(field: str, got: object, remedy: str) -> Refusal:
    """Return the refusal of what the policy or the gateway cannot do."""
    text = f"Unsupported parameter: {field!r} is not supported with this model: got {got!r}. {remedy}"
    return Refusal(RefusalKind.BAD_REQUEST, text, param=field, code="unsupported_parameter")


def none_of(**fields: object) -> None:
    """Raise `Refusal` for the first of some fields that has a value; null, false, 0 and what is empty are none."""
    for field, value in fields.items():
        if value:
            raise unsupported(field, value, "Leave it out.")


def tokens_of(field: str, value: int | None, least: int = 1) -> int | None:
    """Return a bound on an answer's tokens. Raise `Refusal` for one below the provider's least."""
    if value is not None and value < least:
        raise Refusal(
            RefusalKind.BAD_REQUEST,
            f"Invalid {field!r}: integer below minimum value. Expected a value >= {least}, but got {value} instead.",
            param=field,
            code="integer_below_min_value",
        )
    return value


def stop_of(
    field: str, value: str | Sequence[str] | None, most: int, *, blank: bool = False
) -> tuple[str, ...]:
    """Return the texts at which an answer ends. Raise `Refusal` for more than `most`, and for one that is empty or long.

    `blank`: one may be white space alone, as OpenAI's.
    """
    stop = (value,) if isinstance(value, str) else tuple(value or ())
    if len(stop) > most:
        raise Refusal(
            RefusalKind.BAD_REQUEST,
            f"Invalid {field!r}: array too long. Expected an array with maximum length {most}, but got an array with length "
            f"{len(stop)} instead.",
            param=field,
            code="array_above_max_length",
        )
    for number, text in enumerate(stop):
        if not (text if blank else text.strip()):
            raise Refusal(
                RefusalKind.BAD_REQUEST,
                f"{field}[{number}] is {text!r}, expected text: each stop sequence must contain non-whitespace.",
                param=field,
            )
        if len(text) > MOST_STOP_CHARS:
            raise Refusal(
                RefusalKind.BAD_REQUEST,
                f"{field}[{number}] has {len(text)} characters, expected at most {MOST_STOP_CHARS}. Send a shorter one.",
                param=field,
            )
    return stop


def format_of(field: str, wished: Format | None) -> None:
    """Raise `Refusal` for an answer in another form than text: sampling is not constrained, so nothing could promise it."""
    if wished is not None and wished.type != "text":
        known = wished.type in ("json_object", "json_schema")
        text = (
            f"Invalid parameter: {field!r} of type {wished.type!r} is not supported with this model. Ask for JSON in the "
            "prompt, or offer a tool with these arguments."
            if known
            else f"Invalid value: {wished.type!r}. {field}.type is expected to be 'text'."
        )
        code = "unsupported_parameter" if known else "invalid_value"
        raise Refusal(RefusalKind.BAD_REQUEST, text, param=field, code=code)


def choice_of(choice: Any) -> Literal["auto", "none"]:
    """Return what a `tool_choice` of OpenAI's forms says. Raise `Refusal` for one that requires a call or picks tools."""
    if choice is None or choice == "auto":
        return "auto"
    if choice == "none":
        return "none"
    if choice == "required" or isinstance(choice, dict):
        raise unsupported("tool_choice", choice, "No call can be forced here: send 'auto' or 'none'.")
    raise Refusal(
        RefusalKind.BAD_REQUEST,
        f"tool_choice is {choice!r}, expected 'auto', 'none', 'required' or an object that names a tool.",
        param="tool_choice",
    )
