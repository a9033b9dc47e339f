"""When failed rollouts end a run.

A failed rollout is data and never a reward of 0; but where too many fail there is nothing to learn or to measure.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from agent_runtime.types import Trajectory
from trainer.errors import Halted

__all__ = ["check_failures", "check_server", "handing_over"]


@contextmanager
def handing_over(encoded: Sequence[bytes]) -> Iterator[None]:
    """Let a `Halted` of the body take the rollouts along that led to it: they are the way to its cause."""
    try:
        yield
    except Halted as halted:
        halted.rollouts = encoded
        raise


def check_server(server_end: str, count: str) -> None:
    """Raise `Halted` where the embedded ROCK server ended (`server_end` says how): that explains the `count`."""
    if server_end:
        raise Halted(
            f"the embedded ROCK server ended ({server_end}), so {count}. What was saved before is intact: continue "
            "with --resume."
        )


def check_failures(
    trajectories: Sequence[Trajectory], *, max_share: float, server_end: str, of: str = "rollouts"
) -> None:
    """Raise `Halted` where more than `max_share` failed, and where nothing is left to go on with.

    `server_end` says how the embedded ROCK server ended, if it did; `of` says what failed.
    """
    failures = [t.failure for t in trajectories if t.failure is not None]
    allowed = min(max_share * len(trajectories), len(trajectories) - 1)
    if not failures or len(failures) <= allowed:
        return
    count = f"{len(failures)} of {len(trajectories)} {of} failed"
    check_server(server_end, count)
    first = failures[0]
    limit = f" (limit: share {max_share})" if len(failures) > max_share * len(trajectories) else ""
    raise Halted(
        f"{count}{limit}, the first with {first.code}: {first.message} Failures are never trained on as rewards nor "
        "counted as defeats; after mending the cause continue with --resume."
    )
