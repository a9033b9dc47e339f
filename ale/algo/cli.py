"""`ale algo`: which algorithms are installed, and what each one does.

Added to the command line by `ale/cli.py`. Nothing heavy is imported before a command runs.
"""

from __future__ import annotations

from typing import Annotated

import typer

from ale import completion

__all__ = ["algo_app"]

algo_app = typer.Typer(no_args_is_help=True, help="Look at the algorithms: equations, sources, options.")


@algo_app.command("list")
def algo_list(
    *,
    as_json: Annotated[bool, typer.Option("--json", help="For programs: JSON on standard output.")] = False,
) -> None:
    """List the installed algorithms, each in one line."""
    from ale.algo.algorithms import list_command

    list_command(as_json=as_json)


@algo_app.command("show")
def algo_show(
    name: Annotated[
        str,
        typer.Argument(
            metavar="NAME", help="As ale algo list shows it.", autocompletion=completion.algorithms
        ),
    ],
) -> None:
    """Show an algorithm: its equations and where they come from, and its options with defaults and meaning."""
    from ale.algo.algorithms import show_command

    show_command(name)
