"""The environment `swe` with tools that take time: before each call of one, a command sleeps in the box. For benchmarks.

The seconds are log-normal with a median of .25 and a 99th percentile of 2 (`slow_swe`) or 7.5 (`slower_swe`: a quarter of
what tools take), set by task, seed and turn: both sides of a comparison wait equally long, and rollouts of one group the
same. What the agent sees is what `swe` shows.
`variables` installs it for child processes, as a user's own package would be.
"""

from __future__ import annotations

import math
import os
import random
from dataclasses import replace
from pathlib import Path

from rock_env.env import Info, StepResult
from rock_env.sandbox import Sandbox
from rock_env.spec import EnvParams, TaskSpec
from sandboxes.swe import ENV as SWE
from sandboxes.swe.env import SweEnv
from sandboxes.swe.params import SweParams

__all__ = ["ENV", "SLOWER", "latency_s", "variables"]

MEDIAN_S, LONGEST_S = 0.25, 30.0


def latency_s(episode: str, turn: int, p99_s: float) -> float:
    """Return how long a tool takes in this turn of an episode."""
    sigma = math.log(p99_s / MEDIAN_S) / 2.3263
    drawn_s = MEDIAN_S * math.exp(sigma * random.Random(f"{episode} {turn}").gauss(0.0, 1.0))
    return min(LONGEST_S, drawn_s)


class SlowSwe(SweEnv):
    """`swe`, slowed down."""

    p99_s = 2.0
    _episode = ""

    async def reset(self, sandbox: Sandbox, task: TaskSpec, seed: int) -> tuple[str, Info]:
        self._episode = f"{task.id} {seed}"
        return await super().reset(sandbox, task, seed)

    async def step(self, sandbox: Sandbox, action: str) -> StepResult:
        await sandbox.exec(
            ["sleep", f"{latency_s(self._episode, self._turns, self.p99_s):.3f}"], timeout_s=60
        )
        return await super().step(sandbox, action)


class SlowerSwe(SlowSwe):
    """Slower still."""

    p99_s = 7.5


def make(params: EnvParams) -> SlowSwe:
    assert isinstance(params, SweParams)
    return SlowSwe(params)


def make_slower(params: EnvParams) -> SlowerSwe:
    assert isinstance(params, SweParams)
    return SlowerSwe(params)


ENV = replace(SWE, name="slow_swe", summary="swe with tools that take time.", factory=make, snapshots=False)
SLOWER = replace(ENV, name="slower_swe", summary="swe with tools that take long.", factory=make_slower)


def variables(site: Path) -> dict[str, str]:
    """Install the environment in an empty folder; return the variables by which processes find it there."""
    about = site / "slow_swe-1.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: slow-swe\nVersion: 1\n")
    (about / "entry_points.txt").write_text(
        "[ale.envs]\nslow_swe = benchmarks.slow_swe:ENV\nslower_swe = benchmarks.slow_swe:SLOWER\n"
    )
    return {"PYTHONPATH": os.pathsep.join([str(site), str(Path(__file__).parents[1])])}
