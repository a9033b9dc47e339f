"""From what a verifier showed to a verdict, and the question whose fault it is when it showed nothing.

A verdict is about the agent's work; whatever keeps a verifier from running where the agent never was is an `InfraError`
instead.
"""

from __future__ import annotations

import asyncio
import math
import re
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, replace

from rock_env.env import FreshBoxes, Verdict
from rock_env.errors import InfraError, InvalidArgument, NotFound, RockError, UnfitFiles, Unimplemented
from rock_env.grading.fence import ask_clean
from rock_env.grading.guard import has_guard, programs
from rock_env.grading.image import ImageAnswers, ask_image
from rock_env.grading.left_shell import LeftShell, ask_shell
from rock_env.grading.model import Verifier
from rock_env.grading.outcomes import Outcome, worst
from rock_env.grading.verifier import Report, run_verifier
from rock_env.grading.work import carry_work, need_box, own_limits
from rock_env.sandbox import Sandbox

__all__ = ["Flakiness", "Prepare", "Solve", "grade_task", "repeat", "verdict_of"]

Prepare = Callable[[Sandbox], Awaitable[None]]
"""Makes a pristine box what the agent's was when it started: the task's files and its setup."""
Solve = Callable[[Sandbox], Awaitable[None]]
"""Plays the task's own solution in a prepared box."""
_NAMED = 5
_PATH = re.compile(r"\[/(?!/)[^\]]*/")
"""In the name of a test: the folders of a path that is its parameter."""


def verdict_of(report: Report, verifier: Verifier) -> Verdict:
    """Return the verdict; pure. Raise `InfraError` for a report that shows nothing.

    A verifier's own reward is taken as it is, and 1 or more is a pass. Else each test of `must_pass` (without: each
    that is not skipped) and of `keep_passing` has to pass, and one without an outcome did not. With `partial` the reward
    is the share of the former, or 0 if one of the latter fails.
    """
    if report.timed_out:
        return Verdict(
            0.0, passed=False, details=f"the verifier did not finish within {verifier.timeout_s:g} s"
        )
    if report.tampered:
        return Verdict(
            0.0, passed=False, details=f"the code under test changed how it is tested: {report.tampered}"
        )
    if report.problem:
        raise InfraError(f"the verifier showed nothing: {report.problem}. {_said(report, verifier)}")
    if report.reward is not None:
        if not math.isfinite(report.reward):
            raise InfraError(f"the verifier's reward is not a finite number: {report.reward}")
        passed = report.reward >= 1.0
        details = (
            f"reward {report.reward:g}" if passed else f"reward {report.reward:g}. {_said(report, verifier)}"
        )
        return Verdict(report.reward, passed=passed, details=details)
    kept = set(verifier.keep_passing)
    must = verifier.must_pass or tuple(
        test
        for test, outcome in report.outcomes.items()
        if outcome is not Outcome.SKIPPED and test not in kept
    )
    missing = {*must, *kept} - set(report.outcomes)
    by_beginning = _by_beginning(report, missing) if verifier.cut_at_space else {}
    otherwise = {**_by_end(report, missing), **by_beginning} if missing else {}
    report = replace(report, outcomes={**otherwise, **report.outcomes})
    broken = [test for test in verifier.keep_passing if not _passed(report, test)]
    missed = [test for test in must if not _passed(report, test)]
    share = (len(must) - len(missed)) / len(must) if must else 0.0
    passed = bool(must or kept) and not broken and not missed
    reward = (0.0 if broken else share) if verifier.partial and must else float(passed)
    details = _details((must, missed), broken)
    if by_beginning:
        details += f"; {len(by_beginning)} by names that end at a space"
    if len(otherwise) > len(by_beginning):
        details += f"; {len(otherwise) - len(by_beginning)} by docstrings or names without a file or folders"
    return Verdict(reward, passed=passed, details=details if passed else details + _offline(verifier))


def _by_end(report: Report, missing: Collection[str]) -> Mapping[str, Outcome]:
    """Return outcomes for names that are a test's docstring, its own name without the file, or lack a path's folders.

    One that stands for several tests has their worst outcome: they have to agree.
    """
    own = [(name.rpartition("::")[2], outcome) for name, outcome in report.outcomes.items()]
    bare = [(_PATH.sub("[/", name), outcome) for name, outcome in report.outcomes.items()]
    return worst(
        (name, outcome) for name, outcome in (*own, *bare, *report.described.items()) if name in missing
    )


def _by_beginning(report: Report, missing: Collection[str]) -> Mapping[str, Outcome]:
    """Return outcomes for names that were reported only as the beginning of others, up to their first space.

    One that stands for several tests has their worst outcome: they have to agree.
    """
    cut = ((name.partition(" ")[0], outcome) for name, outcome in report.outcomes.items() if " " in name)
    return worst((name, outcome) for name, outcome in cut if name in missing)


def _passed(report: Report, test: str) -> bool:
    return report.outcomes.get(test) is Outcome.PASSED


def _details(tests: tuple[Sequence[str], Sequence[str]], broken: Sequence[str]) -> str:
    must, missed = tests
    details = f"{len(must) - len(missed)} of {len(must)} tests passed"
    for what, names in (("not", missed), ("broken", broken)):
        if names:
            more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
            details += f"; {what}: {', '.join(names[:_NAMED])}{more}"
    return details


def _said(report: Report, verifier: Verifier) -> str:
    words = f"Its last words: {report.tail}" if report.tail else "It said nothing."
    return words + _offline(verifier)


def _offline(verifier: Verifier) -> str:
    if not verifier.download:
        return ""
    what = f"Its tests fetch something ({verifier.download}), and the box has no network"
    return f" {what}: allow one, or put what they need into the image."


async def grade_task(
    box: Sandbox,
    fresh: FreshBoxes,
    verifier: Verifier,
    *,
    prepare: Prepare | None = None,
    work: str = "",
    asked: Sequence[str] = (),
    solve: Solve | None = None,
) -> Verdict:
    """Run the verifier where `verifier.grade_in` says and judge what it showed.

    `work` is the agent's folder that a pristine box gets (see `carry_work`), which `prepare` makes ready first; `asked` are
    words of the task (see `FreshBoxes.take_over`). Where the verifier showed nothing it is run once more in a pristine box
    without any work: if it does show something there, the agent's work broke it, which is a reward of 0. If it shows nothing
    there, but passes what `solve` does, it only cannot be run without the work, which is a reward of 0, too. Else raise
    `InfraError`. Where the grade's own box fails, the grade is made once more in another; but where a box used up what its
    own limits give it, the verifier showed nothing.
    """
    boxes = _Boxes(box, fresh, prepare, work, asked)
    try:
        report = await _within_limits(boxes, verifier)
    except InfraError:
        if verifier.grade_in == "same":
            raise
        await need_box(box)
        report = await _within_limits(boxes, verifier)  # a box that froze or was lost: no work failed in it
    if not report.problem:
        return _with_left_out(verdict_of(report, verifier), report.left_out)
    async with fresh.pristine() as other:
        if prepare is not None:
            await prepare(other)
        untouched = await run_verifier(other, verifier)
    if untouched.problem or untouched.timed_out:
        if solve is not None and await _passes(boxes, verifier, solve):
            why = f"the verifier shows nothing without the work, and showed nothing of the agent's: {report.problem}"
            return _with_left_out(Verdict(0.0, passed=False, details=why), report.left_out)
        why = untouched.problem or "it did not finish in time"
        raise InfraError(
            f"the verifier cannot be used: {report.problem}; without the agent's work: {why}. {_said(untouched, verifier)}"
        )
    broken = Verdict(0.0, passed=False, details=f"the agent's work broke the verifier: {report.problem}")
    return _with_left_out(broken, report.left_out)


async def _passes(boxes: _Boxes, verifier: Verifier, solve: Solve) -> bool:
    """Return whether the verifier passes the task's own solution in a clean box."""
    async with boxes.prepared() as other:
        await solve(other)
        solved = await run_verifier(other, verifier)
    return not solved.problem and verdict_of(solved, verifier).passed


def _with_left_out(verdict: Verdict, left_out: Sequence[str]) -> Verdict:
    if not left_out:
        return verdict
    more = f" and {len(left_out) - _NAMED} more" if len(left_out) > _NAMED else ""
    named = ", ".join(f"/{path}" for path in left_out[:_NAMED])
    return replace(verdict, details=f"{verdict.details}; not in the grade's box: {named}{more}")


@dataclass(frozen=True, slots=True)
class _Boxes:
    """What a grade is made of: the agent's box, others, and what is done to these first."""

    agent: Sandbox
    fresh: FreshBoxes
    prepare: Prepare | None
    work: str
    asked: Sequence[str]

    @asynccontextmanager
    async def prepared(self) -> AsyncIterator[Sandbox]:
        async with self.fresh.pristine() as other:
            if self.prepare is not None:
                await self.prepare(other)
            async with own_limits(other):
                yield other

    def workdir(self, verifier: Verifier) -> str:
        """Return where the agent works."""
        return verifier.workdir or self.work

    async def asked_of(self, other: Sandbox, verifier: Verifier) -> ImageAnswers:
        """Return what a clean box tells of its image."""
        workdir = self.workdir(verifier)
        asked = ask_image(other, verifier, workdir=workdir, asked=self.asked)
        image, fence = await asyncio.gather(asked, ask_clean(other, workdir))
        return replace(image, fence=fence)

    async def lost(self, other: Sandbox, error: RockError) -> Report:
        """Return that the agent's work cannot be had. Raise `InfraError` where a box is gone."""
        await need_box(self.agent)
        await need_box(other)
        return Report(problem=f"the agent's work cannot be taken over: {error.message}")


async def _within_limits(boxes: _Boxes, verifier: Verifier) -> Report:
    """Run it; where a limit of a box's own stops it, that is its problem. What the machine lacks is raised."""
    try:
        async with own_limits(boxes.agent):
            return await _graded(boxes, verifier)
    except RockError as error:
        if not error.own_limit:
            raise
        return Report(problem=f"its sandbox used up what it may have: {error.message}")


async def _graded(boxes: _Boxes, verifier: Verifier) -> Report:
    left = verifier.in_shell and verifier.grade_in != "pristine"
    shell = await ask_shell(boxes.agent, verifier) if left else LeftShell()
    if verifier.grade_in == "same":
        return await run_verifier(boxes.agent, verifier, shell=shell)
    if verifier.grade_in == "fork":
        return await _in_a_copy(boxes, verifier, shell)
    async with boxes.prepared() as other:
        image = await boxes.asked_of(other, verifier) if await has_guard(other) else None
        if boxes.work:
            try:
                await carry_work(boxes.agent, other, boxes.work)
            except (UnfitFiles, NotFound) as error:
                return await boxes.lost(other, error)
        return await run_verifier(other, verifier, image)


async def _in_a_copy(boxes: _Boxes, verifier: Verifier, shell: LeftShell) -> Report:
    """Run it where the agent's files are, and what runs it is the image's; in a plain fork where that cannot be."""
    if await has_guard(boxes.agent) and (report := await _taken_over(boxes, verifier, shell)) is not None:
        return report
    async with boxes.fresh.fork() as copy, own_limits(copy):
        return await run_verifier(copy, verifier, shell=shell)


async def _taken_over(boxes: _Boxes, verifier: Verifier, shell: LeftShell) -> Report | None:
    """Run it in a clean box that takes the agent's files over; None where the backend cannot do that."""
    async with boxes.prepared() as other:
        image = await boxes.asked_of(other, verifier)
        try:
            left_out = await boxes.fresh.take_over(
                other,
                runs=programs(verifier),
                asked=boxes.asked,
                workdir=boxes.workdir(verifier),
                image=image.told,
            )
        except UnfitFiles as error:
            return await boxes.lost(other, error)
        except Unimplemented:
            return None
        return replace(await run_verifier(other, verifier, image, shell), left_out=left_out)


@dataclass(frozen=True, slots=True)
class Flakiness:
    """What several runs of one verifier on equal boxes showed."""

    runs: int
    flaky: Mapping[str, tuple[str, ...]]
    """Each test that ended in several ways, with the ways, most frequent first; `missing` where a run did not report it."""
    rewards: tuple[float, ...]
    """The reward of each run; a run without a verdict is `nan`."""
    problems: tuple[str, ...]
    """Why runs showed nothing."""


async def repeat(
    boxes: Callable[[], AbstractAsyncContextManager[Sandbox]], verifier: Verifier, *, times: int
) -> Flakiness:
    """Run the verifier on `times` equal boxes, one after the other, and tell whose outcome differs.

    `boxes()` lends one box each time, such as `fresh.pristine` or a fork in which the solution was played.
    """
    if times < 2:
        raise InvalidArgument(f"flakiness shows in at least 2 runs, got {times}")
    reports = []
    for _ in range(times):
        async with boxes() as box:
            reports.append(await run_verifier(box, verifier))
    rewards, problems = [], []
    for report in reports:
        try:
            rewards.append(verdict_of(report, verifier).reward)
        except InfraError as error:
            rewards.append(math.nan)
            problems.append(error.message)
    tests = sorted({test for report in reports for test in report.outcomes})
    ways = {test: Counter(str(report.outcomes.get(test, "missing")) for report in reports) for test in tests}
    flaky = {
        test: tuple(way for way, _ in counted.most_common())
        for test, counted in ways.items()
        if len(counted) > 1
    }
    return Flakiness(times, flaky, tuple(rewards), tuple(problems))
