"""An environment whose task list takes memory or time, as its arguments say. Offered with `--env`, as `toy_envs.py` is."""

from __future__ import annotations

import time
from typing import Any, cast

from rock_env.spec import EnvParams, EnvSpec, TaskSource, TaskSpec


class HungryParams(EnvParams):
    eats: int = 0
    """Bytes to allocate."""
    sleeps: bool = False
    """Never end."""


class HungryTasks:
    splits = ("train",)

    def __init__(self, params: HungryParams) -> None:
        self._params = params

    def count(self, split: str) -> int:
        eaten = bytearray(self._params.eats)
        while self._params.sleeps:
            time.sleep(0.01)
        return 1 + len(eaten) // (1 << 60)

    def get(self, split: str, index: int) -> TaskSpec:
        return TaskSpec(f"{split}/{index}", split, index, "Do nothing.")


def _tasks(params: EnvParams) -> TaskSource:
    return HungryTasks(cast("HungryParams", params))


def _never(*_: Any) -> Any:
    raise NotImplementedError("only the task list of this environment is asked for")


HUNGRY = EnvSpec(
    name="hungry",
    version="1",
    summary="Takes memory or time.",
    params=HungryParams,
    factory=_never,
    tasks=_tasks,
    oracle=_never,
    optimum=_never,
)
