"""The `ale` command: parse, call one function, turn errors into one line and an exit code.

Entry point `ale.cli:main`. Nothing heavy is imported here, nor by `--help`: each command imports its own module, which
may bring torch and Ray. `ALE_DEBUG=1` (or `ale --debug ...`) shows tracebacks.
"""

from __future__ import annotations

import errno
import logging
import os
import sys
from pathlib import Path
from typing import Annotated

import typer

from agent_runtime.errors import StoreError
from ale.errors import AleError
from ale.rock_cli import rock_app
from rock_env.errors import RockError
from trainer.errors import TrainerError

__all__ = ["app", "main"]

EXPECTED = (AleError, RockError, StoreError, TrainerError)
"""What the packages raise on purpose: one line for the user, no traceback."""

DISK_ERRORS = {
    errno.ENOSPC: "Free some space; a training run continues with --resume.",
    errno.EDQUOT: "Free some space; a training run continues with --resume.",
    errno.EACCES: "Choose a place you may write to (--run, --out).",
    errno.EPERM: "Choose a place you may write to (--run, --out).",
    errno.EROFS: "Choose a place you may write to (--run, --out).",
}
EXIT_IO = 74  # EX_IOERR of sysexits.h, as all exit codes here
RAYS_OWN_WORDS = "A worker died or was killed"
"""Ray prints a paragraph of its own for what we say in a line."""

app = typer.Typer(no_args_is_help=True, pretty_exceptions_enable=False, add_completion=False)
env_app = typer.Typer(no_args_is_help=True, help="Look at environments, and play them yourself.")
replay_app = typer.Typer(no_args_is_help=True, help="Look at recorded trajectories, and run them again.")
app.add_typer(env_app, name="env")
app.add_typer(replay_app, name="replay")
app.add_typer(rock_app, name="rock")

EnvOption = Annotated[str | None, typer.Option("--env", help="An installed environment (ale env list).")]
EnvArgs = Annotated[
    list[str] | None,
    typer.Option("--env-arg", metavar="KEY=VALUE", help="An argument of the environment (ale env show)."),
]
SetOptions = Annotated[
    list[str] | None,
    typer.Option("--set", "-s", metavar="KEY=VALUE", help="Any option by its dotted name: -s optim.lr=1e-3."),
]
SeedOption = Annotated[int | None, typer.Option("--seed", min=0, help="Determines everything random.")]
TasksOption = Annotated[int | None, typer.Option("--tasks", min=1, help="How many tasks.")]
SplitOption = Annotated[str, typer.Option("--split", help="Which tasks: train or held_out.")]
RockOption = Annotated[
    str, typer.Option("--rock", metavar="ADDRESS", help="A running ROCK server; none starts an embedded one.")
]


@app.callback()
def _root(
    debug: Annotated[bool, typer.Option("--debug", help="Show tracebacks.")] = False,
) -> None:
    """Train LLM agents by reinforcement learning in real environments."""
    if debug:
        os.environ["ALE_DEBUG"] = "1"
    # What goes wrong is said once, by `main`; logs that say it too are for who asks for them.
    level = logging.INFO if os.environ.get("ALE_DEBUG") else logging.ERROR
    logging.basicConfig(level=level, format="%(levelname)s %(name)s %(message)s")


@app.command()
def train(
    *,
    env: EnvOption = None,
    algo: Annotated[str | None, typer.Option("--algo", help="An installed algorithm.")] = None,
    model: Annotated[
        str | None, typer.Option("--model", help="tiny, a folder a run exported, or a Hugging Face model.")
    ] = None,
    seed: SeedOption = None,
    steps: Annotated[int | None, typer.Option("--steps", min=0, help="RL steps after the warm-up.")] = None,
    env_args: EnvArgs = None,
    overrides: SetOptions = None,
    config: Annotated[Path | None, typer.Option("--config", help="A TOML file, such as a run's own.")] = None,
    run: Annotated[str | None, typer.Option("--run", metavar="NAME|FOLDER", help="Where it is kept.")] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Continue the run from its checkpoint.")] = False,
    ray_address: Annotated[str | None, typer.Option("--ray-address", help="A Ray cluster.")] = None,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Print the result only.")] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print the resolved settings, then stop.")
    ] = False,
) -> None:
    """Train a model in an environment."""
    from ale.training import TrainCommand, train_command

    named = {"env": env, "algo": algo, "model": model, "seed": seed, "steps": steps}
    _end(
        train_command(
            TrainCommand(
                named=named,
                overrides=[*_env_overrides(env_args), *(overrides or [])],
                file=config,
                run=run,
                resume=resume,
                ray_address=ray_address,
                quiet=quiet,
                dry_run=dry_run,
            )
        )
    )


@app.command("eval")
def evaluate(
    *,
    model: Annotated[str, typer.Argument(metavar="RUN|MODEL", help="A run, a model's folder or its id.")],
    env: EnvOption = None,
    env_args: EnvArgs = None,
    tasks: TasksOption = None,
    split: Annotated[str | None, typer.Option("--split", help="Which tasks: train or held_out.")] = None,
    temperature: Annotated[float | None, typer.Option("--temperature", min=0.0, help="0 is greedy.")] = None,
    seed: SeedOption = None,
    overrides: SetOptions = None,
    ray_address: Annotated[str | None, typer.Option("--ray-address", help="A Ray cluster.")] = None,
) -> None:
    """Measure a trained model on tasks, from their true start."""
    from ale.evaluating import EvalCommand, eval_command

    chosen = {"eval.tasks": tasks, "eval.split": split, "eval.temperature": temperature}
    settings = [f"{name}={value}" for name, value in chosen.items() if value is not None]
    eval_command(
        EvalCommand(
            model=model,
            named={"env": env, "seed": seed},
            overrides=[*_env_overrides(env_args), *settings, *(overrides or [])],
            ray_address=ray_address,
        )
    )


@app.command()
def rollout(
    *,
    env: Annotated[str, typer.Option("--env", help="An installed environment (ale env list).")],
    policy: Annotated[
        str, typer.Option("--policy", metavar="oracle|random|RUN", help="Who plays.")
    ] = "oracle",
    episodes: Annotated[int, typer.Option("--episodes", "-n", min=1)] = 8,
    env_args: EnvArgs = None,
    split: SplitOption = "train",
    seed: SeedOption = 0,
    out: Annotated[Path | None, typer.Option("--out", help="Keep the trajectories in this folder.")] = None,
    rock: RockOption = "",
) -> None:
    """Play episodes and say how they went."""
    from ale.rollouts import RolloutCommand, rollout_command

    rollout_command(
        RolloutCommand(
            env=env,
            env_args=_pairs(env_args),
            policy=policy,
            episodes=episodes,
            split=split,
            seed=seed or 0,
            out=out,
            rock=rock,
        )
    )


@app.command()
def doctor() -> None:
    """Check that this machine can run everything, and say what to do where it cannot."""
    from ale.doctor import doctor_command

    _end(doctor_command())


@env_app.command("list")
def env_list() -> None:
    """List the installed environments."""
    from ale.environments import list_command

    list_command()


@env_app.command("show")
def env_show(name: Annotated[str, typer.Argument(metavar="NAME")]) -> None:
    """Show an environment: what it is and which arguments it takes."""
    from ale.environments import show_command

    show_command(name)


@env_app.command("play")
def env_play(
    *,
    name: Annotated[str, typer.Argument(metavar="NAME")],
    env_args: EnvArgs = None,
    task: Annotated[str, typer.Option("--task", metavar="SPLIT/INDEX", help="Which task.")] = "train/0",
    seed: SeedOption = 0,
    rock: RockOption = "",
) -> None:
    """Play an environment yourself: one action per line, an empty line sends the text so far."""
    from ale.play import play_command

    play_command(name, _pairs(env_args), task=task, seed=seed or 0, rock=rock)


@replay_app.command("list")
def replay_list(
    where: Annotated[str, typer.Argument(metavar="RUN|FOLDER|FILE")],
    failed: Annotated[bool, typer.Option("--failed", help="Only rollouts that failed to run.")] = False,
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, help="Most lines.")] = 50,
) -> None:
    """List the trajectories of a run."""
    from ale.replay.listing import list_command

    list_command(where, failed=failed, limit=limit)


@replay_app.command("show")
def replay_show(
    where: Annotated[str, typer.Argument(metavar="RUN|FOLDER|FILE")],
    trajectory: Annotated[str | None, typer.Argument(metavar="ID", help="None shows the first.")] = None,
    tokens: Annotated[bool, typer.Option("--tokens", help="Token ids and log-probabilities too.")] = False,
) -> None:
    """Show a trajectory turn by turn."""
    from ale.replay.showing import show_command

    show_command(where, trajectory, tokens=tokens)


@replay_app.command("run")
def replay_run(
    where: Annotated[str, typer.Argument(metavar="RUN|FOLDER|FILE")],
    trajectory: Annotated[str | None, typer.Argument(metavar="ID", help="None runs the first.")] = None,
    every: Annotated[bool, typer.Option("--all", help="Run all of them.")] = False,
    rock: RockOption = "",
) -> None:
    """Run recorded actions again and compare every observation; exit code 1 where one differs."""
    from ale.replay.executing import run_command

    run_command(where, trajectory, every=every, rock=rock)


def main() -> None:
    """Run the command line and exit with its code."""
    if not os.environ.get("ALE_DEBUG"):
        os.environ.setdefault("GRPC_VERBOSITY", "NONE")  # it logs what we say in a line; read at its import
    os.environ.setdefault("RAY_DEDUP_LOGS_SKIP_REGEX", RAYS_OWN_WORDS)  # read when Ray is imported
    try:
        app()
    except Exception as error:
        message, code = _explain(error)
        if not message or os.environ.get("ALE_DEBUG"):
            raise
        print(f"ale: {message}", file=sys.stderr)  # noqa: T201
        sys.exit(code)


def _explain(error: BaseException) -> tuple[str, int]:
    """Return the one line and the exit code for an expected error; an empty line for a bug."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    if isinstance(error, EXPECTED):
        return " ".join(str(error).split()), error.exit_code
    if isinstance(error, OSError) and error.errno in DISK_ERRORS:
        where = f" {error.filename}" if error.filename else ""
        return f"cannot write{where}: {error.strerror}. {DISK_ERRORS[error.errno]}", EXIT_IO
    return "", 1


def _end(code: int) -> None:
    if code:
        raise typer.Exit(code)


def _env_overrides(env_args: list[str] | None) -> list[str]:
    return [f"env_args.{text}" for text in env_args or []]


def _pairs(env_args: list[str] | None) -> dict[str, object]:
    from ale.config import parse_overrides

    return parse_overrides(env_args or [])
