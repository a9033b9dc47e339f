"""`ale train`, `advise`, `sft`, `lineage`, `eval`, `rollout` and `simulate`: what the user types, as one call each.

Imported when one of them is asked for; torch and Ray come when it runs.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from agent_runtime.agents.spec import agent_names
from ale import completion
from ale.config import parse_overrides
from ale.options import PLACE, SETTINGS, BackendOption, EnvArgs, FreezeOption, RockOption
from ale.terminal import WideOption
from ale.training.lineage import lineage_command
from ale.training.rollouts import RolloutCommand, rollout_command
from ale.training.training import TrainCommand, sft_overrides, train_command
from ale.waiting import LIBRARIES, waiting_for
from trainer.signals import held

__all__ = ["advise", "evaluate", "lineage", "rollout", "sft", "simulate", "train"]


def _agents(incomplete: str) -> list[str]:
    return completion.beginning(incomplete, agent_names())


# `--help` groups options in panels: those without one, the everyday ones, come first.
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
        metavar="RUN|s3://BUCKET/PREFIX",
        help="Begin with this run's model, in its environment, with its experts; to --resume, fetch the run's copies.",
        rich_help_panel=START,
        autocompletion=completion.runs,
    ),
]
ModelOption = Annotated[
    str | None,
    typer.Option(
        "--model",
        help="tiny, coder, a folder a run exported, a name of ale model list, or a Hugging Face model.",
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
        autocompletion=_agents,
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
NotifyOption = Annotated[
    str | None,
    typer.Option(
        "--notify",
        metavar="COMMAND|URL",
        envvar="ALE_NOTIFY",
        help="Told of faults, recoveries, a halt and the end: a command, or a webhook.",
        rich_help_panel=PLACE,
    ),
]
NotifyWhenOption = Annotated[
    list[str] | None,
    typer.Option(
        "--notify-when",
        metavar="METRIC<NUMBER",
        help="And of a metric that comes beyond a bound, < or >: 'success<0.2'.",
        rich_help_panel=PLACE,
    ),
]

ObserveOption = Annotated[
    list[str] | None,
    typer.Option(
        "--observe",
        metavar="NAME",
        envvar="ALE_OBSERVE",
        help="Told every record of metrics: wandb, trackio, mlflow, or one of yours (docs/observers.md).",
        rich_help_panel=PLACE,
        autocompletion=completion.observers,
    ),
]


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
    notify: NotifyOption = None,
    notify_when: NotifyWhenOption = None,
    observe: ObserveOption = None,
    console: Annotated[
        bool,
        typer.Option(
            "--console",
            help="Open the console on the run, at port 8399 of this machine.",
            rich_help_panel=PLACE,
        ),
    ] = False,
) -> None:
    """Train a model in an environment, as an agent of ours or behind a CLI agent: ale train --env swe --agent qwen-code.

    A CLI agent must be installed (ale agent install NAME) and needs a model that chats, such as an instruct model of Hugging
    Face. It works in the environment's own sandbox, and the environment grades what it left.
    """
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
                notify=notify,
                notify_when=notify_when or (),
                observe=observe or (),
                console=console,
            )
        )
    )


def advise(
    *,
    model: Annotated[
        str,
        typer.Option(
            "--model",
            help="A known Hugging Face model, a name of ale model list, or a folder with config.json.",
            autocompletion=completion.models,
        ),
    ],
    gpu: Annotated[
        int,
        typer.Option(
            "--gpu", min=0, max=10_000, metavar="GB", help="Memory of a GPU; 0: the processor alone."
        ),
    ],
    gpus: Annotated[int, typer.Option("--gpus", min=1, max=64, help="How many of them, in one machine.")] = 1,
    env: EnvOption = None,
) -> None:
    """Say what to train a model with on your GPUs, what that takes of their memory, and how fast it may be."""
    with waiting_for(LIBRARIES), held():
        from ale.training.advising import advise_command  # brings torch

    advise_command(model, gpu, gpus, env)


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


def lineage(
    run: Annotated[
        str,
        typer.Argument(metavar="RUN", help="A run, by name or folder.", autocompletion=completion.runs),
    ],
    _wide: WideOption = False,
) -> None:
    """Show the chain of runs behind a model, and check that their files still agree."""
    lineage_command(run)


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
    with waiting_for(LIBRARIES), held():
        from ale.training.evaluating import EvalCommand, eval_command  # brings torch and Ray

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
    _wide: WideOption = False,
) -> None:
    """Play episodes and say how they went."""
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


def simulate(
    *,
    config: ConfigOption = None,
    fleet: Annotated[
        Path | None,
        typer.Option("--fleet", metavar="FILE.toml", help="What everything takes (docs/simulate.md)."),
    ] = None,
    begin_from: Annotated[
        str | None,
        typer.Option(
            "--from",
            metavar="RUN",
            help="Take settings and times from this run's records instead.",
            autocompletion=completion.runs,
        ),
    ] = None,
    lag: Annotated[
        int | None,
        typer.Option(
            "--lag",
            min=0,
            metavar="N",
            help="Beside the settings, say what rollout.mode=stream with this rollout.staleness would take.",
        ),
    ] = None,
    overrides: SetOptions = None,
    as_json: Annotated[bool, typer.Option("--json", help="For programs: JSON on standard output.")] = False,
) -> None:
    """Say how long a run's steps would take, who would stand still and what would bound it, without running it."""
    with waiting_for(LIBRARIES), held():
        from ale.training.simulating import SimulateCommand, simulate_command  # brings torch

    simulate_command(
        SimulateCommand(
            file=config, fleet=fleet, run=begin_from, lag=lag, overrides=overrides or [], as_json=as_json
        )
    )


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
    return parse_overrides(env_args or [])
