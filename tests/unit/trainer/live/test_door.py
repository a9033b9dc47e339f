"""A run says what it is busy with to who asks at its folder, also while its own thread hangs."""

from __future__ import annotations

import os
import socket
import threading
from contextlib import suppress
from pathlib import Path

import msgspec
import pytest

from trainer.errors import RunFolderError
from trainer.live import door
from trainer.live.door import Door, ask, name_of
from trainer.live.inside import stacks
from trainer.live.status import Doing, Flight, Flights, Status, lasting, lines, status_of
from trainer.timeline import Span

BAD_TEXT = b'{"pid":1,"host":"\xff","step":1,"steps":1,"doing":[],"in_flight":0,"flights":[],"samplers":{}}'


def some_status() -> Status:
    doing = [Doing("learner", "learn", 3, 12.5)]
    return Status(7, "host", 2, 10, doing, 1, [Flight("t-1", 2, 40.0)], {"samplers/up": 1.0})


def answer(whole: bool) -> Status:
    status = some_status()
    status.stacks = stacks() if whole else {}
    return status


def test_a_question_is_answered_while_the_run_hangs(tmp_path: Path) -> None:
    asked: list[Status | None] = []
    with Door(name_of(tmp_path), answer):
        # Nothing of this thread is needed.
        thread = threading.Thread(target=lambda: asked.append(ask(tmp_path)))
        thread.start()
        thread.join(20)
        whole = ask(tmp_path, whole=True)
    assert asked == [some_status()]
    assert whole is not None
    assert any("MainThread" in name and "test_door" in stack for name, stack in whole.stacks.items())


def test_nobody_answers_for_a_run_that_is_not_there(tmp_path: Path) -> None:
    assert ask(tmp_path) is None
    assert ask(tmp_path / "none") is None
    with Door(name_of(tmp_path), answer):
        assert [*tmp_path.iterdir()] == [], "a killed run leaves nothing"
    assert ask(tmp_path) is None
    with Door(name_of(tmp_path), answer):
        assert ask(tmp_path) == some_status()


def test_where_somebody_has_the_name_the_run_goes_on(tmp_path: Path) -> None:
    with Strange(tmp_path, b""), Door(name_of(tmp_path), answer) as opened:
        assert opened.why_not.startswith("nobody can ask this run how it is: Address already in use")
        with suppress(RunFolderError):
            ask(tmp_path)


def test_who_says_nothing_or_nonsense_keeps_nobody_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(door, "_ASKS_S", 0.05)
    with Door(name_of(tmp_path), answer):
        silent, rude, hasty = (socket.socket(socket.AF_UNIX) for _ in range(3))
        for each in (silent, rude, hasty):
            each.connect(name_of(tmp_path))
        rude.sendall(b"GET / HTTP/1.1\r\n\r\n")
        hasty.sendall(b"w")
        hasty.close()
        assert ask(tmp_path) == some_status()
        with suppress(ConnectionResetError):
            assert rude.recv(10) == b""
        silent.close()
        rude.close()


def test_another_user_gets_no_answer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And an answer of another user's is not read."""
    with Door(name_of(tmp_path), answer):
        monkeypatch.setattr(door, "_ROOT", -1)
        monkeypatch.setattr(os, "geteuid", lambda: 4321)
        with pytest.raises(RunFolderError, match="Ask as the user who runs it"):
            ask(tmp_path)
        monkeypatch.setattr(door, "_user_of", lambda _: 4322)
        assert ask(tmp_path) is None


class Strange:
    """Somebody else at a folder's socket, who answers with these bytes."""

    def __init__(self, folder: Path, answer: bytes, *, closes: bool = True) -> None:
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(name_of(folder))
        self._listener.listen()
        self._answer, self._closes = answer, closes
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._serve)

    def __enter__(self) -> Strange:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._done.set()
        self._thread.join()
        self._listener.close()

    def _serve(self) -> None:
        caller, _ = self._listener.accept()
        with caller:
            caller.recv(1)
            try:
                caller.sendall(self._answer)
            except OSError:
                return
            if not self._closes:
                self._done.wait()


@pytest.mark.parametrize("answer", [b"", b"{}", b"[" * 100_000, b"\xff", BAD_TEXT, b" " * (2 << 20)])
def test_what_is_no_status_is_one_error(tmp_path: Path, answer: bytes) -> None:
    with Strange(tmp_path, answer), pytest.raises(RunFolderError, match=r"what answers in .* is no run"):
        ask(tmp_path)


def test_a_run_that_does_not_answer_is_told_from_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(door, "_ANSWERS_S", 0.1)
    with (
        Strange(tmp_path, msgspec.json.encode(some_status())[:9], closes=False),
        pytest.raises(RunFolderError, match=r"is there and does not answer within 0\.1 s"),
    ):
        ask(tmp_path)


def test_an_answer_that_cannot_be_given_keeps_the_next_ones(tmp_path: Path) -> None:
    answers = iter([Status(7, "\ud800", 2, 10, [], 0, [], {}), some_status()])
    with Door(name_of(tmp_path), lambda _: next(answers)):
        with pytest.raises(RunFolderError, match="is no run"):
            ask(tmp_path)
        assert ask(tmp_path) == some_status()


def test_many_askers_of_a_run_that_is_stopped_are_told_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(door, "_ANSWERS_S", 0.05)
    with socket.socket(socket.AF_UNIX) as stopped:
        stopped.bind(name_of(tmp_path))
        stopped.listen(1)
        for _ in range(4):
            with pytest.raises(RunFolderError, match="is there and does not answer"):
                ask(tmp_path)


def test_a_status_is_read_as_sentences() -> None:
    status = some_status()
    status.stacks = {"MainThread": "File x\n  y"}
    assert list(lines(status)) == [
        "step 2 of 10 is done; process 7 on host",
        "learner: learn of step 3, for 12.5 s",
        "rollouts in flight: 1, the longest",
        "  t-1 on worker 2, for 40 s",
        "samplers: 1 up, 0 lost so far",
        "thread MainThread",
        "  File x",
        "    y",
    ]
    assert "nothing that is timed goes on" in list(lines(Status(7, "host", 0, 10, [], 0, [], {})))[1]


def test_times_are_short() -> None:
    assert [lasting(each) for each in (0.0, 0.31, 45, 119, 700, 9000)] == [
        "0 s",
        "0.31 s",
        "45 s",
        "119 s",
        "11.7 min",
        "2.5 h",
    ]


def test_rollouts_are_in_flight_until_they_are_in() -> None:
    now = 100.0
    flights = Flights(lambda: now)
    with flights.of(0, ["a"]):
        now = 110.0
        with suppress(OSError), flights.of(1, ["b", "c"]):
            running = [Span("weights", "load", 4, 105.0, 105.0)]
            status = status_of(running, flights, {}, step=1, steps=2, now_s=now)
            raise OSError
        assert [flight.id for flight in flights.longest()] == ["a"]
    assert flights.longest() == []
    assert [(each.id, each.worker, each.lasted_s) for each in status.flights] == [
        ("a", 1, 10),
        ("b", 2, 0),
        ("c", 2, 0),
    ]
    assert status.doing == [Doing("weights", "load", 4, 5.0)]
    assert "weights: load of version 4, for 5 s" in list(lines(status))
