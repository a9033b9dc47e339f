"""Says, while a run goes on, what takes far longer than it did before: who waits for whom, and since when.

Each kind of work and of waiting of the timeline has a budget: five times the longest of the last of its kind that ended,
and no less than `guard.late_s`; the first of a kind has six times that. What is beyond it is said once, with where every
process of the run is, and again whenever it has taken twice as long. A thread sleeps until the next budget is used up, at
most for the least budget: what begins meanwhile is seen before its own is, so that work never wakes it.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress

from trainer.live.status import Status, lasting, lines, logs
from trainer.timeline import Span, Timeline

__all__ = ["Watch"]

_FIRST, _TIMES, _LAST, _JOIN_S = 6.0, 5.0, 50, 5.0


_MORE = "  `ale status RUN --stacks` shows where all threads are"
_Kind = tuple[str, str]
"""Role and what."""


class Watch:
    """A context manager; its thread calls `say` with what a person reads, and with lines of logs, which may hold secrets.

    Neither `say` nor `answer` can end it.
    """

    def __init__(
        self,
        timeline: Timeline,
        answer: Callable[[bool], Status],
        say: Callable[[str, Sequence[str]], None],
        *,
        least_s: float,
    ) -> None:
        """Budgets are at least `least_s`, those of the first of a kind six times as much."""
        self._timeline, self._answer, self._say = timeline, answer, say
        self._first_s, self._least_s = _FIRST * least_s, least_s
        self._lasted: dict[_Kind, deque[float]] = {}
        """Of the last that ended, in seconds: what an outage took is no measure for ever."""
        self._quiet_s: dict[_Kind, float] = {}
        """Until when, in Unix seconds, a kind of work that goes on and was said is not said again."""
        self._ends = threading.Event()
        self._thread = threading.Thread(target=self._run, name="watch", daemon=True)

    def __enter__(self) -> Watch:
        self._timeline.tell(self._ended)
        with suppress(RuntimeError):  # no thread can be started: the run goes on unwatched
            self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ends.set()
        if self._thread.is_alive():
            self._thread.join(_JOIN_S)  # `say` may wait for whoever ends the run

    def _ended(self, span: Span) -> None:
        lasted = self._lasted.setdefault((span.role, span.what), deque(maxlen=_LAST))
        lasted.append(span.end_s - span.begin_s)

    def _longest_s(self, kind: _Kind) -> float | None:
        return max(self._lasted.get(kind, ()), default=None)

    def _run(self) -> None:
        wait_s: float | None = None
        while not self._ends.wait(self._least_s if wait_s is None else min(wait_s, self._least_s)):
            wait_s = self._look()

    def _look(self) -> float | None:
        """Say what is due, of each kind its oldest; return in how many seconds something is, None where nothing goes on."""
        now, oldest = self._timeline.now(), dict[_Kind, Span]()
        for span in sorted(self._timeline.running(), key=lambda span: span.begin_s):
            oldest.setdefault((span.role, span.what), span)
        self._quiet_s = {kind: until for kind, until in self._quiet_s.items() if kind in oldest}
        due: list[float] = []
        late: list[str] = []
        for kind, span in oldest.items():
            budget_s = self._budget_s(kind)
            due_s = max(span.begin_s + budget_s, self._quiet_s.get(kind, 0.0))
            if due_s <= now:
                lasted_s = now - span.begin_s
                due_s = self._quiet_s[kind] = now + lasted_s
                late.append(self._told(span, lasted_s, budget_s))
            due.append(due_s - now)
        if late:
            with suppress(Exception):  # watching ends no run, and goes on
                status = self._answer(False)
                about = [f"  {line}" for line in lines(status, logs=False)]
                self._say("\n".join([f"{'; '.join(late)}. Now:", *about, _MORE]), [*logs(status)])
        return min(due, default=None)

    def _budget_s(self, kind: _Kind) -> float:
        longest_s = self._longest_s(kind)
        return self._first_s if longest_s is None else max(self._least_s, _TIMES * longest_s)

    def _told(self, span: Span, lasted_s: float, budget_s: float) -> str:
        longest_s = self._longest_s((span.role, span.what))
        before = f"at most {lasting(longest_s)} before" if longest_s else "the first of its kind"
        return (
            f"{span.role} has been at {span.what} of step {span.step} for {lasting(lasted_s)}, beyond {lasting(budget_s)} "
            f"({before})"
        )
