"""`ale agent`: CLI agents of others, from the list of them to one that works in a sandbox.

Added to the command line by `ale/cli.py`. Nothing heavy is imported before a command runs.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

__all__ = ["agent_app"]

agent_app = typer.Typer(
    no_args_is_help=True, help="CLI agents of others: look at them, install them, run one."
)

AgentArgument = Annotated[str, typer.Argument(metavar="NAME|FILE.yaml", help="As ale agent list shows it.")]
ShelfOption = Annotated[
    Path | None,
    typer.Option(
        "--shelf", metavar="DIR", help="Where agents are installed; default: ALE_AGENTS, or the user's cache."
    ),
]
JsonOption = Annotated[bool, typer.Option("--json", help="For programs: JSON on standard output.")]


@agent_app.command("list")
def agent_list(*, shelf: ShelfOption = None, as_json: JsonOption = False) -> None:
    """List the agents: what they speak, where they come from, which are installed."""
    from ale.agent.agents import list_command

    list_command(shelf, as_json=as_json)


@agent_app.command("show")
def agent_show(name: AgentArgument, *, shelf: ShelfOption = None) -> None:
    """Show how an agent is installed and started, and what it says about its requests."""
    from ale.agent.agents import show_command

    show_command(name, shelf)


@agent_app.command("install")
def agent_install(
    names: Annotated[list[str], typer.Argument(metavar="NAME|FILE.yaml...", help="Agents, or `all`.")],
    *,
    shelf: ShelfOption = None,
) -> None:
    """Install agents, each once; what is there already is left alone. Sandboxes see them with `ale rock serve --shelf`.

    With `all`, an agent that cannot be had is reported, and the exit code is 0.
    """
    from ale.agent.agents import install_command

    install_command(names, shelf)


@agent_app.command("run")
def agent_run(
    name: AgentArgument,
    prompt: Annotated[str, typer.Argument(metavar="PROMPT", help="What the agent is told.")],
    *,
    url: Annotated[
        str,
        typer.Option(
            "--url", metavar="HTTP://HOST:PORT", help="A model server that speaks the agent's dialect."
        ),
    ],
    key: Annotated[str, typer.Option("--key", envvar="ALE_AGENT_KEY", help="For that server.")] = "none",
    model: Annotated[str, typer.Option("--model", help="As that server calls it.")] = "policy",
    folder: Annotated[
        Path | None,
        typer.Option("--folder", metavar="DIR", help="Copied into the sandbox; the agent works there."),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option("--out", metavar="DIR", help="Copy the agent's working folder here afterwards."),
    ] = None,
    time_limit_s: Annotated[float, typer.Option("--time-limit-s", min=1.0)] = 600.0,
    context_tokens: Annotated[
        int, typer.Option("--context-tokens", min=1, help="The model's context, as the agent is told.")
    ] = 32768,
    output_tokens: Annotated[
        int, typer.Option("--output-tokens", min=1, help="The longest answer, as the agent is told.")
    ] = 4096,
    image: Annotated[str, typer.Option("--image", help="Of the sandbox; none is a process sandbox.")] = "",
    shelf: ShelfOption = None,
    rock: Annotated[
        str, typer.Option("--rock", metavar="ADDRESS", help="A ROCK server with a shelf; none starts one.")
    ] = "",
) -> None:
    """Let an agent work in a sandbox that reaches one model server and nothing else; print the end of its output."""
    from ale.agent.agents import RunCommand, run_command

    run_command(
        RunCommand(
            name=name,
            prompt=prompt,
            url=url,
            key=key,
            model=model,
            folder=folder,
            out=out,
            time_limit_s=time_limit_s,
            context_tokens=context_tokens,
            output_tokens=output_tokens,
            image=image,
            shelf=shelf,
            rock=rock,
        )
    )
