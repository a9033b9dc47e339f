"""Options that several groups of commands take alike."""

from __future__ import annotations

from typing import Annotated

import typer

from rock_env.errors import InvalidArgument

__all__ = [
    "PLACE",
    "SETTINGS",
    "BackendOption",
    "EnvArgs",
    "ErroredOption",
    "FormerFailedOption",
    "FreezeOption",
    "RockOption",
    "UngradedOption",
    "UnsolvedOption",
]

PLACE = "How it runs"
"""The panel of `--help` for what says where and how. Options without a panel, the everyday ones, come first."""
SETTINGS = "Every other setting"


def _with_values(words: list[str] | None) -> list[str] | None:
    """Raise `InvalidArgument` for an argument without a value."""
    for word in words or ():
        if not word.partition("=")[1]:
            raise InvalidArgument(f"bad --env-arg {word!r}: expected KEY=VALUE, such as {word}=4.")
    return words


EnvArgs = Annotated[
    list[str] | None,
    typer.Option(
        "--env-arg",
        metavar="KEY=VALUE",
        help="An argument of the environment (ale env show).",
        rich_help_panel=SETTINGS,
        callback=_with_values,
    ),
]
RockOption = Annotated[
    str,
    typer.Option(
        "--rock",
        metavar="ADDRESS|CONTEXT",
        help="A running ROCK server; none starts an embedded one.",
        rich_help_panel=PLACE,
    ),
]
FreezeOption = Annotated[
    int,
    typer.Option(
        "--freeze",
        metavar="N",
        min=0,
        help="Leave the sandboxes of so many that are not passed open, for ale rock shell; needs --rock.",
        rich_help_panel=PLACE,
    ),
]
BackendOption = Annotated[
    list[str] | None,
    typer.Option(
        "--backend",
        metavar="NAME[:KEY=VALUE,…]",
        help="Host sandboxes of the embedded server on it.",
        rich_help_panel=PLACE,
    ),
]
UnsolvedOption = Annotated[
    bool, typer.Option("--unsolved", help="Rollouts that have a reward and did not pass.")
]
ErroredOption = Annotated[bool, typer.Option("--errored", help="Rollouts that failed: they have no reward.")]
UngradedOption = Annotated[
    bool, typer.Option("--ungraded", help="Errored at their end: the grader or the judge failed.")
]


def _refuse_former(ctx: typer.Context, given: bool) -> None:
    if given:
        raise InvalidArgument(
            f"`ale replay {ctx.info_name}` no longer takes --failed or --next-failed, which meant three things. Say "
            "--unsolved (has a reward, did not pass), --errored (failed, no reward) or --ungraded (errored at its end: its "
            "grader or judge failed)."
        )


FormerFailedOption = Annotated[
    bool, typer.Option("--failed", "--next-failed", hidden=True, callback=_refuse_former)
]
"""What these outcomes were called before; refused with their names."""
