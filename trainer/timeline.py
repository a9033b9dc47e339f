"""What the parts of a run were busy with, and when: `timeline.jsonl` of a run folder, and what bounds a stretch of it.

Who runs the steps records spans of time, which are written once a step. The rest are pure functions over spans. Times are
Unix seconds by the clock of the machine that did the work.
"""

from __future__ import annotations

import threading
import time
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from heapq import heappop, heappush
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple, get_args

import msgspec

from trainer.files.appended import Appended, keep_lines
from trainer.files.folder import writing

__all__ = [
    "BESIDE",
    "ROLES",
    "TIMELINE",
    "Role",
    "Span",
    "Timeline",
    "bound_by",
    "busy",
    "joined",
    "stretches",
    "told",
]

TIMELINE = "timeline.jsonl"
MOST_A_STEP = 300
"""Lines that one step writes, of about 120 bytes: beyond that the shortest gaps between spans of one kind are closed."""
_CHARS = 100
_Text = Annotated[str, msgspec.Meta(max_length=_CHARS)]
_Step = Annotated[int, msgspec.Meta(ge=-(10**9), le=10**9)]

Role = Literal[
    "samplers", "environments", "rewards", "learner", "weights", "evaluation", "checkpoint", "driver"
]
ROLES: tuple[Role, ...] = get_args(Role)
BESIDE = "write beside"
"""What a `checkpoint` is at while the run goes on, which bounds nothing: where it is waited for, another span says so."""
_ROLLOUTS: tuple[Role, ...] = ("samplers", "environments")
_VERSIONS: tuple[Role, ...] = ("learner", "weights")


class Span(msgspec.Struct, frozen=True, omit_defaults=True, rename={"begin_s": "from", "end_s": "to"}):
    """One line: work of one kind that went on without a break.

    `environments` are rollouts in flight, their engine calls included; `samplers` are engine calls. A `driver` marks the
    instant at which a run that had ended went on.
    """

    role: Role
    what: _Text
    """Its kind, such as `learn`, never one rollout: spans of a kind, step and process that touch are written as one."""
    step: _Step
    """Whose batch it is for; the version, of `weights`."""
    begin_s: float
    end_s: float
    process: _Text = ""
    """Such as `worker 1`."""

    def __post_init__(self) -> None:
        if not 0 <= self.begin_s <= self.end_s <= 1e11:
            raise ValueError(f"expected Unix seconds from ≤ to, got {self.begin_s} and {self.end_s}")


class Timeline:
    """Records spans, from any thread. Opening and writing it raise `RunFolderError`."""

    def __init__(
        self, folder: Path, *, resume_step: int | None = None, clock: Callable[[], float] = time.time
    ) -> None:
        """Go on with the lines up to `resume_step`; None starts anew. `clock` returns Unix seconds."""
        self._folder, self._clock, self._since = folder, clock, clock()
        self._lock = threading.Lock()
        self._ended: list[Span] = []
        self._running: dict[object, Span] = {}
        self._waiting: dict[object, Span] = {}
        self._told: Callable[[Span], object] = lambda _: None
        path = folder / TIMELINE
        with writing("the timeline", folder):
            keep_lines(path, lambda line: resume_step is not None and line["step"] <= resume_step)
            self._file = Appended(path)
        if resume_step is not None:
            self.add("driver", "resumed", resume_step, self._since, self._since)

    def add(self, role: Role, what: str, step: int, begin_s: float, end_s: float, process: str = "") -> None:
        """Record what has ended. Where a clock was set back, it ends as it begins."""
        begin_s, end_s = round(begin_s, 6), round(max(begin_s, end_s), 6)
        span = Span(role, what[:_CHARS], step, begin_s, end_s, process[:_CHARS])
        with self._lock:
            self._ended.append(span)

    def tell(self, ended: Callable[[Span], object]) -> None:
        """Have `ended` called with each piece of work that `span` records, as it ends, from any thread."""
        self._told = ended

    def now(self) -> float:
        """Return the time in Unix seconds."""
        return self._clock()

    def running(self) -> list[Span]:
        """Return what goes on, each with its begin for an end."""
        with self._lock:
            return [*self._running.values(), *self._waiting.values()]

    def add_calls(self, step: int, calls: Sequence[Sequence[tuple[float, float]]]) -> None:
        """Record when each rollout worker's engine sampled for it, from when to when."""
        for worker, own in enumerate(calls, start=1):
            for begin_s, end_s in own:
                self.add("samplers", "sample", step, begin_s, end_s, f"worker {worker}")

    @contextmanager
    def span(self, role: Role, what: str, step: int, process: str = "") -> Iterator[None]:
        """Record the body. Meanwhile `end_step` counts it as far as it has come."""
        begin_s, this = self._clock(), object()
        with self._lock:
            begun = self._running[this] = Span(role, what[:_CHARS], step, begin_s, begin_s)
        try:
            yield
        finally:
            with self._lock:
                del self._running[this]
            end_s = max(begin_s, self._clock())
            self.add(role, what, step, begin_s, end_s, process)
            self._told(msgspec.structs.replace(begun, end_s=end_s))

    @contextmanager
    def wait(self, what: str, step: int) -> Iterator[None]:
        """Count the body as the driver's among what goes on, and write nothing of it: others work meanwhile."""
        begin_s, this = self._clock(), object()
        with self._lock:
            begun = self._waiting[this] = Span("driver", what[:_CHARS], step, begin_s, begin_s)
        try:
            yield
        finally:
            with self._lock:
                del self._waiting[this]
            self._told(msgspec.structs.replace(begun, end_s=max(begin_s, self._clock())))

    def end_step(self) -> dict[str, float]:
        """Write what has ended since the last call; return `busy/ROLE`, `bound/ROLE` (docs/timeline.md) since then."""
        since, now = self._since, self._clock()
        with self._lock:
            ended, self._ended, self._since = self._ended, [], now
            running = [*self._running.values()]
        self._write(ended)
        spans = ended + [msgspec.structs.replace(span, end_s=max(now, span.begin_s)) for span in running]
        shares = {"busy": busy(spans, since, now), "bound": bound_by(spans, since, now)}
        return {f"{name}/{role}": share for name, found in shares.items() for role, share in found.items()}

    def close(self) -> None:
        """Write what is left and close the file."""
        try:
            self._write(self._ended)
        finally:
            self._file.close()

    def _write(self, spans: Iterable[Span]) -> None:
        with writing("the timeline", self._folder):
            self._file.write(b"".join(msgspec.json.encode(span) + b"\n" for span in _few(spans)))


def _few(spans: Iterable[Span]) -> Iterator[Span]:
    """Join spans of one kind that touch, and close the shortest gaps between them where they are too many."""
    kinds: dict[tuple[Role, str, int, str], list[tuple[float, float]]] = {}
    for span in spans:
        kind = (span.role, span.what, span.step, span.process)
        kinds.setdefault(kind, []).append((span.begin_s, span.end_s))
    kinds = {kind: joined(times) for kind, times in kinds.items()}
    gaps = sorted(then[0] - at[1] for times in kinds.values() for at, then in pairwise(times))
    above = min(len(gaps) + len(kinds) - MOST_A_STEP, len(gaps))
    for (role, what, step, process), times in kinds.items():
        for begin_s, end_s in joined(times, gaps[above - 1] if above > 0 else 0.0):
            yield Span(role, what, step, begin_s, end_s, process)


def joined(times: Iterable[tuple[float, float]], gap_s: float = 0.0) -> list[tuple[float, float]]:
    """Return the union of (begin, end) in order, joined where they touch or lie at most `gap_s` apart."""
    found: list[tuple[float, float]] = []
    for begin_s, end_s in sorted(times):
        if found and begin_s - found[-1][1] <= gap_s:
            found[-1] = (found[-1][0], max(end_s, found[-1][1]))
        else:
            found.append((begin_s, end_s))
    return found


def busy(spans: Iterable[Span], begin_s: float, end_s: float) -> dict[Role, float]:
    """Return by role the share of the time in which any of its spans ran, without roles that had none."""
    times: dict[Role, list[tuple[float, float]]] = {role: [] for role in ROLES}
    for span in spans:
        if (begin := max(span.begin_s, begin_s)) < (end := min(span.end_s, end_s)):
            times[span.role].append((begin, end))
    lasted = {role: sum(end - begin for begin, end in joined(each)) for role, each in times.items()}
    return {role: each / (end_s - begin_s) for role, each in lasted.items() if each}


class Stretch(NamedTuple):
    """A time during which the same spans ran, the role that it counts for, and who waited for what, if anybody."""

    begin_s: float
    end_s: float
    bound: Role
    wait: tuple[Role, str] | None


def stretches(spans: Iterable[Span]) -> list[Stretch]:
    """Return, from the first begin to the last end, who waited for whom, and the one role that each instant counts for.

    Rollouts are at work while an engine call (`samplers`) or a rollout (`environments`) is in flight. The learner waits for
    rollouts of step s while it is idle, s is what it does next, and rollouts of s or of a step before are at work. The
    samplers wait for version v while no rollouts are at work, but later some are, and the learner learns step v or its
    weights are on their way.

    An instant is the learner's while it works without rollouts. While it is idle, the first of `ROLES` at work has it, or
    the driver. While both work, the next wait decides whose it is: the learner's if the samplers wait; if the learner waits,
    the samplers' or, with no engine call in flight, the environments'. After the last wait it is that side's which ends
    later; the learner's where both end at once. A checkpoint that is written `BESIDE` has none.
    """
    spans = [span for span in spans if span.begin_s < span.end_s and span.what != BESIDE]
    spans.sort(key=lambda span: span.begin_s)
    learns = [span for span in spans if span.role == "learner"]
    plays = [span for span in spans if span.role in _ROLLOUTS]
    found: list[tuple[float, float, Mapping[Role, int], tuple[Role, str] | None]] = []
    for begin_s, end_s, steps in _instants(spans):
        after = bisect_right(learns, begin_s, key=lambda span: span.begin_s)
        following = learns[after].step if after < len(learns) and "learner" not in steps else None
        wait: tuple[Role, str] | None = None
        if in_flight := [steps[role] for role in _ROLLOUTS if role in steps]:
            if following is not None and min(in_flight) <= following:
                wait = "learner", f"rollouts of step {following}"
        elif (made := [-steps[role] for role in _VERSIONS if role in steps]) and plays:
            wait = ("samplers", f"version {max(0, *made)}") if plays[-1].begin_s > begin_s else None
        found.append((begin_s, end_s, steps, wait))
    last_learnt, last_played = (max((span.end_s for span in each), default=0.0) for each in (learns, plays))
    result, for_learner = [], last_learnt >= last_played
    for begin_s, end_s, steps, wait in reversed(found):
        for_learner = wait[0] == "samplers" if wait else for_learner
        alone = "learner" in steps and (for_learner or steps.keys().isdisjoint(_ROLLOUTS))
        bound: Role = "learner" if alone else next((role for role in ROLES if role in steps), "driver")
        result.append(Stretch(begin_s, end_s, bound, wait))
    return result[::-1]


def _instants(spans: Sequence[Span]) -> Iterator[tuple[float, float, Mapping[Role, int]]]:
    """Yield each time between two ends of sorted spans with the roles at work and their first steps (of versions −last)."""
    running: dict[Role, list[tuple[int, float]]] = {role: [] for role in ROLES}
    begun = 0
    for at, to in pairwise(sorted({time_s for span in spans for time_s in (span.begin_s, span.end_s)})):
        while begun < len(spans) and (span := spans[begun]).begin_s <= at:
            heappush(running[span.role], (-span.step if span.role in _VERSIONS else span.step, span.end_s))
            begun += 1
        for heap in running.values():
            while heap and heap[0][1] <= at:
                heappop(heap)
        yield at, to, {role: heap[0][0] for role, heap in running.items() if heap}


def bound_by(spans: Iterable[Span], begin_s: float, end_s: float) -> dict[Role, float]:
    """Return by role the share of the time that counts for it (`stretches`), without roles that have none; together 1.

    Spans beyond the time tell who is waited for within it. A time without length has no shares.
    """
    lasted: dict[Role, float] = dict.fromkeys(ROLES, 0.0)
    for stretch in stretches(spans):
        lasted[stretch.bound] += max(0.0, min(stretch.end_s, end_s) - max(stretch.begin_s, begin_s))
    lasted["driver"] += max(0.0, end_s - begin_s - sum(lasted.values()))
    return {role: each / (end_s - begin_s) for role, each in lasted.items() if each}


def told(shares: Mapping[Any, float]) -> str:
    """Return `bound by: samplers 62 %, learner 21 %`, the largest first, without those below 5 %; "" where none is left."""
    large = sorted((-share, role) for role, share in shares.items() if share >= 0.05)
    return "bound by: " * bool(large) + ", ".join(f"{role} {-share * 100:.0f} %" for share, role in large)
