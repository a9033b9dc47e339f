"""`ale replay score`: what today's grader says of what was done then.

For a grader that was mended, or that failed: the recorded actions go to a fresh environment, whose observations have to be
the recorded ones, and its grade stands beside the record's. A record is never written again: new ones go to another folder.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from agent_runtime.replay import ScoreReport, score
from agent_runtime.run import Rock
from agent_runtime.store import write_segment
from agent_runtime.types import StopReason, Trajectory
from ale.errors import Diverged, RecordError
from ale.replay.executing import for_each
from ale.replay.places import new_records
from ale.replay.records import find, iterate
from ale.terminal import print_table, stdout
from rock_env.errors import RockError

__all__ = ["score_command"]

_SHOWN = 50


def score_command(
    where: str,
    identity: str | None,
    *,
    failed: bool,
    out: Path | None,
    rock: str,
    backends: Sequence[str] = (),
) -> None:
    """Grade again and print what changed. Raise `Diverged` where a reward is another, `RecordError` for none to grade."""
    path = new_records(out, "scored") if out else None
    chosen = [each for _, each in iterate(where)] if identity is None else [find(where, identity)]
    chosen = [each for each in chosen if not failed or not each.has_reward]
    if not chosen:
        raise RecordError(f"no rollout of {where!r} was without a reward: there is nothing to grade.")
    reports = asyncio.run(for_each(chosen, _scored_or_not, rock, backends))
    pairs = list(zip(chosen, reports, strict=True))
    rows = [row for trajectory, report in pairs if (row := _row(trajectory, report))]
    if rows:
        print_table(("id", "task", "recorded", "today"), rows[:_SHOWN])
    graded = [(each, report) for each, report in pairs if isinstance(report, ScoreReport) and report.verdict]
    stdout().print(
        f"\n{len(graded)} of {len(chosen)} graded; {len(rows)} have another reward or none, "
        f"{min(len(rows), _SHOWN)} shown"
    )
    if path is not None:
        write_segment(path, [_scored(trajectory, report) for trajectory, report in graded])
        stdout().print(f"kept in {path}")
    if rows:
        raise Diverged(
            f"{len(rows)} of {len(chosen)} rollouts have another reward today, or cannot be graded"
        )


async def _scored_or_not(trajectory: Trajectory, rock: Rock) -> ScoreReport | RockError:
    try:
        return await score(trajectory, rock)
    except RockError as error:  # of this rollout: it is named, and the others are graded
        return error


def _row(trajectory: Trajectory, report: ScoreReport | RockError) -> tuple[str, ...]:
    """Return the line of a rollout whose reward is another, or has none; nothing where it is the recorded one."""
    then = f"{trajectory.env_reward:g}" if trajectory.has_reward else "none"
    if isinstance(report, RockError):
        return trajectory.id, trajectory.task_id, then, f"none: {report.message}"
    if report.verdict is None:
        apart = report.divergence
        where = f"turn {apart.turn}: {apart.what}" if apart else "its end"
        return trajectory.id, trajectory.task_id, then, f"none: the environment goes another way at {where}"
    if trajectory.has_reward and (report.verdict.reward, report.verdict.passed) == (
        trajectory.env_reward,
        trajectory.passed,
    ):
        return ()
    today = f"{report.verdict.reward:g}{' passed' if report.verdict.passed else ''}"
    return trajectory.id, trajectory.task_id, then, f"{today} ({report.verdict.details})"


def _scored(trajectory: Trajectory, report: ScoreReport | RockError) -> Trajectory:
    """Return the record with today's grade, which is the environment's own."""
    assert isinstance(report, ScoreReport)
    assert report.verdict is not None
    ended = trajectory.stop_reason
    return replace(
        trajectory,
        reward=report.verdict.reward,
        passed=report.verdict.passed,
        turn_rewards=trajectory.env_turn_rewards,
        reward_source=None,
        failure=None,
        stop_reason=StopReason.TERMINATED if ended is StopReason.FAILED else ended,
    )
