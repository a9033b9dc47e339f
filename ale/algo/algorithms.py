"""`ale algo list` and `ale algo show`: what an algorithm is, by its plugin and the docstring of the plugin's module.

It imports torch, as every algorithm does. It never builds an algorithm.
"""

from __future__ import annotations

import inspect
import json
import sys

from ale.terminal import print_fields, print_table, stdout
from rock_env import plugins
from rock_env.errors import InvalidArgument, RockError
from trainer.algo.base import AlgorithmSpec

__all__ = ["list_command", "show_command"]


def list_command(*, as_json: bool = False) -> None:
    """Print a line for each installed algorithm; one that does not load says why."""
    found = [(name, _summary(name)) for name in plugins.names("ale.algorithms")]
    if as_json:
        described = [{"name": name, "summary": summary} for name, summary in found]
        sys.stdout.write(f"{json.dumps(described, indent=1)}\n")
    else:
        print_table(("name", "what it is"), found)


def show_command(name: str) -> None:
    """Print an algorithm's summary, the docstring of its module, and its options. Raise `UnknownName`."""
    spec = _load(name)
    out = stdout()
    out.print(f"{name}: {spec.summary}\n")
    module = inspect.getmodule(spec.build)
    if text := module and inspect.getdoc(module):
        out.print(f"{text}\n")
    print_fields("option", spec.options)
    if spec.options.model_fields:
        out.print(f"\nSet one with: ale train --algo {name} -s algo_options.NAME=VALUE")


def _summary(name: str) -> str:
    try:
        return _load(name).summary
    except RockError as error:  # a third party's defect must not hide the others
        return f"broken plugin: {error}"


def _load(name: str) -> AlgorithmSpec:
    spec = plugins.load("ale.algorithms", name)
    if not isinstance(spec, AlgorithmSpec):
        raise InvalidArgument(
            f"algorithm plugin {name!r} is not an AlgorithmSpec: got {type(spec).__name__}. "
            "Its entry point must name an object of type trainer.algo.base.AlgorithmSpec."
        )
    return spec
