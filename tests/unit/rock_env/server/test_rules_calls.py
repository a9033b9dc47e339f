"""What the rules of an environment ask of a grade's box from their worker reaches the box as it was said."""

from __future__ import annotations

import inspect
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import msgspec
import pytest

from rock_env.env import FreshBoxes
from rock_env.env_workers.rules_box import RemoteFreshBoxes
from rock_env.env_workers.rules_wire import CALLS, COMMANDS, STREAMS, Wish, given
from rock_env.sandbox import Sandbox
from rock_env.server.envs.byte_room import ByteRoom
from rock_env.server.envs.rules_calls import RulesCall

SAID = {
    "runs": ["sh", "pytest"],
    "asked": ["best.txt"],
    "workdir": "/shop",
    "image": {"modules": ["json", "os"], "places": [], "held": ["tests", "logs/verifier"]},
}

VALUES: dict[str, list[Any]] = {
    "str": ["/shop"],
    "int": [3],
    "int | None": [3, None],
    "bool": [True],
    "float": [1.5],
    "float | None": [1.5, None],
    "str | None": ["/shop", None],
    "tuple[int, int] | None": [(24, 80), None],
    "Sequence[str]": [["sh", "-c"]],
    "Mapping[str, str] | None": [{"HOME": "/root"}, None],
    "Mapping[str, Sequence[str]] | None": [{"modules": ["os"], "places": []}, None],
}
"""By a parameter's declared type, values of it."""
APART = ("bytes", "AsyncIterator[bytes | memoryview]", "AsyncIterable[bytes]", "Sandbox")
"""Types of what goes beside the arguments: the content, and the box, which is a handle."""


@pytest.mark.parametrize(
    "method", sorted(CALLS | COMMANDS | STREAMS | {"upload", "write_stream", "take_over"})
)
def test_whatever_a_method_declares_can_be_said(method: str) -> None:
    kind = FreshBoxes if method == "take_over" else Sandbox
    for name, parameter in inspect.signature(getattr(kind, method)).parameters.items():
        if name != "self" and parameter.annotation not in APART:
            for value in VALUES[parameter.annotation]:
                assert given(_wish(method, value)) == ([_plain(value)], {})


def _plain(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value


def _wish(method: str, *arguments: Any, of: int = 0, **named: Any) -> Wish:
    return Wish(1, 1, of, method, msgspec.Raw(msgspec.msgpack.encode((arguments, named))))


class _Fresh:
    """Notes what it is told."""

    def __init__(self) -> None:
        self.told: dict[str, Any] = {}

    @asynccontextmanager
    async def pristine(self) -> AsyncIterator[Any]:
        yield _Box()

    async def take_over(self, box: Any, **said: Any) -> list[str]:
        self.told = said
        return ["etc/profile"]


class _Box:
    id = "sb-1"


async def test_what_an_image_says_of_itself_reaches_the_box_that_takes_the_work_over() -> None:
    fresh = _Fresh()
    call = RulesCall(None, fresh, ByteRoom(1 << 20))  # type: ignore[arg-type]

    async def ask(of: int, method: str, *arguments: Any, **named: Any) -> Any:
        wish = _wish(method, *arguments, of=of, **named)
        async with AsyncExitStack() as answered:
            return _Answer(await call.act(wish, answered))

    boxes = RemoteFreshBoxes(ask)
    async with boxes.pristine() as box:
        left_out = await boxes.take_over(box, **SAID)  # type: ignore[arg-type]
    assert left_out == ["etc/profile"]
    assert fresh.told == SAID
    await call.end()


class _Answer:
    def __init__(self, value: Any) -> None:
        self.value = value
