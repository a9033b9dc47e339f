"""`ale algo list` and `ale algo show`: what an algorithm is, by its plugin and the docstring of the plugin's module.

Looking at an algorithm imports torch; nothing here ever builds an algorithm.
"""

from __future__ import annotations

import inspect
import json
import math
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ale import completion
from ale.terminal import WideOption, print_fields, print_table, stdout
from rock_env import plugins
from rock_env.errors import InvalidArgument, RockError

if TYPE_CHECKING:
    from trainer.algo.base import AlgorithmSpec

__all__ = ["algo_app", "list_command", "show_command"]

algo_app = typer.Typer(no_args_is_help=True, help="Look at the algorithms: equations, sources, options.")


@algo_app.command("list")
def list_command(
    *,
    as_json: Annotated[bool, typer.Option("--json", help="For programs: JSON on standard output.")] = False,
    _wide: WideOption = False,
) -> None:
    """List the installed algorithms, each with the largest lag (`rollout.staleness`) that its off-policy correction bears;
    one that does not load says why."""
    found = [_described(name) for name in plugins.names("ale.algorithms")]
    if as_json:
        sys.stdout.write(f"{json.dumps(found, indent=1)}\n")
    else:
        rows = [(each["name"], _lag_of(each), each["summary"]) for each in found]
        print_table(("name", "largest lag", "what it is"), rows)


@algo_app.command("show")
def show_command(
    name: Annotated[
        str,
        typer.Argument(
            metavar="NAME", help="As ale algo list shows it.", autocompletion=completion.algorithms
        ),
    ],
) -> None:
    """Show an algorithm: its equations and where they come from, and its options with defaults and meaning."""
    spec = _load(name)
    out = stdout()
    out.print(f"{name}: {spec.summary}\n")
    module = inspect.getmodule(spec.build)
    if text := module and inspect.getdoc(module):
        out.print(f"{text}\n")
    print_fields("option", spec.options)
    if spec.options.model_fields:
        out.print(f"\nSet one with: ale train --algo {name} -s algo_options.NAME=VALUE")


def _described(name: str) -> dict[str, Any]:
    """Return what a program reads. The largest lag is by the default options: a number, `any`, or None without rollouts."""
    try:
        spec = _load(name)
    except RockError as error:  # a third party's defect must not hide the others
        return {"name": name, "summary": f"broken plugin: {error}", "largest_lag": None, "raised_by": ""}
    lag = spec.off_policy.largest_lag(spec.options())
    told = None if not spec.learns_from_rollouts else "any" if lag == math.inf else int(lag)
    raised_by = spec.off_policy.raised_by if isinstance(told, int) else ""
    return {"name": name, "summary": spec.summary, "largest_lag": told, "raised_by": raised_by}


def _lag_of(described: Mapping[str, Any]) -> str:
    lag, raised_by = described["largest_lag"], described["raised_by"]
    return "-" if lag is None else f"{lag}, more with {raised_by}" if raised_by else f"{lag}"


def _load(name: str) -> AlgorithmSpec:
    from trainer.algo.base import AlgorithmSpec  # brings torch, as each algorithm does and --help does not

    spec = plugins.load("ale.algorithms", name)
    if not isinstance(spec, AlgorithmSpec):
        raise InvalidArgument(
            f"algorithm plugin {name!r} is not an AlgorithmSpec: got {type(spec).__name__}. "
            "Its entry point must name an object of type trainer.algo.base.AlgorithmSpec."
        )
    return spec
