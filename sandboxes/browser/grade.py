"""The grade of a task: what the episode came to, judged on the host against what the task expects.

Nothing of what is expected ever enters a box, so nothing that a page or an agent does there can tell it.
"""

from __future__ import annotations

from rock_env.env import Verdict
from sandboxes.browser import webshop
from sandboxes.browser.catalog import scenario
from sandboxes.browser.miniwob import PREFIX
from sandboxes.browser.reply import End
from sandboxes.browser.scenario import Message

__all__ = ["grade"]


def grade(payload: str, end: End, message: Message, turns: int) -> Verdict:
    """Judge the end of a task's episode; `message` is what the agent told the user by an action."""
    if payload.startswith(PREFIX):
        passed = end.done and end.reward > 0
        details = f"done: {end.done}, reward of the page: {end.reward:g}"
        return Verdict(1.0 if passed else 0.0, passed=passed, details=details)
    if end.state is None:
        return Verdict(0.0, passed=False, details="the site's state is larger than any task needs")
    if payload.startswith(webshop.PREFIX):
        return webshop.judge(end.state, payload, turns)
    problem = scenario(payload).check(end.state, end.message if message is None else message)
    return Verdict(0.0 if problem else 1.0, passed=not problem, details=problem or "as wanted")
