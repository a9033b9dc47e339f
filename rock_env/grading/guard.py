"""What stands beside one run of a verifier in a container: the guard of its Pythons, the seal of its files, its own report.

Made by `verifier` before the run and asked after it. The work that a test script starts runs as the script's own user, so a
reward is believed only where the script came to its own end, nothing that judges was changed meanwhile, and no guarded run
of pytest says otherwise.
"""

from __future__ import annotations

import asyncio
import json
import re
import secrets
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field

from rock_env.errors import InvalidArgument, NotFound
from rock_env.grading.fence import fence_variables
from rock_env.grading.image import ImageAnswers, verifier_text
from rock_env.grading.model import Verifier
from rock_env.grading.outcomes import Outcome
from rock_env.grading.parsers import Read
from rock_env.grading.seal import broken_seal, seal
from rock_env.sandbox import CommandEnd, Sandbox

__all__ = ["Guard", "guard_of", "has_guard", "programs", "unwritten"]

_GUARD = "/opt/rock/guard"
_PTH = "00-rock.pth"
"""The first code of a Python, before that of other packages."""
_KILL = re.compile(rb"\bkill\b")
_ITSELF = re.compile(rb"[ \t]0\b|\$\$|\$BASHPID")
_LINE = re.compile(rb"[^\n]+")
_REWARD = re.compile(rb"reward\.(?:txt|json)\b")
_REFUSED = re.compile(
    rb"denied|Too many open files|s a directory|too large|No space|Read-only|not permitted|busy|annot create"
)
"""What the system says that refuses to write."""
_IN_BACKGROUND = re.compile(
    rb"(?<![&>|])&(?![&>\d])|[<>]\(|\b(?:apt|apt-get|apk|yum|dnf|git|npm|gradle|dotnet|bazel)\b|\b(?:nohup|setsid|daemon|service|systemctl|screen|tmux|Popen|multiprocessing|disown|serve)\b"
)
"""In a verifier: it starts something that may outlive it."""
_RUNNING = """for p in /proc/[0-9]*; do p=${p#/proc/}; case $p in 1|$$) continue ;; esac
  printf '%s ' "$p"; tr '\\0\\n' '  ' 2>/dev/null < "/proc/$p/cmdline"; echo; done"""
_WORD = re.compile(r"[A-Za-z_][\w.+-]{0,100}")
_MOST_WORDS = 5000
_MOST_REPORT = 1 << 20
_LOOK_S = 60.0
_LINKS = re.compile(rb"\bln\b|link")
"""In a verifier: it may make links itself."""
_LEADING = """
find / -xdev \\( -path /proc -o -path /sys -o -path /dev -o -path /usr -o -path '/lib*' -o -path /etc -o -path /var/lib \\
  -o -path /opt/rock -o -path /tests -o -path /solution -o -path /oracle -o -name '*-packages' -o -name node_modules \\) \\
  -prune -o -type l -print 2>/dev/null | while IFS= read -r link; do
  case "$(readlink -f -- "$link")/" in /tests/*|/solution/*|/oracle/*) printf '%s\\n' "$link" ;; esac
done
exit 0
"""
"""Tells the links that lead to a verifier's folders."""
_TEXTS = ("pytest", "unittest")
"""Parsers of an output that the work writes to as well, and whose tests the guard counts."""
_LEAST_ROOM = 1 << 16
"""Bytes that a box can write where neither its disk nor the machine's is full."""


def unwritten(said: bytes) -> str:
    """Return the first line that names a reward's file and says that the system refused to write, or an empty text."""
    for found in _LINE.finditer(said):
        if _REFUSED.search(line := found[0]) and _REWARD.search(line):
            return line.decode(errors="replace").strip()[:160]
    return ""


def _ends_itself(text: bytes) -> bool:
    """Return whether a verifier of this text may end by its own signal."""
    lines = (found[0] for found in _LINE.finditer(text))
    return any((kill := _KILL.search(line)) and _ITSELF.search(line, kill.end()) for line in lines)


def programs(verifier: Verifier) -> list[str]:
    """Return the words of its command and shell scripts: what it may start is among them."""
    scripts = [
        file.content
        for file in verifier.files
        if file.path.endswith(".sh") or re.match(rb"#!.*sh\b", file.content[:100])
    ]
    text = b"\n".join([*(word.encode() for word in verifier.command), *scripts]).decode(errors="replace")
    return sorted(set(_WORD.findall(text)))[:_MOST_WORDS]


async def has_guard(box: Sandbox) -> bool:
    """Return whether the box is a container of ours, which has `rock_guard` where nothing in it can change it."""
    try:
        await box.stat(f"{_GUARD}/rock_guard.py")
    except (NotFound, InvalidArgument):
        return False
    return True


@dataclass(frozen=True, slots=True)
class Guard:
    """One run's. Without `sealed` it knows nothing and objects to nothing."""

    verifier: Verifier
    variables: Mapping[str, str]
    """Of the run."""
    words: Sequence[str] = ()
    paths: Sequence[str] = ()
    started: Sequence[str] = ()
    """Files that are the first code of Pythons."""
    sealed: Mapping[str, str] | None = None
    running: frozenset[str] = frozenset()
    """Numbers of the processes that ran before."""
    report: str = ""
    """Where `rock_guard` says how each run of pytest ended."""
    token: str = field(default="", repr=False)

    async def tampered(self, box: Sandbox, end: CommandEnd, refused: str) -> str:
        """Return how the work got in the way of the run, or an empty text; what it left running is ended first.

        `refused` is the line of its outputs by which the system refused to write the reward, if there is one. Raise
        `DiskFull` where it did so because a disk is full: whose that is decides.
        """
        if self.sealed is None:
            return ""
        left, orphans = await self._left_running(box) if self.verifier.grade_in != "same" else ([], False)
        if self.verifier.parser == "reward_file" and refused:
            with suppress(InvalidArgument):
                await box.write_file(
                    f"/tmp/.rock-{secrets.token_hex(8)}", bytes(_LEAST_ROOM)
                )  # else the disk is full
            return f"its test script could not write its reward: {refused}"
        if end.signal and not end.oom_killed and not _ends_itself(verifier_text(self.verifier)):
            return f"its test script was ended by signal {end.signal}, which came from within the box"
        after = await seal(box, self.verifier, self.words, self.paths, self.started)
        if changed := broken_seal(self.sealed, after, self.verifier):
            return f"{changed} was changed while the tests ran"
        if not self.verifier.report or _IN_BACKGROUND.search(verifier_text(self.verifier)):
            return ""
        if left:
            return f"what it started outlived its test script, beside the reward: {left[0][:80]!r}"
        if (end.orphans or orphans) and not await self._all_passed(box):
            return "what it started went on in the background, beside the reward"
        return ""

    async def _left_running(self, box: Sandbox) -> tuple[list[str], bool]:
        """End all processes of the run that there still are; return their command lines, and whether others ended."""
        said = await box.exec(["sh", "-c", f"{_RUNNING}; kill -9 -1"])
        lines = (line.partition(" ") for line in said.stdout.decode(errors="replace").splitlines())
        left = [words.strip() for number, _, words in lines if words.strip() and number not in self.running]
        return left, said.orphans

    async def contradicts(self, box: Sandbox, read: Read) -> str:
        """Return what speaks against what a parser read: the guard's own report, or a link; else an empty text."""
        told = sum(outcome is Outcome.PASSED for outcome in read.outcomes.values())
        if self.sealed is None or not (told or (read.reward or 0) > 0):
            return ""
        runs = await self._runs(box)
        return (
            (_failed_all_the_same(runs, read.reward) if read.reward is not None else "")
            or _more_than_there_were(runs, told if self.verifier.parser in _TEXTS else 0)
            or await _leads_to_tests(box, self.verifier)
        )

    async def _all_passed(self, box: Sandbox) -> bool:
        """Return whether there were watched runs of tests, and all passed."""
        ends = _last(await self._runs(box))
        return bool(ends) and not any(code for code, _ in ends)

    async def _runs(self, box: Sandbox) -> list[tuple[str, int, int]]:
        """Return how each run of tests ended: its arguments, its exit code, and how many tests passed in it."""
        if not self.report:
            return []
        try:
            said = await box.read_range(self.report, offset=0, length=_MOST_REPORT)
        except (NotFound, InvalidArgument):
            return []  # no run was watched
        runs = []
        for line in said.decode(errors="replace").splitlines():
            token, code, passed, arguments = (*line.split(" ", 3), "", "", "")[:4]
            if token == self.token and code.isdigit() and passed.isdigit():
                runs.append((arguments, int(code), int(passed)))
        return runs


def _last(runs: Sequence[tuple[str, int, int]]) -> list[tuple[int, int]]:
    """Return how the last run with the same arguments ended, for each."""
    return [*{arguments: (code, passed) for arguments, code, passed in runs}.values()]


def _failed_all_the_same(runs: Sequence[tuple[str, int, int]], reward: float) -> str:
    failed = [code for code, _ in _last(runs) if code]
    if failed and (reward >= 1 or not any(passed for _, passed in _last(runs))):
        return (
            f"its run of tests ended with exit code {failed[0]}, and the reward was {reward:g} all the same"
        )
    return ""


def _more_than_there_were(runs: Sequence[tuple[str, int, int]], told: int) -> str:
    """Return what is wrong where a text says that more tests passed than did: the work writes to that output, too."""
    passed = sum(passed for _, _, passed in runs)
    return f"its output says that {told} tests passed, and {passed} did" if runs and told > passed else ""


async def _leads_to_tests(box: Sandbox, verifier: Verifier) -> str:
    """Return the link by which the work had a file of the verifier's taken for its own, or an empty text."""
    if _LINKS.search(verifier_text(verifier)):
        return ""
    said = await box.exec(["sh", "-c", _LEADING], timeout_s=_LOOK_S)
    link = said.stdout.decode(errors="replace").partition("\n")[0]
    return f"{link[:200]} leads to the verifier's files" if link else ""


async def guard_of(box: Sandbox, verifier: Verifier, image: ImageAnswers | None) -> Guard:
    """Return the guard of a run that is about to begin. Raise `InfraError` if the box fails.

    Raise `InvalidArgument` where the work stands in the place of a Python's first code.
    """
    own = dict(verifier.env)
    if not await has_guard(box):
        return Guard(verifier, own)
    words, paths = programs(verifier), image.paths if image is not None else ()
    known = await box.exec(["sh", "-c", 'date +%s; printf %s "$PYTHONPATH"'], env=own)
    now, _, searched = known.stdout.decode(errors="replace").partition("\n")
    told = _first_code(verifier, image) if image is not None else {}
    if image is not None:
        told |= fence_variables(verifier, image.fence, workdir=verifier.workdir or "/", now=now)
    name, token = f"/tmp/.rock-{secrets.token_hex(8)}", secrets.token_hex(16)
    told["ROCK_GUARD_REPORT"] = f"{token}:{name}"
    searches = f"{_GUARD!r} in sys.path or sys.path.insert(0, {_GUARD!r})"
    begins = f"import sys; {searches}; import begin_rock; begin_rock.begin({json.dumps(told)})\n"
    started = [f"{site}/{_PTH}" for site in (image.sites if image is not None else ())]
    for path in started:
        await box.write_file(path, begins.encode())
    sealed, ran = await asyncio.gather(
        seal(box, verifier, words, paths, started), box.exec(["sh", "-c", _RUNNING])
    )
    running = frozenset(line.partition(" ")[0] for line in ran.stdout.decode(errors="replace").splitlines())
    variables = {**own, **told, "PYTHONPATH": f"{_GUARD}:{searched}" if searched else _GUARD}
    return Guard(verifier, variables, words, paths, started, sealed, running, name, token)


def _first_code(verifier: Verifier, image: ImageAnswers) -> dict[str, str]:
    """Return what the first code of each Python is told: which names of the library's are the work's or the verifier's."""
    stems = {
        file.path.rpartition("/")[2].removesuffix(".py")
        for file in verifier.files
        if file.path.endswith(".py")
    }
    free = (stems | {*image.own}) & sys.stdlib_module_names | {*image.asked}
    tools = [name for name in image.told.get("tools", ()) if name.isidentifier() and name not in stems]
    held = [f"/{folder}" for folder in image.told.get("held", ())]
    return {"ROCK_GUARD_OWN": ":".join([*sorted(free), *held]), "ROCK_GUARD_TOOLS": ":".join(tools)}
