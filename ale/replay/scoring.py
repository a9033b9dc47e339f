"""`ale replay score`: what today's grader says of what was done then.

For a grader that was mended, or that failed: the recorded actions go to a fresh environment, whose observations have to be
the recorded ones, and its grade stands beside the record's. A record is never written again: new ones go to another folder.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from agent_runtime.replay import ScoreReport, score
from agent_runtime.run import Rock
from agent_runtime.types import StopReason, Trajectory
from ale.errors import RecordError
from ale.options import (
    BackendOption,
    ErroredOption,
    FormerFailedOption,
    RockOption,
    UngradedOption,
    UnsolvedOption,
)
from ale.replay.executing import RecordsArgument, for_each
from ale.replay.judging import judge_command
from ale.replay.places import new_records
from ale.replay.records import find, iterate
from ale.replay.rows import Outcomes, row_of
from ale.replay.telling import Scored, tell
from ale.waiting import awaited
from rock_env.env import Verdict
from rock_env.errors import RockError

__all__ = ["score_records"]


def score_records(
    where: RecordsArgument,
    trajectory: Annotated[str | None, typer.Argument(metavar="ID", help="None is all of them.")] = None,
    *,
    unsolved: UnsolvedOption = False,
    errored: ErroredOption = False,
    ungraded: UngradedOption = False,
    _failed: FormerFailedOption = False,
    judge: Annotated[
        bool, typer.Option("--judge", help="Ask the run's reward workers instead: nothing is played.")
    ] = False,
    out: Annotated[
        Path | None, typer.Option("--out", help="Keep the records with today's rewards in this folder.")
    ] = None,
    rock: RockOption = "",
    backend: BackendOption = None,
) -> None:
    """Do recorded actions again and have today's grader grade them; exit code 1 where a reward is another."""
    outcomes = Outcomes(unsolved=unsolved, errored=errored, ungraded=ungraded)
    if judge:
        judge_command(where, trajectory, outcomes=outcomes, out=out, rock=rock)
        return
    if out is not None:
        new_records(out, "scored")  # refused before anything is played
    chosen = [each for _, each in iterate(where)] if trajectory is None else [find(where, trajectory)]
    chosen = [each for each in chosen if outcomes.fits(row_of(each))]
    if not chosen:
        raise RecordError(f"no rollout of {where!r} is {outcomes}: there is nothing to grade.")
    reports = awaited(for_each(chosen, _scored_or_not, rock, backend or ()), "the rollouts")
    tell([_scored(each, report) for each, report in zip(chosen, reports, strict=True)], out)


async def _scored_or_not(trajectory: Trajectory, rock: Rock) -> ScoreReport | RockError:
    try:
        return await score(trajectory, rock)
    except RockError as error:  # of this rollout: it is named, and the others are graded
        return error


def _scored(trajectory: Trajectory, report: ScoreReport | RockError) -> Scored:
    then = trajectory.env_reward if trajectory.has_reward else None
    if isinstance(report, RockError):
        return Scored(trajectory, then, None, f"none: {report.message}")
    verdict = report.verdict
    if verdict is None:
        apart = report.divergence
        where = f"turn {apart.turn}: {apart.what}" if apart else "its end"
        return Scored(trajectory, then, None, f"none: the environment goes another way at {where}")
    same = then == verdict.reward and trajectory.passed == verdict.passed
    said = f"{verdict.reward:g}{' passed' if verdict.passed else ''} ({verdict.details})"
    return Scored(trajectory, then, _graded(trajectory, verdict), "" if same else said)


def _graded(trajectory: Trajectory, verdict: Verdict) -> Trajectory:
    """Return the record with today's grade, which is the environment's own."""
    ended = trajectory.stop_reason
    return replace(
        trajectory,
        reward=verdict.reward,
        passed=verdict.passed,
        grader_output=verdict.details,
        turn_rewards=trajectory.env_turn_rewards,
        reward_source=None,
        failure=None,
        stop_reason=StopReason.TERMINATED if ended is StopReason.FAILED else ended,
    )
