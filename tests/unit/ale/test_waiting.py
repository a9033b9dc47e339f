"""What a command says it waits for: nothing for 5 s, then one line that counts, or few lines where no terminal is."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console

from ale import waiting
from ale.training import progress, training
from ale.training.progress import PlainProgress
from ale.waiting import Watch, unsaid, waiting_for
from trainer.errors import ConfigError


class Clock:
    def __init__(self) -> None:
        self.s = 0.0

    def __call__(self) -> float:
        return self.s


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def watch(clock: Clock) -> Watch:
    return Watch(clock)


def looked(watch: Watch, clock: Clock, until_s: int) -> None:
    while clock.s < until_s:
        clock.s += 1
        watch.look()


def test_in_a_pipe_a_wait_is_said_after_5_s_and_ever_less_often(
    watch: Watch, clock: Clock, capsys: pytest.CaptureFixture[str]
) -> None:
    with watch.waiting_for("the server"):
        looked(watch, clock, 4)
        assert capsys.readouterr().err == ""
        looked(watch, clock, 100)
    said = capsys.readouterr().err.splitlines()
    assert said == [f"waiting for the server ({seconds} s)" for seconds in (5, 10, 20, 40, 80)]
    watch.look()
    assert capsys.readouterr().err == ""


def test_the_innermost_wait_is_said_and_another_one_begins_anew(
    watch: Watch, clock: Clock, capsys: pytest.CaptureFixture[str]
) -> None:
    ended = 2
    with watch.waiting_for("the command"), watch.waiting_for("the model") as inner:
        looked(watch, clock, 6)
        inner.now(lambda: f"8 episodes, {ended} ended")
        looked(watch, clock, 12)
    with watch.waiting_for("the command"):
        with watch.waiting_for("its start"):
            looked(watch, clock, 18)
        looked(watch, clock, 24)
    assert capsys.readouterr().err.splitlines() == [
        "waiting for the model (5 s)",
        "waiting for 8 episodes, 2 ended (5 s)",
        "waiting for its start (5 s)",
        "waiting for the command (11 s)",
    ]


def test_nothing_is_said_while_something_else_shows_what_goes_on(
    watch: Watch, clock: Clock, capsys: pytest.CaptureFixture[str]
) -> None:
    with watch.waiting_for("the steps"), watch.unsaid():
        looked(watch, clock, 30)
    assert capsys.readouterr().err == ""


def test_in_a_terminal_one_line_counts_and_goes_away(
    watch: Watch, clock: Clock, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    with watch.waiting_for("the \x1b[2Jserver"):
        looked(watch, clock, 7)
    parts = capsys.readouterr().err.split("\r\x1b[K")
    assert parts == ["", *(rf"waiting for the \x1b[2Jserver ({seconds} s)" for seconds in (5, 6, 7)), ""]


def test_what_is_written_meanwhile_takes_the_place_of_the_line(
    clock: Clock, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    watch = Watch(clock)
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    monkeypatch.setattr(sys, "stderr", waiting.VisibleStream(sys.stderr))
    monkeypatch.setattr(waiting, "_LOOK_S", 1e9)  # the test looks
    with watch.looking(), watch.waiting_for("the build"):
        clock.s = 5
        watch.look()
        sys.stderr.write("built one\n")
        watch.look()
    line = "\r\x1b[Kwaiting for the build (5 s)"
    assert capsys.readouterr().err == f"{line}\r\x1b[Kbuilt one\n{line}\r\x1b[K"


def test_blocks_share_a_thread_that_ends_with_the_last() -> None:
    with waiting_for("one"), waiting_for("two"), unsaid():
        names = [thread.name for thread in waiting.threading.enumerate()]
        assert names.count("what is waited for") == 1
    assert "what is waited for" not in [thread.name for thread in waiting.threading.enumerate()]


def test_what_went_by_before_counts_until_something_else_is_waited_for(
    watch: Watch, clock: Clock, capsys: pytest.CaptureFixture[str]
) -> None:
    with watch.waiting_for("the libraries", 44.0) as wait:
        looked(watch, clock, 10)
        wait.now("the model")
        looked(watch, clock, 16)
    assert capsys.readouterr().err.splitlines() == [
        "waiting for the libraries (45 s)",
        "waiting for the model (5 s)",
    ]


def test_a_commands_first_wait_counts_from_the_start_of_its_process() -> None:
    code = (
        "import time; time.sleep(0.5)\n"
        "from ale.waiting import waiting_for\n"
        "with waiting_for('it', from_start=True) as first, waiting_for('it') as second:\n"
        "    print(first.seconds, second.seconds)"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    first, second = map(float, found.stdout.split())
    assert first >= 0.49 > second


@pytest.mark.parametrize("quiet", [False, True])
def test_training_waits_from_its_start_on_and_says_so_unless_it_is_quiet(
    monkeypatch: pytest.MonkeyPatch,
    watch: Watch,
    clock: Clock,
    capsys: pytest.CaptureFixture[str],
    *,
    quiet: bool,
) -> None:
    asked = []

    @contextmanager
    def noted(what: str, *, from_start: bool = False) -> Iterator[None]:
        asked.append((what, from_start))
        yield

    def refuse(command: training.TrainCommand) -> None:
        assert asked == [(waiting.LIBRARIES, True)]
        with watch.waiting_for("what is not said where --quiet is"):
            looked(watch, clock, 6)
        raise ConfigError("no such setting")

    monkeypatch.setattr(training, "waiting_for", noted)
    monkeypatch.setattr(training, "unsaid", watch.unsaid)
    monkeypatch.setattr(training, "_resolve", refuse)
    plain = {"file": None, "run": None, "resume": False, "ray_address": None, "quiet": quiet, "dry_run": True}
    with pytest.raises(ConfigError, match="no such setting"):
        training.train_command(training.TrainCommand(named={}, overrides=[], **plain))
    assert capsys.readouterr().err.count("waiting for") == (0 if quiet else 1)


STREAMING = {"ale/env/play.py", "ale/replay/debugging.py", "ale/rock/exec.py", "ale/rock/logs.py"}
STREAMING |= {"ale/rock/server.py", "ale/rock/terminal.py", "ale/doctor.py", "ale/waiting.py"}
STREAMING |= {"ale/console/beside.py", "ale/console/cli.py"}
"""Where somebody types, a process' output is passed on, or the wait is said inside."""
_RUNS = re.compile(r"\b(?:asyncio\.run|completed)\(")


def test_every_command_that_waits_says_for_what() -> None:
    root = Path(waiting.__file__).parents[1]
    silent = {
        str(file.relative_to(root))
        for file in (root / "ale").rglob("*.py")
        if "/scaffold/" not in str(file) and _RUNS.search(file.read_text())
    }
    assert silent == STREAMING


def test_a_run_says_what_it_waits_for_until_its_first_step(
    watch: Watch, clock: Clock, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(progress, "waiting_for", watch.waiting_for)
    run = PlainProgress(Console(file=StringIO()))
    with run.display():
        looked(watch, clock, 6)
        run.on_phase("experts")
        looked(watch, clock, 12)
        run.on_step(1, 2, {})
        run.on_phase("rollout")
        looked(watch, clock, 60)
    assert capsys.readouterr().err.splitlines() == [
        "waiting for the run to begin (5 s)",
        "waiting for the first step, now in: experts (5 s)",
    ]
    with PlainProgress(Console(file=StringIO()), quiet=True).display():
        looked(watch, clock, 90)
    assert capsys.readouterr().err == ""
