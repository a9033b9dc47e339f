"""What every benchmark shares: its arguments, its last line, times of calls that alternate, and its page."""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import platform
import select
import subprocess
import sys
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from statistics import median, quantiles
from time import perf_counter
from typing import Any, Self

from benchmarks.claims import PAGES, digest, marked, measured

__all__ = [
    "Child",
    "alternating",
    "at_once",
    "commit",
    "figures_page",
    "finish",
    "machine",
    "markdown_table",
    "parser_of",
    "percentiles",
    "say",
    "seconds",
    "seconds_of",
    "write_results",
]

Act = Callable[[], Awaitable[object]]


def parser_of(about: str | None, *, quick: str = "", write: str = "") -> argparse.ArgumentParser:
    """Return a parser whose help is `about`, with `--quick` and `--write` where it is said what they do."""
    parser = argparse.ArgumentParser(description=about, formatter_class=argparse.RawDescriptionHelpFormatter)
    if quick:
        parser.add_argument("--quick", action="store_true", help=quick)
    if write:
        parser.add_argument("--write", action="store_true", help=f"write docs/results/{write}")
    return parser


def finish(found: Mapping[str, Any], *, bad: object = False) -> int:
    """Print the last line, the figures as one JSON object, and return the exit code: 1 where `bad` is true."""
    print(json.dumps(found), flush=True)
    return 1 if bad else 0


def say(text: str) -> None:
    """Write a line for the person who waits, to standard error."""
    print(text, file=sys.stderr, flush=True)


async def seconds(act: Act) -> float:
    """Return how long a call took."""
    start = perf_counter()
    await act()
    return perf_counter() - start


def seconds_of(act: Callable[[], object]) -> float:
    """Return how long a function took."""
    start = perf_counter()
    act()
    return perf_counter() - start


async def at_once(acts: Iterable[Act], width: int) -> float:
    """Do all, `width` at a time; return how long they took together, in seconds."""
    left = iter(acts)

    async def worker() -> None:
        for act in left:
            await act()

    began = perf_counter()
    async with asyncio.TaskGroup() as group:
        for _ in range(width):
            group.create_task(worker())
    return perf_counter() - began


async def alternating(ours: Act, floor: Act, rounds: int, after: Act | None = None) -> tuple[float, float]:
    """Return the median seconds of both; `after` undoes what ours did, untimed."""
    pairs = []
    for _ in range(rounds):
        mine = await seconds(ours)
        if after is not None:
            await after()
        pairs.append((mine, await seconds(floor)))
    return median(pair[0] for pair in pairs), median(pair[1] for pair in pairs)


def percentiles(times: Sequence[float]) -> tuple[float, float]:
    """Return the median and the 99th percentile."""
    cuts = quantiles([*times, *times], n=100, method="inclusive")
    return cuts[49], cuts[98]


class Child:
    """Another process of a benchmark, `python WORDS`: a line in is a question, a line of JSON out its answer."""

    def __init__(self, *words: str, variables: Mapping[str, str] | None = None) -> None:
        self.process = subprocess.Popen(
            [sys.executable, *words],
            env={**os.environ, **(variables or {})},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.first: Any = self.hear()
        """What it says once it is ready."""

    def hear(self) -> Any:
        """Return the next answer. Raise `ValueError` where it ended instead."""
        assert self.process.stdout is not None
        return json.loads(self.process.stdout.readline())

    def has_answered(self) -> bool:
        """Return whether an answer is there to hear."""
        assert self.process.stdout is not None
        return bool(select.select([self.process.stdout], [], [], 0)[0])

    def ask(self, question: str) -> Any:
        """Ask, and return the answer."""
        self.tell(question)
        return self.hear()

    def tell(self, question: str) -> None:
        """Ask without waiting for the answer."""
        assert self.process.stdin is not None
        self.process.stdin.write(f"{question}\n")
        self.process.stdin.flush()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Let it end: it reads its input's end."""
        self.process.communicate()


def commit() -> str:
    """Return the commit measured, or "unknown" outside a checkout."""
    done = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=False
    )
    return done.stdout.strip() or "unknown"


def machine() -> str:
    """Return this machine in words, as a results page names it."""
    return f"{os.cpu_count()} CPU cores, {platform.system()} {platform.machine()}, Python {platform.python_version()}"


def markdown_table(header: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """Return a Markdown table; floats get three decimals."""

    def cell(value: object) -> str:
        return f"{value:.3f}" if isinstance(value, float) else str(value)

    lines = ["| " + " | ".join(header) + " |", "|" + "---|" * len(header)]
    lines += ["| " + " | ".join(cell(value) for value in row) + " |" for row in rows]
    return "\n".join(lines)


def figures_page(found: Mapping[str, Any], goals: Mapping[str, str]) -> str:
    """Return the table of figures and what each was to be."""
    rows = [(f"`{name}`", str(value), goals.get(name, "")) for name, value in found.items()]
    return markdown_table(("figure", "value", "goal"), rows)


def write_results(page: str, title: str, command: str, body: str) -> None:
    """Write a page of docs/results that says how it came about, and that it depends on what its forerunner did."""
    text, file = f"# {title}\n\n`{command}` at commit `{commit()}`, on {machine()}.\n\n{body}\n", PAGES / page
    if paths := measured(file.read_text(encoding="utf-8"))[1] if file.exists() else ():
        text = marked(text, commit(), {path: digest(path) for path in paths})
    file.write_text(text, encoding="utf-8")
