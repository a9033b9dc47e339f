"""What a failed Ray call means, in one sentence. Called where actors are: by the fleet and the rollout workers.

Ray's own texts run to paragraphs and carry remote tracebacks; a user needs the process, the cause and nothing else.
"""

from __future__ import annotations

import re

from ray.exceptions import RayActorError, RayError, RayTaskError

__all__ = ["deliberate", "reason"]


def deliberate(error: RayError) -> Exception | None:
    """Return the exception that the remote code itself raised, None where Ray or the process failed."""
    cause = getattr(error, "cause", None)
    return cause if isinstance(cause, Exception) and not isinstance(cause, RayError) else None


def reason(error: RayError) -> str:
    """Return what happened, without a final full stop."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()] or [type(error).__name__]
    if isinstance(error, RayActorError) and error.actor_init_failed:
        return f"a process could not start: {lines[-1].rstrip('.')}"
    if isinstance(error, RayActorError):
        actor = re.search(r"class_name: (\w+)", str(error))
        return f"the {actor[1] if actor else 'worker'} process died (it was killed or crashed)"
    if isinstance(error, RayTaskError):  # the traceback's last line is the error itself
        return lines[-1].rstrip(".")
    return lines[0].rstrip(".")
