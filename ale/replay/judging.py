"""`ale replay score --judge`: what the run's reward workers say of its rollouts today.

Nothing is played: a judge reads a transcript. Answers of the run are not taken over, and its folder is not written to.
"""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from agent_runtime.types import StopReason, Trajectory
from ale.errors import RecordError
from ale.replay.records import find, iterate
from ale.replay.rows import Outcomes, row_of
from ale.replay.telling import Scored, tell
from ale.training import runs
from ale.waiting import awaited
from trainer.config import TrainConfig
from trainer.reward.kept import KeptAnswers
from trainer.reward.router import Router

__all__ = ["judge_command"]


def judge_command(run: str, identity: str | None, *, outcomes: Outcomes, out: Path | None, rock: str) -> None:
    """Ask again and print what changed. Raise `Diverged` where a reward is another, `RecordError` for none to judge."""
    folder = runs.locate(run)
    config = runs.recorded_config(folder)
    if not config.reward.routes:
        raise RecordError(
            f"{folder} has no reward worker: its environment gave the rewards. Leave --judge out."
        )
    records = [each for _, each in iterate(run)] if identity is None else [find(run, identity)]
    chosen = [each for each in records if each.reward_source is not None and outcomes.fits(row_of(each))]
    if not chosen:
        raise RecordError(
            f"no rollout of {run!r} that a judge was asked of is {outcomes}: there is nothing to ask."
        )
    judged = awaited(_judged(config, chosen, rock), "the judges")
    tell([_scored(before, after) for before, after in zip(chosen, judged, strict=True)], out)


async def _judged(config: TrainConfig, chosen: Sequence[Trajectory], rock: str) -> list[Trajectory]:
    with tempfile.TemporaryDirectory() as scratch, KeptAnswers(Path(scratch)) as answers:
        async with Router(config, rock) as router:
            results, _ = await router.reward([_unjudged(each) for each in chosen], answers)
    return results


def _unjudged(trajectory: Trajectory) -> Trajectory:
    """Return the rollout as it was before a judge read it."""
    ended = trajectory.stop_reason
    return replace(
        trajectory,
        reward=trajectory.env_reward,
        turn_rewards=trajectory.env_turn_rewards,
        reward_source=None,
        failure=None,
        stop_reason=StopReason.TERMINATED if ended is StopReason.FAILED else ended,
    )


def _scored(before: Trajectory, after: Trajectory) -> Scored:
    then = before.reward if before.has_reward else None
    if after.failure is not None:
        return Scored(before, then, None, f"none: {after.failure.message}")
    source = after.reward_source
    assert source is not None  # a worker answered, since it did not fail
    same = then == after.reward and before.passed == after.passed
    return Scored(before, then, after, "" if same else f"{after.reward:g} ({source.worker} {source.version})")
