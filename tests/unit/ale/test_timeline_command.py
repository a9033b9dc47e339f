"""`ale timeline`: the text, the picture and the trace of a run, and files of others."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tracemalloc
from contextlib import suppress
from pathlib import Path

import pytest
import typer
from hypothesis import given, settings
from hypothesis import strategies as st

from ale.errors import RecordError
from ale.training.timeline import chrome_events, read_timeline, timeline
from rock_env.errors import InvalidArgument
from rock_env.foreign import budget
from trainer.timeline import ROLES, Span, Timeline

BEGIN = 1_764_357_306.0


def lockstep(folder: Path, steps: range, *, begin_s: float, resume_step: int | None = None) -> None:
    """Write what a run of two workers does: 6 s of rollouts, 3 s of learning, 1 s of weights a step."""
    log = Timeline(folder, resume_step=resume_step, clock=lambda: begin_s)
    for step in steps:
        at = begin_s + 10 * (step - steps.start)
        log.add("environments", "rollouts", step, at, at + 6, "worker 0")
        log.add("environments", "rollouts", step, at, at + 4, "worker 1")
        log.add("samplers", "engine call", step, at, at + 2, "$\\sampler{ 0")
        log.add("learner", "learn", step, at + 6, at + 9)
        log.add("weights", "load", step, at + 9, at + 10)
        log.end_step()
    log.close()


@pytest.fixture
def run(tmp_path: Path) -> Path:
    lockstep(tmp_path, range(1, 4), begin_s=BEGIN)
    return tmp_path


def test_the_text_says_who_worked_and_who_waited_for_whom(
    run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    timeline(f"{run}/")
    assert capsys.readouterr().out.splitlines() == [
        "samplers     ██       ▓█░      ▒█▓          20% busy      6.0 s, idle     24.0 s",
        "environments █████▓   ▓█████   ▒█████▒      60% busy     18.0 s, idle     12.0 s",
        "learner           ▒██▒     ░██▓      ▓██░   30% busy      9.0 s, idle     21.0 s",
        "weights              ▓▒       ▒▓        █   10% busy      3.0 s, idle     27.0 s",
        "learner waited 6.0 s for rollouts of step 1",
        "samplers waited 4.0 s for version 1",
        "learner waited 6.0 s for rollouts of step 2",
        "samplers waited 4.0 s for version 2",
        "learner waited 6.0 s for rollouts of step 3",
        "0:30 in all, bound by: environments 40 %, learner 30 %, samplers 20 %, weights 10 %",
    ]


def test_some_steps_are_shown_alone(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    timeline(f"{run}/", step="2..3")
    shown = capsys.readouterr().out
    assert "0:20 in all" in shown
    assert "step 1" not in shown
    timeline(f"{run}/", step="2")
    assert "0:10 in all" in capsys.readouterr().out
    with pytest.raises(RecordError, match=r"has nothing of steps 7. Steps there: 1, 2, 3"):
        timeline(f"{run}/", step="7")
    for bad in ("3..", "a", "1...2", "1..2..3"):
        with pytest.raises(typer.BadParameter, match="expected a step"):
            timeline(f"{run}/", step=bad)


def test_what_comes_after_the_steps_shown_tells_what_bounds_them(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log = Timeline(tmp_path)
    log.add("learner", "learn", 1, 0, 4)
    log.add("learner", "learn", 2, 4, 9)
    log.add("environments", "rollouts", 2, 0, 5)
    log.add("environments", "rollouts", 3, 8, 9)
    log.close()
    timeline(f"{tmp_path}/", step="1")
    assert capsys.readouterr().out.endswith("0:04 in all, bound by: learner 100 %\n")


def test_the_time_in_which_a_run_had_ended_is_left_out(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lockstep(run, range(3, 5), begin_s=BEGIN + 40_000, resume_step=2)
    assert max(span.end_s for span in read_timeline(run)) == BEGIN + 40
    timeline(f"{run}/")
    assert "0:40 in all, bound by: environments 40 %" in capsys.readouterr().out


def test_colours_are_for_a_terminal_only(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    timeline(f"{run}/")
    assert "\x1b" not in capsys.readouterr().out
    done = subprocess.run(
        [sys.executable, "-m", "ale", "timeline", str(run)],
        env={**os.environ, "FORCE_COLOR": "1", "COLUMNS": "100", "TERM": "xterm-256color"},
        capture_output=True,
        text=True,
        check=True,
    )
    first = done.stdout.splitlines()[0]
    assert "\x1b[" in first
    assert first.count("█") > 6  # of more columns


def test_the_chart_is_a_picture(run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    timeline(f"{run}/", png=tmp_path / "chart")
    assert (tmp_path / "chart").read_bytes().startswith(b"\x89PNG")
    assert f"written: {tmp_path}/chart" in capsys.readouterr().out
    with pytest.raises(RecordError, match=r"cannot write .*Name another file"):
        timeline(f"{run}/", png=tmp_path / "no" / "chart.png")


def test_the_trace_has_the_fields_of_its_format(run: Path, tmp_path: Path) -> None:
    """As the Trace Event Format has them: complete events (X) in µs, and metadata (M) with the names of both numbers."""
    timeline(f"{run}/", chrome=tmp_path / "trace.json")
    events = json.loads((tmp_path / "trace.json").read_bytes())
    named = {(e["name"], e["pid"], e["tid"]): e["args"]["name"] for e in events if e["ph"] == "M"}
    complete = [event for event in events if event["ph"] == "X"]
    assert len(named) + len(complete) == len(events)
    assert len(complete) == 15
    for event in complete:
        assert {"name", "cat", "ph", "ts", "dur", "pid", "tid", "args"} == event.keys()
        assert all(type(event[name]) is int and event[name] >= 0 for name in ("ts", "dur", "pid", "tid"))
        assert named["process_name", event["pid"], 0] == event["cat"]
        assert named["thread_name", event["pid"], event["tid"]] in (
            event["cat"],
            "worker 0",
            "worker 1",
            "$\\sampler{ 0",
        )
    timeline(f"{run}/", step="2", chrome=tmp_path / "trace.json")
    events_of_2 = json.loads((tmp_path / "trace.json").read_bytes())
    assert [event["args"] for event in events_of_2 if event["ph"] == "X"] == [{"step": 2}] * 5
    learned = [(event["ts"], event["dur"], event["args"]) for event in complete if event["cat"] == "learner"]
    assert learned == [((10 * n - 4) * 1_000_000, 3_000_000, {"step": n}) for n in (1, 2, 3)]


@given(st.lists(st.tuples(st.floats(0, 5), st.floats(0, 3), st.sampled_from(ROLES[:2])), max_size=20))
@settings(max_examples=150, deadline=None)
def test_spans_of_a_thread_do_not_overlap(parts: list[tuple[float, float, str]]) -> None:
    """A viewer draws complete events of a thread as calls in each other."""
    spans = [Span(role, "x", 1, at, at + length, "p") for at, length, role in parts]  # type: ignore[arg-type]
    ends: dict[tuple[int, int], int] = {}
    for event in chrome_events(spans):
        if event["ph"] == "X":
            thread = event["pid"], event["tid"]
            assert event["ts"] >= ends.get(thread, 0)
            ends[thread] = event["ts"] + event["dur"]
            assert any(
                round((each.end_s - min(s.begin_s for s in spans)) * 1e6) == ends[thread] for each in spans
            )


def test_a_chart_of_many_processes_has_a_row_for_each_role(tmp_path: Path) -> None:
    log = Timeline(tmp_path)
    for number in range(200):
        log.add("environments", "rollouts", 1, 0, 1 + number, f"worker {number}")
    log.close()
    timeline(f"{tmp_path}/", png=tmp_path / "chart.png")
    height = int.from_bytes((tmp_path / "chart.png").read_bytes()[20:24], "big")
    assert height < 400


# -- files that are missing, damaged or somebody's -------------------------------------------------------------------


def test_a_run_without_a_timeline_is_one_error_with_its_remedy(tmp_path: Path) -> None:
    with pytest.raises(RecordError, match=r"no timeline.jsonl in .* older version .*--resume.*Runs here"):
        timeline(f"{tmp_path}/")


@pytest.mark.parametrize(
    "line",
    [
        b"\xff\n",
        b"[]\n",
        b'{"role": "learner"}\n',
        b'{"role": "thief", "what": "x", "step": 1, "from": 1, "to": 2}\n',
        b'{"role": "learner", "what": "x", "step": 1, "from": 2, "to": 1}\n',
        b'{"role": "learner", "what": "x", "step": 1, "from": 1, "to": 1e400}\n',
        b'{"role": "learner", "what": "x", "step": 1' + b"0" * 400 + b', "from": 1, "to": 2}\n',
        b'{"role": "learner", "what": "' + b"x" * 101 + b'", "step": 1, "from": 1, "to": 2}\n',
        b'{"a":' * 4000 + b"\n",
        b"x" * (8 << 20) + b"\n",
    ],
    ids=range(10),
)
def test_a_damaged_line_is_one_error_that_names_it(line: bytes, run: Path) -> None:
    content = (run / "timeline.jsonl").read_bytes()
    for after in (content, b""):
        (run / "timeline.jsonl").write_bytes(content + line + after)
        tracemalloc.start()
        with pytest.raises(RecordError, match="line 16 is no span of time") as caught:
            read_timeline(run)
        assert tracemalloc.get_traced_memory()[1] < 1 << 20
        tracemalloc.stop()
        assert len(str(caught.value)) < 500


def test_a_torn_last_line_is_no_error(run: Path) -> None:
    content = (run / "timeline.jsonl").read_bytes()
    for cut in range(1, 60):
        (run / "timeline.jsonl").write_bytes(content[:-cut])
        assert len(read_timeline(run)) == 14 + (cut == 1)


def test_more_than_the_budget_is_refused(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(budget.VARIABLE, "1")
    content = (run / "timeline.jsonl").read_bytes()
    (run / "timeline.jsonl").write_bytes(content * 40)
    assert len(read_timeline(run)) == 600
    (run / "timeline.jsonl").write_bytes(content * 600)
    with pytest.raises(InvalidArgument, match="the budget is 1048576"):
        read_timeline(run)


def test_a_pipe_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "timeline.jsonl")
    with pytest.raises(RecordError, match="it is a FIFO"):
        read_timeline(tmp_path)


@given(st.binary(max_size=300))
@settings(max_examples=100, deadline=None)
def test_random_bytes_are_refused_by_line(tmp_path_factory: pytest.TempPathFactory, content: bytes) -> None:
    folder = tmp_path_factory.mktemp("random")
    (folder / "timeline.jsonl").write_bytes(content)
    with suppress(RecordError):
        assert read_timeline(folder) == []
