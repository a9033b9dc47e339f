"""The one form in which judges and commands say what a rollout earned: a JSON object, read strictly.

Nothing is guessed: what is not exactly the object asked for is `Unreadable`, and the text around an object is never
searched for one, because a transcript may have planted it.
"""

from __future__ import annotations

import json
from typing import Any, Literal

__all__ = ["Gives", "Unreadable", "read_verdict", "verdict_schema"]

Gives = Literal["outcome", "turns", "both"]
"""What a judge is asked for: one score of the whole, one of each turn, or both."""

_SCORE = {"type": "number", "minimum": 0, "maximum": 1}


class Unreadable(ValueError):
    """The text is no verdict; the message says what was got and expected."""


def verdict_schema(gives: Gives, turns: int) -> dict[str, Any]:
    """Return the JSON schema of a verdict on so many turns. The reason stands first: it is written before the scores."""
    fields: dict[str, Any] = {"reason": {"type": "string"}}
    if gives != "outcome":
        fields["turns"] = {"type": "array", "items": _SCORE, "minItems": turns, "maxItems": turns}
    if gives != "turns":
        fields["score"] = _SCORE
    return {
        "type": "object",
        "properties": fields,
        "required": list(fields),
        "additionalProperties": False,
    }


def read_verdict(text: str, gives: Gives, turns: int) -> tuple[float | None, tuple[float, ...] | None]:
    """Return (score, scores per turn) of a verdict that satisfies `verdict_schema`. Raise `Unreadable`."""
    try:
        value = json.loads(text, object_pairs_hook=_once, parse_constant=_no_constant)
    except (ValueError, RecursionError) as error:
        raise Unreadable(
            f"expected one JSON object and nothing else ({error}), got {text[:120]!r}"
        ) from error
    wanted = set(verdict_schema(gives, turns)["required"])
    if not isinstance(value, dict) or set(value) != wanted:
        got = sorted(value) if isinstance(value, dict) else type(value).__name__
        raise Unreadable(f"expected a JSON object with the fields {sorted(wanted)}, got {got}")
    if not isinstance(value["reason"], str):
        raise Unreadable(f"expected a text as reason, got {value['reason']!r:.80}")
    outcome = _score(value["score"]) if "score" in value else None
    if "turns" not in value:
        return outcome, None
    scores = value["turns"]
    if not isinstance(scores, list) or len(scores) != turns:
        count = f"{len(scores)} of them" if isinstance(scores, list) else repr(scores)[:80]
        raise Unreadable(f"expected a score for each of {turns} turns, got {count}")
    return outcome, tuple(map(_score, scores))


def _score(value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= 1:
        raise Unreadable(f"expected a score from 0 to 1, got {value!r:.80}")
    return float(value)


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError(f"a field is named twice: {[name for name, _ in pairs]}")
    return found


def _no_constant(name: str) -> float:
    raise ValueError(f"{name} is not JSON")
