"""`ale timeline`: who was at work when, who waited for whom, and what bounds a run; as text, a picture or a trace.

Reads `timeline.jsonl` only. matplotlib comes when a picture is asked for, and needs no display.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from heapq import heappop, heappush
from pathlib import Path
from typing import Annotated, Any

import msgspec
import typer
from rich.text import Text

from ale import completion
from ale.errors import RecordError
from ale.terminal import stdout
from ale.training import runs
from ale.training.progress import duration
from rock_env.errors import listed
from rock_env.foreign import budget
from rock_env.foreign.files import open_regular
from rock_env.store.whole_file import write_whole
from trainer.timeline import ROLES, TIMELINE, Span, bound_by, busy, joined, stretches, told

__all__ = ["chrome_events", "draw", "read_timeline", "timeline"]

_LINE_BYTES = 4096
_SPAN_BYTES = 1536
"""More than a span takes in memory, with all that is worked out of it."""
_SHADES = " ░▒▓█"
_COLOURS = ("#4e79a7", "#76b7b2", "#b07aa1", "#e15759", "#f28e2b", "#59a14f", "#9c755f", "#bab0ac")
"""Of `ROLES`."""


def timeline(
    run: Annotated[str, typer.Argument(metavar="RUN|FOLDER", autocompletion=completion.runs)],
    *,
    step: Annotated[str, typer.Option("--step", metavar="A..B", help="Only these steps, or one.")] = "",
    png: Annotated[Path | None, typer.Option("--png", help="Write a chart of all processes.")] = None,
    chrome: Annotated[
        Path | None, typer.Option("--chrome", help="Write a trace for Perfetto or chrome://tracing.")
    ] = None,
) -> None:
    """Show who waited for whom in a run, and what bounds it."""
    asked = re.fullmatch(r"(-?\d{1,9})(?:\.\.(-?\d{1,9}))?|", step)
    if asked is None:
        raise typer.BadParameter(f"got {step!r}, expected a step (7) or steps (3..9)", param_hint="--step")
    folder = runs.locate(run)
    spans = read_timeline(folder)
    steps = range(int(asked[1]), int(asked[2] or asked[1]) + 1) if asked[1] else range(-(10**9), 10**9)
    chosen = [span for span in spans if span.step in steps and span.begin_s < span.end_s]
    if not chosen:
        there = listed([*map(str, sorted({span.step for span in spans}))])
        raise RecordError(
            f"{folder / TIMELINE} has nothing{step and f' of steps {step}'}. Steps there: {there}"
        )
    begin_s, end_s = min(span.begin_s for span in chosen), max(span.end_s for span in chosen)
    _print(spans, begin_s, end_s)
    if png is not None:
        _write(png, lambda beside: draw(spans, begin_s, end_s, beside))
    if chrome is not None:
        within = [span for span in spans if span.begin_s < end_s and begin_s < span.end_s]
        events = (msgspec.json.encode(event) for event in chrome_events(within))
        _write(chrome, lambda beside: beside.write_bytes(b"[" + b",\n".join(events) + b"]\n"))


def read_timeline(folder: Path) -> list[Span]:
    """Return the spans of a run. What follows a time in which the run had ended comes earlier by that time.

    Raise `RecordError` where there is none or a line is damaged (the torn last line of a killed run is left out), and
    `InvalidArgument` for more than the budget of memory.
    """
    path = folder / TIMELINE
    found: list[Span] = []
    last_s = stood_s = 0.0
    try:
        with open_regular(path) as file:
            for number, line in enumerate(iter(lambda: file.readline(_LINE_BYTES), b""), start=1):
                try:
                    span = msgspec.json.decode(line, type=Span)
                except (msgspec.MsgspecError, ValueError, RecursionError) as error:
                    if not line.endswith(b"\n") and not file.read(1):
                        break
                    raise RecordError(
                        f"{path} line {number} is no span of time in {_LINE_BYTES} bytes: {str(error)[:200]}. Remove it."
                    ) from error
                if span.role == "driver":
                    stood_s += max(0.0, span.begin_s - stood_s - last_s)
                    continue
                begin_s, end_s = (max(0.0, each - stood_s) for each in (span.begin_s, span.end_s))
                last_s = max(last_s, end_s)
                found.append(msgspec.structs.replace(span, begin_s=begin_s, end_s=end_s))
                budget.check_size(len(found) * _SPAN_BYTES, f"{path}")
    except FileNotFoundError as error:
        raise RecordError(
            f"no {TIMELINE} in {folder}: it is no run, or an older version of ale made it. A run records one as it goes "
            f"on with `ale train --resume`, or is repeated with `--config`.{runs.others(folder.name)}"
        ) from error
    except OSError as error:
        raise RecordError(f"cannot read {path}: {error.strerror or error}.") from error
    return found


def _print(spans: Sequence[Span], begin_s: float, end_s: float) -> None:
    out, length_s = stdout(), end_s - begin_s
    columns = max(10, (out.width if out.is_terminal else 80) - 52)
    for role, share in busy(spans, begin_s, end_s).items():
        cells = [0.0] * columns
        for begin, end in joined((span.begin_s, span.end_s) for span in spans if span.role == role):
            at, to = (
                (min(max(each, begin_s), end_s) - begin_s) / length_s * columns for each in (begin, end)
            )
            for cell in range(int(at), min(int(to) + 1, columns)):
                cells[cell] += min(to, cell + 1) - max(at, cell)
        bar = "".join(_SHADES[min(4, int(cell * 4 + 0.999))] for cell in cells)
        numbers = f" {share:5.0%} busy {share * length_s:8.1f} s, idle {(1 - share) * length_s:8.1f} s"
        out.print(Text.assemble(f"{role:<13}", (bar, _COLOURS[ROLES.index(role)]), numbers))
    waited: dict[tuple[str, str], float] = {}
    for stretch in stretches(spans):
        lasted = min(stretch.end_s, end_s) - max(stretch.begin_s, begin_s)
        if stretch.wait and lasted > 0:
            waited[stretch.wait] = waited.get(stretch.wait, 0.0) + lasted
    for (who, what), lasted in waited.items():
        if lasted >= 0.05:
            out.print(f"{who} waited {lasted:.1f} s for {what}")
    out.print(f"{duration(length_s)} in all, {told(bound_by(spans, begin_s, end_s))}")


def draw(spans: Sequence[Span], begin_s: float, end_s: float, path: Path) -> None:
    """Draw a row for each process, or where they are many for each role, and one for what bounds the run, as PNG.

    Steps alternate between dark and light. Raise `ImportError` without matplotlib.
    """
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib.figure import Figure

    rows: dict[tuple[int, str], list[Span]] = {}
    many = len({(span.role, span.process) for span in spans}) > 60
    for span in spans:
        label = span.role if many or not span.process else f"{span.role}: {ascii(span.process)[1:-1]}"
        rows.setdefault((ROLES.index(span.role), label), []).append(span)
    rows[len(ROLES), "bound by"] = [Span(bound, "", 0, at, to) for at, to, bound, _ in stretches(spans)]
    figure = Figure(figsize=(12, 1.2 + 0.3 * len(rows)), layout="constrained")
    axes = figure.add_subplot()
    for row, key in enumerate(sorted(rows)):
        for role, odd in sorted({(span.role, span.step % 2) for span in rows[key]}):
            alike = (span for span in rows[key] if (span.role, span.step % 2) == (role, odd))
            pixel_s = (end_s - begin_s) / 2000
            times = joined(((span.begin_s - begin_s, span.end_s - begin_s) for span in alike), pixel_s)
            bars = [(begin, end - begin) for begin, end in times]
            colour = _COLOURS[ROLES.index(role)]
            axes.broken_barh(bars, (row - 0.4, 0.8), color=colour, alpha=0.55 if odd else 1, linewidth=0)
    axes.set_yticks(range(len(rows)), [label for _, label in sorted(rows)], parse_math=False)
    axes.set(xlabel="seconds", xlim=(0, end_s - begin_s), ylim=(len(rows) - 0.5, -0.5))
    figure.savefig(path, format="png", dpi=120)


def chrome_events(spans: Sequence[Span]) -> Iterator[dict[str, Any]]:
    """Yield the events of a Chrome trace: a process for each role, with threads on which no two spans overlap."""
    first_s = min((span.begin_s for span in spans), default=0.0)
    free: dict[tuple[str, str], list[tuple[int, int]]] = {}
    for pid, role in enumerate(ROLES):
        yield {"ph": "M", "name": "process_name", "pid": pid, "tid": 0, "args": {"name": role}}
    threads = 0
    for span in sorted(spans, key=lambda span: span.begin_s):
        begin_us, end_us = (round((each - first_s) * 1e6) for each in (span.begin_s, span.end_s))
        event = {"cat": span.role, "pid": ROLES.index(span.role)}
        lanes = free.setdefault((span.role, span.process), [])
        if lanes and lanes[0][0] <= begin_us:
            tid = heappop(lanes)[1]
        else:
            threads = tid = threads + 1
            name = {"name": span.process or span.role}
            yield {"ph": "M", "name": "thread_name", **event, "tid": tid, "args": name}
        heappush(lanes, (end_us, tid))
        times = {"ts": begin_us, "dur": end_us - begin_us}
        yield {"ph": "X", "name": span.what, **event, "tid": tid, **times, "args": {"step": span.step}}


def _write(path: Path, write: Callable[[Path], object]) -> None:
    try:
        write_whole(path, write)
    except OSError as error:
        raise RecordError(f"cannot write {path}: {error.strerror or error}. Name another file.") from error
    stdout().print(f"written: {path}")
