"""The tasks of the environment, by split, whatever source they come from.

Pure: the same arguments give the same tasks, and looking one up runs nothing.
"""

from __future__ import annotations

from functools import cache, lru_cache
from pathlib import Path

from rock_env.errors import InvalidArgument, UnknownName, nearest
from rock_env.spec import EnvParams, SandboxSpec, TaskSpec
from rock_env.tasks import check_index
from rock_env.tools import Toolbox
from sandboxes.swe import factory, handmade, quixbugs
from sandboxes.swe.data import SweTask
from sandboxes.swe.grade import MAX_BYTES, MAX_FILES
from sandboxes.swe.params import SweParams
from sandboxes.swe.run_in_box import UNUSED

__all__ = ["TEST_COMMAND", "SweTasks", "load_task", "make_tasks", "splits", "task_keys", "toolbox"]

TEST_COMMAND = "ulimit -t 2; rock-python -m pytest -x --tb=short -q --no-header -rN " + " ".join(
    f"-pno:{plugin}" for plugin in ("cacheprovider", *UNUSED.split())
)
"""As with `python`, without the time it takes to start pytest (docs/rock.md: Modules imported ahead) and what no small
project needs. A run takes under half a second of processor time: an endless loop ends after two, also on a busy machine."""
_INSTRUCTION = """\
You fix a bug in a small Python project. {tools}
The visible tests are in tests/. You are graded by tests you cannot see.
{limits}"""
_BRIEF = """\
You fix a bug in a small Python project. The visible tests are in tests/. You are graded by tests you cannot see.
{limits}"""
_AT_MOST = f"at most {MAX_FILES} with {MAX_BYTES >> 20} MiB"
_LIMITS = {
    True: f"All files of the project count but those in tests/ and hidden ones: {_AT_MOST}.",
    False: f"The Python files of the project count but tests and settings: {_AT_MOST}.",
}
"""By whether a source's tasks are graded by values."""


def toolbox(params: SweParams, project: str) -> Toolbox:
    """Return the agent's tools for a project folder."""
    return Toolbox(project, TEST_COMMAND, params.command_timeout_s, params.max_output_chars)


def splits(params: SweParams) -> tuple[str, ...]:
    """Return the splits of a source."""
    return factory.SPLITS if params.source == "factory" else ("train", "held_out")


@lru_cache(maxsize=64)
def task_keys(params: SweParams, split: str) -> tuple[str, ...]:
    """Return the keys of a split's tasks, in their order."""
    if params.source == "handmade":
        return handmade.keys(split)
    if params.source == "quixbugs":
        return quixbugs.keys(Path(params.path), split)
    low, high, families = params.min_difficulty, params.max_difficulty, params.chosen_families
    return tuple(
        task.key
        for task in factory.read_index().tasks
        if task.split == split
        and low <= task.difficulty <= high
        and (not families or task.family in families)
    )


@lru_cache(maxsize=2048)
def load_task(params: SweParams, key: str) -> SweTask:
    """Return the task that a `TaskSpec.payload` names. Raise `UnknownName`."""
    try:
        if params.source == "handmade":
            return handmade.load(key)
        if params.source == "quixbugs":
            return quixbugs.load(Path(params.path), key)
        return factory.load(key)
    except KeyError:
        count = sum(len(task_keys(params, split)) for split in splits(params))
        raise UnknownName(
            f"no swe task {key!r} of source {params.source}, which has {count} tasks. Records of another version of the "
            "environment, or of another source, name tasks that are not here."
        ) from None


class SweTasks:
    """All tasks, by split; satisfies `TaskSource`."""

    def __init__(self, params: SweParams) -> None:
        self._params = params
        self.splits: tuple[str, ...] = splits(params)
        self._instruction = _INSTRUCTION.format(
            tools=toolbox(params, "").describe(), limits=_LIMITS[params.source == "factory"]
        )
        self._brief = _BRIEF.format(limits=_LIMITS[params.source == "factory"])

    def _keys(self, split: str) -> tuple[str, ...]:
        if split not in self.splits:
            raise nearest("split", split, self.splits)
        return task_keys(self._params, split)

    def count(self, split: str) -> int:
        """Return how many tasks `split` has. Raise `UnknownName` for an unknown split."""
        return len(self._keys(split))

    def get(self, split: str, index: int) -> TaskSpec:
        """Return task `index` of `split`. Raise `InvalidArgument` when out of range."""
        keys = self._keys(split)
        check_index(split, index, len(keys))
        task = load_task(self._params, keys[index])
        return TaskSpec(
            id=f"{split}/{index}",
            split=split,
            index=index,
            instruction=self._instruction,
            payload=task.key,
            brief=self._brief,
            workdir=f"{SandboxSpec().workdir}/{task.name}",
            files=tuple((f"{task.name}/{path}", content) for path, content in task.repo),
        )


@cache
def make_tasks(params: EnvParams) -> SweTasks:
    """Return the tasks. Raise `InvalidArgument` for another environment's arguments."""
    if not isinstance(params, SweParams):
        raise InvalidArgument(f"swe takes SweParams, got {type(params).__name__}")
    return SweTasks(params)
