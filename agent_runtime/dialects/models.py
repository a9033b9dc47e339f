"""The lists of models, `GET /v1/models` and `GET /v1/models/NAME`, as OpenAI and as Anthropic tell them.

Asked by `gateway` with the headers of the request: Anthropic's clients send `anthropic-version`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from agent_runtime.dialects.base import encode

__all__ = ["model_body", "models_body"]


def models_body(
    names: Sequence[str], headers: Mapping[str, str], max_context: int, created_s: int = 0
) -> bytes:
    """Return the list of models, each with a context of so many tokens; `created_s` is Unix time."""
    cards = [_card(name, headers, max_context, created_s) for name in names]
    if _is_anthropic(headers):
        first, last = (names[0], names[-1]) if names else (None, None)
        return encode({"data": cards, "has_more": False, "first_id": first, "last_id": last})
    return encode({"object": "list", "data": cards})


def model_body(name: str, headers: Mapping[str, str], max_context: int, created_s: int = 0) -> bytes:
    """Return one model."""
    return encode(_card(name, headers, max_context, created_s))


def _is_anthropic(headers: Mapping[str, str]) -> bool:
    return "anthropic-version" in headers


def _card(name: str, headers: Mapping[str, str], max_context: int, created_s: int) -> dict[str, Any]:
    if _is_anthropic(headers):
        at = datetime.fromtimestamp(created_s, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        return {
            "type": "model",
            "id": name,
            "display_name": name,
            "created_at": at,
            "max_input_tokens": max_context,
        }
    return {
        "id": name,
        "object": "model",
        "created": created_s,
        "owned_by": "ale",
        "context_length": max_context,
        "max_model_len": max_context,  # the same, as vLLM's clients look for it
    }
