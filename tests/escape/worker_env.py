"""An environment that speaks for its worker: it answers the server in the worker's place. Offered with `--env`.

Code that a tenant chooses runs in workers: a hosted library may hand an action to `eval`.
"""

from __future__ import annotations

import socket
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

from rock_env.env import Env, StepResult, Verdict
from rock_env.env_workers.frames import HEADER, Frame, pack
from rock_env.proto.v1 import env_pb2 as pb
from rock_env.proto.v1 import host_pb2 as host
from rock_env.spec import EnvParams, EnvSpec, TaskSpec

MORE_THAN_A_FRAME_HAS = (1 << 32) - 1


class WorkerParams(EnvParams):
    until: str = ""
    """Make it only when there is this file."""


def _made(env_id: str) -> bytes:
    return host.HostMakeResponse(items=[pb.MakeResponse(env_id=env_id)]).SerializeToString()


LIES: dict[str, Callable[[Frame], bytes]] = {
    "no message": lambda asked: pack(asked._replace(items=1, payload=b"\xff\xff\xff")),
    "nothing": lambda asked: pack(asked._replace(items=1, payload=b"")),
    "another environment": lambda asked: pack(asked._replace(items=1, payload=_made("e00000000-1"))),
    "two environments": lambda asked: pack(asked._replace(items=1, payload=_made("a") + _made("b"))),
    "another call": lambda asked: pack(asked._replace(call_id=asked.call_id + 1, items=1)),
    "no items": lambda asked: pack(asked._replace(items=0)),
    "more items": lambda asked: pack(asked._replace(items=7)),
    "another kind": lambda asked: pack(asked._replace(kind=200, items=1)),
    "a frame without end": lambda asked: (
        HEADER.pack(MORE_THAN_A_FRAME_HAS, asked.call_id, asked.kind, 1, 0.0) + bytes(1000)
    ),
}
"""What it answers the next request with."""


class SpeaksForItsWorker:
    """The environment: an action says how to lie, and after a `/` which file tells that it is about to."""

    def __init__(self, params: WorkerParams) -> None:
        while params.until and not Path(params.until).exists():
            time.sleep(0.01)

    def reset(self, task: TaskSpec, seed: int) -> tuple[str, dict[str, Any]]:
        return "", {}

    def step(self, action: str) -> StepResult:
        lie, slash, told = action.partition("/")
        if not slash:
            return StepResult(action)
        [descriptor] = [text.removeprefix("--fd=") for text in sys.argv if text.startswith("--fd=")]
        with socket.socket(fileno=int(descriptor)) as server:
            Path(slash + told).touch()
            size, call_id, kind, items, timeout_s = HEADER.unpack(
                server.recv(HEADER.size, socket.MSG_WAITALL)
            )
            server.recv(size, socket.MSG_WAITALL)
            server.sendall(LIES[lie](Frame(call_id, kind, items, timeout_s, b"")))
            while True:
                time.sleep(3600)

    def evaluate(self) -> Verdict:
        return Verdict(0.0, False)

    def snapshot(self) -> bytes:
        return b""

    def restore(self, state: bytes) -> str:
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
        return TaskSpec("train/0", "train", 0, "Lie.")


def _factory(params: EnvParams) -> Env:
    return SpeaksForItsWorker(cast("WorkerParams", params))


def _never(*_: Any) -> Any:
    raise NotImplementedError("nobody asks")


WORKER = EnvSpec(
    name="worker",
    version="1",
    summary="Answers the server in its worker's place.",
    params=WorkerParams,
    factory=_factory,
    tasks=lambda _: OneTask(),
    oracle=_never,
    optimum=_never,
)
