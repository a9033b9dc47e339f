"""What is asked for: sandboxes, environments and tasks, as frozen values.

Holds no behaviour beyond digests and checks. Nothing here runs, connects or imports a plugin.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Annotated, Literal, Protocol, Self, get_args

from pydantic import BaseModel, ConfigDict

from rock_env.env import Env, Oracle, SandboxEnv
from rock_env.errors import InvalidArgument, Unimplemented
from rock_env.task_spec import NetworkPolicy, Resources, SandboxSpec, TaskSpec

__all__ = [
    "TEXT",
    "Board",
    "EnvLibrary",
    "EnvParams",
    "EnvSpec",
    "HostPath",
    "Look",
    "NetworkPolicy",
    "OnHost",
    "Picture",
    "Resources",
    "SandboxSpec",
    "TaskSource",
    "TaskSpec",
]


@dataclass(frozen=True, slots=True)
class OnHost:
    """Marks an argument that names a file or folder where the environment runs."""


HostPath = Annotated[str, OnHost()]
"""The type of such an argument. A server that others call takes the name of data that its operator chose, and no path."""


class EnvParams(BaseModel):
    """Base of an environment's own arguments: validated at the edge, frozen, unknown names refused.

    Fields are bool, int, float, str, None, literals, enumerations and `HostPath`, or unions, lists and tuples of these; a
    server that others call refuses an environment with any other (`rock_env.arguments`).
    """

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)

    @classmethod
    def narrowed(cls, params: EnvParams) -> Self:
        """Return `params` as this environment's own. Raise `InvalidArgument` for another environment's."""
        if not isinstance(params, cls):
            raise InvalidArgument(
                f"expected {cls.__name__}, got {type(params).__name__}: build it with ENV.params."
            )
        return params

    def canonical(self) -> str:
        """Return canonical JSON: equal parameters give equal text."""
        return json.dumps(self.model_dump(mode="json"), sort_keys=True, separators=(",", ":"))


class TaskSource(Protocol):
    """The tasks of an environment, addressable without enumeration."""

    splits: tuple[str, ...]

    def count(self, split: str) -> int:
        """Return how many tasks `split` has. Raise `UnknownName` for an unknown split."""
        ...

    def get(self, split: str, index: int) -> TaskSpec:
        """Return task `index` of `split`. Raise `InvalidArgument` when out of range. Pure: same input, same task."""
        ...


class EnvLibrary(Protocol):
    """The environments of another library under its own ids: the value of an `ale.libraries` entry point."""

    def spec(self, env_id: str) -> EnvSpec:
        """Return the environment of this id, named `<entry point>:<id>`, without importing the library.

        Whether the library knows the id is seen where the environment is made. Raise `InvalidArgument` for a text that is
        no id, and where the library is not installed.
        """
        ...

    def ids(self) -> tuple[str, ...]:
        """Import the library and return its ids, sorted. Raise `InvalidArgument` where it is not installed."""
        ...


Kind = Literal["text", "board", "page", "diff"]
Ground = Literal["wall", "floor", "ice", "hole", "goal", "target"]
Thing = Literal["box", "box_on", "player", "player_on", "fallen", "arrived", "sign"]
Look = Ground | Thing
Board = Mapping[str, Look]
"""What each character of a board looks like; `sign` shows the character itself."""
_LOOKS = (*get_args(Ground), *get_args(Thing))
_MOST_BOARDS, _MOST_SIGNS = 16, 128


@dataclass(frozen=True, slots=True)
class Picture:
    """What kind of text an environment's observations are.

    `text`: shown as it is. `board`: a grid, one character a cell. `page`: lines whose `[names]` in brackets can be chosen;
    in a line of options, `colour: (red) [blue]`, the name in round ones is chosen. `diff`: commands, edits and output, in
    which changed lines and tests stand out.
    Files in PNG or JPEG that come with an observation are shown whatever the kind is.
    """

    kind: Kind = "text"
    boards: Mapping[str, Board] = field(default_factory=dict, hash=False)
    """Of a board: its sets of characters. The set whose name is the value of one of the environment's arguments is tried
    first, then the others in their order; a text with a character of no set is shown as text."""

    def __post_init__(self) -> None:
        """Raise `InvalidArgument` for what the page could not draw."""
        if self.kind not in get_args(Kind) or len(self.boards) > _MOST_BOARDS:
            raise InvalidArgument(
                f"no picture: got the kind {self.kind!r} with {len(self.boards)} boards, expected one of "
                f"{', '.join(get_args(Kind))} with at most {_MOST_BOARDS}."
            )
        for name, board in self.boards.items():
            wrong = [sign for sign, look in board.items() if len(sign) != 1 or look not in _LOOKS]
            if wrong or len(board) > _MOST_SIGNS:
                raise InvalidArgument(
                    f"no board {name!r}: got {wrong[:3]!r} among {len(board)} characters, expected at most {_MOST_SIGNS}, "
                    f"each one character that looks like one of {', '.join(_LOOKS)}."
                )


TEXT = Picture()
"""Of an environment that declares nothing."""


def _nothing() -> None:
    return


def _no_oracle(params: EnvParams, task: TaskSpec) -> Oracle:
    raise Unimplemented(f"the environment has no reference policy for task {task.id!r}.")


def _no_honest(params: EnvParams, task: TaskSpec) -> Mapping[str, tuple[str, ...]]:
    return {}


def _no_explorer(params: EnvParams, task: TaskSpec) -> Oracle:
    raise Unimplemented("the environment does not say what its actions look like.")


def _no_optimum(params: EnvParams, task: TaskSpec) -> float:
    return 1.0


@dataclass(frozen=True, slots=True)
class EnvSpec:
    """An environment plugin: the value of an `ale.envs` entry point.

    `factory(params)` builds one environment. Where `sandbox` is None it returns an `Env`, hosted in an
    env-host worker process; otherwise a `SandboxEnv`, which acts through the sandbox it is handed.
    """

    name: str
    version: str
    summary: str
    params: type[EnvParams]
    factory: Callable[[EnvParams], Env | SandboxEnv]
    tasks: Callable[[EnvParams], TaskSource]
    oracle: Callable[[EnvParams, TaskSpec], Oracle] = _no_oracle
    """A reference policy for one task, which must succeed where success is certain; `Unimplemented` where none exists."""
    explorer: Callable[[EnvParams, TaskSpec], Oracle] = _no_explorer
    """A policy of random legal actions, by which an environment without a reference policy is checked."""
    optimum: Callable[[EnvParams, TaskSpec], float] = _no_optimum
    """Success probability of an optimal policy on one task (1.0 where the task is deterministic and solvable); where
    nobody knows it the upper bound, 1.0."""
    sandbox: SandboxSpec | None = None
    graded_as_it_lies: bool = True
    """What lies in the sandbox is graded, so that an agent which never gives an action can do the task. Where an action is
    the answer, no such agent is let in: it would fail every task."""
    replayable: bool = True
    """The same seed and actions give the same observations, so a prefix of turns can be replayed."""
    snapshots: bool = False
    """`snapshot` and `restore` work, so that an episode is copied as it stands; for an environment with a sandbox,
    where its backend has layers. Without, a checkpoint of one that is replayable is its recorded actions."""

    library: str = ""
    """The library whose code it runs, if any: each of its episodes has a process of its own, and an answer that makes it run
    code ends that."""
    warm: Callable[[], None] = _nothing
    """Import what its episodes need, where it is of a library: done once, in the process that theirs are forked from."""
    honest: Callable[[EnvParams, TaskSpec], Mapping[str, tuple[str, ...]]] = _no_honest
    """Other honest episodes of one task, as actions by name: each must be rewarded where the reference policy is. An
    environment is checked by them (`ale env check`)."""
    picture: Picture = TEXT
    """How its observations are drawn in `ale console`."""

    @property
    def has_oracle(self) -> bool:
        """Return whether there is a reference policy, for some tasks at least."""
        return self.oracle is not _no_oracle

    @property
    def has_explorer(self) -> bool:
        """Return whether it says what its actions look like."""
        return self.explorer is not _no_explorer

    @property
    def key(self) -> str:
        """Return `name@version`, the form written into records."""
        return f"{self.name}@{self.version}"
