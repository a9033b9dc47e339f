"""What a run is busy with at this moment, as it tells it and as a person reads it. Pure: it asks nobody."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager

import msgspec

from trainer.live.inside import At
from trainer.timeline import Span

__all__ = ["Doing", "Flight", "Flights", "ProcessStatus", "Status", "lasting", "lines", "logs", "status_of"]

_SHOWN = 20
"""Most kinds of work, and rollouts in flight, that are told: those that have taken longest."""


class Doing(msgspec.Struct):
    """Work of one kind that goes on."""

    role: str
    what: str
    step: int
    lasted_s: float
    """Of the one that has gone on longest, of so many."""
    count: int = 1


class Flight(msgspec.Struct):
    """A rollout that is being played."""

    id: str
    worker: int
    """From 1, as everywhere in what a run says."""
    lasted_s: float


class ProcessStatus(msgspec.Struct):
    """Another process of the run."""

    name: str
    """Such as `sampler 2`."""
    at: At | None
    silent: str = ""
    """Why nothing is known of it."""


class Status(msgspec.Struct):
    """One answer."""

    pid: int
    host: str
    step: int
    """Done so far, of `steps`."""
    steps: int
    doing: list[Doing]
    in_flight: int
    flights: list[Flight]
    samplers: dict[str, float]
    processes: list[ProcessStatus] = []
    """The others of the run."""
    stacks: dict[str, str] = {}
    """By thread of the run's own process, where they were asked for."""


class Flights:
    """The rollouts in flight. Written by the thread that plays them, read by any."""

    def __init__(self, clock: Callable[[], float] = time.time) -> None:
        self._clock = clock
        self._since: dict[str, tuple[int, float]] = {}

    @contextmanager
    def of(self, worker: int, ids: Sequence[str]) -> Iterator[None]:
        """Count rollouts of a worker, from 0, as in flight in the body."""
        begun = (worker, self._clock())
        self._since.update(dict.fromkeys(ids, begun))
        try:
            yield
        finally:
            for each in ids:
                self._since.pop(each, None)

    def longest(self) -> list[Flight]:
        """Return all, the one that has taken longest first."""
        now, found = self._clock(), self._since.copy()  # a copy is made at once
        flights = [Flight(name, worker + 1, max(0.0, now - since)) for name, (worker, since) in found.items()]
        return sorted(flights, key=lambda flight: -flight.lasted_s)


def status_of(
    running: Sequence[Span],
    flights: Flights,
    samplers: Mapping[str, float],
    *,
    step: int,
    steps: int,
    now_s: float,
    processes: Sequence[ProcessStatus] = (),
) -> Status:
    """Put together what a run says; `running` are spans that go on, `now_s` is the time in Unix seconds."""
    aloft = flights.longest()
    kinds: dict[tuple[str, str, int], Doing] = {}
    for each in sorted(running, key=lambda span: span.begin_s):
        kind = (each.role, each.what, each.step)
        if kind in kinds:
            kinds[kind].count += 1
        else:
            kinds[kind] = Doing(*kind, max(0.0, now_s - each.begin_s))
    return Status(
        os.getpid(),
        socket.gethostname(),
        step,
        steps,
        [*kinds.values()][:_SHOWN],
        len(aloft),
        aloft[:_SHOWN],
        dict(samplers),
        [*processes],
    )


def lasting(seconds: float) -> str:
    """Return `3.2 s`, `45 s`, `12 min` or `2.5 h`."""
    for size, unit in ((3600.0, "h"), (60.0, "min")):
        if seconds >= 2 * size:
            return f"{seconds / size:.3g} {unit}"
    return f"{seconds:.3g} s" if seconds >= 0.1 else "0 s"


def lines(status: Status, *, logs: bool = True) -> Iterator[str]:
    """Yield what a person reads, with what the processes wrote last or without."""
    yield f"step {status.step} of {status.steps} is done; process {status.pid} on {status.host}"
    if not status.doing:
        yield "nothing that is timed goes on: the run begins, or ends, or is between two steps"
    for each in status.doing:
        many = f" ({each.count} at once)" if each.count > 1 else ""
        yield f"{each.role}: {each.what} of {_which(each)}{many}, for {lasting(each.lasted_s)}"
    if status.in_flight:
        yield f"rollouts in flight: {status.in_flight}, the longest"
        for flight in status.flights[:5]:
            yield f"  {flight.id} on worker {flight.worker}, for {lasting(flight.lasted_s)}"
    if status.samplers:
        lost, up = (int(status.samplers.get(f"samplers/{name}", 0)) for name in ("lost", "up"))
        yield f"samplers: {up} up, {lost} lost so far"
    for process in status.processes:
        yield from _of_process(process)
        yield from _log_of(process) if logs else ()
    for thread, stack in status.stacks.items():
        yield f"thread {thread}"
        yield from (f"  {line}" for line in stack.splitlines())


def _of_process(process: ProcessStatus) -> Iterator[str]:
    """Yield where a process is; nothing of one that has nothing to do."""
    at = process.at
    if at is None:
        yield f"{process.name}: {process.silent}"
        return
    named = f"{process.name} (process {at.pid})"
    for wait in at.waits:
        names = f", such as {wait.names[0]}" if wait.names else ""
        yield f"{named}: {wait.count} waiting for {wait.what}{names}"
        yield from (f"    {place}" for place in wait.stack)
    for thread, place in at.threads.items():
        yield f"{named}: {thread} in {place}"
    for thread, stack in at.stacks.items():
        yield f"{named}: thread {thread}"
        yield from (f"    {line}" for line in stack.splitlines())


def logs(status: Status) -> Iterator[str]:
    """Yield what those of the processes that are at work wrote last."""
    for process in status.processes:
        yield from _log_of(process)


def _log_of(process: ProcessStatus) -> Iterator[str]:
    at = process.at
    if at is not None and (at.waits or at.threads) and at.log:
        yield f"{process.name} (process {at.pid}) wrote last"
        yield from (f"    {line}" for line in at.log)


def _which(doing: Doing) -> str:
    return f"version {doing.step}" if doing.role == "weights" else f"step {doing.step}"
