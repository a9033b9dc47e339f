"""The tools themselves, over any sandbox. Environments hand it the box and the agent's message, and get a reply.

Whatever the agent does wrong is a reply; only a box that fails raises (`InfraError`, `NotFound` of the box). Files are
read and written by the box's own calls, so that view and edit need no program in the image. Everything the tools
remember is in the box (the shell's state) or in `snapshot()` (edits to take back), so an episode can be replayed,
forked and gone on with. Replies hold no time and no address: equal actions get equal replies.
"""

from __future__ import annotations

import posixpath
import stat
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import msgspec

from rock_env.errors import DiskFull, InfraError, InvalidArgument, NotFound, ResourceExhausted
from rock_env.faults import TOOL_KEY
from rock_env.sandbox import ExecResult, FileEntry
from rock_env.shell import run_in_shell
from rock_env.tools.box import Box
from rock_env.tools.calls import Bash, Edit, Malformed, RunTests, Submit, ToolCall, Undo, View
from rock_env.tools.edits import RefusedCall, Undoing, apply_edit, digest, take_back
from rock_env.tools.json_calls import schemas
from rock_env.tools.observation import tell_command
from rock_env.tools.text import parse_call
from rock_env.tools.viewing import show_file, show_folder

__all__ = ["ToolReply", "Toolbox"]

_MAX_CAPTURED_BYTES = 1 << 18
_MAX_EDITED_BYTES = 1 << 20
_MAX_VIEWED_BYTES = 8 << 20
_MOST_UNDOS = 50
_MOST_UNDO_BYTES = 1 << 18  # all of it is in every snapshot
_MOST_LINKS = 16
# Python takes a module's bytecode for its own by the second of its change and its size, which an edit may leave equal.
_RUN_TESTS = 'exec </dev/null 2>&1; cd -- "$1" || exit; export PYTHONDONTWRITEBYTECODE=1; eval "$2"'
_NOT_STARTED = (
    126,
    127,
)  # how a shell says that a command cannot be run, or is not there (POSIX, Exit Status)
_HOW_TO_SEE = "see them with | tail -n 50, | grep, or > FILE and view FILE FIRST LAST"


@dataclass(frozen=True, slots=True)
class ToolReply:
    """What a call led to, as the agent reads it."""

    text: str
    failed: bool = False
    """It was a call, but the tool refused: no match, no such file."""
    illegal: bool = False
    """It was no call."""
    broke: bool = False
    """It was a right call, but the tool did not work: not the agent's fault."""
    submitted: bool = False
    undoes: int = 0
    """How many calls ago the edit was made that this call took back; 0: it took none back."""

    @property
    def info(self) -> Mapping[str, int]:
        """What a turn's `info` says of it (see `rock_env.env`)."""
        named = {
            "tool_failed": self.failed,
            "illegal": self.illegal,
            TOOL_KEY: self.broke,
            "undoes": self.undoes,
        }
        return {name: value for name, value in named.items() if value}


class Toolbox:
    """The tools of one episode: a project in a box, and the edits made so far."""

    def __init__(
        self,
        project: str,
        test_command: str,
        command_timeout_s: float = 20.0,
        max_output_chars: int = 2000,
    ) -> None:
        self._project = project
        self._test_command = test_command
        self._timeout_s = command_timeout_s
        self._max_chars = max_output_chars
        self._undo: list[Undoing] = []
        self._calls = 0

    async def act(self, box: Box, action: str) -> ToolReply:
        """Carry out one message of the agent, in the text face or the JSON face."""
        call = parse_call(action)
        if isinstance(call, Malformed):
            self._calls += 1
            return ToolReply(f"[not run] {call.problem}.", illegal=True)
        return await self.call(box, call)

    async def call(self, box: Box, call: ToolCall) -> ToolReply:
        """Carry out one call."""
        self._calls += 1
        try:
            return await self._carry_out(box, call)
        except ResourceExhausted:
            return _refuse("the box can hold no more processes or open files; end some that run in it")
        except DiskFull as error:
            if not error.own_limit:
                raise
            return _refuse("the box can hold no more files; remove some of them")

    async def _carry_out(self, box: Box, call: ToolCall) -> ToolReply:
        match call:
            case Bash(command):
                return await self._bash(box, command)
            case View():
                return await self._view(box, call)
            case Edit():
                return await self._edit(box, call)
            case Undo():
                return await self._take_back(box)
            case RunTests(args):
                return await self._run_tests(box, args)
            case Submit():
                return ToolReply("Submitted.", submitted=True)

    def snapshot(self) -> bytes:
        """Return what is not in the box: the number of calls, and the edits that can be taken back."""
        return msgspec.msgpack.encode((self._calls, self._undo))

    def restore(self, state: bytes) -> None:
        """Go on from `snapshot()`'s bytes."""
        self._calls, self._undo = msgspec.msgpack.decode(state, type=tuple[int, list[Undoing]])

    def schemas(self) -> list[dict[str, Any]]:
        """Return the tools as chat APIs take them; `run_tests` only where there is a test command."""
        return [each for each in schemas() if self._test_command or each["function"]["name"] != "run_tests"]

    def describe(self) -> str:
        """Return how the tools are called, for an instruction."""
        tests = "run_tests [ARGS] - run the project's tests\n" if self._test_command else ""
        return _DESCRIPTION.format(timeout_s=self._timeout_s, max_chars=self._max_chars, tests=tests)

    async def _bash(self, box: Box, command: str) -> ToolReply:
        result = await run_in_shell(
            box,
            command,
            timeout_s=self._timeout_s,
            max_output_bytes=_MAX_CAPTURED_BYTES,
            start_in=self._project,
        )
        return self._tell(result)

    async def _run_tests(self, box: Box, args: str) -> ToolReply:
        if not self._test_command:
            return _refuse("this task has no tests to run; use bash")
        result = await box.exec(
            ["/bin/sh", "-c", _RUN_TESTS, "sh", self._project, f"{self._test_command} {args}".rstrip()],
            timeout_s=self._timeout_s,
            max_output_bytes=_MAX_CAPTURED_BYTES,
        )
        reply = self._tell(result)
        if not args and result.exit_code in _NOT_STARTED:
            return replace(reply, broke=True)
        return reply

    def _tell(self, result: ExecResult) -> ToolReply:
        if result.infra_error:
            raise InfraError(f"the sandbox failed while running a command: {result.infra_error}")
        return ToolReply(
            tell_command(result, timeout_s=self._timeout_s, max_chars=self._max_chars, how_to_see=_HOW_TO_SEE)
        )

    async def _view(self, box: Box, call: View) -> ToolReply:
        try:
            path, entry = await self._find(box, call.path)
            if stat.S_ISDIR(entry.mode):
                if call.first is not None or call.last is not None:
                    return _refuse(f"{call.path} is a folder and has no lines")
                text = show_folder(call.path, await box.list_files(path), max_chars=self._max_chars)
                return ToolReply(text)
            if entry.size > _MAX_VIEWED_BYTES:
                return _refuse(
                    f"{call.path} has {entry.size} bytes, too many for view; "
                    "see parts of it with bash: head, tail, sed -n, grep"
                )
            content = await box.read_file(path)
        except (NotFound, InvalidArgument) as error:
            return await self._unreachable(box, call.path, error)
        shown = show_file(call, content, max_chars=self._max_chars)
        return _refuse(shown.problem) if isinstance(shown, RefusedCall) else ToolReply(shown)

    async def _edit(self, box: Box, call: Edit) -> ToolReply:
        try:
            path, entry = await self._find(box, call.path)
        except NotFound as error:
            return await (
                self._create(box, call) if not call.old else self._unreachable(box, call.path, error)
            )
        except InvalidArgument as error:
            return await self._unreachable(box, call.path, error)
        if stat.S_ISDIR(entry.mode):
            return _refuse(f"{call.path} is a folder")
        if not call.old:
            if entry.size:
                return _refuse(
                    f"{call.path} exists: an edit with no old text creates a file; give the old text to replace"
                )
            return await self._create(box, call, mode=stat.S_IMODE(entry.mode), existed=True)
        if entry.size > _MAX_EDITED_BYTES:
            return _refuse(f"{call.path} has {entry.size} bytes, too many for edit; use bash")
        try:
            content = await box.read_file(path)
            done = apply_edit(content, call)
            if isinstance(done, RefusedCall):
                return _refuse(done.problem)
            await box.write_file(path, done.content, mode=stat.S_IMODE(entry.mode))
        except (NotFound, InvalidArgument) as error:
            return await self._unreachable(box, call.path, error)
        self._remember(done.undoing)
        return ToolReply(done.said)

    async def _create(self, box: Box, call: Edit, *, mode: int = 0o644, existed: bool = False) -> ToolReply:
        if not call.new and existed:
            return _refuse(f"{call.path} exists and is empty: nothing to change")
        text = call.new if call.new.endswith("\n") or not call.new else f"{call.new}\n"
        content = text.encode()
        if len(content) > _MAX_EDITED_BYTES:
            return _refuse(f"{len(content)} bytes are too many for edit; use bash")
        try:
            await box.write_file(self._place(call.path), content, mode=mode)
        except (NotFound, InvalidArgument) as error:
            return await self._unreachable(box, call.path, error)
        self._remember(Undoing(call.path, 0, b"", len(content), digest(content), created=not existed))
        lines = text.count("\n")
        return ToolReply(
            f"Created {call.path}: lines 1-{lines}." if lines else f"Created {call.path}: empty."
        )

    async def _take_back(self, box: Box) -> ToolReply:
        if not self._undo:
            return _refuse("there is no edit to take back")
        last = self._undo.pop()
        ago = self._calls - last.call
        changed = f"{last.path} was changed since that edit by something else; it stays as it is"
        try:
            path, entry = await self._find(box, last.path)
            content = await box.read_file(path) if entry.size <= 2 * _MAX_EDITED_BYTES else b""
            before = take_back(content, last)
            if before is None:
                return _refuse(changed)
            if not last.created:
                await box.write_file(path, before, mode=stat.S_IMODE(entry.mode))
        except (NotFound, InvalidArgument):
            return _refuse(changed)
        if last.created:
            gone = await box.exec(["rm", "-f", "--", path], timeout_s=self._timeout_s)
            if gone.infra_error:
                raise InfraError(f"the sandbox failed while removing a file: {gone.infra_error}")
            if not gone.ok:
                return _refuse(f"{last.path} cannot be removed")
            return ToolReply(f"Undone: {last.path} is gone, as before that edit.", undoes=ago)
        return ToolReply(f"Undone: {last.path} is as before that edit.", undoes=ago)

    def _remember(self, undoing: Undoing) -> None:
        self._undo.append(replace(undoing, call=self._calls))
        while (
            len(self._undo) > _MOST_UNDOS or sum(len(each.removed) for each in self._undo) > _MOST_UNDO_BYTES
        ):
            del self._undo[0]

    def _place(self, path: str) -> str:
        return posixpath.join(self._project, path)

    async def _find(self, box: Box, path: str) -> tuple[str, FileEntry]:
        """Return the file behind a path and what it is; links are followed, so that writing keeps them."""
        place = self._place(path)
        for _ in range(_MOST_LINKS):
            entry = await box.stat(place)
            if not stat.S_ISLNK(entry.mode):
                return place, entry
            place = posixpath.join(posixpath.dirname(place), entry.symlink_target)
        raise InvalidArgument(f"{path}: too many symbolic links")

    async def _unreachable(self, box: Box, path: str, error: NotFound | InvalidArgument) -> ToolReply:
        """Say why a path cannot be used, in words that hold in every box. A box that is gone raises again."""
        if box.failure:
            raise error
        if isinstance(error, NotFound):
            return _refuse(f"no such file or folder: {path}")
        return _refuse(
            f"{path} cannot be used: it is no regular file or folder that can be reached; try bash"
        )


def _refuse(problem: str) -> ToolReply:
    return ToolReply(f"[failed] {problem}.", failed=True)


_DESCRIPTION = """\
Each message is one tool call, written as plain text (or inside one ``` block):
bash COMMAND - run a shell command; working folder, variables and functions last (at most {timeout_s:g} s each)
view PATH [FIRST LAST] - show a file or some of its lines, or a folder
edit PATH, then on lines of their own: <<<<<<<, the old lines, =======, the new lines, >>>>>>> - the old lines must be in \
the file exactly once, blank for blank; no old lines creates the file
undo - take the last edit back
{tests}submit - end the task
Paths are relative to the project folder, or absolute. Replies show at most {max_chars} characters."""
