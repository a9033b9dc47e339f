"""The tasks of a task set as a `TaskSource`: in splits, as the format says or by what a task is about.

Used by the task-set environment. A task that its format gives no split is ranked by a hash of what it asks and how it
is graded, never by its name or place: a task that comes back under another name stays in its split.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence

from rock_env.errors import InvalidArgument, nearest
from rock_env.grading.model import Task
from rock_env.spec import SandboxSpec, TaskSpec
from rock_env.tasks import HELD_OUT_ONE_IN, SPLITS, check_index

__all__ = ["TaskSetTasks", "split_tasks"]


def _rank(task: Task) -> bytes:
    verifier = task.verifier
    files = [(file.path, hashlib.sha256(file.content).hexdigest()) for file in verifier.files]
    parts = (task.instruction, verifier.command, files, verifier.must_pass, verifier.keep_passing)
    return hashlib.sha256(repr(parts).encode()).digest()


def split_tasks(tasks: Sequence[Task]) -> Mapping[str, tuple[Task, ...]]:
    """Return the tasks by split, in their order. A single task is both splits: there is nothing to generalise to.

    Of those without a split of their own, one in five (at least one) is held out. Raise `InvalidArgument` for a split
    that is none.
    """
    for task in tasks:
        if task.split not in ("", *SPLITS):
            raise InvalidArgument(
                f"task {task.name!r} ({task.source}) is in split {task.split!r}; there are {', '.join(SPLITS)}."
            )
    if len(tasks) == 1:
        return {split: tuple(tasks) for split in SPLITS}
    free = sorted((task for task in tasks if not task.split), key=_rank)
    held = {task.name for task in free[: max(1, len(free) // HELD_OUT_ONE_IN)]} if free else set()
    held |= {task.name for task in tasks if task.split == "held_out"}
    return {
        "train": tuple(task for task in tasks if task.name not in held),
        "held_out": tuple(task for task in tasks if task.name in held),
    }


class TaskSetTasks:
    """The tasks of one task set; satisfies `TaskSource`. `boxes` is each task's sandbox, `tell` what the agent is told."""

    splits: tuple[str, ...] = SPLITS

    def __init__(
        self, tasks: Sequence[Task], boxes: Mapping[str, SandboxSpec], tell: Callable[[Task], str]
    ) -> None:
        self._splits = split_tasks(tasks)
        self._boxes = boxes
        self._tell = tell

    def count(self, split: str) -> int:
        """Return how many tasks `split` has. Raise `UnknownName` for an unknown split."""
        if split not in self._splits:
            raise nearest("split", split, self._splits)
        return len(self._splits[split])

    def get(self, split: str, index: int) -> TaskSpec:
        """Return task `index` of `split`. Raise `InvalidArgument` when out of range."""
        check_index(split, index, self.count(split))
        task = self._splits[split][index]
        return TaskSpec(
            id=f"{split}/{index}",
            split=split,
            index=index,
            instruction=self._tell(task),
            payload=task.name,
            brief=task.instruction,
            time_limit_s=task.agent_timeout_s,
            sandbox=self._boxes[task.name],
        )
