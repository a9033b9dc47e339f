"""Says, while a run goes on, what takes far longer than it did before: who waits for whom, and since when.

Each kind of work of the timeline has a budget: so many times the longest of its kind that ended, and no less than five
minutes; the first of a kind has half an hour. What is beyond it is said once, and again whenever it has taken twice as
long. A thread sleeps until the next budget is used up; it is woken where work begins or ends, and never looks at a clock
otherwise.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass

from trainer.live.status import Status, lasting, lines
from trainer.timeline import Span, Timeline

__all__ = ["Watch"]

_FIRST_S, _LEAST_S, _TIMES = 1800.0, 300.0, 5.0


@dataclass(slots=True)
class _Watched:
    due_s: float
    """When it is said next, in Unix seconds."""
    budget_s: float


class Watch:
    """A context manager; its thread calls `say` with what a person reads."""

    def __init__(
        self,
        timeline: Timeline,
        answer: Callable[[], Status],
        say: Callable[[str], None],
        *,
        first_s: float = _FIRST_S,
        least_s: float = _LEAST_S,
    ) -> None:
        self._timeline, self._answer, self._say = timeline, answer, say
        self._first_s, self._least_s = first_s, least_s
        self._longest: dict[tuple[str, str], float] = {}
        self._watched: dict[object, _Watched] = {}
        self._moved = threading.Event()
        self._ends = False
        self._thread = threading.Thread(target=self._run, name="watch", daemon=True)

    def __enter__(self) -> Watch:
        self._timeline.tell(self._moved.set, self._ended)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ends = True
        self._moved.set()
        self._thread.join()

    def _ended(self, span: Span) -> None:
        kind = (span.role, span.what)
        self._longest[kind] = max(self._longest.get(kind, 0.0), span.end_s - span.begin_s)

    def _run(self) -> None:
        wait_s: float | None = None
        while True:
            self._moved.wait(wait_s)
            self._moved.clear()
            if self._ends:
                return
            wait_s = self._look()

    def _look(self) -> float | None:
        """Say what is due; return in how many seconds something is, None where nothing goes on."""
        now, running = self._timeline.now(), self._timeline.running()
        self._watched = {key: self._watched.get(key) or self._watch(span) for key, span in running.items()}
        for key, watched in self._watched.items():
            if watched.due_s <= now:
                span = running[key]
                lasted_s = now - span.begin_s
                watched.due_s = span.begin_s + 2 * lasted_s
                self._say(self._told(span, lasted_s, watched.budget_s))
        return min((each.due_s - now for each in self._watched.values()), default=None)

    def _watch(self, span: Span) -> _Watched:
        longest_s = self._longest.get((span.role, span.what))
        budget_s = self._first_s if longest_s is None else max(self._least_s, _TIMES * longest_s)
        return _Watched(span.begin_s + budget_s, budget_s)

    def _told(self, span: Span, lasted_s: float, budget_s: float) -> str:
        longest_s = self._longest.get((span.role, span.what))
        before = f"at most {lasting(longest_s)} before" if longest_s else "the first of its kind"
        about = "\n".join(f"  {line}" for line in lines(self._answer()))
        return (
            f"{span.role} has been at {span.what} of step {span.step} for {lasting(lasted_s)}, beyond {lasting(budget_s)} "
            f"({before}). Now:\n{about}\n  `ale status RUN --stacks` shows where the run's own threads are"
        )
