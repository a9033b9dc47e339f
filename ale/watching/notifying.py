"""Tell somebody who is away what becomes of a run: a command or a webhook, from a thread that training never waits for.

Whom to tell is no setting of the run, but of who starts it: a run folder may come from a stranger, and would have a command
run when it is resumed; an address often holds a secret.
"""

from __future__ import annotations

import json
import re
import shlex
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from queue import Full, Queue
from tempfile import TemporaryFile
from typing import TYPE_CHECKING, Any, Literal
from urllib.parse import urlsplit

import httpx
from tenacity import Retrying, retry_if_exception_type, stop_after_attempt, wait_exponential

from trainer.errors import ConfigError

if TYPE_CHECKING:
    from trainer.metrics import Evaluation, Observer, RunEvent, RunSummary

__all__ = ["Bound", "Notifier", "parse_bound", "receiver", "train_notifying"]

Kind = Literal["fault", "recovery", "late", "bound", "halt", "stopped", "end"]
Receive = Callable[[bytes], None]
"""Takes a notification, a JSON object; raises `NotReceivedError`."""

_WAITING = 100
"""Most notifications that wait to be received; what comes beyond is counted, and told with the next one."""
_TAKES_S, _TRIES, _END_S = 10.0, 3, 45.0
"""How long a receiver may take, how often a webhook is tried, and how long a run's end waits for what is still to go."""
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
    if target.startswith(("http://", "https://")):
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
    if not words:
        raise ConfigError("--notify is empty: expected a command, or the address of a webhook")
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
    try:
        kind = {"Content-Type": "application/json"}
        with httpx.stream("POST", url, content=body, headers=kind, timeout=_TAKES_S) as answer:
            status = answer.status_code  # and nothing of what else it says, which may not end
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        raise NotReceivedError(f"the webhook at {host} cannot be reached: {type(error).__name__}") from None
    if not 200 <= status < 300:
        raise NotReceivedError(f"the webhook at {host} answered {status}, expected 2xx")


def _run(words: Sequence[str], body: bytes) -> None:
    with TemporaryFile() as errors:  # a pipe would stay open with whatever the command leaves behind
        try:
            done = subprocess.run(
                words,
                input=body,
                stdout=subprocess.DEVNULL,
                stderr=errors,
                timeout=_TAKES_S,
                check=False,
                start_new_session=True,  # Ctrl-C stops the run, which is then told
            )
        except (OSError, ValueError) as error:
            raise NotReceivedError(f"the command {words[0]!r} cannot be run: {error}") from error
        except subprocess.TimeoutExpired as error:
            raise NotReceivedError(f"the command {words[0]!r} took longer than {_TAKES_S:g} s") from error
        if done.returncode:
            errors.seek(0)
            said = errors.read(500).decode(errors="replace").strip()
            raise NotReceivedError(
                f"the command {words[0]!r} exited with {done.returncode}: {said or 'no words'}"
            )


class Notifier:
    """An observer that passes everything on to another one, and notifies of some of it. A context manager."""

    def __init__(self, to: Observer, folder: Path, receive: Receive, bounds: Sequence[Bound] = ()) -> None:
        self._to, self._folder, self._receive = to, folder, receive
        self._bounds = dict.fromkeys(bounds, False)
        """Whether the metric was beyond it when it was last measured."""
        self._step = 0
        self._unsaid = 0
        self._waiting: Queue[bytes | None] = Queue(_WAITING)
        self._thread = threading.Thread(target=self._deliver, name="notifier", daemon=True)

    def __enter__(self) -> Notifier:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Return when what waits was received, or after a while without."""
        with suppress(Full):
            self._waiting.put(None, timeout=_END_S)
        self._thread.join(_END_S)
        if self._thread.is_alive():
            self._to.on_log(f"note: notifications were not received within {_END_S:g} s and are given up")

    @property
    def stop_requested(self) -> bool:
        return self._to.stop_requested

    def on_phase(self, name: str) -> None:
        self._to.on_phase(name)

    def on_step(self, step: int, total: int, metrics: Mapping[str, float]) -> None:
        self._step = step
        self._to.on_step(step, total, metrics)
        self._compare(metrics)

    def on_eval(self, evaluation: Evaluation) -> None:
        self._to.on_eval(evaluation)
        self._compare(evaluation.metrics())

    def on_log(self, message: str) -> None:
        self._to.on_log(message)

    def on_event(self, event: RunEvent) -> None:
        self._to.on_event(event)
        self.notify(event.kind, event.message)

    def notify(self, kind: Kind, message: str, **more: Any) -> None:
        """Have a notification received, some time."""
        about = {
            "kind": kind,
            "text": f"{self._folder.name}, step {self._step}: {kind}: {message}"[:_CHARS],
            "run": str(self._folder),
            "host": socket.gethostname(),
            "time": time.time(),
            "step": self._step,
            "message": message[:_CHARS],
            "unsaid": self._unsaid,
            **more,
        }
        try:
            self._waiting.put_nowait(json.dumps(about).encode())
            self._unsaid = 0
        except Full:
            self._unsaid += 1

    def _compare(self, metrics: Mapping[str, float]) -> None:
        """Notify of each metric that has come beyond its bound since it was measured before."""
        for bound, was in self._bounds.items():
            value = metrics.get(bound.metric)
            if value is None:
                continue
            now = self._bounds[bound] = bound.is_passed(value)
            if now and not was:
                self.notify(
                    "bound", f"{bound.metric} is {value:g} ({bound})", metric=bound.metric, value=str(value)
                )

    def _deliver(self) -> None:
        failed = ""
        while (body := self._waiting.get()) is not None:
            try:
                self._receive(body)
                failed = ""
            except NotReceivedError as error:
                if str(error) != failed:  # once, however many are not received
                    self._to.on_log(f"note: a notification was not received: {error}")
                failed = str(error)


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
