"""CLI agents of others in training: what they ask of a run, and how a worker plays them.

`agent_options` is called before anything starts, by `ale.api` and the fleet; `CliAgents` lives in a rollout worker. What
one rollout is, is in `agent_runtime.agents.cli_rollout`.
"""

from __future__ import annotations

import asyncio
import logging
from contextlib import AsyncExitStack
from urllib.parse import urlsplit

from agent_runtime.agents.cli_rollout import BoxedRock, CliAgent, run_cli_rollout
from agent_runtime.agents.install import default_shelf, find_installed
from agent_runtime.agents.spec import load_agent
from agent_runtime.chat import ToolTemplate
from agent_runtime.gateway.server import Gateway
from agent_runtime.policy import Sampler
from agent_runtime.types import RolloutRequest, Trajectory
from rock_env.errors import EnvLost, NotFound, Unavailable
from rock_env.plugins import load_env
from rock_env.spec import EnvSpec
from trainer.config import TrainConfig
from trainer.errors import ConfigError
from trainer.models.chosen import learner_of

__all__ = ["CliAgents", "agent_options"]

logger = logging.getLogger(__name__)

MOST_STARTS = 4
_SERVER_LOST = frozenset({EnvLost.code, NotFound.code, Unavailable.code})
_WAIT_S = 1.0
"""For the next server, before a rollout begins anew."""


def agent_options(config: TrainConfig) -> list[str]:
    """Check that the CLI agent of a run can play, and return what its own ROCK server is started with to show it.

    Nothing without such an agent. Raise `ConfigError` where it cannot be had or is not installed, or where this environment
    or this engine is none for it; `UnknownName` or `InvalidArgument` for a name or file that is no agent's, and for a model
    that cannot chat. What a server that runs already has on its shelf is not known here: it says so itself.
    """
    name = config.agent.name
    if not name:
        return []
    spec, (engine, options) = load_agent(name), learner_of(config)
    if spec.unavailable:
        raise ConfigError(f"the agent {name!r} cannot be had: {spec.unavailable}")
    for each in config.shares:
        _check_env(name, load_env(each.env))
    if engine.tools is None:
        raise ConfigError(
            f"the agent {name!r} needs a model that chats with whatever tools an agent brings: {config.model!r} (engine "
            f"{engine.name}) cannot. Choose an instruct model of Hugging Face with --model, or leave --agent out."
        )
    shelf, shown = default_shelf(), not config.rollout.rock_address
    if shown and find_installed(spec, shelf) is None:
        raise ConfigError(f"the agent {name!r} is not installed in {shelf}. Run: ale agent install {name}")
    engine.tools(config.model, options)  # last, since it may ask a hub
    return [f"--shelf={shelf}"] if shown else []


def _check_env(agent: str, env: EnvSpec) -> None:
    """Raise `ConfigError` where a CLI agent cannot work in an environment."""
    if env.sandbox is None:
        raise ConfigError(
            f"the agent {agent!r} works in a sandbox, and {env.name} is an environment without one, played by actions alone."
            " Choose another --env (ale env list), such as swe, or leave --agent out."
        )
    if not env.graded_as_it_lies:
        raise ConfigError(
            f"the agent {agent!r} gives no actions, and the answer to a task of {env.name} is one: every rollout would be "
            "graded as a failure. Choose another --env (ale env list), such as swe, or leave --agent out."
        )


class CliAgents:
    """The gateway of one worker, through which its agents reach the policy. Lives as long as its process."""

    def __init__(self, config: TrainConfig, template: ToolTemplate) -> None:
        self._config = config
        self._template = template
        self._spec = load_agent(config.agent.name)
        self._gateway = Gateway()
        self._serving = AsyncExitStack()
        self._target = ("", 0)

    async def open(self) -> None:
        """Serve the gateway on this machine's loopback; a session's key opens that session alone. First of all calls."""
        parts = urlsplit(await self._serving.enter_async_context(self._gateway.serving()))
        assert parts.hostname
        assert parts.port
        self._target = parts.hostname, parts.port

    async def close(self) -> None:
        """Serve no more."""
        await self._serving.aclose()

    async def play(
        self, request: RolloutRequest, *, rock: BoxedRock, sampler: Sampler, policy_step: int
    ) -> Trajectory:
        """Let the agent work on one request with the policy behind `sampler`.

        What an agent did in a sandbox cannot be done again, so a rollout whose server was lost begins anew, as it was asked
        for, at most `MOST_STARTS` times.
        """
        agent = CliAgent(
            self._spec,
            self._gateway,
            self._target,
            sampler,
            self._template,
            self._config.agent.session_tokens,
        )
        for left in reversed(range(MOST_STARTS)):
            played = await run_cli_rollout(request, agent, rock=rock, policy_step=policy_step)
            if not left or played.failure is None or played.failure.code not in _SERVER_LOST:
                break
            logger.warning(
                "rollout %s begins anew, for its server was lost: %s", request.id, played.failure.message
            )
            await asyncio.sleep(_WAIT_S)
        return played
