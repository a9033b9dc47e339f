"""`ale model list` and `get`.

Which models have names is in `trainer.models.named`.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Annotated

import msgspec
import typer

from ale import completion
from ale.terminal import WideOption, print_table, stdout
from ale.waiting import waiting_for
from trainer.models.named import named_models

__all__ = ["model_app"]

model_app = typer.Typer(no_args_is_help=True, help="Models by name: which there are, and get one.")


@model_app.command("list")
def list_command(
    *,
    as_json: Annotated[bool, typer.Option("--json", help="For programs: JSON on standard output.")] = False,
    _wide: WideOption = False,
) -> None:
    """List the models that have names here: how large they are, and which were fetched."""
    models = list(named_models().values())
    if as_json:
        told = [{**msgspec.to_builtins(each), "fetched": each.fetched} for each in models]
        sys.stdout.write(f"{json.dumps(told, indent=1)}\n")
        return
    heads = ("name", "weights", "license", "here", "what it is")
    here = {True: "fetched", False: "-"}
    rows = [
        (each.name, f"{each.parameters / 1e6:.0f} M", each.license, here[each.fetched], each.about)
        for each in models
    ]
    print_table(heads, rows, least=("license",))


@model_app.command("get")
def get_command(
    name: Annotated[
        str,
        typer.Argument(
            metavar="NAME|OWNER/NAME",
            help="As ale model list shows it, or a model of the Hugging Face hub.",
            autocompletion=lambda incomplete: completion.beginning(incomplete, named_models()),
        ),
    ],
    *,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out",
            metavar="DIR",
            help="A new folder for it; default: ALE_MODELS or the user's cache, and the hub's own cache for its models.",
        ),
    ] = None,
) -> None:
    """Get a model, once, so that `--model NAME` finds it; what is there already is checked and left alone."""
    os.environ["TQDM_DISABLE"] = "1"  # read as it is imported: its bars would stand between ours
    model, state = named_models().get(name), ["the hub's answer"]
    with waiting_for(lambda: state[-1]):
        from ale.model.getting import get_from_hub, get_named

        folder = (out or model.folder) if model else get_from_hub(name, out)
        made = not model or get_named(model, folder, state.append)
    stdout().print(f"{name}: {folder}{'' if made else ' (it was there already, and is whole)'}")
