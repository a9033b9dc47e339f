"""The tasks: every template in many variants, each of them in exactly one split.

A held-out task has a template that no training task has, and names that no training task has. Index `i` of a split is
variant `i // n` of template `i % n` of its `n` templates, so that the first `n` tasks show each template once.
"""

from __future__ import annotations

from functools import lru_cache

from rock_env.errors import nearest
from rock_env.spec import EnvParams, SandboxSpec, TaskSpec
from rock_env.tasks import check_index
from rock_env.tools import Toolbox
from sandboxes.terminal.families import archives, data, files, git, processes, records
from sandboxes.terminal.params import TerminalParams, narrow
from sandboxes.terminal.scenario import Scenario, Template
from sandboxes.terminal.words import Draw

__all__ = ["FOLDER", "TEMPLATES", "VARIANTS", "TerminalTasks", "make_tasks", "scenario", "toolbox"]

FOLDER = "task"
"""The task's folder, in the box's working folder."""
TEMPLATES: dict[str, Template] = {
    template.name: template
    for family in (files, archives, processes, git, data, records)
    for template in family.TEMPLATES
}
VARIANTS = {"train": 40, "held_out": 20}
"""How many tasks each template of a split gives."""
_TIME_LIMIT_S = 600.0
_WHAT_IS_WANTED = """\
You work in a shell, in a folder with all that the task needs. You are graded by the state of the files when you are done.
{tools}
The paths below begin in the folder where you start.

The task:
{goal}"""
_BRIEF = """\
You work in the folder /workspace/{folder}, with all that the task needs. You are graded by the state of the files when you
are done. The paths below begin in that folder.

The task:
{goal}"""


@lru_cache(maxsize=1024)
def scenario(payload: str) -> Scenario:
    """Draw the scenario that a task's payload, `template/variant`, names. Raise `UnknownName` for no such template."""
    name, _, variant = payload.partition("/")
    if name not in TEMPLATES:
        raise nearest("terminal task", name, TEMPLATES)
    template = TEMPLATES[name]
    return template.draw(Draw(name, int(variant), split=template.split))


def toolbox(params: TerminalParams) -> Toolbox:
    """Return the tools of one episode; no task has tests of its own to run."""
    return Toolbox(FOLDER, "", params.command_timeout_s, params.max_output_chars)


class TerminalTasks:
    """The tasks of the chosen family, or of all; satisfies `TaskSource`."""

    splits: tuple[str, ...] = tuple(VARIANTS)

    def __init__(self, params: TerminalParams) -> None:
        self._how_to = toolbox(params).describe()
        chosen = [each for each in TEMPLATES.values() if params.family in ("all", each.family)]
        self._names = {
            split: [template.name for template in chosen if template.split == split] for split in self.splits
        }

    def count(self, split: str) -> int:
        """Return how many tasks `split` has. Raise `UnknownName` for an unknown split."""
        if split not in self._names:
            raise nearest("split", split, self.splits)
        return len(self._names[split]) * VARIANTS[split]

    def get(self, split: str, index: int) -> TaskSpec:
        """Return task `index` of `split`. Raise `InvalidArgument` when out of range."""
        check_index(split, index, self.count(split))
        variant, number = divmod(index, len(self._names[split]))
        payload = f"{self._names[split][number]}/{variant}"
        drawn = scenario(payload)
        return TaskSpec(
            id=f"{split}/{index}",
            split=split,
            index=index,
            instruction=_WHAT_IS_WANTED.format(tools=self._how_to, goal=drawn.goal),
            payload=payload,
            brief=_BRIEF.format(folder=FOLDER, goal=drawn.goal),
            workdir=f"{SandboxSpec().workdir}/{FOLDER}",
            files=tuple((f"{FOLDER}/{path}", content) for path, content in drawn.files.items()),
            time_limit_s=_TIME_LIMIT_S,
        )


def make_tasks(params: EnvParams) -> TerminalTasks:
    """Return the tasks. Raise `InvalidArgument` for another environment's arguments."""
    return TerminalTasks(narrow(params))
