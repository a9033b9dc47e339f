"""`ale agent list`, `show`, `install` and `run`.

What an agent is, is in `agent_runtime.agents`.
"""

from __future__ import annotations

import asyncio
import json
import sys
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated
from urllib.parse import urlsplit

import typer

from agent_runtime.agents.cli_run import AgentEnd, AgentRun, Ending, box_python, run_agent
from agent_runtime.agents.install import default_shelf, find_installed, install_agent
from agent_runtime.agents.spec import AgentSpec, agent_names, load_agent
from ale.errors import AgentFailed
from ale.terminal import WideOption, print_table, stdout
from ale.waiting import awaited, waiting_for
from rock_env.client import Client
from rock_env.errors import InvalidArgument, Unimplemented
from rock_env.local import embedded
from rock_env.spec import Resources, SandboxSpec

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

_ROOM = Resources(cpus=2.0, memory_bytes=3 << 30, disk_bytes=2 << 30, pids=512)
"""What agents need at most: one of Node or Bun keeps a few hundred MB, and has dozens of threads."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunCommand:
    """What `ale agent run` was told."""

    name: str
    prompt: str
    url: str
    key: str
    model: str
    folder: Path | None
    out: Path | None
    time_limit_s: float
    context_tokens: int
    output_tokens: int
    image: str
    shelf: Path | None
    rock: str


@agent_app.command("list")
def list_command(
    *, shelf: ShelfOption = None, as_json: JsonOption = False, _wide: WideOption = False
) -> None:
    """List the agents: what they speak, where they come from, which are installed."""
    shelf = shelf or default_shelf()
    specs = [load_agent(name) for name in agent_names()]
    if as_json:
        told = [
            {**spec.model_dump(mode="json"), "installed": _state(spec, shelf) == "installed"}
            for spec in specs
        ]
        sys.stdout.write(f"{json.dumps(told, indent=1)}\n")
        return
    rows = [
        (
            spec.name,
            spec.version,
            spec.dialect,
            "npm" if spec.install.npm else "pip",
            _state(spec, shelf),
            spec.about,
        )
        for spec in specs
    ]
    heads = ("name", "version", "dialect", "from", "here", "what it is")
    print_table(heads, rows, least=("from", "dialect", "version"))


@agent_app.command("show")
def show_command(name: AgentArgument, *, shelf: ShelfOption = None) -> None:
    """Show how an agent is installed and started, and what it says about its requests."""
    spec, shelf = load_agent(name), shelf or default_shelf()
    out = stdout()
    out.print(f"{spec.name} {spec.version}: {spec.about}\n")
    root = str(find_installed(spec, shelf) or shelf / spec.folder)
    node = [f"node {spec.install.node}"] if spec.install.node else []
    rows = [
        ("dialect", spec.dialect),
        ("packages", ", ".join((*spec.install.packages, *node))),
        (
            "installed",
            spec.unavailable
            or (root if find_installed(spec, shelf) else f"no: ale agent install {spec.name}"),
        ),
        ("command", " ".join(spec.argv({"root": root, "prompt": "PROMPT"}))),
        ("stdin", spec.stdin),
        ("shell tool", spec.shell_tool or "none"),
        *((f"env {key}", value) for key, value in spec.env.items()),
        *((f"file {path}", f"{len(content)} characters") for path, content in spec.files.items()),
        *((f"marks {mark.kind}", mark.words) for mark in spec.marks),
    ]
    print_table(("what", "value"), rows)


@agent_app.command("install")
def install_command(
    names: Annotated[list[str], typer.Argument(metavar="NAME|FILE.yaml...", help="Agents, or `all`.")],
    *,
    shelf: ShelfOption = None,
) -> None:
    """Install agents, each once; what is there already is left alone. Sandboxes see them with `ale rock serve --shelf`.

    With `all`, an agent that cannot be had is reported, and the exit code is 0.
    """
    shelf, every = shelf or default_shelf(), list(names) == ["all"]
    for name in agent_names() if every else names:
        try:
            folder = _install(load_agent(name), shelf)
        except Unimplemented as error:
            if not every:
                raise
            stdout().print(f"{name}: not installed: {error}")
        else:
            stdout().print(f"{name}: {folder}")


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


def run_command(command: RunCommand) -> None:
    """Run an agent and print how it ended. Raise `AgentFailed` where it did not end well by itself, or `RockError`."""
    end = awaited(
        _run(command), lambda: f"{command.name}, which works for at most {command.time_limit_s:g} s"
    )
    stdout().print(end.output.decode(errors="replace").rstrip())
    how = f"signal {end.signal}" if end.signal is not None else f"exit code {end.exit_code}"
    left = f"; {end.leftovers} processes left behind were ended" if end.leftovers else ""
    said = f"{end.ending} ({how}) after {end.duration_s:.1f} s{left}"
    if end.ending is not Ending.EXITED or end.exit_code:
        raise AgentFailed(
            f"the agent {command.name} failed: {said}. The end of its output is above; a longer --time-limit-s, another "
            "--model or --url are what it may lack."
        )
    sys.stderr.write(f"{command.name}: {said}\n")


async def _run(command: RunCommand) -> AgentEnd:
    spec, target = load_agent(command.name), _target(command.url)
    if command.output_tokens >= command.context_tokens:
        raise InvalidArgument(
            f"answers of {command.output_tokens} tokens leave no room for a prompt in {command.context_tokens}: "
            "lower --output-tokens or raise --context-tokens"
        )
    shelf = (command.shelf or default_shelf()).absolute()
    async with AsyncExitStack() as stack:
        address = command.rock
        if not address:
            await asyncio.to_thread(_install, spec, shelf)
            address = await stack.enter_async_context(embedded([f"--shelf={shelf}"]))
        client = await stack.enter_async_context(Client(address))
        lifetime_s = command.time_limit_s + 600.0
        box_spec = SandboxSpec(image=command.image, resources=_ROOM, lifetime_s=lifetime_s)
        box = await stack.enter_async_context(await client.sandboxes.create(spec=box_spec))
        if command.folder is not None:
            await box.files.upload(command.folder)
        run = AgentRun(
            command.prompt,
            command.key,
            command.model,
            time_limit_s=command.time_limit_s,
            context_tokens=command.context_tokens,
            output_tokens=command.output_tokens,
        )
        end = await run_agent(box, spec, run, gateway=target, python=box_python(command.image))
        if command.out is not None:
            await box.files.download(".", command.out)
        return end


def _install(spec: AgentSpec, shelf: Path) -> Path:
    """Install an agent, and say how far that is. Raise as `install_agent` does."""
    if not spec.unavailable and find_installed(spec, shelf) is None:
        packages = ", ".join(spec.install.packages)
        source = "npm" if spec.install.npm else "pip"
        sys.stderr.write(
            f"{spec.name} is not installed: {source} fetches {packages} into {shelf / spec.folder} now, once.\n"
        )
        sys.stderr.flush()
    state = [spec.name]
    with waiting_for(lambda: state[-1]):
        return install_agent(spec, shelf, state.append)


def _state(spec: AgentSpec, shelf: Path) -> str:
    if spec.unavailable:
        return "not to be had"
    return "installed" if find_installed(spec, shelf) else "-"


def _target(url: str) -> tuple[str, int]:
    try:
        parts = urlsplit(url)
        port = 80 if parts.port is None else parts.port
    except ValueError as error:  # its brackets or its port
        raise InvalidArgument(f"--url must be http://HOST:PORT, got {url!r}: {error}") from error
    if port == 0:
        raise InvalidArgument(f"--url must be http://HOST:PORT with a port from 1 to 65535, got {url!r}")
    if parts.scheme != "http" or not parts.hostname or parts.path.strip("/"):
        raise InvalidArgument(
            f"--url must be http://HOST:PORT without a path, got {url!r}: the sandbox reaches exactly that address"
        )
    return parts.hostname, port
