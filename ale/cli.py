"""The `ale` command: parse, call one function, turn errors into one line and an exit code.

Entry point `ale.cli:main`. Nothing heavy is imported here, nor by `--help`: each command imports its own module, which
may bring torch and Ray. `ALE_DEBUG=1` (or `ale --debug ...`) shows tracebacks.
"""

from __future__ import annotations

import errno
import json
import logging
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

import ale
from agent_runtime.errors import StoreError
from ale import completion
from ale.agent.cli import agent_app
from ale.algo.cli import algo_app
from ale.env.cli import env_app
from ale.errors import AleError
from ale.options import PLACE, BackendOption, FreezeOption, RockOption
from ale.replay.cli import replay_app
from ale.rock.cli import rock_app
from ale.training.stop import sigterm_is_ctrl_c
from rock_env.errors import InvalidArgument, RockError
from rock_env.telemetry.shown import show_visibly
from trainer.errors import TrainerError
from trainer.signals import held

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

app = typer.Typer(no_args_is_help=True, pretty_exceptions_enable=False)
app.add_typer(agent_app, name="agent")
app.add_typer(algo_app, name="algo")
app.add_typer(env_app, name="env")
app.add_typer(replay_app, name="replay")
app.add_typer(rock_app, name="rock")

# `--help` groups options in panels: those without one, the everyday ones, come first.
SETTINGS = "Every other setting"
START = "Where the model comes from, and who acts with it"

EnvOption = Annotated[
    str | None,
    typer.Option(
        "--env",
        help="An environment (ale env list), or several with shares: math:0.4,frozen_lake:0.6.",
        autocompletion=completion.environments,
    ),
]
AlgoOption = Annotated[
    str | None,
    typer.Option("--algo", help="An algorithm (ale algo list).", autocompletion=completion.algorithms),
]
EnvArgs = Annotated[
    list[str] | None,
    typer.Option(
        "--env-arg",
        metavar="KEY=VALUE",
        help="An argument of the environment (ale env show).",
        rich_help_panel=SETTINGS,
    ),
]
SetOptions = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        "-s",
        metavar="KEY=VALUE",
        help="Any option by its dotted name: -s optim.lr=1e-3.",
        rich_help_panel=SETTINGS,
    ),
]
SeedOption = Annotated[int | None, typer.Option("--seed", min=0, help="Determines everything random.")]
TasksOption = Annotated[int | None, typer.Option("--tasks", min=1, help="How many tasks.")]
_SPLIT = typer.Option("--split", help="Which tasks: train, held_out or another split (ale env show).")
SplitOption = Annotated[str, _SPLIT]
FromOption = Annotated[
    str | None,
    typer.Option(
        "--from",
        metavar="RUN",
        help="Begin with this run's model, in its environment, with its experts.",
        rich_help_panel=START,
        autocompletion=completion.runs,
    ),
]
ModelOption = Annotated[
    str | None,
    typer.Option(
        "--model",
        help="tiny, coder, a folder a run exported, or a Hugging Face model.",
        autocompletion=completion.models,
    ),
]
AgentOption = Annotated[
    str | None,
    typer.Option(
        "--agent",
        metavar="NAME|FILE.yaml",
        help="A CLI agent (ale agent list) that works in the environment's sandbox, with the model behind it.",
        rich_help_panel=START,
        autocompletion=completion.agents,
    ),
]
ConfigOption = Annotated[
    Path | None,
    typer.Option("--config", help="A TOML file, such as a run's own.", rich_help_panel=SETTINGS),
]
RunOption = Annotated[
    str | None,
    typer.Option("--run", metavar="NAME|FOLDER", help="Where it is kept.", autocompletion=completion.runs),
]
ResumeOption = Annotated[bool, typer.Option("--resume", help="Continue the run from its checkpoint.")]
RayOption = Annotated[str | None, typer.Option("--ray-address", help="A Ray cluster.", rich_help_panel=PLACE)]
QuietOption = Annotated[
    bool, typer.Option("--quiet", "-q", help="Print the result only.", rich_help_panel=PLACE)
]
DryRunOption = Annotated[
    bool,
    typer.Option("--dry-run", help="Print the resolved settings, then stop.", rich_help_panel=SETTINGS),
]


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


@app.command()
def debug(
    what: Annotated[
        str,
        typer.Argument(
            metavar="ENV/SPLIT/INDEX|RECORDS",
            help="A task, played by the environment's reference policy; or with --id a recorded rollout's place.",
        ),
    ],
    *,
    identity: Annotated[
        str | None,
        typer.Option(
            "--id", metavar="ID", help="Send this rollout's actions, of the records of a run, folder or file."
        ),
    ] = None,
    turn: Annotated[
        int | None, typer.Option("--turn", min=0, help="Stop where the environment takes this turn's action.")
    ] = None,
    env_args: EnvArgs = None,
    seed: Annotated[int, typer.Option("--seed", min=0, help="Of the environment's reset.")] = 0,
    backend: BackendOption = None,
) -> None:
    """Play one rollout in this process, with Python's debugger where the environment or its grader raises."""
    from ale.config import parse_overrides
    from ale.replay.debugging import DebugCommand, debug_command

    debug_command(
        DebugCommand(
            what,
            is_record=identity is not None,
            identity=identity,
            env_args=parse_overrides(env_args or []),
            seed=seed,
            turn=turn,
            backends=backend or (),
        )
    )


@app.command()
def train(
    *,
    env: EnvOption = None,
    algo: AlgoOption = None,
    model: ModelOption = None,
    steps: Annotated[int | None, typer.Option("--steps", min=0, help="RL steps after the warm-up.")] = None,
    seed: SeedOption = None,
    run: RunOption = None,
    resume: ResumeOption = False,
    agent: AgentOption = None,
    begin_from: FromOption = None,
    env_args: EnvArgs = None,
    overrides: SetOptions = None,
    config: ConfigOption = None,
    rock: RockOption = "",
    ray_address: RayOption = None,
    quiet: QuietOption = False,
    dry_run: DryRunOption = False,
) -> None:
    """Train a model in an environment, as an agent of ours or behind a CLI agent: ale train --env swe --agent qwen-code.

    A CLI agent must be installed (ale agent install NAME) and needs a model that chats, such as an instruct model of Hugging
    Face. It works in the environment's own sandbox, and the environment grades what it left.
    """
    with held():
        from ale.training.training import TrainCommand, train_command

    named = {"env": env, "algo": algo, "model": model, "seed": seed, "steps": steps, "agent": _agent(agent)}
    _end(
        train_command(
            TrainCommand(
                named=named,
                overrides=[*_env_overrides(env_args), *_rock_override(rock), *(overrides or [])],
                file=config,
                run=run,
                resume=resume,
                ray_address=ray_address,
                quiet=quiet,
                dry_run=dry_run,
                begin_from=begin_from,
            )
        )
    )


@app.command()
def sft(
    *,
    env: EnvOption = None,
    model: ModelOption = None,
    begin_from: FromOption = None,
    experts: Annotated[
        int | None, typer.Option("--experts", min=1, help="Oracle trajectories to record.")
    ] = None,
    data: Annotated[
        list[str] | None,
        typer.Option("--data", metavar="RUN|FOLDER|FILE", help="Recorded trajectories instead (repeatable)."),
    ] = None,
    epochs: Annotated[int | None, typer.Option("--epochs", min=0, help="Passes over them.")] = None,
    held_out: Annotated[
        float | None, typer.Option("--held-out", help="Share of the experts to measure by, not to imitate.")
    ] = None,
    seed: SeedOption = None,
    env_args: EnvArgs = None,
    overrides: SetOptions = None,
    config: ConfigOption = None,
    run: RunOption = None,
    resume: ResumeOption = False,
    ray_address: RayOption = None,
    quiet: QuietOption = False,
    dry_run: DryRunOption = False,
) -> None:
    """Imitate successful expert trajectories (supervised fine-tuning); `ale train --from` goes on from there."""
    with held():
        from ale.training.training import TrainCommand, sft_overrides, train_command

    chosen = sft_overrides(experts=experts, data=data or [], held_out=held_out)
    _end(
        train_command(
            TrainCommand(
                named={"env": env, "algo": "bc", "model": model, "seed": seed, "steps": epochs},
                overrides=[*_env_overrides(env_args), *chosen, *(overrides or [])],
                file=config,
                run=run,
                resume=resume,
                ray_address=ray_address,
                quiet=quiet,
                dry_run=dry_run,
                begin_from=begin_from,
                imitation=True,
            )
        )
    )


@app.command()
def lineage(
    run: Annotated[
        str,
        typer.Argument(metavar="RUN", help="A run, by name or folder.", autocompletion=completion.runs),
    ],
) -> None:
    """Show the chain of runs behind a model, and check that their files still agree."""
    from ale.training.lineage import lineage_command

    lineage_command(run)


@app.command("eval")
def evaluate(
    *,
    model: Annotated[
        str,
        typer.Argument(
            metavar="RUN|MODEL", help="A run, a model's folder or its id.", autocompletion=completion.runs
        ),
    ],
    env: EnvOption = None,
    agent: AgentOption = None,
    env_args: EnvArgs = None,
    tasks: TasksOption = None,
    split: Annotated[str | None, _SPLIT] = None,
    temperature: Annotated[float | None, typer.Option("--temperature", min=0.0, help="0 is greedy.")] = None,
    samples: Annotated[
        int | None,
        typer.Option("--samples", min=0, help="Episodes of each task sampled beside that, for pass@k."),
    ] = None,
    seed: SeedOption = None,
    overrides: SetOptions = None,
    ray_address: RayOption = None,
) -> None:
    """Measure a trained model on tasks, from their true start."""
    with held():
        from ale.training.evaluating import EvalCommand, eval_command

    chosen = {
        "eval.tasks": tasks,
        "eval.split": split,
        "eval.temperature": temperature,
        "eval.samples": samples,
    }
    settings = [f"{name}={value}" for name, value in chosen.items() if value is not None]
    eval_command(
        EvalCommand(
            model=model,
            named={"env": env, "seed": seed, "agent": _agent(agent)},
            overrides=[*_env_overrides(env_args), *settings, *(overrides or [])],
            ray_address=ray_address,
        )
    )


@app.command()
def rollout(
    *,
    env: Annotated[
        str,
        typer.Option("--env", help="An environment (ale env list).", autocompletion=completion.environments),
    ],
    policy: Annotated[
        str, typer.Option("--policy", metavar="oracle|random|RUN", help="Who plays.")
    ] = "oracle",
    agent: AgentOption = None,
    episodes: Annotated[int, typer.Option("--episodes", "-n", min=1)] = 8,
    env_args: EnvArgs = None,
    split: SplitOption = "train",
    seed: SeedOption = 0,
    out: Annotated[Path | None, typer.Option("--out", help="Keep the trajectories in this folder.")] = None,
    rock: RockOption = "",
    backend: BackendOption = None,
    freeze: FreezeOption = 0,
) -> None:
    """Play episodes and say how they went."""
    with held():
        from ale.training.rollouts import RolloutCommand, rollout_command

    rollout_command(
        RolloutCommand(
            env=env,
            env_args=_pairs(env_args),
            policy=policy,
            agent=_agent(agent),
            episodes=episodes,
            split=split,
            seed=seed or 0,
            out=out,
            rock=rock,
            backends=backend or (),
            freeze=freeze,
        )
    )


@app.command()
def doctor() -> None:
    """Check that this machine can run everything, and say what to do where it cannot."""
    from ale.doctor import doctor_command

    _end(doctor_command())


def main() -> None:
    """Run the command line and exit with its code."""
    if not os.environ.get("ALE_DEBUG"):
        os.environ.setdefault("GRPC_VERBOSITY", "NONE")  # it logs what we say in a line; read at its import
    os.environ.setdefault("RAY_DEDUP_LOGS_SKIP_REGEX", RAYS_OWN_WORDS)  # read when Ray is imported
    sigterm_is_ctrl_c()
    show_visibly()
    try:
        _check_words(sys.argv[1:])
        app(prog_name="ale")  # also of `python -m ale`: completion goes by it
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


def _end(code: int) -> None:
    if code:
        raise typer.Exit(code)


def _env_overrides(env_args: list[str] | None) -> list[str]:
    return [f"env_args.{text}" for text in env_args or []]


def _rock_override(rock: str) -> list[str]:
    return [f"rollout.rock_address={json.dumps(rock)}"] if rock else []


def _agent(name: str | None) -> dict[str, str] | None:
    """Return the setting; a file's path is made whole, since a run may be continued from elsewhere."""
    if name is None:
        return None
    return {"name": str(Path(name).resolve()) if name.endswith((".yaml", ".yml")) else name}


def _pairs(env_args: list[str] | None) -> dict[str, object]:
    from ale.config import parse_overrides

    return parse_overrides(env_args or [])
