"""What is taken out of records before somebody else sees them: keys, passwords, and who and where one is.

By rule, so no more than what has a known form. A rollout that holds such a text loses its token ids, too: they spell it.
"""

from __future__ import annotations

import getpass
import re
from dataclasses import fields, is_dataclass, replace
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from agent_runtime.types import Trajectory

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

__all__ = ["redacted", "redacted_rollout"]

MARK = "[redacted]"
_SECRETS = re.compile(
    r"""
    (?P<key>\b(?:sk|pk|rk|ghp|gho|ghs|hf|glpat|xox[abp])[-_][A-Za-z0-9_-]{16,}
      | \bAKIA[0-9A-Z]{16}\b
      | \beyJ[A-Za-z0-9_-]{10,}\.[A-Za-z0-9_-]{10,}\.[A-Za-z0-9_-]{5,}
      | -----BEGIN[ ][A-Z ]{0,30}PRIVATE[ ]KEY-----[A-Za-z0-9+/=\s]{1,20000}-----END[ ][A-Z ]{0,30}PRIVATE[ ]KEY-----)
    | (?P<before>\b[Bb]earer[ ]|://[^\s/:@]{1,100}:|
        (?i:\b[\w-]{0,40}(?:password|passwd|secret|token|api[_-]?key)["']?[ ]?[:=][ ]?["']?))
      (?P<value>[^\s"'@,;\[\]{}()]{6,400})
    """,
    re.VERBOSE,
)
_LEAST_NAME = 3


def redacted(text: str) -> str:
    """Return a text without what has the form of a secret, and with `~` for the home folder."""
    home = str(Path.home())
    if len(home) > 1:
        text = text.replace(home, "~")
    user = getpass.getuser()
    if len(user) >= _LEAST_NAME and user not in ("root", "user"):
        text = re.sub(rf"\b{re.escape(user)}\b", "user", text)
    return _SECRETS.sub(lambda match: f"{match['before'] or ''}{MARK}", text)


def redacted_rollout(trajectory: Trajectory) -> tuple[Trajectory, bool]:
    """Return a rollout without secrets in its texts, and whether there was one. Every text of the record counts."""
    cleaned = {name: _cleaned(getattr(trajectory, name)) for name in _names(trajectory)}
    changed = {name for name, (_, was_found) in cleaned.items() if was_found}
    found = replace(trajectory, **{name: cleaned[name][0] for name in changed})
    if not changed:
        return trajectory, False
    if changed <= _NOT_SHOWN:
        return found, True
    turns = tuple(
        replace(
            turn,
            context_ids=np.zeros_like(turn.context_ids),
            completion_ids=np.zeros_like(turn.completion_ids),
        )
        for turn in found.turns
    )
    return replace(found, turns=turns), True


_NOT_SHOWN = frozenset(("artifacts", "failure", "grader_output", "hosting", "reward_source"))
"""What a model never saw, so that no token spells it."""


def _names(value: DataclassInstance) -> list[str]:
    return [field.name for field in fields(value) if field.init]


def _cleaned(value: Any) -> tuple[Any, bool]:
    """Return a value of a record with each text in it cleaned, and whether that changed one."""
    if isinstance(value, str) and not isinstance(value, Enum):
        text = redacted(value)
        return text, text != value
    if isinstance(value, tuple):
        parts = [_cleaned(part) for part in value]
        if not any(was_found for _, was_found in parts):
            return value, False
        told = [part for part, _ in parts]
        return (type(value)(*told) if hasattr(value, "_fields") else tuple(told)), True
    if is_dataclass(value) and not isinstance(value, type):
        inner = {name: _cleaned(getattr(value, name)) for name in _names(value)}
        changes = {name: told for name, (told, was_found) in inner.items() if was_found}
        return (replace(value, **changes), True) if changes else (value, False)
    return value, False
