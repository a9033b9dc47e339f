"""The tasks: every function is one, in exactly one split. Pure; looking one up runs nothing but its own solution.

Of each trained family one function in five is held out, those whose names hash lowest; the families of held_out_family
are in no other split.
"""

from __future__ import annotations

import hashlib
from functools import cache

from rock_env.errors import UnknownName, nearest
from rock_env.spec import EnvParams, TaskSpec
from rock_env.tasks import check_index
from sandboxes.code.families import TRAINED, UNSEEN
from sandboxes.code.params import CodeParams, narrow
from sandboxes.code.problem import CodeProblem

__all__ = ["PROBLEMS", "SPLITS", "CodeTasks", "find", "make_tasks"]

SPLITS = ("train", "held_out", "held_out_family")
PROBLEMS = {problem.name: problem for problems in (*TRAINED, *UNSEEN) for problem in problems}
_ONE_IN = 5
_INSTRUCTION = """\
You write one Python function. You see its signature and a docstring with examples; answer with the whole function, from \
`def` on, as it is or in one ```python block (the last block counts). Imports from the standard library \
and helper functions may stand before it.
It is called with arguments you cannot see and must return exactly what the docstring says, of the types it says, soon. \
Nothing is printed and nothing read. You have one answer."""


def _hash(name: str) -> bytes:
    return hashlib.blake2b(f"code/{name}".encode(), digest_size=8).digest()


@cache
def _split(params: CodeParams, split: str) -> tuple[CodeProblem, ...]:
    if split == "held_out_family":
        return tuple(problem for problems in UNSEEN for problem in problems)
    chosen: list[CodeProblem] = []
    for problems in TRAINED:
        if problems[0].family not in params.chosen_families:
            continue
        ranked = sorted(problems, key=lambda problem: _hash(problem.name))
        held_out = {problem.name for problem in ranked[: len(ranked) // _ONE_IN]}
        chosen += [problem for problem in problems if (problem.name in held_out) is (split == "held_out")]
    return tuple(sorted(chosen, key=lambda problem: _hash(problem.name)))  # families mixed


def find(name: str) -> CodeProblem:
    """Return the problem that a `TaskSpec.payload` names. Raise `UnknownName`."""
    if name not in PROBLEMS:
        raise UnknownName(
            f"no code task {name!r} among {len(PROBLEMS)}. Records of another version of the environment name "
            "tasks that are not here."
        )
    return PROBLEMS[name]


class CodeTasks:
    """All functions, by split; satisfies `TaskSource`."""

    splits: tuple[str, ...] = SPLITS

    def __init__(self, params: CodeParams) -> None:
        self._params = params

    def count(self, split: str) -> int:
        """Return how many tasks `split` has. Raise `UnknownName` for an unknown split."""
        if split not in self.splits:
            raise nearest("split", split, self.splits)
        return len(_split(self._params, split))

    def get(self, split: str, index: int) -> TaskSpec:
        """Return task `index` of `split`. Raise `InvalidArgument` when out of range."""
        check_index(split, index, self.count(split))
        problem = _split(self._params, split)[index]
        return TaskSpec(f"{split}/{index}", split, index, _INSTRUCTION, problem.name)


def make_tasks(params: EnvParams) -> CodeTasks:
    """Return the tasks. Raise `InvalidArgument` for another environment's arguments."""
    return CodeTasks(narrow(params))
