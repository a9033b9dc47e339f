"""The `ale` command: parse, call one function, turn errors into one line and an exit code.

Entry point `ale.cli:main`. Nothing heavy is imported here: a command's module is imported when it is asked for, and torch
and Ray when it runs. `ALE_DEBUG=1` (or `ale --debug ...`) shows tracebacks.
"""

from __future__ import annotations

import errno
import logging
import os
import sys
from collections.abc import Sequence
from typing import Annotated, ClassVar

import typer

import ale
from agent_runtime.errors import StoreError
from ale.errors import USAGE_ERROR, AleError, usage_message
from ale.lazy_group import LazyGroup, Place
from ale.training.stop import sigterm_is_ctrl_c
from rock_env.errors import InvalidArgument, RockError
from rock_env.telemetry.shown import show_visibly
from trainer.errors import TrainerError

__all__ = ["app", "explained", "main"]

EXPECTED = (AleError, RockError, StoreError, TrainerError)
"""What the packages raise on purpose: one line for the user, no traceback."""

DISK_ERRORS = {
    errno.ENOSPC: "Free some space; a training run continues with --resume.",
    errno.EDQUOT: "Free some space; a training run continues with --resume.",
    errno.EACCES: "Choose a place you may write to (--run, --out).",
    errno.EPERM: "Choose a place you may write to (--run, --out).",
    errno.EROFS: "Choose a place you may write to (--run, --out).",
}
TRAIN_MODULES = ("matplotlib", "ray", "safetensors", "tensorboard", "tokenizers", "torch", "transformers")
"""What the extra `train` brings; a package without it runs servers, environments and replays."""
EXIT_UNAVAILABLE = 69
EXIT_SOFTWARE = 70
MOST_SHOWN = 1000
"""Characters of the message of an error that nobody expected."""
EXIT_IO = 74  # EX_IOERR of sysexits.h, as all exit codes here
RAYS_OWN_WORDS = "A worker died or was killed"
"""Ray prints a paragraph of its own for what we say in a line."""


class _Root(LazyGroup):
    places: ClassVar[dict[str, Place]] = {
        "debug": Place(
            "ale.replay.debugging:debug",
            "Play one rollout in this process, with Python's debugger where the environment or its grader raises.",
        ),
        "train": Place(
            "ale.training.cli:train",
            "Train a model in an environment, as an agent of ours or behind a CLI agent: ale train --env swe --agent "
            "qwen-code.",
        ),
        "advise": Place(
            "ale.training.cli:advise",
            "Say what to train a model with on your GPUs, what that takes of their memory, and how fast it may be.",
        ),
        "sft": Place(
            "ale.training.cli:sft",
            "Imitate successful expert trajectories (supervised fine-tuning); `ale train --from` goes on from there.",
        ),
        "lineage": Place(
            "ale.training.cli:lineage",
            "Show the chain of runs behind a model, and check that their files still agree.",
        ),
        "timeline": Place(
            "ale.training.timeline:timeline", "Show who waited for whom in a run, and what bounds it."
        ),
        "status": Place(
            "ale.watching.status:status", "Ask a run what it is busy with, and how long that has taken."
        ),
        "compare": Place(
            "ale.training.comparing:compare",
            "Compare runs: their success, cost and the settings that differ; those that differ by seed alone are one row.",
        ),
        "console": Place(
            "ale.console.cli:console",
            "Look at runs, rollouts and tokens on a page of this machine, or write them as one file. It only reads.",
        ),
        "eval": Place(
            "ale.training.cli:evaluate", "Measure a trained model on tasks, from their true start."
        ),
        "rollout": Place("ale.training.cli:rollout", "Play episodes and say how they went."),
        "simulate": Place(
            "ale.training.cli:simulate",
            "Say how long a run's steps would take, who would stand still and what would bound it, without running it.",
        ),
        "doctor": Place(
            "ale.doctor:doctor",
            "Check that this machine can run everything, and say what to do where it cannot.",
        ),
        "agent": Place(
            "ale.agent.agents:agent_app", "CLI agents of others: look at them, install them, run one."
        ),
        "model": Place("ale.model.models:model_app", "Models by name: which there are, and get one."),
        "algo": Place("ale.algo.algorithms:algo_app", "Look at the algorithms: equations, sources, options."),
        "env": Place("ale.env.cli:env_app", "Look at environments, play them, and bring your own."),
        "replay": Place(
            "ale.replay.cli:replay_app",
            "Look at recorded trajectories, compare them, and run them again.",
        ),
        "rock": Place("ale.rock.cli:rock_app", "Run a ROCK server, look at one, use its sandboxes."),
    }


app = typer.Typer(cls=_Root, no_args_is_help=True, pretty_exceptions_enable=False)


def _say_version(asked: bool) -> None:
    if asked:
        typer.echo(f"ale {ale.__version__}")
        raise typer.Exit


@app.callback()
def _root(
    debug: Annotated[bool, typer.Option("--debug", help="Show tracebacks.")] = False,
    version: Annotated[
        bool, typer.Option("--version", help="Print the version.", callback=_say_version, is_eager=True)
    ] = False,
) -> None:
    """Train LLM agents by reinforcement learning in real environments."""
    del version  # its callback has ended the command
    if debug:
        os.environ["ALE_DEBUG"] = "1"
    # What goes wrong is said once, by `main`; logs that say it too are for who asks for them.
    level = logging.INFO if os.environ.get("ALE_DEBUG") else logging.ERROR
    logging.basicConfig(level=level, format="%(levelname)s %(name)s %(message)s")


def main() -> None:
    """Run the command line and exit with its code."""
    if not os.environ.get("ALE_DEBUG"):
        os.environ.setdefault("GRPC_VERBOSITY", "NONE")  # it logs what we say in a line; read at its import
    os.environ.setdefault("RAY_DEDUP_LOGS_SKIP_REGEX", RAYS_OWN_WORDS)  # read when Ray is imported
    sigterm_is_ctrl_c()
    show_visibly()
    try:
        _check_words(sys.argv[1:])
        # The name also of `python -m ale`: completion goes by it.
        ended = app(prog_name="ale", standalone_mode=False)
        sys.exit(ended if isinstance(ended, int) else 0)
    except typer.Abort:
        sys.stderr.write("ale: aborted\n")
        sys.exit(1)
    except USAGE_ERROR as error:
        from ale.option_names import meant  # brings pydantic and all settings

        sys.stderr.write(usage_message(error, meant))
        sys.exit(2)
    except Exception as error:
        if os.environ.get("ALE_DEBUG"):
            raise
        message, code = explained(error)
        sys.stderr.write(f"ale: {message}\n")
        sys.exit(code)


def _check_words(words: Sequence[str]) -> None:
    """Raise `InvalidArgument` for a word of the command line that is no text."""
    for number, word in enumerate(words, start=1):
        if not word.isascii() and word != word.encode(errors="replace").decode():
            raise InvalidArgument(f"word {number} of the command line is no UTF-8 text: {word!r}.")


def explained(error: BaseException) -> tuple[str, int]:
    """Return the one line and the exit code for an error; that of a bug says how to see where it is."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    if isinstance(error, EXPECTED):
        return " ".join(str(error).split()), error.exit_code
    if isinstance(error, ModuleNotFoundError) and error.name in TRAIN_MODULES:
        return (
            f"this command needs {error.name}, which is not installed: pip install 'ale-rl[train]'",
            EXIT_UNAVAILABLE,
        )
    if isinstance(error, OSError) and error.errno in DISK_ERRORS:
        where = f" {error.filename}" if error.filename else ""
        return f"cannot write{where}: {error.strerror}. {DISK_ERRORS[error.errno]}", EXIT_IO
    said = " ".join(f"{type(error).__name__}: {error}".split())
    shown = said if len(said) <= MOST_SHOWN else f"{said[:MOST_SHOWN]}…"
    return f"an unexpected error, {shown}. ALE_DEBUG=1 shows where: please report it.", EXIT_SOFTWARE
