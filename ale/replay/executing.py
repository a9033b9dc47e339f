"""`ale replay run`: send recorded actions again and compare what comes back.

No policy takes part, and nothing is written.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Annotated, TypeVar

import typer

from agent_runtime.freezing import Freezer
from agent_runtime.replay import Divergence, ReplayReport, replay
from agent_runtime.run import Rock
from agent_runtime.types import Trajectory
from ale import completion
from ale.errors import Diverged
from ale.options import BackendOption, FreezeOption, RockOption
from ale.replay.records import find, iterate
from ale.rock.reach import check_freeze, connected, say_kept
from ale.terminal import stdout
from ale.training import runs
from ale.waiting import awaited, waiting_for
from rock_env.client import Client

__all__ = ["RecordsArgument", "for_each", "replay_all", "run"]

RecordsArgument = Annotated[str, typer.Argument(metavar="RUN|FOLDER|FILE", autocompletion=completion.runs)]

T = TypeVar("T")

AT_ONCE = 32
"""Trajectories replayed at the same time: enough to hide the service's latency."""


def run(
    where: RecordsArgument,
    trajectory: Annotated[str | None, typer.Argument(metavar="ID", help="None runs the first.")] = None,
    every: Annotated[bool, typer.Option("--all", help="Run all of them.")] = False,
    rock: RockOption = "",
    backend: BackendOption = None,
    freeze: FreezeOption = 0,
) -> None:
    """Run recorded actions again and compare every observation; exit code 1 where one differs."""
    check_freeze(freeze, rock)
    runs.bring_own(runs.locate(str(where)))
    chosen = [each for _, each in iterate(where)] if every else [find(where, trajectory)]
    kept: list[str] = []
    replays = replay_all(chosen, rock, backend or (), freeze=freeze, kept=kept)
    reports = awaited(replays, "the rollouts")
    say_kept(kept, rock)
    diverged = [report for report in reports if not report.identical]
    out = stdout()
    for report in diverged if every else reports:
        out.print(_line(report))
    if every:
        out.print(f"{len(reports) - len(diverged)} of {len(reports)} trajectories came out as recorded")
    if diverged:
        raise Diverged(f"{len(diverged)} of {len(reports)} trajectories did not reproduce their record")


async def replay_all(
    trajectories: Sequence[Trajectory],
    address: str,
    backends: Sequence[str],
    *,
    freeze: int = 0,
    kept: list[str] | None = None,
) -> list[ReplayReport]:
    """Replay trajectories at once; reports in their order. Raise `RockError` where the service fails.

    The first `freeze` that are not passed leave their sandbox open, and its id in `kept`.
    """

    def freezing(client: Client) -> Rock:
        return Freezer(client, freeze, kept)

    return await for_each(trajectories, replay, address, backends, through=freezing)


async def for_each(
    trajectories: Sequence[Trajectory],
    act: Callable[[Trajectory, Rock], Awaitable[T]],
    address: str,
    backends: Sequence[str],
    *,
    through: Callable[[Client], Rock] = lambda client: client,
) -> list[T]:
    """Act on each trajectory with one service, `AT_ONCE` at a time; return what came of them in their order."""
    async with connected(address, backends) as client:
        rock = through(client)
        gate = asyncio.Semaphore(AT_ONCE)
        tasks: list[asyncio.Task[T]] = []

        async def one(trajectory: Trajectory) -> T:
            async with gate:
                return await act(trajectory, rock)

        def what() -> str:
            done = sum(task.done() for task in tasks)
            return f"rollouts to be played again ({done} of {len(trajectories)} done)"

        with waiting_for(what):
            async with asyncio.TaskGroup() as group:
                tasks += (group.create_task(one(trajectory)) for trajectory in trajectories)
        return [task.result() for task in tasks]


def _line(report: ReplayReport) -> str:
    if report.divergence is None:
        return f"{report.trajectory_id}: all {report.turns} turns and the verdict came out as recorded"
    return f"{report.trajectory_id}: {_difference(report.divergence)}"


def _difference(divergence: Divergence) -> str:
    return (
        f"{divergence.what} differs at turn {divergence.turn}\n"
        f"   recorded: {divergence.recorded!r}\n   replayed: {divergence.replayed!r}"
    )
