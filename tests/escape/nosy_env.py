"""An environment that opens every text it is given and tells what it found. Offered with `--env`, as `toy_envs.py` is."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any, cast

from rock_env.env import StepResult, Verdict
from rock_env.spec import EnvParams, EnvSpec, TaskSource, TaskSpec

NOTHING = "nothing"


class NosyParams(EnvParams):
    text: str = ""


def found(text: str) -> str:
    """Say what a text leads to as a file, a folder to write in, a variable or a process."""
    if text == "every file":
        return json.dumps(
            [str(path) for path in Path("/").rglob("*") if path.is_file() and not in_python(path)]
        )
    if text == "every variable":
        return json.dumps(dict(os.environ))
    if text.startswith("write "):
        try:
            Path(text.removeprefix("write ")).write_text("x")
        except OSError:
            return NOTHING
        return "written"
    try:
        return Path(text).read_text(errors="replace")[:100] or "an empty file"
    except (OSError, ValueError):
        return NOTHING


def in_python(path: Path) -> bool:
    """Return whether this is a file of Python, of its packages or of the system."""
    return path.suffix in (".py", ".pyc", ".pyi", ".so") or path.parts[1] in (
        "usr",
        "lib",
        "lib64",
        "bin",
        "sbin",
    )


class Nosy:
    """The environment: each action is a text to look behind."""

    def __init__(self, params: NosyParams) -> None:
        self._text = params.text

    def reset(self, task: TaskSpec, seed: int) -> tuple[str, dict[str, Any]]:
        return found(self._text), {}

    def step(self, action: str) -> StepResult:
        return StepResult(found(action))

    def evaluate(self) -> Verdict:
        raise NotImplementedError("nobody asks")

    def snapshot(self) -> bytes:
        raise NotImplementedError("nobody asks")

    def restore(self, state: bytes) -> str:
        raise NotImplementedError("nobody asks")

    def reseed(self, seed: int) -> None:
        raise NotImplementedError("nobody asks")

    def close(self) -> None:
        pass


class NosyTasks:
    splits: tuple[str, ...] = ("train",)

    def __init__(self, params: NosyParams) -> None:
        self._params = params

    def count(self, split: str) -> int:
        return 1 if found(self._params.text) == NOTHING else 1000

    def get(self, split: str, index: int) -> TaskSpec:
        return TaskSpec(f"{split}/{index}", split, index, "Look.")


def _tasks(params: EnvParams) -> TaskSource:
    return NosyTasks(cast("NosyParams", params))


def _never(*_: Any) -> Any:
    raise NotImplementedError("nobody asks")


NOSY = EnvSpec(
    name="nosy",
    version="1",
    summary="Opens what it is given.",
    params=NosyParams,
    factory=lambda params: Nosy(cast("NosyParams", params)),
    tasks=_tasks,
    oracle=_never,
    optimum=_never,
)
