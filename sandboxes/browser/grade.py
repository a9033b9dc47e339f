"""The grade of a task at a site: the state that the site's server left, judged on the host against what the task expects.

Nothing of what is expected ever enters a box, so nothing that a page or an agent does there can tell it.
"""

from __future__ import annotations

import json

from rock_env.env import Verdict
from rock_env.errors import InfraError, NotFound, RockError
from rock_env.sandbox import Sandbox
from sandboxes.browser.box.driver import MESSAGE
from sandboxes.browser.box.mcp import MOST_MESSAGE
from sandboxes.browser.link import FOLDER
from sandboxes.browser.scenario import Message, SiteScenario, State

__all__ = ["STATE", "grade", "left_message", "left_state"]

STATE = "state.json"
"""Where the site's server keeps its state, in the driver's folder."""
_MOST_STATE = 8 << 20


async def left_message(box: Sandbox) -> Message:
    """Return what an agent in the box told the user over MCP; None where it told nothing."""
    try:
        told = await box.read_range(f"{FOLDER}/{MESSAGE}", offset=0, length=4 * MOST_MESSAGE)
    except NotFound:
        return None
    return told.decode(errors="replace")


async def left_state(box: Sandbox) -> State:
    """Return the state that the site's server left. Raise `InfraError` where there is none that can be read."""
    path = f"{FOLDER}/{STATE}"
    try:
        content = await box.read_range(path, offset=0, length=_MOST_STATE + 1)
    except RockError as error:
        raise InfraError(f"cannot grade: the site's state cannot be read: {error}") from error
    if len(content) > _MOST_STATE:
        raise InfraError(f"cannot grade: the site's state has more than {_MOST_STATE} bytes")
    try:
        state = json.loads(content)
        if not isinstance(state, dict):
            raise TypeError(f"it is a {type(state).__name__}")
    except (ValueError, TypeError, RecursionError) as error:
        raise InfraError(f"cannot grade: the site's state is no JSON object: {str(error)[:200]}") from error
    return state


def grade(state: State, drawn: SiteScenario, message: Message) -> Verdict:
    """Judge a state, and what the agent told the user."""
    problem = drawn.check(state, message)
    return Verdict(0.0 if problem else 1.0, passed=not problem, details=problem or "as wanted")
