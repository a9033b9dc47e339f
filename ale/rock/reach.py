"""The command line's way to ROCK: a server named by its address, or an embedded one for the time of the block."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Annotated

import typer

from ale.terminal import stdout
from ale.waiting import awaited, waiting_for
from rock_env import plugins
from rock_env.backends.plugin import choose_backends
from rock_env.client import Client
from rock_env.client.installations import address_in_use
from rock_env.errors import InvalidArgument
from rock_env.local import embedded

__all__ = ["ADDRESS_IN_USE", "ServerOption", "connected", "server_in_use", "step_round_trip"]

ADDRESS_IN_USE = ""
"""What `server_in_use` turns into a server."""


def server_in_use(given: str) -> str:
    """Return the server that is named, else that of the context in use, else this machine's."""
    if given:
        return given
    return address_in_use()


ServerOption = Annotated[
    str,
    typer.Option(
        "--rock",
        metavar="ADDRESS|CONTEXT",
        envvar="ROCK_ADDRESS",
        help="The server, as it printed it.",
        show_default="the context in use, or 127.0.0.1:8120",
        callback=server_in_use,
    ),
]


@asynccontextmanager
async def connected(address: str = "", backends: Sequence[str] = ()) -> AsyncIterator[Client]:
    """Yield a client of the server at `address`, or of an embedded one on these backends if it is empty.

    Raise `InvalidArgument` for both, and `RockError`.
    """
    if address and backends:
        raise InvalidArgument(
            f"--backend {', '.join(backends)} would do nothing: the server at {address} chose its own. Leave one of "
            "--backend and --rock out."
        )
    if address:
        async with Client(address) as client:
            yield client
    else:
        choose_backends(backends)
        options = [f"--backend={name}" for name in backends]
        async with AsyncExitStack() as stack:
            for group, name in plugins.own():
                if group == "ale.envs":
                    from trainer.rollout.own import own_env  # brings what only training installs

                    options += stack.enter_context(own_env(name))
            with waiting_for("a ROCK server of this command's own"):
                client = Client(await stack.enter_async_context(embedded(options)))
            yield await stack.enter_async_context(client)


def check_freeze(count: int, address: str) -> None:
    """Raise `InvalidArgument` where sandboxes are to stay in a server that does not."""
    if count and not address:
        raise InvalidArgument(
            "--freeze keeps nothing in a command's own server, which ends with it and ends every sandbox. Start one with "
            "`ale rock serve` and name it with --rock."
        )


def say_kept(kept: Sequence[str] | None, address: str) -> None:
    """Print which sandboxes of failed rollouts stay; None: the processes that played know it."""
    if kept is None:
        stdout().print(
            f"sandboxes of failed episodes stay until they were idle: `ale rock ps --rock {address}`"
        )
    for sandbox_id in kept or ():
        stdout().print(f"kept until it was idle: `ale rock shell --rock {address} {sandbox_id}`")


def step_round_trip(env: str) -> float:
    """Play one oracle step of `env` in an embedded server and return the seconds it took. Raise `RockError`."""
    return awaited(_step(env), f"a step of {env}")


async def _step(name: str) -> float:
    spec = plugins.load_env(name)
    params = spec.params()
    source = spec.tasks(params)
    task = source.get(source.splits[0], 0)
    async with connected() as rock:
        env = await rock.make(name, params.canonical())
        observation, _, _ = await env.reset(task.id, 0)
        action = spec.oracle(params, task)(observation)
        started = time.perf_counter()
        await env.step(action)
        seconds = time.perf_counter() - started
        await env.close()
    return seconds
