"""When failed rollouts end a run.

A failed rollout is data and never a reward of 0; but where too many fail there is nothing to learn or to measure.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from agent_runtime.types import StopReason, Trajectory
from trainer.errors import Halted, NothingToLearn

__all__ = ["check_failures", "check_first", "check_server", "handing_over"]


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


def check_first(trajectories: Sequence[Trajectory], *, context: int, longest: int, fresh: bool) -> str:
    """Say what the first rollouts of a model that imitates nobody tell against learning; nothing where they differ.

    Raise `NothingToLearn` where it cannot begin. A `fresh` model cannot where all have one reward; any other may have luck.
    `context` is the model's, in tokens, as is the `longest` answer.
    """
    failures = [t.failure for t in trajectories if t.failure is not None]
    done = [t for t in trajectories if t.failure is None]
    if not done:
        raise NothingToLearn(
            f"nothing was begun: all {len(failures)} first rollouts failed, the first with {failures[0].code}: "
            f"{failures[0].message}"
        )
    count, turns = len(done), sum(len(t.turns) for t in done)
    if all(t.stop_reason is StopReason.CONTEXT_FULL for t in done):
        raise NothingToLearn(
            f"nothing was begun: all {count} first rollouts ended with context_full after {turns / count:.1f} turns: "
            f"prompt and sampling.max_tokens={longest} have no room in a context of {context}. Set agent.window_turns=1, a "
            "smaller sampling.max_tokens, or a longer engine_options.max_context."
        )
    outcomes = {
        (t.reward, tuple(filter(None, t.turn_rewards))) for t in done
    }  # a longer game of zeros is no better
    if len(outcomes) > 1:
        return ""
    ends = ", ".join(sorted({str(t.stop_reason) for t in done}))
    cut = sum(turn.finish_reason == "length" for t in done for turn in t.turns)
    said = (
        f"all {count} first rollouts have the reward {done[0].reward:g}, so that none is better than another, and nobody is "
        f"imitated. They ended with {ends}; {cut} of {turns} answers were cut off at sampling.max_tokens={longest}. Give "
        "the class an expert, or smaller rewards on the way; make its tasks easier; or choose another --model."
    )
    if fresh:
        raise NothingToLearn(f"nothing was begun: {said}")
    return said
