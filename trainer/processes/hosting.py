"""The ROCK server that rollouts are played on: somebody's, one that is started for them, or none."""

from __future__ import annotations

import asyncio
import logging
from contextlib import ExitStack

from rock_env.client.admin import AdminClient
from rock_env.client.retry import retrying
from rock_env.errors import RockError
from rock_env.local import EmbeddedServer, start_embedded
from rock_env.threads import completed
from trainer.config import TrainConfig
from trainer.rollout.cli_agents import agent_options
from trainer.rollout.games import is_played_here
from trainer.rollout.own import own_env

__all__ = ["REACH_S", "answers", "check_rock", "rock_of"]

logger = logging.getLogger(__name__)

REACH_S = 10.0
"""How long a Ray cluster's head, or a ROCK server, may take to accept a connection."""


def check_rock(config: TrainConfig) -> list[str]:
    """Refuse what a server could not do, before anything heavy starts. Return what one is started with for a CLI agent.

    Raise `RockError` where somebody's does not answer for a while, or as `agent_options`.
    """
    shelf = agent_options(config)
    if config.rollout.rock_address:
        completed(_answered(config.rollout.rock_address))
    return shelf


def rock_of(config: TrainConfig, shelf: list[str], stack: ExitStack) -> tuple[str, EmbeddedServer | None]:
    """Return the server's address, empty where the environments need none, and the server if it is started: until the stack
    ends. `shelf` is what `check_rock` gave.
    """
    if config.rollout.rock_address or is_played_here(config):
        return config.rollout.rock_address, None
    options = [*shelf, *_hosted_on(config)]
    for each in config.shares:
        options += stack.enter_context(own_env(each.env))
    server = start_embedded(options)
    stack.callback(server.close)
    return server.address, server


async def answers(rock_address: str, server: EmbeddedServer | None) -> bool:
    """Return whether the ROCK server there takes calls. The run's own, where it ended, did not, and is started again."""
    try:
        if server and server.end:
            await asyncio.to_thread(server.start_again)
            return False
        async with AdminClient(rock_address) as admin:
            return await admin.serving()
    except (RockError, OSError) as error:  # the latter where no process can be started now
        logger.debug("no ROCK server: %s", error)
        return False


def _hosted_on(config: TrainConfig) -> list[str]:
    """Return the embedded server's options for what the run asked of it."""
    trusting = ["--trust-libraries"] if config.rollout.trust_libraries else []
    return [*trusting, *(f"--backend={backend}" for backend in config.rollout.backends)]


async def _answered(rock_address: str) -> None:
    """Return when a ROCK server answers there; raise `RockError` where none does for a while."""
    async with AdminClient(rock_address) as admin:

        async def ask() -> None:
            await admin.serving()

        await retrying(ask, for_s=REACH_S)
