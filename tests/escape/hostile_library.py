"""A library whose scorer evals its answers, and which does worse by itself. Offered with `--env` as if it were hosted.

An action names an act: `eval TEXT` is what reasoning_gym's scorers did; others are acts of the library's own code, as after
an answer that had got past the scorer. Acts in a reset come before any answer.
"""

from __future__ import annotations

import contextlib
import ctypes
import faulthandler
import os
import signal
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

from rock_env.env import Env, StepResult, Verdict
from rock_env.spec import EnvParams, EnvSpec, TaskSpec

LIBC = ctypes.CDLL(None)
CALLS = {
    "ptrace": (LIBC.ptrace, lambda: (16, os.getppid(), 0, 0)),  # PTRACE_ATTACH
    "kill": (LIBC.kill, lambda: (os.getppid(), 0)),  # asks only whether it might
    "fork": (LIBC.fork, tuple),
    "socket": (LIBC.socket, lambda: (2, 1, 0)),
    "limit": (LIBC.prlimit, lambda: (os.getppid(), 7, None, None)),
    "creat": (LIBC.open, lambda: (b"/tmp/hostile", os.O_CREAT | os.O_WRONLY, 0o600)),
    "signal by descriptor": (LIBC.fcntl, lambda: (0, 8, os.getppid())),  # F_SETOWN
}
"""System calls past Python's own audit events."""


class HostileParams(EnvParams):
    opening: str = ""
    """What a reset does."""


def _endlessly(what: Callable[[], Any]) -> None:
    while True:
        what()


def _swallow() -> None:
    while True:
        with contextlib.suppress(BaseException):
            _endlessly(lambda: None)


def _deaf() -> None:
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGALRM})
    _endlessly(lambda: None)


def _scrawl() -> None:
    for descriptor in range(3, 64):
        with contextlib.suppress(OSError):
            os.write(descriptor, b"\xff" * 4096)
    _endlessly(lambda: None)


def _call(name: str) -> str:
    function, arguments = CALLS[name]
    return str(function(*arguments()))


ACTS: dict[str, Callable[[], Any]] = {
    "import": lambda: __import__("xml.dom.pulldom"),
    "fork": os.fork,
    "kill": lambda: os.kill(os.getppid(), 0),
    "listen": lambda: socket.socket().listen(),
    "open": lambda: Path("/tmp/hostile").write_text(""),
    "unpickle": lambda: __import__("pickle").loads(b"cos\nsystem\n(S'true'\ntR."),
    "patch": lambda: setattr(Hostile, "worth", lambda self: 1.0),
    "fill": lambda: [bytes(1 << 24) for _ in range(1 << 16)],
    "spin": lambda: _endlessly(lambda: None),
    "swallow": _swallow,
    "deaf": _deaf,
    "print": lambda: os.write(1, b"x" * (1 << 26)),
    "exit": lambda: os._exit(3),
    "crash": faulthandler._sigsegv,
    "scrawl": _scrawl,
}


class Strange(Exception):
    def __str__(self) -> str:
        return f"{id(self)} {os.urandom(8)!r} " + "x" * 5000


def _raise(error: BaseException) -> None:
    raise error


RAISES: dict[str, Callable[[], BaseException]] = {
    "raise ValueError": lambda: ValueError("x" * 5000),
    "raise KeyError": lambda: KeyError(object()),
    "raise RecursionError": RecursionError,
    "raise Strange": Strange,
    "raise AssertionError": AssertionError,
    "raise MemoryError": MemoryError,
    "raise PermissionError": lambda: PermissionError(1, "not for you"),
    "raise TimeoutError": TimeoutError,
}
ACTS |= {name: lambda make=make: _raise(make()) for name, make in RAISES.items()}


class Hostile:
    """Counts its steps; what it is worth a class says."""

    def __init__(self, params: HostileParams) -> None:
        self._params = params
        self._steps = 0

    def worth(self) -> float:
        return 0.0

    def _act(self, action: str) -> str:
        if action.startswith("eval "):
            return str(eval(action.removeprefix("eval ")))
        if action.startswith("call "):
            return _call(action.removeprefix("call "))
        if action == "flood":
            return "x" * (70 << 20)
        return str(ACTS[action]()) if action in ACTS else action

    def reset(self, task: TaskSpec, seed: int) -> tuple[str, dict[str, Any]]:
        self._steps = 0
        return self._act(self._params.opening), {}

    def step(self, action: str) -> StepResult:
        said = self._act(action)
        self._steps += 1
        return StepResult(f"{self._steps} {os.getpid()} {said}", self.worth())

    def evaluate(self) -> Verdict:
        return Verdict(self.worth(), self.worth() > 0)

    def snapshot(self) -> bytes:
        return str(self._steps).encode()

    def restore(self, state: bytes) -> str:
        self._steps = int(state)
        return ""

    def reseed(self, seed: int) -> None:
        return

    def close(self) -> None:
        return


class OneTask:
    splits: tuple[str, ...] = ("train",)

    def count(self, split: str) -> int:
        return 1

    def get(self, split: str, index: int) -> TaskSpec:
        return TaskSpec("train/0", "train", 0, "Harm.")


def _factory(params: EnvParams) -> Env:
    return Hostile(cast("HostileParams", params))


HOSTILE = EnvSpec(
    name="hostile",
    version="1",
    summary="A library that cannot be trusted.",
    params=HostileParams,
    factory=_factory,
    tasks=lambda _: OneTask(),
    snapshots=True,
    library="hostile",
)
