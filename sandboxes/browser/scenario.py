"""What a task is: a site's first state, what is wanted, a check of the state that is left, and a solution.

Only `site` and `state` ever enter a sandbox.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field
from random import Random
from typing import Any, Literal

__all__ = [
    "Check",
    "Message",
    "On",
    "SiteDraw",
    "SiteScenario",
    "SiteTemplate",
    "State",
    "Step",
    "address",
    "expecting",
    "quoted",
    "say",
]

State = dict[str, Any]
Message = str | None
"""What the agent told the user at the end; None where it told nothing."""
Check = Callable[[State, Message], str]
"""Returns what is wrong with a final state and message, or an empty string."""


@dataclass(frozen=True, slots=True)
class On:
    """One step of a solution: an action on the element with this role and name, as the newest observation has it."""

    op: str
    role: str
    name: str
    rest: str = ""
    """The action's further arguments, as they are written."""
    after: str = ""
    """Only an element below the first line with this text."""


Step = On | str
"""A step of a solution; a text is an action as it stands."""


@dataclass(frozen=True, slots=True)
class SiteScenario:
    """One task as drawn."""

    site: str
    goal: str
    state: State
    check: Check
    steps: Sequence[Step]
    start: str = "/"
    files: Mapping[str, bytes] = field(default_factory=dict)
    """Those that the agent may upload, by their names."""


@dataclass(frozen=True, slots=True)
class SiteTemplate:
    """A kind of task. `draw` is pure: the same random numbers give the same scenario."""

    name: str
    site: str
    split: Literal["train", "held_out"]
    draw: Callable[[SiteDraw], SiteScenario]


_PEOPLE = {
    "train": (
        "Ada Brook",
        "Ben Castle",
        "Cora Dale",
        "Dan Ellis",
        "Eva Field",
        "Finn Grove",
        "Gwen Hill",
        "Hugo Isle",
    ),
    "held_out": (
        "Ida Jones",
        "Jon Knight",
        "Kira Lane",
        "Leo Marsh",
        "Mona North",
        "Nils Orr",
        "Olga Pine",
        "Paul Reed",
    ),
}
_THINGS = {
    "train": (
        "lamp",
        "kettle",
        "ladder",
        "basket",
        "mirror",
        "drill",
        "blanket",
        "clock",
        "bucket",
        "tripod",
        "hammer",
        "stool",
    ),
    "held_out": (
        "candle",
        "shovel",
        "carpet",
        "pillow",
        "wrench",
        "tray",
        "folder",
        "magnet",
        "rope",
        "vase",
        "broom",
        "cup",
    ),
}
_WORDS = {
    "train": (
        "amber",
        "birch",
        "cedar",
        "delta",
        "ember",
        "fjord",
        "glade",
        "heron",
        "iris",
        "jade",
        "kelp",
        "lotus",
    ),
    "held_out": (
        "maple",
        "nova",
        "ocean",
        "pearl",
        "quartz",
        "raven",
        "sable",
        "tulip",
        "umber",
        "violet",
        "willow",
        "zephyr",
    ),
}


@dataclass(slots=True)
class SiteDraw:
    """Seeded chance, and names of which no two splits have one in common."""

    template: str
    variant: int
    split: str
    chance: Random = field(init=False)

    def __post_init__(self) -> None:
        self.chance = Random(f"{self.template}/{self.variant}")

    def people(self, count: int) -> list[str]:
        """Return different people."""
        return self.chance.sample(_PEOPLE[self.split], count)

    def things(self, count: int) -> list[str]:
        """Return different things."""
        return self.chance.sample(_THINGS[self.split], count)

    def words(self, count: int) -> list[str]:
        """Return different words."""
        return self.chance.sample(_WORDS[self.split], count)


def address(person: str) -> str:
    """Return a person's e-mail address."""
    return f"{person.lower().replace(' ', '.')}@example.com"


def expecting(state: State, change: Callable[[State], object], answer: str = "") -> Check:
    """Return a check: the final state is the first one with `change` made to it, and nothing else is different.

    With `answer`, what the agent told the user must contain it.
    """
    wanted = deepcopy(state)
    change(wanted)

    def check(left: State, message: Message) -> str:
        for name in wanted:
            if left.get(name) != wanted[name]:
                return f"the site's {name} are not as wanted"
        if answer and (message is None or answer.lower() not in message.lower()):
            return f"the answer does not contain {answer!r}"
        return ""

    return check


def say(text: str) -> str:
    """Return the action that tells the user something and ends the task."""
    return f"send_msg_to_user({quoted(text)})"


def quoted(text: str) -> str:
    """Return a text as it stands in an action."""
    plain = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{plain}"'
