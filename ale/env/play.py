"""`ale env play`: a person in the agent's seat.

The environment runs behind the same service as in training; the grade is its own.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import sys
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path

from ale.own_class import bring
from ale.rock.reach import connected
from ale.terminal import stdout
from ale.waiting import waiting_for
from rock_env import plugins
from rock_env.client.env import AsyncEnv
from rock_env.env import Info

__all__ = ["is_complete", "play_command"]

PROMPT = "> "
CONTINUED = ". "
_HOW = "One action per line; Ctrl-D ends the game."
_HOW_IN_A_SHELL = (
    "A line is an action. An edit (to its >>>>>>>), a ``` block, a here-document and a line that ends in a backslash go "
    "on over several. Ctrl-D ends the task as it stands."
)
_EDIT_BEGIN, _EDIT_END = re.compile(r"<{7,}$"), ">>>>>>>"
_HERE_DOCUMENT = re.compile(
    r"(?<![<\d])<<(?P<tabs>-?)\s*(?P<quote>['\"]?)\\?(?P<word>[A-Za-z_]\w*)(?P=quote)"
)


def play_command(
    name: str,
    env_args: Mapping[str, object],
    *,
    task: str,
    seed: int,
    rock: str,
    backends: Sequence[str] = (),
    pictures: Path | None = None,
) -> None:
    """Play one task to its end, or until the input ends. Raise `RockError`.

    `pictures`: a folder, made where it is absent, for pictures of an environment that has an argument of this name.
    """
    if pictures is not None:
        env_args = {**env_args, "pictures": True}
        pictures.mkdir(parents=True, exist_ok=True)
    bring(name)
    spec = plugins.load_env(name)
    params_json = plugins.env_params(spec, json.dumps(env_args)).canonical()
    shell = spec.sandbox is not None

    async def act() -> None:
        async with connected(rock, backends) as service:
            with waiting_for(f"{name} to begin"):
                env = await service.make(name, params_json)
            try:
                await _episode(env, task, seed, shell=shell, show=_Pictures(env, pictures))
            finally:
                await env.close()

    asyncio.run(act())


class _Pictures:
    """Copies the pictures of an episode out of its sandbox."""

    def __init__(self, env: AsyncEnv, folder: Path | None) -> None:
        self._env, self._folder, self._count = env, folder, 0

    async def __call__(self, info: Info) -> None:
        """Copy the picture that `info` names, if it names one."""
        path = info.get("picture")
        if self._folder is None or not isinstance(path, str):
            return
        box = await self._env.sandbox()
        content = await box.files.read(path)
        (self._folder / f"{self._count:03d}.png").write_bytes(content)
        self._count += 1


async def _episode(env: AsyncEnv, task: str, seed: int, *, shell: bool, show: _Pictures) -> None:
    out = stdout()
    with waiting_for(f"the start of {task}"):
        observation, info, instruction = await env.reset(task, seed)
    await show(info)
    out.print(f"{instruction}\n\n{_HOW_IN_A_SHELL if shell else _HOW}\n\n{observation}")
    total, turns, over, lines = 0.0, 0, False, _Lines()
    while not over:
        action = await _action(lines, shell=shell)
        if action is None:
            out.print()
            break
        with waiting_for("the environment's answer"):
            result = await env.step(action)
        total, turns, over = total + result.reward, turns + 1, result.terminated or result.truncated
        await show(result.info)
        note = "  (not a legal action)" if result.info.get("illegal") else ""
        reward = f"  reward {result.reward:g}" if result.reward else ""
        out.print(f"{result.observation}{reward}{note}")
    with waiting_for("the grade"):
        verdict = await env.evaluate()
    details = f": {verdict.details}" if verdict.details else ""
    outcome = "passed" if verdict.passed else "not passed"
    out.print(f"{outcome} after {turns} turns, reward {verdict.reward:g} (turns {total:g}){details}")


async def _action(lines: _Lines, *, shell: bool) -> str | None:
    """Return the next action, or None at the end of input. In a shell it goes on until it is complete."""
    text = await lines.ask(PROMPT)
    if text is None or not shell:
        return text
    while not is_complete(text):
        more = await lines.ask(CONTINUED)
        if more is None:
            return text
        text += f"\n{more}"
    return text


def is_complete(text: str) -> bool:
    """Return whether an action in a sandbox ends here: all that it opened is closed.

    Open are an `edit` until its `>>>>>>>` and a code block until its fence, each as long as what opened it, a here-document
    until its word, and a line that ends in a backslash.
    """
    lines = text.split("\n")
    first = lines[0].strip()
    if first.startswith("```"):
        return len(lines) > 1 and lines[-1].strip() == "`" * (len(first) - len(first.lstrip("`")))
    if first.split(" ", 1)[0] == "edit":
        opened = _EDIT_BEGIN.match(lines[1].strip()) if len(lines) > 1 else None
        return lines[-1].strip() == (">" * len(opened[0]) if opened else _EDIT_END)
    waiting: list[tuple[str, bool]] = []
    for line in lines:
        if waiting:
            word, tabs = waiting[0]
            if (line.lstrip("\t") if tabs else line) == word:
                waiting.pop(0)
        else:
            waiting = [(found["word"], bool(found["tabs"])) for found in _HERE_DOCUMENT.finditer(line)]
    return not waiting and not lines[-1].endswith("\\")


class _Lines:
    """Lines of standard input, read without Python's buffer, whose lock a waiting thread would hold at exit."""

    def __init__(self) -> None:
        self._rest = b""

    async def ask(self, prompt: str) -> str | None:
        """Return the next line, or None at the end of input, while the connection goes on living."""
        loop = asyncio.get_running_loop()
        line: asyncio.Future[str | None] = loop.create_future()

        def answer(text: str | None) -> None:
            if not line.done():
                line.set_result(text)

        def read() -> None:
            loop.call_soon_threadsafe(answer, self._read())

        print(prompt, end="", flush=True)  # noqa: T201
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
