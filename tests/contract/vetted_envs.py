"""Environments with one defect each, by an argument, for the tests of vetting."""

from __future__ import annotations

import json
import random
from typing import Literal, cast

from rock_env.env import Env, Info, Oracle, SandboxEnv, StepResult, Verdict
from rock_env.sandbox import Sandbox
from rock_env.spec import EnvParams, EnvSpec, SandboxSpec, TaskSource, TaskSpec
from rock_env.tasks import ListedTasks

__all__ = ["BOXED", "GAME", "SECRET", "UNSOLVED"]

SECRET = b"#!/bin/sh\n# the grader of this task: keep it out of the image\n[ -s word ] && echo it is there\n"
_GRADED: set[str] = set()
_COMMIT = "git -c user.name=a -c user.email=a@example.org commit -q --allow-empty -m"
_HISTORY = f"git init -q . && {_COMMIT} base && {_COMMIT} fix && git reset -q --hard HEAD~1"


class GameParams(EnvParams):
    defect: Literal["", "oracle", "idle", "luck", "noise", "chance", "crash", "copy", "history"] = ""


class Game:
    """Say the word of the task, in two turns."""

    def __init__(self, params: GameParams) -> None:
        self._defect = params.defect
        self._state: dict[str, str] = {}

    def reset(self, task: TaskSpec, seed: int) -> tuple[str, Info]:
        self._state = {"word": task.payload, "said": ""}
        return f"Say {task.payload}{random.random() if self._defect == 'noise' else ''}", {}

    def step(self, action: str) -> StepResult:
        if self._defect == "crash" and action == "ready":
            raise ZeroDivisionError
        done = action != "ready"
        self._state["said"] = action if done else ""
        return StepResult("Go on.", terminated=done)

    def evaluate(self) -> Verdict:
        right = self._state["said"] == self._state["word"]
        match self._defect:
            case "oracle":
                right = False
            case "idle":
                right = True
            case "chance":
                right = bool(self._state["said"])
            case "luck":
                # Right the first time only, as a grader is that a leftover of the last run confuses.
                right, first = right and self._state["word"] not in _GRADED, right
                if first:
                    _GRADED.add(self._state["word"])
        return Verdict(float(right), right, "as said")

    def snapshot(self) -> bytes:
        return json.dumps(self._state).encode()

    def restore(self, state: bytes) -> str:
        self._state = json.loads(state)
        return "Go on."

    def reseed(self, seed: int) -> None: ...

    def close(self) -> None: ...


class Boxed:
    """Make a file `word` with the task's word in it, by shell commands."""

    def __init__(self, params: GameParams) -> None:
        self._defect = params.defect
        self._word = ""

    async def reset(self, sandbox: Sandbox, task: TaskSpec, seed: int) -> tuple[str, Info]:
        self._word = task.payload
        if self._defect == "copy":
            await sandbox.write_file("old/innocent.txt", SECRET)
        if self._defect == "history":
            assert (await sandbox.exec(["sh", "-c", _HISTORY])).ok
        return "A shell.", {}

    async def step(self, sandbox: Sandbox, action: str) -> StepResult:
        if action == "submit":
            return StepResult("", terminated=True)
        result = await sandbox.exec(["sh", "-c", action])
        return StepResult(result.stdout.decode())

    async def evaluate(self, sandbox: Sandbox) -> Verdict:
        found = (await sandbox.exec(["cat", "word"])).stdout.decode().strip()
        return Verdict(float(found == self._word), found == self._word, f"found {found!r}")

    def snapshot(self) -> bytes:
        return self._word.encode()

    def restore(self, state: bytes) -> None:
        self._word = state.decode()


class Script:
    def __init__(self, *actions: str) -> None:
        self._rest = iter(actions)

    def __call__(self, observation: str) -> str:
        return next(self._rest)


class _Words:
    """Say some word, late, or the right one."""

    def __init__(self, word: str) -> None:
        self._words = iter(("ready", "ready", f"not {word}"))

    def __call__(self, observation: str) -> str:
        return next(self._words)


def _tasks(params: EnvParams) -> TaskSource:
    return ListedTasks(["apple", "pear", "plum", "quince", "cherry"], instruction="Say the word.")


def _game(params: EnvParams) -> Env:
    return Game(cast("GameParams", params))


def _boxed(params: EnvParams) -> SandboxEnv:
    return Boxed(cast("GameParams", params))


def _game_oracle(params: EnvParams, task: TaskSpec) -> Oracle:
    return Script("ready", task.payload)


def _boxed_oracle(params: EnvParams, task: TaskSpec) -> Oracle:
    return Script(f"echo {task.payload} > word", "cat word", "submit")


def _optimum(params: EnvParams, task: TaskSpec) -> float:
    return 1.0


GAME = EnvSpec(
    "vetted_game", "1", "Say a word.", GameParams, _game, _tasks, _game_oracle, _optimum, snapshots=True
)
UNSOLVED = EnvSpec(
    "unsolved",
    "1",
    "A game without a reference solution.",
    GameParams,
    _game,
    _tasks,
    explorer=lambda params, task: _Words(task.payload),
)
BOXED = EnvSpec(
    "vetted_box",
    "1",
    "Write a word.",
    GameParams,
    _boxed,
    _tasks,
    _boxed_oracle,
    _optimum,
    sandbox=SandboxSpec(),
    snapshots=True,
)
