"""What the rules of an environment ask of a grade's box from their worker reaches the box as it was said."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import msgspec

from rock_env.env_workers.rules_box import RemoteFreshBoxes
from rock_env.env_workers.rules_wire import Wish
from rock_env.server.envs.byte_room import ByteRoom
from rock_env.server.envs.rules_calls import RulesCall

SAID = {
    "runs": ["sh", "pytest"],
    "asked": ["best.txt"],
    "workdir": "/shop",
    "image": {"modules": ["json", "os"], "places": [], "held": ["tests", "logs/verifier"]},
}


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
        wish = Wish(1, 1, of, method, msgspec.Raw(msgspec.msgpack.encode((arguments, named))))
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
