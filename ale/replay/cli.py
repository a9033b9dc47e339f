"""`ale replay`: look at recorded trajectories, compare them, and run them again."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated, ClassVar

import typer

from ale import completion
from ale.lazy_group import LazyGroup, Place
from ale.options import (
    BackendOption,
    ErroredOption,
    FormerFailedOption,
    RockOption,
    UngradedOption,
    UnsolvedOption,
)
from ale.replay.artifacts import artifact_command
from ale.replay.comparing import diff_command
from ale.replay.interchange.exchanging import export_command, import_command
from ale.replay.interchange.packing import pack_command, unpack_command
from ale.replay.listing import Wanted, grid_command, grouped_command, list_command
from ale.replay.rows import Outcomes
from ale.replay.scanning import scan_command
from ale.replay.showing import show_command
from ale.replay.stats import stats_command
from ale.terminal import WideOption
from rock_env.errors import InvalidArgument

__all__ = ["replay_app"]


class _Replay(LazyGroup):
    places: ClassVar[dict[str, Place]] = {  # what needs a server
        "run": Place(
            "ale.replay.executing:run",
            "Run recorded actions again and compare every observation; exit code 1 where one differs.",
        ),
        "score": Place(
            "ale.replay.scoring:score_records",
            "Do recorded actions again and have today's grader grade them; exit code 1 where a reward is another.",
        ),
    }


replay_app = typer.Typer(
    cls=_Replay,
    no_args_is_help=True,
    help="Look at recorded trajectories, compare them, and run them again.",
)

RecordsArgument = Annotated[str, typer.Argument(metavar="RUN|FOLDER|FILE", autocompletion=completion.runs)]
JsonOption = Annotated[bool, typer.Option("--json", help="For programs: JSON on standard output.")]


class Sort(StrEnum):
    """What trajectories are listed by, the largest first; without, they come in the order of time."""

    TURNS = "turns"
    TOKENS = "tokens"
    REWARD = "reward"
    TIME = "time"
    HARDEST = "hardest"
    """With `By`: the lowest share that passed first."""


class By(StrEnum):
    """What rollouts are counted together by."""

    TASK = "task"
    STEP = "step"
    GROUP = "group"
    ENV = "env"


class Interchange(StrEnum):
    """Whose format rollouts are written in."""

    ATIF = "atif"
    CHAT = "chat"
    SWE_AGENT = "swe-agent"


def _pattern(name: str, text: str) -> typer.models.OptionInfo:
    option: typer.models.OptionInfo = typer.Option(name, metavar="PATTERN", help=text)
    return option


@replay_app.command("list")
def replay_list(
    where: RecordsArgument,
    *,
    passed: Annotated[bool, typer.Option("--passed", help="Rollouts that solved their task.")] = False,
    unsolved: UnsolvedOption = False,
    errored: ErroredOption = False,
    ungraded: UngradedOption = False,
    _failed: FormerFailedOption = False,
    anchored: Annotated[
        bool, typer.Option("--anchored", help="Only rollouts that began at an anchor.")
    ] = False,
    task: Annotated[str, _pattern("--task", "Tasks by id, such as 'held_out/*'.")] = "*",
    group: Annotated[str, _pattern("--group", "Groups by id.")] = "*",
    end: Annotated[str, _pattern("--end", "By how they ended, such as truncated.")] = "*",
    env: Annotated[str, _pattern("--env", "Environments by name, where a run has several.")] = "*",
    file: Annotated[str, _pattern("--file", "Files by name, such as 'eval-*'.")] = "*",
    action: Annotated[
        str, _pattern("--action", "Rollouts with such an action, as 'bash *' or 'undo'.")
    ] = "*",
    text: Annotated[
        str,
        typer.Option("--text", metavar="TEXT", help="Rollouts with this in what was done, seen or graded."),
    ] = "",
    sort: Annotated[
        Sort | None, typer.Option("--sort", help="The largest first; with --by: hardest.")
    ] = None,
    by: Annotated[
        By | None, typer.Option("--by", help="One line for each, with successes and rewards.")
    ] = None,
    grid: Annotated[bool, typer.Option("--grid", help="Tasks by steps: successes among rollouts.")] = False,
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, help="Most lines.")] = 50,
    as_json: JsonOption = False,
    _wide: WideOption = False,
) -> None:
    """List the trajectories of a run."""
    outcomes = Outcomes(passed, unsolved, errored, ungraded)
    wanted = Wanted(outcomes, anchored, task, group, end, file, action, text, env)
    if sort is not None and (grid or (by is not None) != (sort is Sort.HARDEST)):
        raise InvalidArgument(
            f"--sort {sort.value} does not apply here: got {'--grid' if grid else '--by' if by else 'no --by'}, expected "
            "hardest with --by, turns, tokens, reward or time without, none with --grid. Without it: in the order of time."
        )
    if grid:
        grid_command(where, wanted=wanted, limit=limit)
        return
    if by is not None:
        grouped_command(where, wanted=wanted, by=by.value, sort=sort or "", limit=limit, as_json=as_json)
        return
    list_command(where, wanted=wanted, sort=sort or "", limit=limit, as_json=as_json)


@replay_app.command("show")
def replay_show(
    where: RecordsArgument,
    trajectory: Annotated[str | None, typer.Argument(metavar="ID", help="None shows the first.")] = None,
    tokens: Annotated[bool, typer.Option("--tokens", help="Token ids and log-probabilities too.")] = False,
    *,
    unsolved: UnsolvedOption = False,
    errored: ErroredOption = False,
    ungraded: UngradedOption = False,
    _failed: FormerFailedOption = False,
) -> None:
    """Show a trajectory turn by turn; with --unsolved, --errored or --ungraded the first such after it."""
    outcomes = Outcomes(unsolved=unsolved, errored=errored, ungraded=ungraded)
    next_one = outcomes if unsolved or errored or ungraded else None
    show_command(where, trajectory, tokens=tokens, next_one=next_one)


@replay_app.command("artifact")
def replay_artifact(
    where: RecordsArgument,
    digest: Annotated[
        str, typer.Argument(metavar="DIGEST", help="As `show` names it; its beginning is enough.")
    ],
    file: Annotated[Path, typer.Argument(metavar="FILE", help="Where to write it; what is there is kept.")],
) -> None:
    """Write out a file that an environment attached to a turn or to the grade, such as a picture."""
    artifact_command(where, digest, file)


@replay_app.command("stats")
def replay_stats(where: RecordsArgument, *, as_json: JsonOption = False, _wide: WideOption = False) -> None:
    """Say why rollouts ended, what became of their tokens, and what was slow."""
    stats_command(where, as_json=as_json)


@replay_app.command("scan")
def replay_scan(
    where: RecordsArgument,
    *,
    rule: Annotated[
        list[str] | None, typer.Option("--rule", metavar="NAME", help="Only this rule; may be repeated.")
    ] = None,
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, help="Most rollouts shown of a rule.")] = 5,
    as_json: JsonOption = False,
    _wide: WideOption = False,
) -> None:
    """Look through transcripts by rules: loops, refusals, attempts on the grader, and those of plugins."""
    scan_command(where, rules=rule or (), limit=limit, as_json=as_json)


@replay_app.command("diff")
def replay_diff(
    first: RecordsArgument,
    second: RecordsArgument,
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, help="Most rollouts.")] = 20,
) -> None:
    """Compare two runs by their settings and rollouts, to the first difference of each; exit code 1 if they differ."""
    if diff_command(first, second, limit=limit):
        raise typer.Exit(1)


@replay_app.command("train")
def replay_train(
    run: Annotated[str, typer.Argument(metavar="RUN|FOLDER", autocompletion=completion.runs)],
    *,
    step: Annotated[int | None, typer.Option("--step", min=1, help="None is the last one.")] = None,
    out: Annotated[Path | None, typer.Option("--out", help="Write the model after the step there.")] = None,
) -> None:
    """Compute a step's update again from the records and compare it; exit code 1 if it differs."""
    from ale.replay.retraining import train_command  # brings torch

    train_command(run, step, out)


@replay_app.command("tokens")
def replay_tokens(
    run: Annotated[str, typer.Argument(metavar="RUN|FOLDER", autocompletion=completion.runs)],
    trajectory: Annotated[str | None, typer.Argument(metavar="ID", help="None is the first.")] = None,
    *,
    as_json: JsonOption = False,
) -> None:
    """Say what became of a rollout's tokens in the step that learned it, and why."""
    from ale.replay.tokens import tokens_command  # brings torch

    tokens_command(run, trajectory, as_json=as_json)


@replay_app.command("from")
def replay_from(
    run: Annotated[str, typer.Argument(metavar="RUN", autocompletion=completion.runs)],
    place: Annotated[str, typer.Argument(metavar="ID:TURN", help="A rollout, and the turn to take over at.")],
    *,
    samples: Annotated[int, typer.Option("--samples", "-n", min=1, max=10_000, help="How many times.")] = 1,
    policy: Annotated[str, typer.Option(help="A run or model that goes on; none is RUN itself.")] = "",
    temperature: Annotated[float, typer.Option(min=0, help="0 is greedy.")] = 1.0,
    hint: Annotated[str, typer.Option(help="Told below the first observation.")] = "",
    reseed: Annotated[
        bool, typer.Option("--reseed", help="Chance of its own for each; without, the recorded one goes on.")
    ] = False,
    seed: Annotated[int, typer.Option(help="Of all sampling.")] = 0,
    out: Annotated[Path | None, typer.Option("--out", help="Keep the records in this folder.")] = None,
    rock: RockOption = "",
    backend: BackendOption = None,
    _wide: WideOption = False,
) -> None:
    """Go on from any turn of a recorded rollout."""
    from ale.replay.continuing import From, from_command, split_place  # brings torch

    identity, turn = split_place(place)
    from_command(
        From(
            run,
            identity,
            turn,
            samples,
            policy,
            temperature,
            hint,
            reseed,
            seed,
            out,
            rock,
            backend or (),
        )
    )


@replay_app.command("export")
def replay_export(
    where: RecordsArgument,
    trajectory: Annotated[str | None, typer.Argument(metavar="ID", help="None is all of them.")] = None,
    *,
    kind: Annotated[Interchange, typer.Option("--format", help="Whose.")] = Interchange.ATIF,
    out: Annotated[Path, typer.Option("--out", help="A new folder; of chat messages a new file.")],
) -> None:
    """Write rollouts as ATIF documents, as lines of chat messages, or as SWE-agent's files."""
    export_command(where, trajectory, kind.value, out)


@replay_app.command("import")
def replay_import(
    paths: Annotated[list[Path], typer.Argument(metavar="FILE|FOLDER...")],
    *,
    out: Annotated[Path, typer.Option("--out", help="The folder that keeps them.")],
) -> None:
    """Read ATIF documents (.json), chat messages (.jsonl) and SWE-agent's files (.traj)."""
    import_command(paths, out)


@replay_app.command("pack")
def replay_pack(
    run: Annotated[str, typer.Argument(metavar="RUN|FOLDER", autocompletion=completion.runs)],
    *,
    out: Annotated[Path, typer.Option("--out", help="The file to write, such as run.tar.gz.")],
    step: Annotated[
        int | None,
        typer.Option("--step", min=1, help="What `ale replay train` needs for this step, unchanged."),
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", help="Also where it is large.")] = False,
) -> None:
    """Write a run, or one step of it, as one file for a bug report, without what looks like a secret."""
    pack_command(run, out, step=step, yes=yes)


@replay_app.command("unpack")
def replay_unpack(
    file: Annotated[Path, typer.Argument(metavar="FILE")],
    *,
    out: Annotated[Path, typer.Option("--out", help="A new folder.")],
) -> None:
    """Unpack what `pack` wrote into a new folder."""
    unpack_command(file, out)
