"""What a run keeps of its time, and what bounds a stretch of it."""

from __future__ import annotations

import json
import threading
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trainer import timeline
from trainer.errors import RunFolderError
from trainer.timeline import ROLES, Role, Span, Timeline, bound_by, busy, joined, stretches, told

END = 24
SPANS = st.lists(
    st.builds(
        lambda role, step, begin, length: Span(role, "x", step, begin, begin + length),
        st.sampled_from(ROLES),
        st.integers(-1, 4),
        st.integers(0, END - 6),
        st.integers(0, 6),
    ),
    max_size=14,
)
ROLLOUTS = ("samplers", "environments")


def span(role: Role, step: int, begin: float, end: float) -> Span:
    return Span(role, "x", step, begin, end)


def waits(spans: list[Span]) -> dict[tuple[str, str], float]:
    found: dict[tuple[str, str], float] = {}
    for begin, end, _, wait in stretches(spans):
        if wait:
            found[wait] = found.get(wait, 0.0) + end - begin
    return found


def shares(spans: list[Span], begin: float, end: float) -> dict[str, float]:
    """Return what `bound_by` does in seconds."""
    return {role: round(share * (end - begin), 6) for role, share in bound_by(spans, begin, end).items()}


# -- the definition, computed a second time: second by second, each asked of all spans -------------------------------


def wait_of(spans: list[Span], at: int) -> str:
    here = [each for each in spans if each.begin_s <= at < each.end_s]
    rollouts = [each.step for each in here if each.role in ROLLOUTS]
    later = [each for each in spans if each.role == "learner" and at < each.begin_s < each.end_s]
    if rollouts:
        learner_works = any(each.role == "learner" for each in here)
        following = min(later, key=lambda each: each.begin_s, default=None)
        waited = not learner_works and following is not None and min(rollouts) <= following.step
        return "learner" if waited else ""
    more = any(each.role in ROLLOUTS and at < each.begin_s < each.end_s for each in spans)
    return "samplers" if more and any(each.role in ("learner", "weights") for each in here) else ""


def role_of(spans: list[Span], at: int) -> str:
    here = {each.role for each in spans if each.begin_s <= at < each.end_s}
    if "learner" in here:
        if not here & {*ROLLOUTS}:
            return "learner"
        next_wait = next((who for t in range(at, END + 1) if (who := wait_of(spans, t))), "")
        ends = {role: max((s.end_s for s in spans if s.role == role), default=0.0) for role in ROLES}
        if next_wait == "samplers" or (not next_wait and ends["learner"] >= max(ends[r] for r in ROLLOUTS)):
            return "learner"
    return next((role for role in ROLES if role in here), "driver")


@given(SPANS, st.integers(0, END), st.integers(1, END))
@settings(max_examples=200, deadline=None)
def test_shares_are_those_of_the_definition_and_add_up_to_1(
    spans: list[Span], begin: int, length: int
) -> None:
    spans = [each for each in spans if each.begin_s < each.end_s]
    end = begin + length
    of_each = [role_of(spans, at) for at in range(begin, end)]
    found = bound_by(spans, begin, end)
    assert found == pytest.approx({role: of_each.count(role) / length for role in {*of_each}})
    assert sum(found.values()) == pytest.approx(1)
    at_work = {
        role: {t for t in range(begin, end) for s in spans if s.role == role and s.begin_s <= t < s.end_s}
        for role in ROLES
    }
    assert busy(spans, begin, end) == pytest.approx({r: len(t) / length for r, t in at_work.items() if t})
    for at in range(END):
        here = [each for each in stretches(spans) if each.begin_s <= at < each.end_s]
        assert [each.wait[0] if each.wait else "" for each in here] == [wait_of(spans, at)] * len(here)


@given(st.lists(st.tuples(st.integers(0, 30), st.integers(0, 5)), max_size=12), st.integers(0, 3))
def test_a_union_covers_what_its_parts_do_and_no_more_than_the_gaps(
    parts: list[tuple[int, int]], gap: int
) -> None:
    times = [(float(begin), float(begin + length)) for begin, length in parts]
    found = joined(times, gap)
    assert all(end + gap < begin for (_, end), (begin, _) in pairwise(found))
    covered = {at for begin, end in found for at in range(int(begin), int(end))}
    parted = {at for begin, end in times for at in range(int(begin), int(end))}
    assert parted <= covered
    assert gap or covered == parted
    assert {edge for each in found for edge in each} <= {edge for each in times for edge in each}


def test_no_time_has_no_shares() -> None:
    assert bound_by([span("learner", 1, 0, 2)], 1, 1) == busy([span("learner", 1, 0, 2)], 1, 1) == {}
    assert bound_by([], 0, 2) == {"driver": 1.0}


# -- who waits for whom ----------------------------------------------------------------------------------------------


def test_in_lockstep_each_waits_for_the_other() -> None:
    spans = [
        each
        for step in (1, 2)
        for at in [(step - 1) * 10]
        for each in (
            span("environments", step, at, at + 6),
            span("samplers", step, at, at + 2),
            span("rewards", step, at + 5, at + 7),
            span("learner", step, at + 7, at + 9),
            span("weights", step, at + 9, at + 10),
        )
    ]
    assert waits(spans) == {
        ("learner", "rollouts of step 1"): 6,
        ("samplers", "version 1"): 3,
        ("learner", "rollouts of step 2"): 6,
    }
    assert shares(spans, 0, 20) == {
        "samplers": 4,
        "environments": 8,
        "rewards": 2,
        "learner": 4,
        "weights": 2,
    }


def test_where_both_work_the_time_is_whose_end_the_other_then_waits_for() -> None:
    slow_rollouts = [
        span("learner", 1, 0, 4),
        span("environments", 2, 0, 7),
        span("samplers", 2, 1, 3),
        span("learner", 2, 7, 9),
    ]
    assert waits(slow_rollouts) == {("learner", "rollouts of step 2"): 3}
    assert shares(slow_rollouts, 0, 9) == {"samplers": 2, "environments": 5, "learner": 2}
    slow_learner = [
        span("learner", 1, 0, 7),
        span("samplers", 2, 0, 4),
        span("samplers", 3, 7, 8),
        span("learner", 2, 7, 14),
    ]
    assert waits(slow_learner) == {("samplers", "version 1"): 3}
    assert shares(slow_learner, 0, 14) == {"learner": 14}


def test_the_learner_waits_for_no_rollouts_that_it_does_not_need_next() -> None:
    """A moment between two steps whose batches are there is nobody's wait: with a lag of 2 the samplers are ahead."""
    spans = [
        span("learner", 3, 0, 5),
        span("learner", 4, 5.5, 9),
        span("samplers", 5, 0, 7),
        span("samplers", 6, 9, 10),
    ]
    assert waits(spans) == {("samplers", "version 4"): 2}
    assert shares(spans, 0, 10) == {"samplers": 1.5, "learner": 8.5}


def test_the_warm_up_makes_version_0() -> None:
    assert waits([span("learner", -1, 0, 5), span("samplers", 1, 5, 6)]) == {("samplers", "version 0"): 5}


def test_what_bounds_is_told_without_what_is_little() -> None:
    found = {"samplers": 0.172, "learner": 0.21, "environments": 0.618, "driver": 0.049}
    assert told(found) == "bound by: environments 62 %, learner 21 %, samplers 17 %"
    assert told({"driver": 0.01}) == ""


# -- recording -------------------------------------------------------------------------------------------------------


class Clock:
    """Unix seconds that somebody sets."""

    now = 100.0

    def __call__(self) -> float:
        return self.now


def lines(folder: Path) -> list[dict[str, object]]:
    return [json.loads(line) for line in (folder / "timeline.jsonl").read_text().splitlines()]


def recorded(folder: Path, *steps: int, resume_step: int | None = None) -> None:
    log = Timeline(folder, resume_step=resume_step, clock=Clock())
    for step in steps:
        log.add("learner", "learn", step, step, step + 0.5)
        log.end_step()
    log.close()


def test_a_step_is_written_with_its_names_and_units(tmp_path: Path) -> None:
    log = Timeline(tmp_path)
    log.add("samplers", "engine call", 3, 10.0000001, 12.25, "sampler 0")
    log.add("weights", "load", 3, 13, 12)
    assert lines(tmp_path) == []
    log.end_step()
    log.add("checkpoint", "save", 3, 14, 15)
    log.close()
    assert lines(tmp_path) == [
        {
            "role": "samplers",
            "what": "engine call",
            "step": 3,
            "from": 10.0,
            "to": 12.25,
            "process": "sampler 0",
        },
        {"role": "weights", "what": "load", "step": 3, "from": 13, "to": 13},
        {"role": "checkpoint", "what": "save", "step": 3, "from": 14, "to": 15},
    ]


def test_the_shares_are_of_the_time_since_the_last_step_and_know_what_still_runs(tmp_path: Path) -> None:
    clock = Clock()
    log = Timeline(tmp_path, clock=clock)
    clock.now = 104
    with log.span("environments", "rollouts", 2):
        log.add("learner", "learn", 1, 101, 104)
        clock.now = 108
        assert log.end_step() == pytest.approx(
            {
                "busy/environments": 0.5,
                "busy/learner": 0.375,
                "bound/environments": 0.5,
                "bound/learner": 0.375,
                "bound/driver": 0.125,
            }
        )
        clock.now = 110
    assert log.end_step() == pytest.approx({"busy/environments": 1, "bound/environments": 1})
    assert log.end_step() == {}
    log.close()
    assert [(line["from"], line["to"]) for line in lines(tmp_path)] == [(101, 104), (104, 110)]


def test_a_body_that_raises_is_recorded(tmp_path: Path) -> None:
    log = Timeline(tmp_path)
    with pytest.raises(KeyError), log.span("learner", "learn", 1):
        raise KeyError
    log.close()
    assert [line["what"] for line in lines(tmp_path)] == ["learn"]


def test_a_resumed_run_goes_on_and_drops_what_it_does_again(tmp_path: Path) -> None:
    recorded(tmp_path, 1, 2, 3)
    with (tmp_path / "timeline.jsonl").open("a") as file:
        file.write('{"role": "lear')  # torn by kill -9
    recorded(tmp_path, 3, 4, resume_step=2)
    found = [(line["role"], line["step"]) for line in lines(tmp_path)]
    assert found == [("learner", 1), ("learner", 2), ("driver", 2), ("learner", 3), ("learner", 4)]
    recorded(tmp_path, 1)
    assert [line["step"] for line in lines(tmp_path)] == [1]


def test_many_spans_are_few_lines_that_cover_them(tmp_path: Path) -> None:
    log = Timeline(tmp_path)
    for call in range(2000):  # every tenth gap is a long one
        log.add(
            "samplers", "engine call", 1, call * 10, call * 10 + (5 if call % 10 == 0 else 9), "sampler 0"
        )
    log.add("learner", "learn", 1, 0, 1)
    log.end_step()
    log.close()
    found = [(float(str(line["from"])), float(str(line["to"]))) for line in lines(tmp_path)]
    assert len(found) <= timeline.MOST_A_STEP
    assert sum(end - begin for begin, end in found) == 20_000 - 200 * 5 - 1 + 1
    for begin, end in [(0.0, 1.0), (19_990.0, 19_999.0), (10.0, 19.0)]:
        assert any(at <= begin and end <= to for at, to in found)


def test_threads_lose_nothing(tmp_path: Path) -> None:
    log = Timeline(tmp_path)

    def work(number: int) -> None:
        for each in range(200):
            log.add("samplers", "engine call", each, each, each + 1, f"sampler {number}")

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads):
        log.end_step()
    for thread in threads:
        thread.join()
    log.close()
    assert len({(line["process"], line["step"]) for line in lines(tmp_path)}) == 800


def test_a_timeline_that_cannot_be_opened_is_one_error(tmp_path: Path) -> None:
    (tmp_path / "timeline.jsonl").mkdir()
    with pytest.raises(RunFolderError, match="cannot write the timeline in"):
        Timeline(tmp_path)


@pytest.mark.parametrize("times", [(2.0, float("nan")), (-1.0, 2.0), (1.0, 1e12)])
def test_times_that_are_none_are_refused(times: tuple[float, float]) -> None:
    with pytest.raises(ValueError, match="expected Unix seconds"):
        Span("learner", "learn", 1, *times)
