"""Tell somebody who is away what becomes of a run: a command or a webhook, from a thread that training never waits for.

Whom to tell is no setting of the run, but of who starts it: a run folder may come from a stranger, and would have a command
run when it is resumed; an address often holds a secret.
"""

from __future__ import annotations

import json
import logging
import re
import shlex
import socket
import subprocess
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryFile
from typing import TYPE_CHECKING, Any, Literal
from urllib.parse import urlsplit

import httpx
from tenacity import Retrying, retry_if_exception_type, stop_after_attempt, wait_exponential

from ale.watching.passing import PassesOn
from trainer.errors import ConfigError
from trainer.live.events import RunEvent

if TYPE_CHECKING:
    from trainer.metrics import Evaluation, Observer, RunSummary

__all__ = ["Bound", "Notifier", "parse_bound", "receiver", "train_notifying"]

Kind = Literal["fault", "recovery", "late", "bound", "halt", "stopped", "end"]
Receive = Callable[[bytes], None]
"""Takes a notification, a JSON object; raises `NotReceivedError`."""

_WAITING = 100
"""Most notifications that wait to be received; those before are left out, and counted in the next one."""
_TAKES_S, _TRIES, _END_S, _ABORT_S = 10.0, 3, 15.0, 2.0
"""How long a receiver may take, how often a webhook is tried, and how long a run's end waits for what is still to go: less
than the grace of a stop (docs/cli.md)."""
_WAIT = wait_exponential(max=4)
_CHARS = 4000
_BOUND = re.compile(r"(?P<name>[\w/@.+-]+)\s*(?P<side>[<>])\s*(?P<limit>[-+]?[0-9.]+(?:e[-+]?[0-9]+)?)")


class NotReceivedError(Exception):
    """Nobody took a notification. The text names no secret."""


@dataclass(frozen=True, slots=True)
class Bound:
    """Beyond it a metric is worth a notification."""

    metric: str
    side: Literal["<", ">"]
    limit: float

    def is_passed(self, value: float) -> bool:
        """Return whether this value is beyond; NaN is not."""
        return value < self.limit if self.side == "<" else value > self.limit

    def __str__(self) -> str:
        return f"{self.metric}{self.side}{self.limit:g}"


def parse_bound(text: str) -> Bound:
    """Read `NAME<NUMBER` or `NAME>NUMBER`. Raise `ConfigError`."""
    found = _BOUND.fullmatch(text.strip())
    try:
        if found is not None:
            side: Literal["<", ">"] = "<" if found["side"] == "<" else ">"
            return Bound(found["name"], side, float(found["limit"]))
    except ValueError:
        pass
    raise ConfigError(
        f"--notify-when {text!r} is no bound: expected a metric of docs/metrics.md, < or >, and a number, such as "
        "'success<0.2' or 'failures>10'"
    )


def receiver(target: str) -> Receive:
    """Return what takes notifications: a webhook for http:// and https://, else a command. Raise `ConfigError`."""
    target = target.strip()
    if target.lower().startswith(("http://", "https://")):
        try:
            host = urlsplit(target).hostname
        except ValueError:
            host = None
        if not host:
            raise ConfigError("--notify has an address without a host: expected https://HOST/PATH")
        return lambda body: _post(target, host, body)
    try:
        words = shlex.split(target)
    except ValueError as error:
        raise ConfigError(f"--notify {target!r} is no command: {error}") from error
    if not words or "://" in words[0]:
        raise ConfigError("--notify is neither a command nor the address of a webhook, http:// or https://")
    return lambda body: _run(words, body)


def _post(url: str, host: str, body: bytes) -> None:
    tries = Retrying(
        stop=stop_after_attempt(_TRIES),
        wait=_WAIT,
        retry=retry_if_exception_type(NotReceivedError),
        reraise=True,
    )
    tries(_post_once, url, host, body)


def _post_once(url: str, host: str, body: bytes) -> None:
    """Raise `NotReceivedError`. A thread tries, because whoever answers may take its time with each byte."""
    failed: list[BaseException | None] = []

    def attempt() -> None:
        try:
            _post_and_read(url, host, body)
            failed.append(None)
        except Exception as error:  # noqa: BLE001 - boundary: it is raised below, where somebody waits
            failed.append(error)

    trying = threading.Thread(target=attempt, name="webhook", daemon=True)
    trying.start()
    trying.join(_TAKES_S)
    if not failed:
        raise NotReceivedError(f"the webhook at {host} took longer than {_TAKES_S:g} s")
    if failed[0] is not None:
        raise failed[0]


def _post_and_read(url: str, host: str, body: bytes) -> None:
    try:
        kind = {"Content-Type": "application/json"}
        with httpx.stream("POST", url, content=body, headers=kind, timeout=_TAKES_S) as answer:
            status = answer.status_code  # and nothing of what else it says, which may not end
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        raise NotReceivedError(f"the webhook at {host} cannot be reached: {type(error).__name__}") from None
    if not 200 <= status < 300:
        raise NotReceivedError(f"the webhook at {host} answered {status}, expected 2xx")


def _run(words: Sequence[str], body: bytes) -> None:
    try:
        with TemporaryFile() as errors:  # a pipe would stay open with whatever the command leaves behind
            done = subprocess.run(
                words,
                input=body,
                stdout=subprocess.DEVNULL,
                stderr=errors,
                timeout=_TAKES_S,
                check=False,
                start_new_session=True,  # Ctrl-C stops the run, which is then told
            )
            errors.seek(0)
            said = errors.read(500).decode(errors="replace").strip()
    except (OSError, ValueError) as error:
        raise NotReceivedError(f"the command {words[0]!r} cannot be run: {error}") from error
    except subprocess.TimeoutExpired as error:
        raise NotReceivedError(f"the command {words[0]!r} took longer than {_TAKES_S:g} s") from error
    if done.returncode:
        raise NotReceivedError(
            f"the command {words[0]!r} exited with {done.returncode}: {said or 'no words'}"
        )


class Notifier(PassesOn):
    """An observer that passes everything on to another one, and notifies of some of it. A context manager."""

    def __init__(self, to: Observer, folder: Path, receive: Receive, bounds: Sequence[Bound] = ()) -> None:
        super().__init__(to)
        self._folder, self._receive = folder, receive
        self._bounds = dict.fromkeys(bounds, False)
        """Whether the metric was beyond it when it was last measured."""
        self._step: int | None = None
        self._unsaid = 0
        self._waiting: deque[dict[str, Any]] = deque()
        self._moved = threading.Condition()
        self._ends = False
        self._thread = threading.Thread(target=self._deliver, name="notifier", daemon=True)

    def __enter__(self) -> Notifier:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        """Return when what waits was received, or after a while without; who aborts a run waits for a moment only."""
        with self._moved:
            self._ends = True
            self._moved.notify()
        end_s = _END_S if kind is None or issubclass(kind, Exception) else _ABORT_S
        self._thread.join(end_s)
        if self._thread.is_alive():
            self._to.on_log(f"note: notifications were not received within {end_s:g} s and are given up")

    def on_step(self, step: int, total: int, metrics: Mapping[str, float]) -> None:
        self._step = step
        super().on_step(step, total, metrics)
        self._compare(metrics)

    def on_eval(self, evaluation: Evaluation) -> None:
        self._step = evaluation.step
        super().on_eval(evaluation)
        self._compare(evaluation.metrics())

    def on_event(self, event: RunEvent) -> None:
        super().on_event(event)
        self.notify(event.kind, event.message)

    def notify(self, kind: Kind, message: str, **more: Any) -> None:
        """Have a notification received, some time. Where too many wait the oldest is left out."""
        at = "" if self._step is None else f", step {self._step}"
        about = {
            "kind": kind,
            "text": f"{self._folder.name}{at}: {kind}: {message}"[:_CHARS],
            "run": str(self._folder),
            "host": socket.gethostname(),
            "time": time.time(),
            "step": self._step,
            "message": message[:_CHARS],
            **more,
        }
        with self._moved:
            if len(self._waiting) == _WAITING:
                self._waiting.popleft()
                self._unsaid += 1
            self._waiting.append(about)
            self._moved.notify()

    def _compare(self, metrics: Mapping[str, float]) -> None:
        """Notify of each metric that has come beyond its bound since it was measured before."""
        for bound, was in self._bounds.items():
            value = metrics.get(bound.metric)
            if value is None:
                continue
            now = self._bounds[bound] = bound.is_passed(value)
            if now and not was:
                said = f"{bound.metric} is {value:g} ({bound})"
                self.notify("bound", said, metric=bound.metric, value=str(value))

    def _next(self) -> dict[str, Any] | None:
        with self._moved:
            while not self._waiting and not self._ends:
                self._moved.wait()
            if not self._waiting:
                return None
            unsaid, self._unsaid = self._unsaid, 0
            return {**self._waiting.popleft(), "unsaid": unsaid}

    def _deliver(self) -> None:
        failed = ""
        while (about := self._next()) is not None:
            try:
                self._receive(json.dumps(about).encode())
                said = ""
            except NotReceivedError as error:
                said = str(error)
            except Exception as error:  # noqa: BLE001 - boundary: the next one may be received; its text may hold a secret
                said = f"{type(error).__name__}. Look at the variables of proxies and certificates"
            if said and said != failed:  # once, however many are not received
                with suppress(Exception):
                    self._to.on_log(f"note: a notification was not received: {said}")
            failed = said


def train_notifying(
    train: Callable[[Observer], RunSummary | None],
    to: Observer,
    folder: Path,
    target: str | None,
    bounds: Sequence[str],
) -> RunSummary | None:
    """Train, observed by `to`, and tell `target` what becomes of the run; None tells nobody. Raise `ConfigError` before."""
    passed = [parse_bound(text) for text in bounds]
    if not target:
        if passed:
            raise ConfigError("--notify-when says when, and nothing says whom: give --notify, too")
        return train(to)
    logging.getLogger("httpx").setLevel(logging.WARNING)  # it logs whole addresses
    with Notifier(to, folder, receiver(target), passed) as notifier:
        try:
            summary = train(notifier)
        except BaseException as error:
            notifier.notify("halt", str(error) or type(error).__name__)
            raise
        if summary is None:
            notifier.notify("stopped", "it was stopped, and goes on with --resume")
        else:
            was, now = summary.success_warmup, summary.success_final
            notifier.notify("end", f"held-out success {was:.3f} -> {now:.3f} after {summary.steps} steps")
    return summary
