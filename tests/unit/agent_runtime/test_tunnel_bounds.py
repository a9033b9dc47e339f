"""What a relay that the agent has taken over may cost the process outside: bounded connections, and bounded relays."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence
from pathlib import Path
from typing import Any, Self

import pytest
from waiting import until

from agent_runtime.agents import tunnel as tunnel_module
from agent_runtime.agents.relay import COUNT, CREDIT, HEADER, LISTENS, OPEN
from agent_runtime.agents.tunnel import Tunnel, open_tunnel
from rock_env.sandbox import OutputChunk


def frame(kind: int, number: int, payload: bytes = b"") -> bytes:
    return HEADER.pack(kind, number, len(payload)) + payload


class Relay:
    """A relay that says that it listens, then what its box wants, and never ends by itself."""

    def __init__(self, box: Box) -> None:
        self._box = box

    async def __aenter__(self) -> Self:
        self._box.living += 1
        self._box.most = max(self._box.most, self._box.living)
        return self

    async def __aexit__(self, *_: object) -> None:
        self._box.living -= 1

    async def write(self, data: bytes) -> None:
        """Take it."""

    def _is_current(self) -> bool:
        relay = None if self._box.tunnel is None else self._box.tunnel._relay
        return relay is not None and relay._command is self

    async def output(self) -> AsyncGenerator[OutputChunk]:
        yield OutputChunk("stdout", frame(LISTENS, 0, COUNT.pack(1)))
        await until(self._is_current)
        yield OutputChunk("stdout", self._box.says)
        await asyncio.Event().wait()


class Box:
    id = "sb-1"

    def __init__(self, says: bytes) -> None:
        self.says = says
        self.started = self.living = self.most = 0
        self.tunnel: Tunnel | None = None

    def start(self, argv: Sequence[str], **_: Any) -> Relay:
        self.started += 1
        if self.started > 20:
            self.says = b""
        return Relay(self)


async def test_a_flood_of_connections_ends_the_relay(tmp_path: Path) -> None:
    box = Box(b"".join(frame(OPEN, number) for number in range(1, 5000)))
    async with open_tunnel(box, tmp_path / "nobody") as tunnel, asyncio.timeout(60):
        box.tunnel = tunnel
        assert "at once" in str(await tunnel.lost)


async def test_relays_that_never_end_are_few(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tunnel_module, "_RETIRED_AT", 1000)
    box = Box(frame(CREDIT, 1, COUNT.pack(1)) * 200)
    async with open_tunnel(box, tmp_path / "nobody") as tunnel:
        box.tunnel = tunnel
        await until(lambda: box.started > 20)
        await until(lambda: box.living <= 5)
        assert box.most <= 7
        assert not tunnel.lost.done()
    assert not box.living
