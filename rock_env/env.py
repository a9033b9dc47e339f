"""What an environment is: GEM's `reset / step / close`, text in and text out, plus a grade and a state clone.

Implemented by plugins (`sandboxes/*` and third parties), called only by the env host and the service core.
Never imported for its side effects: it has none.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from typing import Protocol, runtime_checkable

from rock_env.sandbox import Sandbox
from rock_env.task_spec import TaskSpec

__all__ = [
    "Artifact",
    "Attaching",
    "Attachment",
    "Env",
    "FreshBoxes",
    "FreshGraded",
    "Info",
    "KeepsRunning",
    "Oracle",
    "RestorableSandboxEnv",
    "SandboxEnv",
    "Scalar",
    "StepResult",
    "Verdict",
    "observation_hash",
]

Scalar = str | int | float | bool
Info = Mapping[str, Scalar]


def observation_hash(observation: str) -> bytes:
    """Return the 8-byte BLAKE2b digest of an observation; replay compares it turn by turn."""
    return hashlib.blake2b(observation.encode(), digest_size=8).digest()


@dataclass(frozen=True, slots=True)
class StepResult:
    """What one action led to. `reward` belongs to this turn alone; the outcome comes from `evaluate`."""

    observation: str
    reward: float = 0.0
    terminated: bool = False
    """The task ended by its own rules."""
    truncated: bool = False
    """The task was cut off by a limit (turns, time)."""
    info: Info = field(default_factory=dict)
    """Four keys say what became of the action. Three keep a turn of an expert from being imitated: `illegal` (it was no
    action), `tool_failed` (it was one, but was refused), `undoes` (n: this action took back what the action n turns
    before it did). `tool_broke` says that the action was right and its tool did not work (see `rock_env.faults`). One
    more, `picture`, is the path of a PNG in the sandbox that shows what was observed; `Attaching` is for files that last."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """The grade, a function of the environment's state and never of the transcript."""

    reward: float
    passed: bool
    details: str = ""


@dataclass(frozen=True, slots=True)
class Attachment:
    """A file of the sandbox that belongs to an observation or a grade: a picture, a download, a log."""

    name: str
    """As people call it; no path."""
    media_type: str
    """Such as `image/png`."""
    path: str
    """Of the file in the sandbox, which must hold until the next action alone."""


@dataclass(frozen=True, slots=True)
class Artifact:
    """What the server read for an `Attachment`. Everything but the size and the digest is the environment's word."""

    name: str
    media_type: str
    sha256: str
    """In hexadecimal; "" where there is nothing to read."""
    size: int
    """Bytes."""
    missing: str = ""
    """Why it was not kept, such as a bound on an episode's artifacts."""


class Env(Protocol):
    """A simulator without a sandbox. Synchronous and single-threaded; the host calls one method at a time."""

    def reset(self, task: TaskSpec, seed: int) -> tuple[str, Info]:
        """Start `task`; all randomness follows from `seed`. Return the first observation."""
        ...

    def step(self, action: str) -> StepResult:
        """Apply one action. An illegal action is a turn with `info["illegal"] = True`, never an exception."""
        ...

    def evaluate(self) -> Verdict:
        """Grade the current state."""
        ...

    def snapshot(self) -> bytes:
        """Return the whole state, random state included."""
        ...

    def restore(self, state: bytes) -> str:
        """Continue from `snapshot()`'s bytes and return the observation of that state."""
        ...

    def reseed(self, seed: int) -> None:
        """Make the randomness from here on follow from `seed`: the same state, another future."""
        ...

    def close(self) -> None:
        """Free what the environment holds."""
        ...


class SandboxEnv(Protocol):
    """Rules over a sandbox: the host owns the box and hands it in; the environment keeps no other state outside."""

    async def reset(self, sandbox: Sandbox, task: TaskSpec, seed: int) -> tuple[str, Info]:
        """Prepare the fresh sandbox for `task` and return the first observation."""
        ...

    async def step(self, sandbox: Sandbox, action: str) -> StepResult:
        """Apply one action."""
        ...

    async def evaluate(self, sandbox: Sandbox) -> Verdict:
        """Grade from the sandbox's state; verifier files enter only now. Raise `InfraError` if grading failed."""
        ...


@runtime_checkable
class RestorableSandboxEnv(SandboxEnv, Protocol):
    """A `SandboxEnv` that can go on in a copy of its sandbox, since it can tell what it remembers outside of it."""

    def snapshot(self) -> bytes:
        """Return everything that is not in the sandbox, such as the task and the number of turns.

        Raise `Unimplemented` for a task whose state is more than that and the sandbox's files, such as processes that run
        in it: its recorded actions are then its checkpoint.
        """
        ...

    def restore(self, state: bytes) -> None:
        """Go on from `snapshot()`'s bytes; the sandbox handed in from now on is as it was then."""
        ...


class FreshBoxes(Protocol):
    """Boxes for a grade alone, destroyed when left. Their making and life are not part of the agent's time."""

    def pristine(self) -> AbstractAsyncContextManager[Sandbox]:
        """Return a new box of the task's spec, with nothing of the agent in it."""
        ...

    def fork(self) -> AbstractAsyncContextManager[Sandbox]:
        """Return a box that begins with a copy of the agent's files, and with no process of it.

        Where the backend cannot copy boxes, raise `Unimplemented`.
        """
        ...

    async def take_over(
        self,
        box: Sandbox,
        *,
        runs: Sequence[str] = (),
        asked: Sequence[str] = (),
        workdir: str = "",
        image: Mapping[str, Sequence[str]] | None = None,
    ) -> Sequence[str]:
        """Give a pristine box the agent's files but those that could steer the grade, and return what was left out.

        Left out are changes to what runs a grade (interpreters, shells, the loader, test runners) and to settings that it
        reads; packages and files that the agent added come along (`rock_env.guest.steering`). `runs` are programs that
        the grade starts, `asked` the words and absolute paths of the task, which are the agent's to write; `workdir` is
        where it works; `image` what the image's own programs said beforehand (`rock_env.grading.image`). Returned are paths
        without the first slash. Raise `Unimplemented`, having changed nothing, where the backend cannot, and `UnfitFiles`
        for files that cannot be taken.
        """
        ...


@runtime_checkable
class FreshGraded(Protocol):
    """A `SandboxEnv` whose grade runs in boxes the agent never touched; then `grade` is called instead of `evaluate`."""

    async def grade(self, box: Sandbox, fresh: FreshBoxes) -> Verdict:
        """Grade what the agent left in `box`, in which nothing runs any more. Raise `InfraError` if grading failed.

        See `KeepsRunning` for tasks that need it to.
        """
        ...


@runtime_checkable
class Attaching(Protocol):
    """A `SandboxEnv` that has more to show than text."""

    def attachments(self) -> Sequence[Attachment]:
        """Return the files that belong to what was returned last: the first observation, a step's, or the grade.

        The server reads them at once, and hashes them itself. One that cannot be read changes nothing else.
        """
        ...


@runtime_checkable
class KeepsRunning(Protocol):
    """A `FreshGraded` environment with tasks whose result is something that runs, such as a service."""

    def keeps_running(self) -> bool:
        """Return whether the present task is graded with what the agent left running: then nothing is ended first."""
        ...


@runtime_checkable
class Oracle(Protocol):
    """A reference policy for one task: called with each observation in turn, returns the action text."""

    def __call__(self, observation: str) -> str: ...
