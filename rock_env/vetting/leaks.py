"""The leak scan: what an agent could find in its box that gives the solution or the grader away.

Copies of a task's own grader and solution are `rock_env.grading.leaks`' to find; here is git history beyond the commit
that is checked out.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

from rock_env.client import AsyncSandbox
from rock_env.grading.leaks import leaks
from rock_env.grading.model import Task
from rock_env.sandbox import ExecResult

if TYPE_CHECKING:
    from rock_env.sandbox import Sandbox

__all__ = ["Scan", "leaks_in"]

_SCAN_S = 60.0
_HISTORY = r"""
command -v find >/dev/null 2>&1 || exit 97
find "$@" "$PWD" -xdev \( -path /proc -o -path /sys -o -path /dev \) -prune -o -name HEAD -type f -print 2>/dev/null |
sort -u | while read -r head; do
  dir=${head%/HEAD}
  [ -d "$dir/objects" ] || continue
  if ! command -v git >/dev/null 2>&1; then
    echo "unknown 0 $dir"
    continue
  fi
  look() { GIT_OPTIONAL_LOCKS=0 git -c safe.directory='*' --git-dir="$dir" "$@" 2>/dev/null; }
  look rev-parse --verify -q HEAD >/dev/null || continue
  ahead=$(look rev-list --count --all --reflog --not HEAD)
  [ "${ahead:-0}" = 0 ] || echo "ahead $ahead $dir"
  lost=$(look fsck --unreachable --no-reflogs --no-progress | grep -c ' commit ')
  [ "${lost:-0}" = 0 ] || echo "lost $lost $dir"
done
exit 0
"""


@dataclass(frozen=True, slots=True)
class Scan:
    """What a look into a box found, each in words."""

    found: tuple[str, ...] = ()
    """What gives the task away."""
    inputs: tuple[str, ...] = ()
    """Files that the task itself gives the agent and that hold lines of its grader or solution."""
    unseen: tuple[str, ...] = ()
    """What could not be looked at."""


async def leaks_in(box: AsyncSandbox, task: Task | None, *, whole_box: bool) -> Scan:
    """Return what is in a box. Raise `RockError` where the box fails.

    `whole_box` looks everywhere; without, where the box's own files are, since all else is the machine's.
    """
    home = (await box.exec(["sh", "-c", 'echo "$HOME"'])).stdout.decode().strip()
    roots = ["/"] if whole_box else ["/tmp", home]
    found, unseen = await _history(box, roots)
    inputs: list[str] = []
    if task is not None:
        scanned = cast("Sandbox", _ScannedBox(box))  # a scan needs no more of a box
        for leak in await leaks(scanned, task, roots=roots):
            words = f"{leak.where} holds {leak.lines} lines of {leak.secret}"
            (inputs if leak.is_input else found).append(words)
    return Scan(tuple(found), tuple(inputs), tuple(unseen))


class _ScannedBox:
    """A remote sandbox with the few calls of a `Sandbox` that a scan makes."""

    def __init__(self, box: AsyncSandbox) -> None:
        self.id = box.id
        self.exec = box.exec
        self._files = box.files

    async def write_file(self, path: str, content: bytes, *, mode: int = 0o644) -> None:
        await self._files.write(path, content, mode=mode)

    async def read_range(self, path: str, *, offset: int, length: int) -> bytes:
        return await self._files.read(path, offset=offset, length=length)


async def _history(box: AsyncSandbox, roots: list[str]) -> tuple[list[str], list[str]]:
    looked = await box.exec(["/bin/sh", "-c", _HISTORY, "sh", *roots], timeout_s=_SCAN_S)
    if not looked.ok:
        return [], [f"git history, {_why(looked)}"]
    found, unseen = [], []
    for line in looked.stdout.decode(errors="replace").splitlines():
        kind, count, place = line.split(" ", 2)
        if kind == "unknown":
            unseen.append(f"the history in {place}, for want of git in the box")
        else:
            led = "HEAD does not lead" if kind == "ahead" else "nothing leads"
            found.append(f"{place} holds {count} commits to which {led}")
    return found, unseen


def _why(looked: ExecResult) -> str:
    """Say why a scan did not end as it should; all it needs of the box is `find`."""
    return f"which took longer than {_SCAN_S:g} s" if looked.timed_out else "for want of `find` in the box"
