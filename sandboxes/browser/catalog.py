"""The tasks: those of the sites that come along, in many variants, or MiniWoB++'s.

A held-out task of the sites has a template that no training task has, and people, things and words that none has. Index
`i` of a split is variant `i // n` of template `i % n` of its `n` templates.
"""

from __future__ import annotations

from functools import lru_cache

from rock_env.errors import nearest
from rock_env.spec import EnvParams, TaskSpec
from rock_env.tasks import check_index
from sandboxes.browser import webshop
from sandboxes.browser.actions import describe
from sandboxes.browser.families import calendar, files, login, mail, signup, stock, wiki
from sandboxes.browser.miniwob import NAMES, PREFIX
from sandboxes.browser.params import BrowserParams, narrow
from sandboxes.browser.scenario import SiteDraw, SiteScenario, SiteTemplate

__all__ = ["TEMPLATES", "VARIANTS", "BrowserTasks", "make_tasks", "scenario"]

TEMPLATES: dict[str, SiteTemplate] = {
    template.name: template
    for site in (calendar, files, login, mail, signup, stock, wiki)
    for template in site.TEMPLATES
}
VARIANTS = {"train": 40, "held_out": 20}
"""How many tasks each template of a split gives."""
_TIME_LIMIT_S = 900.0
_HOW_TO = """\
You use a web browser. Each observation shows its tabs, what went wrong with the last action, and the active tab's page \
as a tree of elements; many have an id, such as [e5]. Ids are valid in the newest observation alone. Answer with one \
action, alone on the last line:
{actions}
Questions that a page asks in a dialog are dismissed unless on_dialog("accept") was given before. Time passes for a page \
only while an action is done. When you are done, or know the answer to a question, say so with send_msg_to_user: that ends \
the task. You cannot leave the site.
"""
_BRIEF = """\
A web browser is open at the task's site; you cannot leave the site. Use it by the tools of the MCP server that \
`python3 -m sandboxes.browser.box.mcp` starts. When you know the answer to a question, give it with send_msg_to_user.
"""
_GOAL = "\nThe task:\n{goal}"
_MINIWOB_GOAL = (
    "\nThe task is the first line of each observation; it is over as soon as the page takes an answer."
)


@lru_cache(maxsize=1024)
def scenario(payload: str) -> SiteScenario:
    """SiteDraw the scenario that a task's payload, `template/variant`, names. Raise `UnknownName` for no such template."""
    name, _, variant = payload.partition("/")
    if name not in TEMPLATES:
        raise nearest("browser task", name, TEMPLATES)
    template = TEMPLATES[name]
    return template.draw(SiteDraw(name, int(variant), template.split))


class BrowserTasks:
    """The tasks of the chosen suite and site; satisfies `TaskSource`."""

    splits: tuple[str, ...] = tuple(VARIANTS)

    def __init__(self, params: BrowserParams) -> None:
        self._suite, self._actions = params.suite, params.actions
        if self._suite == "webshop":
            return
        if self._suite == "miniwob":
            self._names = {split: list(NAMES) for split in self.splits}
            return
        chosen = [each for each in TEMPLATES.values() if params.site in ("all", each.site)]
        self._names = {split: [each.name for each in chosen if each.split == split] for split in self.splits}

    def count(self, split: str) -> int:
        """Return how many tasks `split` has. Raise `UnknownName` for an unknown split."""
        if split not in self.splits:
            raise nearest("split", split, self.splits)
        if self._suite == "webshop":
            return webshop.source().count(split)
        return len(self._names[split]) * VARIANTS[split]

    def get(self, split: str, index: int) -> TaskSpec:
        """Return task `index` of `split`. Raise `InvalidArgument` when out of range."""
        check_index(split, index, self.count(split))
        payload, goal = self._drawn(split, index)
        return TaskSpec(
            id=f"{split}/{index}",
            split=split,
            index=index,
            instruction=_HOW_TO.format(actions=describe(self._actions)) + goal,
            payload=payload,
            brief=_BRIEF + goal,
            time_limit_s=_TIME_LIMIT_S,
        )

    def _drawn(self, split: str, index: int) -> tuple[str, str]:
        """Return a task's payload, and what the agent is told of it."""
        if self._suite == "webshop":
            task = webshop.source().get(split, index)
            return webshop.PREFIX + task.payload, _GOAL.format(goal=webshop.goal_text(task))
        variant, number = divmod(index, len(self._names[split]))
        name = self._names[split][number]
        if self._suite == "miniwob":
            return f"{PREFIX}{name}/{split}-{variant}", _MINIWOB_GOAL
        payload = f"{name}/{variant}"
        return payload, _GOAL.format(goal=scenario(payload).goal)


def make_tasks(params: EnvParams) -> BrowserTasks:
    """Return the tasks. Raise `InvalidArgument` for another environment's arguments."""
    return BrowserTasks(narrow(params))
