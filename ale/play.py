"""`ale env play`: a person in the agent's seat.

Called by `ale.cli`. The environment runs behind the same service as in training; the grade is its own.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping

from agent_runtime.run import RockEnv
from ale.rock import connected
from ale.terminal import stdout
from rock_env import plugins

__all__ = ["play_command"]

PROMPT = "> "


def play_command(name: str, env_args: Mapping[str, object], *, task: str, seed: int, rock: str) -> None:
    """Play one task to its end, or until the input ends. Raise `RockError`."""
    params_json = plugins.env_params(plugins.load_env(name), json.dumps(env_args)).canonical()
    asyncio.run(_play(name, params_json, task=task, seed=seed, rock=rock))


async def _play(name: str, params_json: str, *, task: str, seed: int, rock: str) -> None:
    async with connected(rock) as service:
        env = await service.make(name, params_json)
        try:
            await _episode(env, task, seed)
        finally:
            await env.close()


async def _episode(env: RockEnv, task: str, seed: int) -> None:
    out = stdout()
    observation, _, instruction = await env.reset(task, seed)
    out.print(f"{instruction}\n\nOne action per line; Ctrl-D ends the game.\n\n{observation}")
    total, turns, over = 0.0, 0, False
    while not over:
        try:
            # In a thread: the connection's keepalive must go on while the person thinks.
            action = await asyncio.to_thread(input, PROMPT)
        except EOFError:
            out.print()
            break
        result = await env.step(action)
        total, turns, over = total + result.reward, turns + 1, result.terminated or result.truncated
        note = "  (not a legal action)" if result.info.get("illegal") else ""
        reward = f"  reward {result.reward:g}" if result.reward else ""
        out.print(f"{result.observation}{reward}{note}")
    verdict = await env.evaluate()
    details = f": {verdict.details}" if verdict.details else ""
    outcome = "passed" if verdict.passed else "not passed"
    out.print(f"{outcome} after {turns} turns, reward {verdict.reward:g} (turns {total:g}){details}")
