"""`ale env`: environments, from a new folder to one that is trained in.

Imported when one of its commands is asked for.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ale.config import parse_overrides
from ale.env.check import check_command
from ale.env.environments import list_command, list_library, show_command
from ale.env.new import new_command
from ale.env.play import play_command
from ale.env.pushing import push_command, remove_pushed_command
from ale.env.registering import RegisterCommand, register_command, remove_command
from ale.options import BackendOption, RockOption
from ale.terminal import WideOption

__all__ = ["env_app"]

env_app = typer.Typer(no_args_is_help=True, help="Look at environments, play them, and bring your own.")

NameArgument = Annotated[str, typer.Argument(metavar="NAME", help="As ale env list shows it.")]
EnvArgs = Annotated[
    list[str] | None,
    typer.Option("--env-arg", metavar="KEY=VALUE", help="An argument of the environment (ale env show)."),
]
JsonOption = Annotated[bool, typer.Option("--json", help="For programs: JSON on standard output.")]
TasksOption = Annotated[int, typer.Option("--tasks", min=1, help="Check so many tasks, of all splits.")]


@env_app.command("list")
def env_list(
    *,
    library: Annotated[
        str, typer.Option(metavar="NAME", help="List the ids of this library instead, such as gem or gym.")
    ] = "",
    as_json: JsonOption = False,
    _wide: WideOption = False,
) -> None:
    """List the environments: installed ones, those you registered, and which libraries' ids can be named too."""
    if library:
        list_library(library, as_json=as_json)
    else:
        list_command(as_json=as_json)


@env_app.command("show")
def env_show(name: NameArgument) -> None:
    """Show an environment: what it is, which arguments it takes, and what its last check found."""
    show_command(name)


@env_app.command("play")
def env_play(
    *,
    name: NameArgument,
    env_args: EnvArgs = None,
    task: Annotated[str, typer.Option("--task", metavar="SPLIT/INDEX", help="Which task.")] = "train/0",
    seed: Annotated[int, typer.Option("--seed", min=0, help="Determines everything random.")] = 0,
    rock: RockOption = "",
    backend: BackendOption = None,
    pictures: Annotated[
        Path | None,
        typer.Option("--pictures", metavar="DIR", help="Put a picture of each observation there (browser)."),
    ] = None,
) -> None:
    """Play an environment yourself, an action per line; edits, ``` blocks and here-documents go on to their end."""
    arguments = parse_overrides(env_args or [])
    play_command(name, arguments, task=task, seed=seed, rock=rock, backends=backend or (), pictures=pictures)


@env_app.command("new")
def env_new(folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="It must not exist yet.")]) -> None:
    """Write a folder with a complete small task in it, to change into your own."""
    new_command(folder)


@env_app.command("register")
def env_register(
    path: Annotated[
        Path,
        typer.Argument(metavar="PATH", help="A task's folder, a folder of them, or a file of instances."),
    ],
    *,
    name: Annotated[
        str | None, typer.Option("--name", help="What it is called; by default as the folder or file.")
    ] = None,
    options: Annotated[
        list[str] | None,
        typer.Option("--option", metavar="KEY=VALUE", help="How the format is read (docs/tasksets.md)."),
    ] = None,
    check: Annotated[bool, typer.Option("--check/--no-check", help="Check it as ale env check does.")] = True,
    tasks: TasksOption = 8,
    skip_bad: Annotated[
        bool,
        typer.Option("--skip-bad", help="Leave out what cannot be read, built or solved; check all tasks."),
    ] = False,
    rock: RockOption = "",
) -> None:
    """Build the images of tasks and keep them as an environment; the same folder again brings it up to date."""
    _end(
        register_command(
            RegisterCommand(
                path=path,
                name=name,
                options=parse_overrides(options or []),
                check=check,
                tasks=tasks,
                skip_bad=skip_bad,
                rock=rock,
            )
        )
    )


@env_app.command("check")
def env_check(
    name: NameArgument,
    *,
    env_args: EnvArgs = None,
    tasks: TasksOption = 8,
    hacks: Annotated[
        int,
        typer.Option(
            min=0,
            help="On so many tasks try every known way to a reward without the work, and honest variants of it.",
        ),
    ] = 1,
    rock: RockOption = "",
    backend: BackendOption = None,
    as_json: JsonOption = False,
) -> None:
    """Check whether an environment and its tasks are fit to train on; exits with 1 if a check fails."""
    arguments, backends = parse_overrides(env_args or []), backend or ()
    _end(
        check_command(
            name, arguments, tasks=tasks, hacks=hacks, rock=rock, backends=backends, as_json=as_json
        )
    )


@env_app.command("push")
def env_push(
    name: NameArgument,
    *,
    rock: Annotated[str, typer.Option("--rock", metavar="ADDRESS|CONTEXT", help="The running ROCK server.")],
    images: Annotated[
        str,
        typer.Option(
            "--images",
            metavar="REGISTRY",
            help="Push the images there and have the server's sandboxes pull them, as pods must.",
        ),
    ] = "",
) -> None:
    """Offer an environment that you registered at a server elsewhere, and at all servers that share its store."""
    push_command(name, rock, images)


@env_app.command("remove")
def env_remove(
    name: NameArgument,
    *,
    rock: Annotated[
        str, typer.Option("--rock", metavar="ADDRESS", help="Remove what was pushed there, and keep yours.")
    ] = "",
) -> None:
    """Forget an environment that you registered, or that you pushed. Its folder and its images stay."""
    if rock:
        remove_pushed_command(name, rock)
        return
    remove_command(name)


def _end(code: int) -> None:
    if code:
        raise typer.Exit(code)
