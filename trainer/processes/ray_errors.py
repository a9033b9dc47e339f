"""What a failed Ray call means, in one sentence. Called where actors are: by the fleet and the rollout workers.

Ray's own texts run to paragraphs and carry remote tracebacks; a user needs the process, the cause and nothing else.
"""

from __future__ import annotations

import re
from typing import Any

import ray
from ray.exceptions import (
    LocalRayletDiedError,
    NodeDiedError,
    ObjectLostError,
    OutOfMemoryError,
    RayActorError,
    RayError,
    RayTaskError,
    WorkerCrashedError,
)

from agent_runtime.policy import PolicyError
from trainer.errors import Halted, Lost

__all__ = ["answer_of", "is_lost", "reason", "result_of", "sampling_error"]


_LOST = (
    RayActorError,
    OutOfMemoryError,  # Ray's memory monitor killed it
    NodeDiedError,
    WorkerCrashedError,
    ObjectLostError,  # with the process, or the machine, that had it
    LocalRayletDiedError,
)


def is_lost(error: RayError) -> bool:
    """Return whether the process that was asked, or one that it asked, is gone with what it had."""
    return isinstance(error, _LOST) or isinstance(getattr(error, "cause", None), _LOST)


def _deliberate(error: RayError) -> Exception | None:
    """Return the exception that the remote code itself raised, None where Ray or the process failed."""
    cause = getattr(error, "cause", None)
    while isinstance(cause, BaseExceptionGroup):  # of rollouts side by side, the first
        cause = cause.exceptions[0]
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


def sampling_error(error: RayError, what: str) -> Exception:
    """Return what an inference actor raised on purpose for whom it samples, `Lost` where it died, else a `PolicyError`."""
    cause = _deliberate(error)
    if isinstance(cause, PolicyError | Halted):
        return cause
    return (Lost if is_lost(error) else PolicyError)(f"{what}: {reason(error)}.")


def result_of(refs: Any) -> Any:
    """Return the actors' results; raise what they raised, or `Halted` where a process or the numbers broke."""
    try:
        return ray.get(refs)
    except RayError as error:
        raise _meant(error) from error


async def answer_of(ref: Any) -> Any:
    """Wait for an actor's result on an event loop. Raise as `result_of` does."""
    try:
        return await ref
    except RayError as error:
        raise _meant(error) from error


def _meant(error: RayError) -> Exception:
    cause = _deliberate(error)
    if isinstance(cause, FloatingPointError | PolicyError):
        return Halted(f"{cause} What was saved before is intact.")
    kind = Lost if is_lost(error) else Halted
    return cause or kind(
        f"{reason(error)}. What was saved before is intact: continue with --resume. If memory ran out, "
        "lower rollout.concurrency or optim.microbatch_tokens."
    )
