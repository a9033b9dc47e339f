"""A verifier's run in a box: its files put in, its command run, and what it left read.

It decides nothing about whose fault a failure is; it tells what happened. What the box held before in the places of the
verifier is removed first, so that nobody grades himself by leaving a report.
"""

from __future__ import annotations

import posixpath
import re
import stat
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from rock_env.errors import InfraError, InvalidArgument, NotFound, nearest
from rock_env.grading.apart import apart
from rock_env.grading.guard import guard_of, unwritten
from rock_env.grading.image import OWN_FOLDERS, ImageAnswers, verifier_text
from rock_env.grading.left_shell import LeftShell
from rock_env.grading.model import Verifier
from rock_env.grading.outcomes import Outcome, Unreadable
from rock_env.grading.parsers import PARSERS, Left, Read
from rock_env.grading.parsers.reward_file import REWARD_FILES
from rock_env.sandbox import CommandEnd, OutputChunk, Sandbox

__all__ = ["Report", "run_verifier"]

_KEPT_BYTES = 8 << 20
"""Of each output, from its end, where test runners put their summary."""
_MOST_BYTES = 256 << 20
"""A verifier that says more is not listened to any further."""
_MAX_REPORT_BYTES = 32 << 20
_MAX_REPORTS = 2000
_MAX_ALL_REPORTS_BYTES = 64 << 20
_TAIL_CHARS = 600
_TAMPERED = re.compile(rb"rock_guard: ([^\n]{0,300}?): this run does not count")
_CANNOT_RUN = (126, 127)
"""Exit codes of a shell and of ROCK for a program that cannot be run."""


@dataclass(frozen=True, slots=True)
class Report:
    """What one run of a verifier showed."""

    outcomes: Mapping[str, Outcome] = field(default_factory=dict)
    reward: float | None = None
    """Given by the verifier itself."""
    exit_code: int | None = None
    timed_out: bool = False
    problem: str = ""
    """Why the run showed nothing, if so. It may be the agent's doing or the verifier's own."""
    tail: str = ""
    """The end of what it said."""
    tampered: str = ""
    """How the code under test changed what judges it, if it did."""
    described: Mapping[str, Outcome] = field(default_factory=dict)
    """The same tests by their docstrings, where the runner prints them."""
    left_out: Sequence[str] = ()
    """Changes of the agent's that could have steered it, by path, and were not in its box."""


async def run_verifier(
    box: Sandbox, verifier: Verifier, image: ImageAnswers | None = None, shell: LeftShell | None = None
) -> Report:
    """Run it in `box`. Raise `InfraError` where the box failed, and `UnknownName` for a parser there is not.

    `image` is what a clean box told of itself; without, nothing is known of what the image's Python finds. `shell` is what
    is kept of the agent's.
    """
    if verifier.parser not in PARSERS:
        raise nearest("parser", verifier.parser, PARSERS)
    try:
        return await _report(box, verifier, image, shell or LeftShell())
    except NotFound as error:
        raise InfraError(f"the sandbox went while its verifier ran: {error.message}") from error


async def _report(box: Sandbox, verifier: Verifier, image: ImageAnswers | None, shell: LeftShell) -> Report:
    if problem := await _cleared(box, verifier):
        return Report(problem=problem)
    for file in verifier.files:
        try:
            await box.write_file(file.path, file.content, mode=file.mode)
        except InvalidArgument as error:
            return Report(problem=f"{file.path} cannot be put into the box: {error.message}")
    try:
        guard = await guard_of(box, verifier, image)
    except InvalidArgument as error:
        return Report(problem=f"its Pythons cannot be guarded: {error.message}")
    end, stdout, stderr = await _run(box, verifier, guard.variables, shell)
    if end.infra_error:
        raise InfraError(f"the sandbox failed while its verifier ran: {end.infra_error}")
    tail = _tail(stdout + b"\n" + stderr)
    if end.timed_out:
        return Report(timed_out=True, tail=tail)
    try:
        tampered, refused = await apart(_signs, len(stdout) + len(stderr), stdout, stderr)
    except Unreadable as error:
        return Report(problem=f"its output cannot be read: {error}", exit_code=end.exit_code, tail=tail)
    if tampered:
        return Report(tampered=tampered, exit_code=end.exit_code, tail=tail)
    if end.signal and end.oom_killed:
        return Report(problem="its script was killed because the box had no memory left", tail=tail)
    if why := await guard.tampered(box, end, refused):
        return Report(tampered=why, exit_code=end.exit_code, tail=tail)
    read, problem = Read(), ""
    try:
        reports = await _reports(box, verifier) if verifier.report else None
        left = Left(end.exit_code, stdout, stderr, reports)
        read = await apart(_read, left.size, verifier.parser, left)
    except Unreadable as error:
        problem = f"its result cannot be read: {error}"
    if read.reward is None and end.exit_code in _CANNOT_RUN and (not read.outcomes or _is_exit(verifier)):
        problem = f"it cannot be run (exit code {end.exit_code})"
    elif not problem and read.reward is None and not read.outcomes:
        problem = f"it reported no test (exit code {end.exit_code})"
    if why := await guard.contradicts(box, read):
        return Report(tampered=why, exit_code=end.exit_code, tail=tail)
    return Report(
        read.outcomes, read.reward, end.exit_code, problem=problem, tail=tail, described=read.described
    )


def _signs(stdout: bytes, stderr: bytes) -> tuple[str, str]:
    """Return what the guard of a Python said, and the line by which the system refused to write the reward."""
    found = _TAMPERED.search(stdout) or _TAMPERED.search(stderr)
    return found[1].decode(errors="replace") if found else "", unwritten(stdout) or unwritten(stderr)


def _read(parser: str, left: Left) -> Read:
    return PARSERS[parser](left)


def _named(reports: Mapping[str, bytes], verifier: Verifier) -> Mapping[str, bytes]:
    """Return the reports that the verifier's own words name; all where they name none, as a compiled verifier's."""
    text = verifier_text(verifier)
    named = {name: content for name, content in reports.items() if name.encode() in text}
    return named if any(name.encode() in text for name in REWARD_FILES) else reports


def _is_exit(verifier: Verifier) -> bool:
    return verifier.parser == "exit_code"


async def _cleared(box: Sandbox, verifier: Verifier) -> str:
    """Remove what lies where the verifier's own things will be; return what could not be removed."""
    paths = {file.path for file in verifier.files} | ({verifier.report} if verifier.report else set())
    doomed = {folder for folder in OWN_FOLDERS if any(_within(path, folder) for path in paths)}
    if verifier.report:
        doomed.add(verifier.report)
    for path in sorted(doomed):
        if await _kind(box, path) == "nothing":
            continue
        await box.exec(["rm", "-rf", "--", path])
        if await _kind(box, path) != "nothing":
            return f"{path} was in the box before the verifier, and cannot be removed"
    return ""


def _within(path: str, folder: str) -> bool:
    return posixpath.normpath(path) == folder or posixpath.normpath(path).startswith(f"{folder}/")


async def _kind(box: Sandbox, path: str) -> Literal["nothing", "file", "folder", "other"]:
    try:
        mode = (await box.stat(path)).mode
    except NotFound:
        return "nothing"
    except InvalidArgument:  # it leads somewhere else
        return "other"
    return "file" if stat.S_ISREG(mode) else "folder" if stat.S_ISDIR(mode) else "other"


async def _run(
    box: Sandbox, verifier: Verifier, variables: Mapping[str, str], shell: LeftShell
) -> tuple[CommandEnd, bytes, bytes]:
    kept = {"stdout": _Tail(), "stderr": _Tail()}
    left = shell.folder if shell.folder and await _kind(box, shell.folder) == "folder" else ""
    command = box.start(
        verifier.command,
        env={**shell.variables, **variables},
        cwd=left or verifier.workdir or None,
        timeout_s=verifier.timeout_s,
        max_output_bytes=_MOST_BYTES,
    )
    end: CommandEnd | None = None
    async with command:
        command.close_stdin()
        async for event in command.events():
            if isinstance(event, OutputChunk):
                kept[event.stream].add(event.data)
            else:
                end = event
    if end is None:
        raise InfraError("the sandbox did not tell how its verifier ended")
    return end, kept["stdout"].bytes, kept["stderr"].bytes


class _Tail:
    """The last `_KEPT_BYTES` of a stream, in whole chunks."""

    def __init__(self) -> None:
        self._chunks: deque[bytes] = deque()
        self._size = 0

    def add(self, data: bytes) -> None:
        self._chunks.append(bytes(data))
        self._size += len(data)
        while self._size - len(self._chunks[0]) >= _KEPT_BYTES:
            self._size -= len(self._chunks.popleft())

    @property
    def bytes(self) -> bytes:
        return b"".join(self._chunks)


def _tail(output: bytes) -> str:
    return output[-4 * _TAIL_CHARS :].decode(errors="replace").strip()[-_TAIL_CHARS:]


async def _reports(box: Sandbox, verifier: Verifier) -> Mapping[str, bytes]:
    """Return the report, or the regular files of the report's folder by their names. Links are not followed.

    Of a folder with a reward only its files are read. Raise `Unreadable` where all together are too large.
    """
    path, rewards = verifier.report, verifier.parser == "reward_file"
    kind = await _kind(box, path)
    if kind == "file":
        return {posixpath.basename(path): await _bounded(box, path)}
    if kind != "folder":
        return {}
    entries = [entry for entry in await box.list_files(path, recursive=True) if stat.S_ISREG(entry.mode)]
    names = sorted(entry.path for entry in entries if not rewards or entry.path in REWARD_FILES)
    reports: dict[str, bytes] = {}
    left = _MAX_ALL_REPORTS_BYTES
    for name in names[:_MAX_REPORTS]:
        reports[name] = await _bounded(box, posixpath.join(path, name))
        left -= len(reports[name])
        if left < 0:
            raise Unreadable(f"its reports have more than {_MAX_ALL_REPORTS_BYTES >> 20} MiB together")
    return _named(reports, verifier) if rewards else reports


async def _bounded(box: Sandbox, path: str) -> bytes:
    """Read a file; one that is too large is read so far that the parser sees that."""
    try:
        return await box.read_range(path, offset=0, length=_MAX_REPORT_BYTES + 1)
    except (NotFound, InvalidArgument):  # replaced meanwhile by something that still runs
        return b""
