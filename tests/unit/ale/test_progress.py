"""What a watcher sees, on a console that writes to text."""

import io
import os
import signal
import sys

import pytest
from rich.console import Console

from ale.training.progress import LiveProgress, PlainProgress, StepClock, duration
from ale.training.stop import STOPPING
from trainer.metrics import Evaluation, Interval, Observer

METRICS = {"success": 0.25, "turns_per_s": 1234.5, "tokens_per_s": 99_999.0, "lr": 1e-3}
EVALUATION = Evaluation(
    step=4,
    success=0.5,
    optimum=0.8,
    episodes=64,
    failures=1,
    interval=Interval(0.381, 0.619),
    apart={"new": 0.25},
    apart_intervals={"new": Interval(0.1234, 0.4)},
    pass_at={1: 0.45, 4: 0.75},
    pass_interval=Interval(0.4, 0.5),
)


def _console(*, terminal: bool = False) -> tuple[Console, io.StringIO]:
    text = io.StringIO()
    return Console(file=text, force_terminal=terminal, width=120), text


def _watch(observer: Observer) -> None:
    observer.on_phase("rollout")
    observer.on_step(3, 10, METRICS)
    observer.on_step(4, 10, METRICS)
    observer.on_eval(EVALUATION)
    observer.on_log("resumed after step 2 [not markup]")


def test_without_a_terminal_each_event_is_one_line() -> None:
    console, text = _console()
    _watch(PlainProgress(console))
    lines = text.getvalue().splitlines()
    assert lines[0] == "-- rollout"
    assert lines[1].startswith("step 3/10  0.250 success  1,234 turns/s  99,999 tokens/s")
    assert lines[3] == (
        "step 4  held-out success 0.500 [0.381, 0.619] = 0.62 of the optimum (64 episodes, 1 failed); "
        "new 0.250 [0.123, 0.400]; sampled pass@1 0.450 [0.400, 0.500], pass@4 0.750"
    )
    assert lines[4] == "resumed after step 2 [not markup]"


def test_a_step_says_what_bounds_it() -> None:
    console, text = _console()
    bound = {"bound/environments": 0.62, "bound/learner": 0.21, "bound/samplers": 0.17}
    PlainProgress(console).on_step(3, 10, METRICS | bound)
    assert text.getvalue().endswith(
        "99,999 tokens/s  bound by: environments 62 %, learner 21 %, samplers 17 %\n"
    )


@pytest.mark.parametrize(
    ("lag", "said"),
    [
        ({"lag/mean": 0.5}, ""),
        ({"lag/mean": 1.52, "lag/too_old_share": 0.0}, "lag 1.5"),
        ({"lag/mean": 1.52, "lag/too_old_share": 0.034}, "lag 1.5, 3 % too old"),
        ({"lag/too_old_share": 1.0}, "nothing learned, 100 % too old"),
    ],
)
def test_a_step_of_a_run_that_may_lag_says_how_much(lag: dict[str, float], said: str) -> None:
    console, text = _console()
    PlainProgress(console).on_step(3, 10, METRICS | lag)
    assert text.getvalue().rstrip("\n").endswith(f"99,999 tokens/s{said and f'  {said}'}")


@pytest.mark.parametrize(
    ("rejected", "said"),
    [
        ({"failed/env_lost": 3.0}, "3 failed (env_lost)"),
        ({"failed/deadline_exceeded": 1.0, "failed/env_lost": 2.0}, "3 failed (2 env_lost)"),
        ({"failed/env_lost": 1.0, "repeated_illegal_calls": 5.0}, "1 failed (env_lost)"),
    ],
)
def test_a_step_says_how_many_rollouts_failed_and_mostly_why(rejected: dict[str, float], said: str) -> None:
    for metrics, end in (
        (METRICS, ""),
        (METRICS | {f"filter/rejected/{k}": n for k, n in rejected.items()}, said),
    ):
        console, text = _console()
        PlainProgress(console).on_step(3, 10, metrics)
        assert text.getvalue().rstrip("\n").endswith(f"99,999 tokens/s{end and f'  {end}'}")


def test_quiet_prints_messages_only() -> None:
    console, text = _console()
    _watch(PlainProgress(console, quiet=True))
    assert text.getvalue() == "resumed after step 2 [not markup]\n"


def test_in_a_terminal_the_display_shows_step_phase_and_evaluation() -> None:
    console, text = _console(terminal=True)
    progress = LiveProgress(console, title="lake-ipa-seed0")
    with progress.display():
        _watch(progress)
    drawn = text.getvalue()
    for part in (
        "lake-ipa-seed0",
        "rollout",
        "step 4/10",
        "0.250 success",
        "1,234 turns/s",
        "0.62 of the optimum",
    ):
        assert part in drawn


def test_what_others_write_during_the_display_is_visible() -> None:
    console, text = _console(terminal=True)
    with LiveProgress(console, title="x").display():
        sys.stderr.write("\x1b[36m(worker)\x1b[0m \x1b[8mhidden\x1b]8;;http://x\x07link\u202e\n")
    drawn = text.getvalue()
    assert "\\x1b[8mhidden\\x1b]8;;http://x\\x07link\\u202e" in drawn
    assert "\x1b[8m" not in drawn
    assert "\u202e" not in drawn


def test_time_left_follows_the_steps_and_ignores_evaluations() -> None:
    times = iter([0.0, 2.0, 4.0, 100.0, 102.0])
    clock = StepClock(lambda: next(times))
    clock.tick()
    assert clock.left_s(5) is None
    clock.tick()
    clock.tick()
    assert clock.left_s(5) == pytest.approx(10.0)
    clock.restart()
    clock.tick()
    assert clock.left_s(5) == pytest.approx(10.0)


def test_a_phase_is_announced_once() -> None:
    console, text = _console()
    progress = PlainProgress(console)
    for phase in ["rollout", "learn", "rollout", "learn"]:
        progress.on_phase(phase)
    assert text.getvalue() == "-- rollout\n-- learn\n"


def test_durations_read_as_clocks() -> None:
    assert [duration(value) for value in (0, 61, 3723.4)] == ["0:00", "1:01", "1:02:03"]


@pytest.mark.parametrize("terminal", [False, True])
def test_the_first_interrupt_asks_and_the_second_aborts(
    terminal: bool, capfd: pytest.CaptureFixture[str]
) -> None:
    console, text = _console(terminal=terminal)
    progress = LiveProgress(console, title="x") if terminal else PlainProgress(console, quiet=True)
    before = signal.getsignal(signal.SIGINT)
    with progress.stop, progress.display():
        assert not progress.stop_requested
        os.kill(os.getpid(), signal.SIGINT)
        assert progress.stop_requested
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGINT)
    assert signal.getsignal(signal.SIGINT) is before
    assert STOPPING in (text.getvalue() if terminal else capfd.readouterr().err)
