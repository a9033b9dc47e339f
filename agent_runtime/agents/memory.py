"""The notes of a long-horizon agent: read and written by calls that the agent answers itself, never the environment.

    memory write NAME      the rest of the message, from the name on, is the note; an older one of that name gives way
    TEXT
    memory read [NAME]     one note, or the names of all
    memory delete NAME

A message that begins with such a call is one; or its only ``` block is, with prose around it. Anything else is meant for
the environment: `memory` alone, or with another second word, is no call. A name has letters, digits and `._-`. Blanks
around a note are not kept.

A call's effect is a function of the calls before it, so a record that holds the calls holds the notes.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from agent_runtime.agent import Reply
from agent_runtime.types import TurnFault

__all__ = ["BadCall", "Delete", "Memory", "MemoryCall", "Read", "Write", "parse_memory"]

_CALL = re.compile(r"memory[ \t]+(write|read|delete)(?=\s|$)")
_NAME = re.compile(r"[A-Za-z0-9._-]{1,64}")
_FENCE = re.compile(r"(?m)^```[ \t]*\n(.*?)^```[ \t]*$", re.DOTALL)
_FORMS = "memory write NAME TEXT, memory read [NAME], memory delete NAME"


@dataclass(frozen=True, slots=True)
class Write:
    """Keep `text` under `name`."""

    name: str
    text: str


@dataclass(frozen=True, slots=True)
class Read:
    """Show the note `name`; the names of all notes if it is empty."""

    name: str = ""


@dataclass(frozen=True, slots=True)
class Delete:
    """Forget the note `name`."""

    name: str


@dataclass(frozen=True, slots=True)
class BadCall:
    """A message that begins as a call and is none, and why."""

    problem: str


MemoryCall = Write | Read | Delete


def parse_memory(text: str) -> MemoryCall | BadCall | None:
    """Read one message of the policy; None: it is not meant for the memory."""
    message = text.strip()
    found = _CALL.match(message)
    if found is None:
        blocks = _FENCE.findall(message)
        message = blocks[0].strip() if len(blocks) == 1 else ""
        found = _CALL.match(message)
    if found is None:
        return None
    name, _, rest = _split(message[found.end() :])
    if found[1] == "read" and not name:
        return Read()
    if not _NAME.fullmatch(name):
        return BadCall(f"a note's name has 1 to 64 letters, digits and ._-, got {name[:80]!r}: {_FORMS}")
    if found[1] == "write":
        return Write(name, rest) if rest else BadCall(f"a note needs text after its name: {_FORMS}")
    if rest:
        return BadCall(f"memory {found[1]} takes nothing after the name, got {rest[:80]!r}: {_FORMS}")
    return Read(name) if found[1] == "read" else Delete(name)


def _split(rest: str) -> tuple[str, str, str]:
    """Return (first word, blank, what follows), blanks around them left out."""
    parts = rest.strip().split(maxsplit=1)
    return (parts[0] if parts else "", " ", parts[1] if len(parts) > 1 else "")


class Memory:
    """The notes of one rollout, in the order they were first written; at most `max_chars` as they are shown."""

    def __init__(self, max_chars: int) -> None:
        self._max_chars = max_chars
        self._notes: dict[str, str] = {}

    def handle(self, message: str) -> Reply | None:
        """Carry out a message that is a call, and say what came of it; None where it is none."""
        call = parse_memory(message)
        match call:
            case None:
                return None
            case BadCall(problem):
                return Reply(f"[memory] not done: {problem}.", TurnFault.ILLEGAL)
            case Write(name, text):
                return self._write(name, text)
            case Read(""):
                return Reply(f"[memory] {self._listed()}")
            case Read(name) | Delete(name) if name not in self._notes:
                return Reply(
                    f"[memory] failed: there is no note {name!r}. {self._listed()}", TurnFault.TOOL_FAILED
                )
            case Read(name):
                return Reply(f"[memory] {name}:\n{self._notes[name]}")
            case Delete(name):
                del self._notes[name]
                return Reply(f"[memory] deleted {name}. {self._listed()}")

    def shown(self) -> str:
        """Return all notes as a context shows them; "" if there are none."""
        return "\n".join(f"[memory] {name}:\n{text}" for name, text in self._notes.items())

    def describe(self) -> str:
        """Return how the memory is used, for an instruction."""
        return _DESCRIPTION.format(max_chars=self._max_chars)

    def _write(self, name: str, text: str) -> Reply:
        before = dict(self._notes)
        self._notes[name] = text
        size = len(self.shown())
        if size > self._max_chars:
            self._notes = before
            return Reply(
                f"[memory] failed: with {name} the notes would have {size} characters, {self._max_chars} is the most. "
                f"Write less, or delete some. {self._listed()}",
                TurnFault.TOOL_FAILED,
            )
        return Reply(f"[memory] kept {name}: {size} of {self._max_chars} characters are used.")

    def _listed(self) -> str:
        return f"Notes: {', '.join(self._notes) or '(none)'}"


_DESCRIPTION = """\
Your context is limited: when it is full you write a summary and go on with that. Notes outlast it. A message can be one \
of these in place of an action:
memory write NAME, then the note on the lines below - keep a note (a new one of that name replaces it)
memory read NAME - show a note; memory read - list them
memory delete NAME - forget a note
All notes together have at most {max_chars} characters; they are shown to you again after every summary."""
