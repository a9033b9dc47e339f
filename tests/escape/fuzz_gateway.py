"""Requests nobody should send to the gateway of agents: of each wire format, spoiled, half without a session's key."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

import psutil
from fuzz_http import HttpCase, spoiled_text, spoiled_tree
from wires import WIRES, Wire

__all__ = ["FuzzedGateway", "fuzzed_gateway", "gateway_case"]

_PATHS = (
    "/v1/models",
    "/v1/models/policy",
    "/v1/messages/count_tokens",
    "/v1/nope",
    "/",
    "/s/guess/v1/models",
)
_UNKNOWN = ("none", "wrong")
_MORE: Sequence[dict[str, Any]] = (
    *(
        {"n": 2},
        {"stop": ["a", "b"]},
        {"seed": -1},
        {"temperature": 2.5},
        {"max_tokens": 0},
        {"logprobs": True},
    ),
    *({"tool_choice": "none"}, {"response_format": {"type": "json_object"}}, {"metadata": {"a": "b"}}, {}),
)


@dataclass(frozen=True)
class FuzzedGateway:
    """A gateway in a process of its own."""

    url: str
    key: str
    process: psutil.Process


@contextmanager
def fuzzed_gateway() -> Iterator[FuzzedGateway]:
    """Serve one session before a policy that answers at once."""
    command = [sys.executable, str(Path(__file__).with_name("hostile_gateway.py"))]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        try:
            assert server.stdout is not None
            said = json.loads(server.stdout.readline())
            yield FuzzedGateway(said["url"], said["keys"][0], psutil.Process(server.pid))
        finally:
            server.terminate()


def gateway_case(number: int, seed: int, key: str) -> HttpCase:
    """Make one request; every wire format in turn."""
    random = Random(f"{seed}:gateway:{number}")
    wire = WIRES[number % len(WIRES)]
    who = "agent" if random.random() < 0.5 else random.choice(_UNKNOWN)
    verb, path = "POST", wire.path
    if random.random() < 0.15:
        verb, path = random.choice(("GET", "POST", "PUT", "DELETE")), random.choice(_PATHS)
    body = _body(random, wire)
    lines = [f"{verb} {path} HTTP/1.1", "Host: x", "Connection: close", f"Content-Length: {len(body)}"]
    lines += ["Content-Type: application/json"] if random.random() < 0.9 else []
    lines += ["Content-Encoding: gzip"] if random.random() < 0.02 else []
    if who != "none":
        shown = key if who == "agent" else "sk-ale-nobody"
        lines += [f"{name}: {text}" for name, text in wire.headers(shown).items()]
    if random.random() < 0.1:
        lines.append("X-ALE-Label: " + random.choice(("side", "error", "x" * 3000, "")))
    public = path == "/" or verb not in ("GET", "POST")
    request = "\r\n".join(lines).encode() + b"\r\n\r\n" + body
    return HttpCase(number, "Gateway.call", request, "anybody" if public else who, other_words=True)


def _body(random: Random, wire: Wire) -> bytes:
    said = [
        random.choice(("a", "look", "x" * 3000, "\0", "é\u202e"))
        for _ in range(random.choice((0, 1, 2, 3, 9)))
    ]
    tree = wire.body(*said, stream=random.random() < 0.3, tools=random.random() < 0.6)
    tree |= random.choice(_MORE)
    for _ in range(random.choice((0, 1, 1, 3))):
        tree = spoiled_tree(random, tree)
    text = json.dumps(tree).encode()
    return spoiled_text(random, text) if random.random() < 0.2 else text
