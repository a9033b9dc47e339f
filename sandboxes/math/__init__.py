"""Arithmetic and algebra questions, one answer each, verified by rule. See README.md."""

from rock_env.spec import EnvSpec
from sandboxes.math.env import make
from sandboxes.math.oracle import make_oracle, optimum
from sandboxes.math.params import MathParams, make_tasks

__all__ = ["ENV"]

ENV = EnvSpec(
    name="math",
    version="1",
    summary="Answer one arithmetic or algebra question; the answer is verified by rule.",
    params=MathParams,
    factory=make,
    tasks=make_tasks,
    oracle=make_oracle,
    optimum=optimum,
    snapshots=True,
)
