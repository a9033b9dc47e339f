"""Whose fault it is that something did not work: the agent's, its tool's, or that of the infrastructure below.

    agent            another call would have worked: no call at all, no such file, text that does not match
    tool             the call was right, and the tool did not work: a test command that cannot be started
    infrastructure   sandbox, service, engine, judge or clock failed: it raises, and ends the rollout without a reward

Shared by tools and environments (which say so in `info`), the agent runtime (which records it) and the trainer (which counts
it). The first two are observations, and turns; the third never is one, so that no policy is blamed for it.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum

__all__ = ["AGENT_KEYS", "TOOL_KEY", "Blame", "blame_of_info"]


class Blame(StrEnum):
    """Whose fault it is."""

    AGENT = "agent"
    TOOL = "tool"
    INFRASTRUCTURE = "infrastructure"


AGENT_KEYS = ("illegal", "tool_failed")
"""Keys of a turn's `info` that blame the agent: it was no action; it was one, but was refused."""
TOOL_KEY = "tool_broke"
"""Key of a turn's `info` that blames the tool."""


def blame_of_info(info: Mapping[str, object]) -> Blame | None:
    """Return whom a turn's `info` blames; None if nothing went wrong. The tool comes first: it excuses the agent."""
    if info.get(TOOL_KEY):
        return Blame.TOOL
    return Blame.AGENT if any(info.get(key) for key in AGENT_KEYS) else None
