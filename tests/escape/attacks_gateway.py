"""Attacks on the gateway that an agent or a stranger can make, by name. Each must be refused."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from attacks import Attack
from hostile_site import Site
from wires import WIRES, Wire

__all__ = ["GATEWAY_ATTACKS"]

MIB = 1 << 20
CHAT, RESPONSES, MESSAGES = WIRES


def _post(wire: Wire, body: Any, *, key: int | str = 0) -> Attack:
    return lambda site: site.gateway.post(wire.path, body, key=key)


def _chat(**fields: Any) -> Attack:
    return _post(CHAT, {**CHAT.body("hello"), **fields})


def _said(count: int, text: str) -> dict[str, Any]:
    """Return a history of so many neighbouring messages of one role."""
    return {"model": "m", "messages": [{"role": "user", "content": text}] * count}


def _nested(site: Site) -> Any:
    return site.gateway.post(CHAT.path, b'{"messages":' + b"[" * 200_000)


GATEWAY_ATTACKS: Mapping[str, Attack] = {
    "a stranger's body of 40 MiB": _post(CHAT, b"[" * (40 * MIB), key="sk-ale-nobody"),
    "a session by a guessed path": lambda site: site.gateway.post(f"/s/guess{CHAT.path}", CHAT.body("a")),
    "half a million neighbouring messages": _post(CHAT, _said(500_000, "x")),
    "a body of 40 MiB": _post(CHAT, _said(1, "x" * (40 * MIB))),
    "JSON nested 200,000 times": _nested,
    "100,000 tools": _chat(
        tools=[{"type": "function", "function": {"name": f"t{number}"}} for number in range(100_000)]
    ),
    "100,000 texts to stop at": _chat(stop=["x"] * 100_000),
    "a million answers": _chat(n=1_000_000),
    "minus one tokens": _chat(max_tokens=-1),
    "a form of answer that is none": _chat(response_format={"type": "yaml"}),
    "tools that are no list": _chat(tools={"a": 1}),
    "input that is no list": _post(RESPONSES, {"model": "m", "input": {"a": 1}}),
    "no tokens at all": _post(MESSAGES, {**MESSAGES.body("a"), "max_tokens": 0}),
    "bytes that are no JSON": _post(CHAT, b"\xff\xfe" * 1000),
}
