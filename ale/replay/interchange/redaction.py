"""What is taken out of records before somebody else sees them: keys, passwords, and who and where one is.

By rule, so no more than what has a known form. A rollout that holds such a text loses its token ids, too: they spell it.
"""

from __future__ import annotations

import getpass
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np

from agent_runtime.types import PrefixTurn, Trajectory

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
    """Return a rollout without secrets in its texts, and whether there was one."""
    found = _texts(trajectory, redacted)
    changed = any(getattr(found, name) != getattr(trajectory, name) for name in _TEXTS)
    if not changed:
        return trajectory, False
    turns = tuple(
        replace(
            turn,
            context_ids=np.zeros_like(turn.context_ids),
            completion_ids=np.zeros_like(turn.completion_ids),
        )
        for turn in trajectory.turns
    )
    return replace(found, turns=turns), True


_TEXTS = ("params_json", "first_observation", "actions", "observations", "failure", "start", "reward_source")


def _texts(trajectory: Trajectory, clean: Callable[[str], str]) -> Trajectory:
    start, failure, source = trajectory.start, trajectory.failure, trajectory.reward_source
    prefix = tuple(
        PrefixTurn(clean(turn.action), clean(turn.observation), tuple(map(clean, turn.memory)))
        for turn in start.prefix
    )
    return replace(
        trajectory,
        params_json=clean(trajectory.params_json),
        first_observation=clean(trajectory.first_observation),
        actions=tuple(map(clean, trajectory.actions)),
        observations=tuple(map(clean, trajectory.observations)),
        start=replace(
            start, first_observation=clean(start.first_observation), prefix=prefix, hint=clean(start.hint)
        ),
        failure=None if failure is None else replace(failure, message=clean(failure.message)),
        reward_source=None if source is None else replace(source, raw=clean(source.raw)),
    )
