"""HTTP requests nobody should send: the REST face's, E2B's, and bytes that are no protocol at all.

Made from a seed and the ids of real things, as those of `fuzz_messages` are. Nothing is sent here.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any
from urllib.parse import quote, urlencode

from fuzz_messages import PATHS, UNKNOWN, Known, Maker, anybody, caller_of
from google.protobuf import json_format

from rock_env.wire.rest_routes import Method

__all__ = ["HttpCase", "e2b_case", "garbage", "http_case", "spoiled_text", "spoiled_tree"]

JUNK_JSON: tuple[Any, ...] = (
    *(
        None,
        True,
        False,
        -1,
        0,
        1,
        2**64,
        1e308,
        0.5,
        "",
        "x",
        "-1s",
        "1e9s",
        "NaN",
        "Infinity",
        "\ud800",
        "\0",
        [],
        {},
    ),
    *(
        [[]],
        [None],
        {"": {}},
        {"@type": "x"},
        {"a": {"b": {"c": 1}}},
        "AA==",
        "!!",
        "2026-13-41T25:61:61Z",
        [1, "a"],
    ),
)
KINDS = (
    "application/json",
    "text/plain",
    "",
    "application/x-ndjson",
    "application/octet-stream",
    "json;;;=",
    "a/b; c",
)


@dataclass(frozen=True)
class HttpCase:
    """One HTTP request, as bytes; `whole` says that the server has all it was promised."""

    number: int
    name: str
    request: bytes
    who: str
    whole: bool = True
    other_words: bool = False
    """Errors of this part of the server are not problems as of RFC 9457."""

    def __str__(self) -> str:
        head, _, body = self.request.partition(b"\r\n\r\n")
        line = head.partition(b"\r\n")[0][:200]
        return f"#{self.number} REST {self.name} as {self.who} {line!r} body={body[:160]!r}({len(body)})"


def spoiled_tree(random: Random, tree: Any, depth: int = 0) -> Any:
    """Return JSON near this one."""
    if random.random() < 0.25 or depth > 4:
        return random.choice(JUNK_JSON)
    if isinstance(tree, dict) and tree:
        name = random.choice(list(tree))
        changed = {**tree, name: spoiled_tree(random, tree[name], depth + 1)}
        if random.random() < 0.15:
            changed[random.choice(("unknown", name.upper(), "", "__proto__", f"{name}."))] = 1
        return changed
    if isinstance(tree, list) and tree:
        at = random.randrange(len(tree))
        return [*tree[:at], spoiled_tree(random, tree[at], depth + 1), *tree[at + 1 :]]
    return random.choice(JUNK_JSON)


def spoiled_text(random: Random, good: bytes) -> bytes:
    at = random.randrange(len(good) + 1)
    ways: Sequence[Callable[[], bytes]] = (
        lambda: good[:at],
        lambda: good[:at] + random.randbytes(3) + good[at:],
        lambda: b"\xef\xbb\xbf" + good,
        lambda: good.decode("utf-8", "replace").encode("utf-16"),
        lambda: b"[" * random.choice((10, 90_000)),
        lambda: b'{"a":' * random.choice((10, 30_000)),
        lambda: good.replace(b"{", b"{{", 1),
        lambda: good + good,
        lambda: b'{"lease": NaN, "count": Infinity, "port": -Infinity}',
        lambda: b'{"path": "\\ud800", "id": "\\udfff"}',
        lambda: b"9" * random.choice((20, 5000)),
        lambda: b"null",
        lambda: b'"text"',
        lambda: b"\0" * 100,
    )
    return random.choice(ways)()


def _path(random: Random, method: Method, message: Any) -> str:
    path = method.route.path
    for name in method.path_fields:
        value: Any = message
        for part in name.split("."):
            value = getattr(value, part)
        safe = "/" if random.random() < 0.5 else ""
        text = quote(str(value)[:2000], safe=safe)
        path = path.replace(
            "{" + name + "}", text or quote(random.choice(("nope", "%", "..", "\0", "é", "a/b")), safe="")
        )
    return path


def _query(random: Random, message: Any) -> str:
    flat: list[tuple[str, str]] = []

    def walk(prefix: str, value: Any) -> None:
        if isinstance(value, dict):
            for name, inner in value.items():
                walk(f"{prefix}.{name}" if prefix else name, inner)
        elif isinstance(value, list):
            for inner in value:
                walk(prefix, inner)
        else:
            flat.append((prefix, str(value)[:1000]))

    walk("", _plain(message))
    if flat and random.random() < 0.4:
        at = random.randrange(len(flat))
        name, value = flat[at]
        flat[at] = random.choice(
            (
                (name, str(random.choice(JUNK_JSON)).encode("utf-8", "replace").decode()),
                (name + ".x", value),
                ("", value),
            )
        )
    text = urlencode(flat[:40])
    return random.choice(("", "?" + text, "?" + text, "?" + text, "?%ff%fe=%", "?&&&=", f"?{text}&unknown=1"))


def _plain(message: Any) -> Any:
    try:
        return json_format.MessageToDict(message, preserving_proto_field_name=True)
    except (ValueError, OverflowError, json_format.SerializeToJsonError):
        return {}  # a time or a duration that JSON has no form for


def _body(random: Random, method: Method, message: Any) -> tuple[bytes, str]:
    tree = _plain(message)
    for name in method.path_fields:  # what the path says need not be repeated
        if random.random() < 0.7:
            tree.pop(name.partition(".")[0], None) if "." not in name else tree.get("start", {}).pop(
                "sandbox_id", None
            )
    chosen = random.random()
    if chosen < 0.5:
        tree = spoiled_tree(random, tree)
    text = json.dumps(tree).encode()
    if chosen > 0.85:
        text = spoiled_text(random, text)
    kind = random.choice(KINDS) if random.random() < 0.15 else "application/json"
    if method.client_streaming and random.random() < 0.4:
        text, kind = b"\n".join([text] * random.choice((1, 2, 5))), "application/x-ndjson"
    return text, kind


def _odd_headers(random: Random) -> list[str]:
    if random.random() > 0.15:
        return []
    return [
        random.choice(
            (
                "X-Junk: " + "x" * random.choice((100, 6000, 70_000)),
                "rock-timeout-s: " + random.choice(("NaN", "-1", "soon", "1e99", "", "0")),
                "Range: "
                + random.choice(
                    ("bytes=5-1", "bytes=-", "bytes=0-99999999999999999999", "lines=1", "bytes=1-2,3-4")
                ),
                "Last-Event-ID: "
                + random.choice(("x", "-1", "1:2:3", "9" * 40, "1:", "99999999999999999999:0")),
                "Accept: text/event-stream",
                "Content-Encoding: gzip",
                "Expect: 100-continue",
                "Upgrade: h2c\r\nConnection: Upgrade",
                "traceparent: \xe9",
                "Origin: http://evil.example",
                "Authorization: Basic eDp5",
                "X-Forwarded-Prefix: //evil",
            )
        )
    ]


def http_case(
    number: int, seed: int, methods: Sequence[Method], known: Known, keys: Mapping[str, str]
) -> HttpCase:
    """Make one request over HTTP; every method in turn."""
    random = Random(f"{seed}:http:{number}")
    method = methods[number % len(methods)]
    room = 1 << 20 if random.random() < 0.01 else 1 << 12
    message = Maker(random, known, method.name.partition(".")[2], room).message(method.input)
    who = caller_of(random, method)
    verb = (
        method.route.verb
        if random.random() < 0.95
        else random.choice(("GET", "POST", "PUT", "PATCH", "BREW", "HEAD"))
    )
    target = _path(random, method, message)
    body, kind = (b"", "")
    if method.takes_body:
        body, kind = _body(random, method, message)
    else:
        target += _query(random, message)
        if method.client_streaming:
            body, kind = random.randbytes(random.choice((0, 10, 3000))), random.choice(KINDS)
    lines = [f"{verb} {target} HTTP/1.1", "Host: 127.0.0.1", "Connection: close", "rock-timeout-s: 4"]
    lines += [f"Authorization: Bearer {keys[who]}"] if who in keys else []
    lines += [f"Content-Type: {kind}"] if kind else []
    odd = _odd_headers(random)
    if any(line.startswith("rock-timeout-s") for line in odd):
        lines = [line for line in lines if not line.startswith("rock-timeout-s")]
    promised, whole = len(body), True
    if body and random.random() < 0.03:
        promised, whole = promised + 100, False
    lines += [*odd, f"Content-Length: {promised}"] if body or verb != "GET" else odd
    head = "\r\n".join(lines).encode("latin-1", "replace")
    return HttpCase(number, method.name, head + b"\r\n\r\n" + body, who, whole)


# -- E2B's words over REST

_E2B = (
    *(
        ("POST", "/v2/sandboxes"),
        ("GET", "/v2/sandboxes"),
        ("GET", "/sandboxes/{id}"),
        ("DELETE", "/sandboxes/{id}"),
    ),
    *(
        ("POST", "/sandboxes/{id}/timeout"),
        ("POST", "/sandboxes/{id}/pause"),
        ("POST", "/v2/sandboxes/{id}/connect"),
    ),
    *(("GET", "/health"), ("GET", "/files"), ("POST", "/files"), ("POST", "/process.Process/StreamInput")),
    *(
        ("POST", f"/filesystem.Filesystem/{name}")
        for name in ("Stat", "ListDir", "MakeDir", "Remove", "Move", "Nope")
    ),
    *(
        ("POST", f"/process.Process/{name}")
        for name in ("List", "SendInput", "SendSignal", "CloseStdin", "Start")
    ),
    *(("POST", "/process.Process/Connect"), ("GET", "/nope"), ("PATCH", "/sandboxes/{id}")),
)
_E2B_WORDS: Mapping[str, Any] = {
    "templateID": "base",
    "timeout": 60,
    "metadata": {"a": "b"},
    "envVars": {"A": "b"},
    "path": "f",
    "source": "f",
    "destination": "g",
    "depth": 1,
    "process": {"cmd": "/bin/sh", "args": ["-c", "true"], "envs": {"A": "b"}, "cwd": "/", "pid": 1},
    "input": {"stdin": "aGk="},
    "signal": "SIGNAL_SIGTERM",
    "selector": {"pid": 1},
}


def e2b_case(number: int, seed: int, known: Known, keys: Mapping[str, str]) -> HttpCase:
    """Make one request in E2B's words."""
    random = Random(f"{seed}:e2b:{number}")
    verb, path = _E2B[number % len(_E2B)]
    harmful = verb == "DELETE" or "pause" in path or "timeout" in path
    box = quote(known.pick(random, "sandbox", harmful=harmful)[:2000], safe="")
    who = anybody(random)
    tree = {name: value for name, value in _E2B_WORDS.items() if random.random() < 0.6}
    body = json.dumps(spoiled_tree(random, tree)).encode()
    if random.random() < 0.2:
        body = spoiled_text(random, body)
    if path.endswith(("/Start", "/Connect", "/StreamInput")) and random.random() < 0.8:
        size = len(body) if random.random() < 0.7 else random.choice((0, 1, len(body) + 9, 2**32 - 1))
        body = bytes([random.choice((0, 0, 0, 1, 2, 255))]) + size.to_bytes(4, "big") + body
    query = "?" + urlencode({"path": random.choice(PATHS), "username": "user"}) if path == "/files" else ""
    lines = [f"{verb} /e2b{path.replace('{id}', box)}{query} HTTP/1.1", "Host: x", "Connection: close"]
    inside = keys[who if who in UNKNOWN else "inside"] if who in keys else ""
    lines += [f"X-API-Key: {keys[who]}", f"X-Access-Token: {inside}"] if who in keys else []
    lines += [f"E2b-Sandbox-Id: {box}", "Content-Type: application/json", "Connect-Timeout-Ms: 3000"]
    lines += [] if verb == "GET" else [f"Content-Length: {len(body)}"]
    request = "\r\n".join(lines).encode("latin-1", "replace") + b"\r\n\r\n" + (b"" if verb == "GET" else body)
    listens = path.endswith(("/Start", "/Connect"))
    return HttpCase(number, "E2B.Exec" if listens else "E2B.call", request, who, other_words=True)


# -- no protocol at all


def garbage(number: int, seed: int) -> bytes:
    """Return bytes that are neither HTTP nor HTTP/2, or only begin to be."""
    random = Random(f"{seed}:bytes:{number}")
    preface = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
    ways: Sequence[Callable[[], bytes]] = (
        lambda: random.randbytes(random.choice((1, 9, 400, 70_000))),
        lambda: preface[: random.randrange(len(preface))],
        lambda: preface + random.randbytes(300),
        lambda: preface + b"\xff\xff\xff\x00\x00\x00\x00\x00\x01" + bytes(5000),  # a frame of 16 MiB
        lambda: (
            preface + bytes([0, 0, 0, 4, 0, 0, 0, 0, 0]) + b"\0\0\x04\x08\0\0\0\0\0\0\0\0\0"
        ),  # grows by 0
        lambda: preface + bytes([0, 0, 0, 4, 0, 0, 0, 0, 0]) * 2000,  # settings without end
        lambda: b"GET / HTTP/9.9\r\n\r\n",
        lambda: b"GET /" + b"a" * 100_000 + b" HTTP/1.1\r\n\r\n",
        lambda: b"GET / HTTP/1.1\r\n" + b"A: b\r\n" * 5000 + b"\r\n",
        lambda: (
            b"POST /v1/sandboxes HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nfffffffffffffffff\r\n"
        ),
        lambda: b"POST /v1/sandboxes HTTP/1.1\r\nHost: x\r\nContent-Length: -1\r\n\r\n",
        lambda: b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nab",
        lambda: b"GET / HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n",
        lambda: b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + random.randbytes(500),  # TLS
        lambda: b"\0" * 9000,
    )
    return random.choice(ways)()
