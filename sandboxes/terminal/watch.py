"""Processes of a task: who they are when it begins is noted on the host, and what became of them is asked before a grade.

A process is the same if it has the number and the start time it had. Nothing of the note enters the box. `programs`
that count what was done to them confirm it to the host: it asks with a word drawn at the grade, and the reply is signed
with the secret that the process was given.
"""

from __future__ import annotations

import asyncio
import json
import secrets
from collections.abc import Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass

from rock_env.errors import InfraError, ResourceExhausted
from rock_env.sandbox import OutputChunk, Sandbox
from sandboxes.terminal.checks import Check
from sandboxes.terminal.families.programs import proof
from sandboxes.terminal.scenario import Scenario

__all__ = ["Note", "became", "note"]

_LOOK_S = 60.0
_ANSWER_S = 30.0
_MOST_BYTES = 1 << 20
_LOOK = """\
import json, os, select, sys, time
def look(pid):
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            fields = file.read().rpartition(b")")[2].split()
        with open(f"/proc/{pid}/cmdline", "rb") as file:
            words = file.read().decode(errors="replace").split("\\0")
        return [int(pid), int(fields[19]), fields[0].decode(), " ".join(words).strip()]
    except OSError:
        return None
def here(pid):
    try:
        return os.readlink(f"/proc/{pid}/cwd") == os.getcwd()
    except OSError:
        return False
def wait(pid):  # it has done its last act and may be about to end
    try:
        select.select([os.pidfd_open(pid)], [], [], max(0, until - time.monotonic()))
    except OSError:
        pass
asked = json.load(sys.stdin)
until = time.monotonic() + 1
for pid in asked["ends"]:
    wait(pid)
pids = asked["pids"] or [name for name in os.listdir("/proc") if name.isdigit() and here(name)]
print(json.dumps([seen for seen in map(look, pids) if seen]))
"""

Seen = Mapping[int, tuple[int, str, str]]
"""Start time in clock ticks, state and command line of each process, by its number in the box."""


@dataclass(frozen=True, slots=True)
class Note:
    """The processes of one task as they were when it began."""

    found: Mapping[str, tuple[int, int]]
    """Number and start time by command line."""
    ids: Sequence[str]
    """Of the services, as the box names them."""


async def note(box: Sandbox, drawn: Scenario, folder: str, ids: Sequence[str]) -> Note:
    """Note the task's processes, which all run. Raise `InfraError` if one of them is not there exactly once."""
    seen = await _look(box, cwd=folder) if drawn.goes_on or drawn.ends else {}
    found: dict[str, tuple[int, int]] = {}
    for line in (*drawn.goes_on, *drawn.ends):
        same = [(pid, began) for pid, (began, _, words) in seen.items() if words == line]
        if len(same) != 1:
            raise InfraError(f"a process of the task is there {len(same)} times, expected once: {line}")
        found[line] = same[0]
    return Note(found, ids)


async def became(box: Sandbox, drawn: Scenario, known: Note) -> list[tuple[Check, str]]:
    """Return what is to be so of the task's processes, each with what is wrong (or nothing)."""
    lines = (*drawn.goes_on, *drawn.ends)
    pids, ends = ([known.found[line][0] for line in some] for some in (lines, drawn.ends))
    seen = await _look(box, pids, ends) if lines else {}
    over = (
        {info.id for info in await box.processes() if info.end} if lines else set()
    )  # as their parent knows
    ended = {
        " ".join(service.argv) for service, id_ in zip(drawn.services, known.ids, strict=True) if id_ in over
    }
    told = []
    for line in lines:
        pid, began = known.found[line]
        now = seen.get(pid, (0, "X", ""))
        alive = now[0] == began and now[1] not in "ZX"
        problem = "" if alive and now[1] not in "Tt" else "it was stopped" if alive else "it has ended"
        if line in drawn.ends:
            told.append((_check(f"{line} has ended", guard=True), "it still runs" if alive else ""))
        else:
            problem = "it has ended" if line in ended else problem
            told.append((_check(f"{line} goes on", guard=True), problem))
    for service, process in zip(drawn.services, known.ids, strict=True):
        if service.answer:
            line = " ".join(service.argv)
            runs = not any(problem for check, problem in told if check.name == f"{line} goes on")
            wrong = await _ask(box, process, service.secret, service.answer) if runs else "it cannot answer"
            told.append((_check(f"{line} tells {service.answer}", guard=False), wrong))
    return told


def _check(name: str, *, guard: bool) -> Check:
    return Check(name, {}, str, guard)


async def _ask(box: Sandbox, process: str, secret: str, expected: str) -> str:
    """Return what is wrong with what a process answers, which only it can sign."""
    word = secrets.token_hex(8)
    wanted = f"{word} {proof(secret, f'{word} {expected}')}".encode()
    said = b""
    try:
        async with asyncio.timeout(_ANSWER_S), box.process_logs(process, follow=True) as command:
            command.write_stdin(f"{word}\n".encode())
            async with aclosing(command.events()) as events:
                async for event in events:
                    if not isinstance(event, OutputChunk):
                        return "it has ended"
                    said += event.data if event.stream == "stdout" else b""
                    if any(line.startswith(word.encode()) for line in said.splitlines()[: said.count(b"\n")]):
                        break
    except TimeoutError:
        return "it does not answer"
    return "" if wanted in said.splitlines() else "it tells something else"


async def _look(
    box: Sandbox, pids: Sequence[int] = (), ends: Sequence[int] = (), *, cwd: str | None = None
) -> Seen:
    try:
        result = await box.exec(
            ["python3", "-I", "-c", _LOOK],
            stdin=json.dumps({"pids": pids, "ends": ends}).encode(),
            cwd=cwd,
            timeout_s=_LOOK_S,
            max_output_bytes=_MOST_BYTES,
        )
    except ResourceExhausted as error:
        if error.own_limit:  # so many run that none can be looked at
            return {}
        raise
    if result.infra_error:
        raise InfraError(f"the sandbox failed while its processes were looked at: {result.infra_error}")
    try:
        return {pid: (began, state, words) for pid, began, state, words in json.loads(result.stdout)}
    except (ValueError, TypeError):
        return {}
