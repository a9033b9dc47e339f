"""What a person sees while a run goes on: a live display in a terminal, one line per step elsewhere.

Both faces implement `trainer.metrics.Observer`. They only look: no number here influences the run.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager
from typing import TYPE_CHECKING

from rich.console import Console, Group
from rich.live import Live
from rich.text import Text

from ale.training.stop import STOPPING, StopRequest
from ale.waiting import Waiting, unsaid, waiting_for
from rock_env.telemetry.shown import visible_streams
from trainer.teaching import taught
from trainer.timeline import told

if TYPE_CHECKING:
    from trainer.metrics import Evaluation

__all__ = ["LiveProgress", "PlainProgress", "StepClock", "bracketed", "duration", "sampled"]

SHOWN = {
    "success": "{:.3f} success",
    "start_success": "{:.3f} from the start",
    "turns_per_s": "{:,.0f} turns/s",
    "tokens_per_s": "{:,.0f} tokens/s",
    "loss": "loss {:.4f}",
    "held_out_loss": "held-out loss {:.4f}",
    "held_out_accuracy": "{:.2f} of held-out turns",
}
"""The metrics of a step that are shown, if the loop reports them; all of them are in metrics.jsonl."""

BAR_WIDTH = 24

SMOOTHING = 0.3
"""Weight of the newest step in the average step duration: settles within about five steps."""


def duration(seconds: float) -> str:
    """Return `1:02:03` or `2:03`."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


class StepClock:
    """Estimates the time left from the durations of the steps so far."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._last: float | None = None
        self._step_s: float | None = None

    def restart(self) -> None:
        """Do not count what lies before now (an evaluation) as part of a step."""
        self._last = self._clock()

    def tick(self) -> None:
        """Count one finished step."""
        now = self._clock()
        if self._last is not None:
            newest = now - self._last
            self._step_s = (
                newest if self._step_s is None else self._step_s + SMOOTHING * (newest - self._step_s)
            )
        self._last = now

    def left_s(self, steps_left: int) -> float | None:
        """Return the expected seconds for `steps_left` more steps, or None before the first full step."""
        return None if self._step_s is None else self._step_s * steps_left


class PlainProgress:
    """Prints one line per event; for logs, pipes and tests."""

    def __init__(self, console: Console, *, quiet: bool = False) -> None:
        self.stop = StopRequest(announce=True)
        self._console = console
        self._quiet = quiet
        self._clock = StepClock()
        self._announced: set[str] = set()
        self._first_step = ExitStack()
        self._waiting: Waiting | None = None

    @property
    def stop_requested(self) -> bool:
        return self.stop.requested

    def display(self) -> AbstractContextManager[object]:
        """Return the context the run takes place in; until its first step it says what is waited for."""
        if not self._quiet:
            self._waiting = self._first_step.enter_context(waiting_for("the run to begin"))
        return self._first_step

    def on_phase(self, name: str) -> None:
        if self._waiting is not None:
            self._waiting.now(f"the first step, now in: {name}")
        if name not in self._announced:  # phases recur with every step
            self._announced.add(name)
            self._line(f"-- {name}")

    def on_step(self, step: int, total: int, metrics: Mapping[str, float]) -> None:
        self._waiting = None
        self._first_step.close()
        self._clock.tick()
        left = self._clock.left_s(total - step)
        eta = [] if left is None else [f"{duration(left)} left"]
        self._line("  ".join([f"step {step}/{total}", *_numbers(metrics), *eta]))

    def on_eval(self, evaluation: Evaluation) -> None:
        self._clock.restart()
        self._line(f"step {evaluation.step}  held-out {_evaluation(evaluation)}")

    def on_log(self, message: str) -> None:
        self._console.print(message, markup=False, highlight=False, soft_wrap=True)

    def _line(self, text: str) -> None:
        if not self._quiet:
            self._console.print(text, markup=False, highlight=False, soft_wrap=True)


class LiveProgress:
    """Redraws a small block at the foot of the terminal; evaluations and messages scroll above it."""

    def __init__(self, console: Console, *, title: str) -> None:
        self.stop = StopRequest(announce=False)  # the display says so
        self._console = console
        self._title = title
        self._clock = StepClock()
        self._started = time.monotonic()
        self._phase = "starting"
        self._step = self._total = 0
        self._metrics: Mapping[str, float] = {}
        self._evaluation: Evaluation | None = None
        self._live = Live(console=console, get_renderable=self._draw, refresh_per_second=4, transient=True)

    @property
    def stop_requested(self) -> bool:
        return self.stop.requested

    def display(self) -> AbstractContextManager[object]:
        """Return the context that draws the display and removes it at the end; what is written meanwhile stands above it."""
        return self._display()

    @contextmanager
    def _display(self) -> Iterator[None]:
        with unsaid(), self._live, visible_streams():  # rich reads the styles of what it is to show above
            yield

    def on_phase(self, name: str) -> None:
        self._phase = name

    def on_step(self, step: int, total: int, metrics: Mapping[str, float]) -> None:
        self._clock.tick()
        self._step, self._total, self._metrics = step, total, metrics

    def on_eval(self, evaluation: Evaluation) -> None:
        self._clock.restart()
        self._evaluation = evaluation
        self.on_log(f"step {evaluation.step}  held-out {_evaluation(evaluation)}")

    def on_log(self, message: str) -> None:
        self._console.print(message, markup=False, highlight=False, soft_wrap=False)

    def _draw(self) -> Group:
        left = self._clock.left_s(self._total - self._step)
        times = [duration(time.monotonic() - self._started)]
        times += [f"about {duration(left)} left"] if left is not None and self._total else []
        lines = [Text.assemble((self._title, "bold"), "  ", (self._phase, "cyan"), "  ", ", ".join(times))]
        if self._total:
            done = round(BAR_WIDTH * self._step / self._total)
            bar = Text("━" * done, style="green") + Text("━" * (BAR_WIDTH - done), style="dim")
            numbers = "  ".join([f"  step {self._step}/{self._total}", *_numbers(self._metrics)])
            lines.append(bar + Text(numbers))
        if self._evaluation is not None:
            lines.append(Text(f"held-out {_evaluation(self._evaluation)}"))
        if self.stop_requested:
            lines.append(Text(STOPPING, style="yellow"))
        for line in lines:
            line.no_wrap, line.overflow = True, "ellipsis"
        return Group(*lines)


def _numbers(metrics: Mapping[str, float]) -> list[str]:
    shown = [form.format(metrics[name]) for name, form in SHOWN.items() if name in metrics]
    shown += [said for said in (taught(metrics), _lag(metrics), _failed(metrics)) if said]
    prefix = "bound/"
    bound = {name[len(prefix) :]: share for name, share in metrics.items() if name.startswith(prefix)}
    return [*shown, told(bound)] if bound else shown


def _lag(metrics: Mapping[str, float]) -> str:
    """Return `lag 1.5, 3 % too old`, of the step's tokens; "" in a run whose rollouts cannot lag."""
    share = metrics.get("lag/too_old_share")
    if share is None:
        return ""
    lag = f"lag {metrics['lag/mean']:.1f}" if "lag/mean" in metrics else "nothing learned"
    return f"{lag}, {share * 100:.0f} % too old" if share else lag


def _failed(metrics: Mapping[str, float]) -> str:
    """Return `3 failed (2 env_lost)`, with the most frequent code of the step's failed rollouts; "" where none failed.

    Those that were sampled again are among them: nobody should have to guess why a step takes long.
    """
    prefix = "filter/rejected/failed/"
    counts = {name[len(prefix) :]: count for name, count in metrics.items() if name.startswith(prefix)}
    if not counts:
        return ""
    total, most = sum(counts.values()), max(counts, key=counts.__getitem__)
    return f"{total:.0f} failed ({most if counts[most] == total else f'{counts[most]:.0f} {most}'})"


def bracketed(record: Mapping[str, float], name: str = "success", *, of: str = "", digits: int = 3) -> str:
    """Return ` [0.931, 0.977]`: the 95 % interval in an evaluation's record of the success, or of another share.

    "" where the record has none.
    """
    low, high = (record.get(f"{name}_{end}{of}", math.nan) for end in ("low", "high"))
    return "" if math.isnan(low) else f" [{low:.{digits}f}, {high:.{digits}f}]"


def sampled(record: Mapping[str, float]) -> list[str]:
    """Return `pass@1 0.912 [0.880, 0.936]`, `pass@4 0.990` and so on, as an evaluation's record has them."""
    return [
        f"{name} {value:.3f}{bracketed(record, name)}"
        for name, value in record.items()
        if name.removeprefix("pass@").isdecimal()
    ]


def _evaluation(evaluation: Evaluation) -> str:
    failures = f", {evaluation.failures} failed" if evaluation.failures else ""
    record = evaluation.metrics()
    beside = "".join(
        f"; {split} {success:.3f}{bracketed(record, of=f'/{split}')}"
        for split, success in evaluation.apart.items()
    )
    beside += "".join(
        f"; {env} {own.success:.3f}{bracketed(own.metrics())}" for env, own in evaluation.envs.items()
    )
    tries = ", ".join(sampled(record))
    return (
        f"success {evaluation.success:.3f}{bracketed(record)} = {evaluation.share:.2f} of the optimum"
        f" ({evaluation.episodes} episodes{failures}){beside}{tries and f'; sampled {tries}'}"
    )
