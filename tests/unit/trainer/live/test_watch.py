"""Work that takes far longer than before is said once, and again when it has taken twice as long; other work never."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from trainer.live.status import Flights, Status, status_of
from trainer.live.watch import Watch
from trainer.timeline import Timeline


class Watched:
    """A timeline whose clock a test sets, and what is said of it."""

    def __init__(self, folder: Path) -> None:
        self.now = 1000.0
        self.timeline = Timeline(folder, clock=lambda: self.now)
        self.said: list[str] = []
        self.watch = Watch(self.timeline, self.status, lambda said, _: self.said.append(said), least_s=10.0)

    def status(self, whole: bool) -> Status:
        running = self.timeline.running()
        return status_of(running, Flights(), {}, step=1, steps=9, now_s=self.now)

    def at(self, now: float) -> float | None:
        """Set the clock, and look as the thread does when it wakes."""
        self.now = now
        return self.watch._look()


@pytest.fixture
def watched(tmp_path: Path) -> Iterator[Watched]:
    found = Watched(tmp_path)
    found.timeline.tell(found.watch._ended)
    yield found
    found.timeline.close()


def test_work_beyond_its_budget_is_said_once_and_when_it_has_taken_twice_as_long(watched: Watched) -> None:
    with watched.timeline.span("learner", "learn", 1):
        assert watched.at(1004.0) == 56.0  # the first of its kind
        watched.now = 1008.0
    with watched.timeline.span("learner", "learn", 2):
        assert watched.at(1008.0) == 40.0  # five times the longest
        assert watched.at(1047.0) == 1.0
        assert watched.said == []
        assert watched.at(1050.0) == 42.0
        assert watched.at(1090.0) == 2.0
        assert len(watched.said) == 1
        assert watched.at(1092.0) == 84.0
        assert len(watched.said) == 2
    assert watched.at(2000.0) is None
    first, second = watched.said
    assert first.startswith(
        "learner has been at learn of step 2 for 42 s, beyond 40 s (at most 8 s before). Now:\n"
    )
    assert "  learner: learn of step 2, for 42 s" in first
    assert "for 84 s" in second


def test_many_that_hang_are_said_as_one(watched: Watched) -> None:
    """A stream has a span for each rollout."""
    with ExitStack() as hung:
        for number in range(300):
            hung.enter_context(watched.timeline.span("environments", "rollouts", number // 100))
            watched.now += 0.01
        for now in range(1060, 1100):
            watched.at(now)
        (said,) = watched.said
        assert "environments: rollouts of step 0 (100 at once), for 6" in said
        assert said.count("\n") < 10
        watched.at(1200.0)
        assert len(watched.said) == 2


def test_who_listens_badly_ends_no_watch(watched: Watched) -> None:
    def say(text: str, logs: object) -> None:
        watched.said.append(text)
        raise OSError

    watched.watch._say = say
    with watched.timeline.span("learner", "learn", 1):
        watched.at(1060.0)
        watched.at(1120.0)
    assert len(watched.said) == 2


def test_short_work_has_some_seconds(watched: Watched) -> None:
    for step in (1, 2):
        with watched.timeline.span("weights", "load", step):
            assert watched.at(watched.now + 0.1) == pytest.approx(59.9 if step == 1 else 9.9)


def test_the_thread_sees_what_begins_while_it_sleeps(tmp_path: Path) -> None:
    timeline, said = Timeline(tmp_path), threading.Event()
    told: list[str] = []

    def say(text: str, logs: object) -> None:
        told.append(text)
        said.set()

    def status(whole: bool) -> Status:
        return status_of(timeline.running(), Flights(), {}, step=0, steps=1, now_s=timeline.now())

    with Watch(timeline, status, say, least_s=0.01), timeline.span("learner", "learn", 1):
        assert said.wait(20)
    timeline.close()
    assert told[0].startswith("learner has been at learn of step 1 for")
    assert "the first of its kind" in told[0]


def test_what_one_outage_took_is_no_measure_for_ever(watched: Watched) -> None:
    with watched.timeline.span("learner", "learn", 1):
        watched.now += 3600.0
    for step in range(2, 60):
        with watched.timeline.span("learner", "learn", step):
            watched.now += 4.0
    begun = watched.now
    with watched.timeline.span("learner", "learn", 60):
        assert watched.at(begun + 19.0) == 1.0
        watched.at(begun + 21.0)
        assert watched.said[-1].startswith("learner has been at learn of step 60 for 21 s, beyond 20 s")
