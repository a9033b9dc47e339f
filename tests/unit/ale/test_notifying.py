"""Whoever is away is told what becomes of a run, and the run never waits for it."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest
from tenacity import wait_none

from ale.watching import notifying
from ale.watching.notifying import Bound, Notifier, NotReceivedError, parse_bound, receiver, train_notifying
from trainer.errors import ConfigError, Halted
from trainer.live.events import RunEvent, hear
from trainer.metrics import Evaluation, Observer, RunSummary


class Watching:
    """An observer that keeps what it is told."""

    stop_requested = False

    def __init__(self) -> None:
        self.said: list[str] = []
        self.steps: list[int] = []

    def on_phase(self, name: str) -> None: ...

    def on_step(self, step: int, total: int, metrics: object) -> None:
        self.steps.append(step)

    def on_eval(self, evaluation: Evaluation) -> None: ...

    def on_log(self, message: str) -> None:
        self.said.append(message)


@contextmanager
def webhook(*answers: int) -> Iterator[tuple[str, list[dict[str, Any]]]]:
    """Yield the address of a server that answers so, the last status for ever, and what it was sent."""
    got: list[dict[str, Any]] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            got.append(json.loads(body) | {"type": self.headers["Content-Type"]})
            self.send_response(answers[min(len(got), len(answers)) - 1])
            self.end_headers()

        def log_message(self, *_: object) -> None: ...

    server = HTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/hooks/s3cret", got
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def summary() -> RunSummary:
    shown: Any = type("Shown", (), {"success_warmup": 0.25, "success_final": 0.75, "steps": 3})
    return shown  # type: ignore[no-any-return]


def told(
    train: Callable[[Observer], RunSummary | None], *bounds: str, to: Watching | None = None
) -> list[dict[str, Any]]:
    """Train with a webhook; return what it was sent."""
    with webhook(200) as (url, got):
        train_notifying(train, to or Watching(), Path("runs/lake"), url, bounds)
    return got


def test_a_fault_a_recovery_and_the_end_are_told_in_order() -> None:
    def train(observer: Observer) -> RunSummary:
        observer.on_step(1, 3, {})
        hear(observer, RunEvent("fault", "sampler 1 of 2 was lost"))
        hear(observer, RunEvent("recovery", "sampler 1 of 2 is back"))
        return summary()

    watching = Watching()
    fault, recovery, end = told(train, to=watching)
    assert [each["kind"] for each in (fault, recovery, end)] == ["fault", "recovery", "end"]
    assert fault["text"] == "lake, step 1: fault: sampler 1 of 2 was lost"
    assert (fault["run"], fault["step"], fault["type"]) == ("runs/lake", 1, "application/json")
    assert end["message"] == "held-out success 0.250 -> 0.750 after 3 steps"
    assert watching.steps == [1]
    assert watching.said == ["note: sampler 1 of 2 was lost", "note: sampler 1 of 2 is back"]


def test_a_halt_is_told_with_its_reason_and_raised() -> None:
    def train(observer: Observer) -> None:
        raise Halted("no sampler is left \ud800")

    with webhook(200) as (url, got), pytest.raises(Halted, match="no sampler is left"):
        train_notifying(train, Watching(), Path("lake"), url, ())
    assert [(each["kind"], each["message"]) for each in got] == [("halt", "no sampler is left \ud800")]


def test_a_stop_is_no_halt() -> None:
    assert [each["kind"] for each in told(lambda _: None)] == ["stopped"]


def test_a_metric_beyond_its_bound_is_told_once_until_it_is_back() -> None:
    def train(observer: Observer) -> None:
        for step, success in enumerate((0.5, 0.1, 0.1, 0.4, float("nan"), 0.0), start=1):
            observer.on_step(step, 6, {"success": success})
        observer.on_step(7, 7, {"loss": float("inf")})

    found = told(train, "success<0.2", "loss > 1e3")
    assert [(each["step"], each["metric"], each["value"]) for each in found[:-1]] == [
        (2, "success", "0.1"),
        (6, "success", "0.0"),
        (7, "loss", "inf"),
    ]


def test_a_webhook_that_fails_is_tried_again_and_its_address_is_told_to_nobody(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(notifying, "_WAIT", wait_none())
    watching = Watching()
    with (
        webhook(500, 500, 200, 404) as (url, got),
        Notifier(watching, Path("lake"), receiver(url)) as notifier,
    ):
        notifier.notify("fault", "first")
        for _ in range(3):
            notifier.notify("fault", "second")
    assert [each["message"] for each in got[:3]] == ["first"] * 3
    assert watching.said == [
        "note: a notification was not received: the webhook at 127.0.0.1 answered 404, expected 2xx"
    ]
    assert "s3cret" not in str(watching.said)


def test_a_command_reads_the_notification_and_its_failure_is_said(tmp_path: Path) -> None:
    told, watching = tmp_path / "told", Watching()
    with Notifier(watching, Path("lake"), receiver(f"tee {told}")) as notifier:
        notifier.notify("halt", "$(touch here) ; it halted")
    assert json.loads(told.read_text())["message"] == "$(touch here) ; it halted"
    with Notifier(watching, Path("lake"), receiver("sh -c 'echo sorry >&2; exit 3'")) as notifier:
        notifier.notify("halt", "again")
    assert watching.said == ["note: a notification was not received: the command 'sh' exited with 3: sorry"]


def test_a_command_may_leave_something_running() -> None:
    receiver("sh -c 'sleep 30 &'")(b"{}")


@pytest.mark.parametrize(
    ("target", "said"),
    [("sleep 5", "took longer than 0.05 s"), ("/no/such/command", "cannot be run")],
)
def test_a_command_that_hangs_or_is_absent(target: str, said: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(notifying, "_TAKES_S", 0.05)
    with pytest.raises(NotReceivedError, match=said):
        receiver(target)(b"{}")


def test_training_goes_on_while_nobody_takes_notifications() -> None:
    free, watching = threading.Event(), Watching()
    got: list[dict[str, Any]] = []

    def slow(body: bytes) -> None:
        free.wait()
        got.append(json.loads(body))

    with Notifier(watching, Path("lake"), slow) as notifier:
        for number in range(notifying._WAITING + 50):
            notifier.on_step(number, 200, {})
            notifier.notify("fault", str(number))
        notifier.notify("end", "last")
        free.set()
    assert len(watching.steps) == notifying._WAITING + 50
    assert got[-1]["message"] == "last"
    assert sum(each["unsaid"] for each in got) + len(got) == notifying._WAITING + 51


def test_whatever_a_receiver_raises_the_next_one_is_received() -> None:
    got, watching = list[bytes](), Watching()

    def broken_once(body: bytes) -> None:
        got.append(body)
        if len(got) == 1:
            raise ImportError("a proxy with a s3cret")

    with Notifier(watching, Path("lake"), broken_once) as notifier:
        notifier.notify("fault", "first")
        notifier.notify("end", "last")
    assert len(got) == 2
    assert watching.said == [
        "note: a notification was not received: ImportError. Look at the variables of proxies and certificates"
    ]


def test_a_webhook_that_drips_its_answer_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(notifying, "_TAKES_S", 0.2)
    monkeypatch.setattr(notifying, "_TRIES", 1)
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def drip() -> None:
            caller, _ = listener.accept()
            with caller, suppress(OSError):
                while True:
                    caller.sendall(b"H")
                    if closed.wait(0.05):
                        return

        closed = threading.Event()
        dripping = threading.Thread(target=drip)
        dripping.start()
        with pytest.raises(NotReceivedError, match=r"took longer than 0\.2 s"):
            receiver(f"http://127.0.0.1:{listener.getsockname()[1]}/")(b"{}")
        closed.set()
        dripping.join()


def test_who_aborts_a_run_waits_for_a_moment_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(notifying, "_ABORT_S", 0.05)
    free = threading.Event()

    def never(_: bytes) -> None:
        free.wait()

    notifier = Notifier(Watching(), Path("lake"), never)
    with suppress(KeyboardInterrupt), notifier:
        notifier.notify("halt", "KeyboardInterrupt")
        raise KeyboardInterrupt
    assert notifier._thread.is_alive(), "nobody waited for the receiver"
    free.set()


def test_the_end_of_a_run_waits_only_so_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(notifying, "_END_S", 0.05)
    free, watching = threading.Event(), Watching()

    def never(_: bytes) -> None:
        free.wait()

    with Notifier(watching, Path("lake"), never) as notifier:
        notifier.notify("end", "it has ended")
    free.set()
    assert watching.said == ["note: notifications were not received within 0.05 s and are given up"]


@pytest.mark.parametrize(
    "text", ["success", "success=1", "success<", "<1", "success<1<2", "success<1.2.3", "a b<1"]
)
def test_a_bound_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="is no bound: expected a metric"):
        parse_bound(text)


def test_bounds_and_targets_are_read() -> None:
    assert parse_bound("lag/mean > -1.5e-3") == Bound("lag/mean", ">", -1.5e-3)
    for target in ("https://", "http:///path", "HTTPS://", "ftp://host/s3cret", "'open", "  "):
        with pytest.raises(ConfigError, match="--notify"):
            receiver(target)
    with pytest.raises(ConfigError, match="give --notify, too"):
        train_notifying(lambda _: None, Watching(), Path("lake"), None, ["success<1"])
