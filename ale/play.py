"""`ale env play`: a person in the agent's seat.

Called by `ale.cli`. The environment runs behind the same service as in training; the grade is its own.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import threading
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
    total, turns, over, lines = 0.0, 0, False, _Lines()
    while not over:
        action = await lines.ask()
        if action is None:
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


class _Lines:
    """Lines of standard input, read without Python's buffer, whose lock a waiting thread would hold at exit."""

    def __init__(self) -> None:
        self._rest = b""

    async def ask(self) -> str | None:
        """Return the next line, or None at the end of input, while the connection goes on living."""
        loop = asyncio.get_running_loop()
        line: asyncio.Future[str | None] = loop.create_future()

        def answer(text: str | None) -> None:
            if not line.done():
                line.set_result(text)

        def read() -> None:
            loop.call_soon_threadsafe(answer, self._read())

        print(PROMPT, end="", flush=True)  # noqa: T201
        # A daemon: Ctrl-C must end the game although nothing can interrupt a thread that waits for the terminal.
        threading.Thread(target=read, daemon=True).start()
        return await line

    def _read(self) -> str | None:
        while b"\n" not in self._rest:
            more = os.read(sys.stdin.fileno(), 1 << 16)
            if not more:
                break
            self._rest += more
        line, newline, self._rest = self._rest.partition(b"\n")
        return line.decode(errors="replace") if line or newline else None
