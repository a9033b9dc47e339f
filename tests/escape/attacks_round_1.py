"""Attacks of the first round, by name: strangers, tenants, hosted libraries, orders of calls, files and `ale`."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import sys
import tempfile
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any

import grpc
from attacks import Attack
from google.protobuf.duration_pb2 import Duration
from hostile_site import Answer, Site
from websockets.asyncio import client as websockets
from websockets.exceptions import ConnectionClosed, InvalidHandshake, InvalidStatus

from rock_env.proto.v1 import env_pb2
from rock_env.proto.v1 import sandbox_pb2 as pb
from rock_env.wire.channel import CLIENT_OPTIONS, target

__all__ = ["ROUND_1"]

SILENCE_S = 3.0
"""How long a stranger that says half a thing listens."""
FAILED = "PERMISSION_DENIED"
"""What an attack says of itself that was carried out and gained nothing."""


def _own(site: Site, kind: str = "sandbox") -> str:
    return str(site.known.own[kind][0])


def _others(site: Site, kind: str = "sandbox") -> str:
    return str(site.known.others[kind][0])


def _worst(answers: list[Answer]) -> Answer:
    """Return the first answer that is no clear refusal, or else the first."""
    return next((each for each in answers if not (each.refused and each.clear)), answers[0])


def _rpc(name: str, make: Callable[[Site], Any], who: str = "sandbox") -> Attack:
    return lambda site: site.call(name, make(site), who=who)


# -- strangers at the port of gRPC


async def _fresh(site: Site, calls: list[tuple[str, tuple[tuple[str, Any], ...]]]) -> Answer:
    """Make these calls one after the other over a connection of their own; return the last one's answer."""
    answer = Answer("OK", "no call was made")
    options = [*CLIENT_OPTIONS, ("grpc.use_local_subchannel_pool", 1)]
    async with grpc.aio.insecure_channel(target(site.rest.grpc), options=options) as channel:
        for path, metadata in calls:
            try:
                told = await channel.unary_unary(path)(b"", metadata=metadata, timeout=10)
                answer = Answer("OK", repr(told[:100]))
            except grpc.aio.AioRpcError as error:
                answer = Answer(error.code().name, error.details() or "")
    return answer


LIST = "/rock.v1.SandboxService/List"
HEALTH = "/grpc.health.v1.Health/Check"


def _path(path: str) -> Attack:
    return lambda site: _fresh(site, [(path, ())])


async def _after_health(site: Site) -> Answer:
    return await _fresh(site, [(HEALTH, ()), (LIST, ())])


async def _after_a_token(site: Site) -> Answer:
    """Show a token with the first call of a connection and none with the second."""
    return await _fresh(site, [(LIST, site.metadata("sandbox")), (LIST, ())])


async def _two_headers(site: Site) -> Answer:
    bad = (("authorization", "Bearer rock_0_" + "A" * 43),)
    return await _fresh(site, [(LIST, (*site.metadata("sandbox"), *bad))])


async def _binary_header(site: Site) -> Answer:
    key = site.keys["sandbox"].encode()
    return await _fresh(site, [(LIST, (("authorization-bin", b"Bearer " + key),))])


async def _other_scheme(site: Site) -> Answer:
    key = site.keys["sandbox"]
    schemes = (f"Basic {key}", f"Bearer{key}", f"Bearer  {key} x", f"Bearer {key},{key}", key)
    return _worst([await _fresh(site, [(LIST, (("authorization", each),))]) for each in schemes])


async def _near_token(site: Site) -> Answer:
    """Change, cut and lengthen a true token by one character."""
    key = site.keys["sandbox"]
    near = (key[:-1], key + "A", key[:-1] + ("a" if key[-1] != "a" else "b"), key.upper(), key.swapcase())
    return _worst([await site.call("SandboxService.List", b"", who=each) for each in near])


async def _forged_box_token(site: Site) -> Answer:
    box = _others(site)
    forged = [f"rock_{box}_{'0' * 64}", f"rock_{box}_", f"rock_{box}", f"rock_{box}_{'A' * 43}"]
    stat = pb.StatRequest(sandbox_id=box, path="f")
    return _worst([await site.call("SandboxService.Stat", stat, who=each) for each in forged])


def _raw_grpc(data: bytes) -> Attack:
    async def act(site: Site) -> Answer:
        host, _, port = site.rest.grpc.removeprefix("grpc://").rpartition(":")
        return await _said(host, int(port), data)

    return act


async def _said(host: str, port: int, data: bytes) -> Answer:
    """Send bytes as a stranger; a connection that is closed is a refusal."""
    reader, writer = await asyncio.open_connection(host, port)
    got = b""
    try:
        writer.write(data)
        async with asyncio.timeout(SILENCE_S):
            while block := await reader.read(65536):
                got += block
    except TimeoutError:
        return Answer("OK", f"still open after {SILENCE_S:g} s, said {got[:80]!r}")
    except ConnectionError:
        pass
    finally:
        writer.transport.abort()
    return Answer("UNAUTHENTICATED", f"closed after {len(got)} bytes {got[:60]!r}")


PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"


def _frame(kind: int, flags: int, stream: int, body: bytes) -> bytes:
    return len(body).to_bytes(3, "big") + bytes([kind, flags]) + stream.to_bytes(4, "big") + body


def _indexed_bomb() -> bytes:
    """Return a block that puts 4,000 bytes into the table and then names them 16,000 times."""
    value = b"x" * 3900
    length = bytes([0x7F]) + bytes([(len(value) - 127) & 127 | 128, (len(value) - 127) >> 7])
    return b"\x40\x01a" + length + value + b"\xbe" * 12_000


STRANGERS_1: Mapping[str, Attack] = {
    "a call after a health check on one connection": _after_health,
    "a second call without the first one's token": _after_a_token,
    "two tokens, the true one first": _two_headers,
    "a token in a binary header": _binary_header,
    "a token by other schemes": _other_scheme,
    "tokens one character from a true one": _near_token,
    "a guessed token of another's sandbox": _forged_box_token,
    "a path with two slashes": _path("//rock.v1.SandboxService/List"),
    "a path that ends in a slash": _path(LIST + "/"),
    "a path that begins with the health service": _path(HEALTH + "/../../rock.v1.SandboxService/List"),
    "a path in other letters": _path("/ROCK.V1.SANDBOXSERVICE/LIST"),
    "the workers' own service at the port": _path("/rock.v1.EnvHostService/Make"),
    "an infinite watch of health": _path("/grpc.health.v1.Health/Watch"),
    "the health service's list": _path("/grpc.health.v1.Health/List"),
    "HTTP/1.1 at the port of gRPC": _raw_grpc(b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n"),
    "an upgrade to h2c": _raw_grpc(
        b"GET / HTTP/1.1\r\nHost: x\r\nConnection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\n"
        b"HTTP2-Settings: AAMAAABkAAQAAP__\r\n\r\n"
    ),
    "a handshake of TLS at a plain port": _raw_grpc(
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(512)
    ),
    "a frame longer than all frames": _raw_grpc(
        PREFACE + b"\xff\xff\xff\x00\x00\x00\x00\x00\x00" + bytes(100)
    ),
    "headers packed ten thousandfold": _raw_grpc(
        PREFACE + _frame(4, 0, 0, b"") + _frame(1, 5, 1, _indexed_bomb())
    ),
    "a continuation of nothing": _raw_grpc(PREFACE + _frame(4, 0, 0, b"") + _frame(9, 4, 1, b"\x82")),
    "a header table of four gigabytes": _raw_grpc(
        PREFACE
        + _frame(4, 0, 0, b"\x00\x01\xff\xff\xff\xff")
        + _frame(1, 5, 1, b"\x3f\xff\xff\xff\xff\x0f\x82")
    ),
}


# -- strangers at the port of REST, at E2B's and at WebSockets


def _rest(verb: str, path: str, body: Any = b"", who: str = "", **headers: str) -> Attack:
    return lambda site: site.http(verb, path, who=who, body=body, **headers)


def _paths(*paths: str) -> Attack:
    async def act(site: Site) -> Answer:
        asked = [
            b"GET %s HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n" % p.encode() for p in paths
        ]
        return _worst([await site.bytes(each) for each in asked])

    return act


def _head(*lines: str, body: bytes = b"") -> Attack:
    """Send a head as it is; KEY in it is a token that holds, BOX and OTHER are ids."""

    async def act(site: Site) -> Answer:
        text = "\r\n".join((*lines, "Connection: close", "", ""))
        text = text.replace("KEY", site.keys["sandbox"]).replace("BOX", _own(site))
        return await site.bytes(text.replace("OTHER", _others(site)).encode("latin-1") + body)

    return act


GET = "GET /v1/sandboxes HTTP/1.1"
POST = "POST /v1/sandboxes HTTP/1.1"
AS_KEY = "Authorization: Bearer KEY"
JSON = "Content-Type: application/json"


async def _handshake(
    site: Site, path: str, headers: Mapping[str, str] | None = None, protocols: list[str] | None = None
) -> Answer:
    """Open a WebSocket and listen; a handshake that is refused answers with its status."""
    try:
        async with websockets.connect(
            site.rest.websocket(path),
            additional_headers=dict(headers or {}),
            subprotocols=protocols,  # type: ignore[arg-type]
            open_timeout=10,
            proxy=None,
        ) as socket_:
            return Answer("OK", f"opened; {str(await asyncio.wait_for(socket_.recv(), 2))[:100]}")
    except InvalidStatus as error:
        body = bytes(error.response.body or b"").decode("utf-8", "replace")
        with contextlib.suppress(ValueError):
            body = json.loads(body).get("message", body)
        return Answer(str(error.response.status_code), body or "no words")
    except ConnectionClosed as error:
        return Answer("OK", f"opened, then closed: {error}")
    except (TimeoutError, InvalidHandshake, EOFError) as error:
        return Answer("OK", f"opened or not: {type(error).__name__}")


async def _ws_stranger(site: Site) -> Answer:
    return await _handshake(site, f"/v1/sandboxes/{_own(site)}/exec")


async def _ws_bad_subprotocol(site: Site) -> Answer:
    offered = ["rock.v1.json", "rock.v1.bearer.rock_0_" + "A" * 43]
    return await _handshake(site, f"/v1/sandboxes/{_own(site)}/exec", protocols=offered)


async def _ws_two_tokens(site: Site) -> Answer:
    """Offer a true token in the subprotocol and a wrong one in the header."""
    offered = ["rock.v1.json", f"rock.v1.bearer.{site.keys['sandbox']}"]
    wrong = {"authorization": "Bearer rock_0_" + "A" * 43}
    return await _handshake(site, f"/v1/sandboxes/{_own(site)}/exec", wrong, offered)


async def _ws_query_token(site: Site) -> Answer:
    key = site.keys["sandbox"]
    return await _handshake(site, f"/v1/sandboxes/{_own(site)}/exec?token={key}&authorization=Bearer%20{key}")


async def _ws_no_route(site: Site) -> Answer:
    return await _handshake(site, "/v1/sandbox-events", dict(site.metadata("sandbox")))


async def _ws_first_frame(site: Site, frame: Any, *, binary: bool = False, box: str | None = None) -> Answer:
    """Open a command's WebSocket as its owner, say one frame, and return how the stream ended."""
    protocols: Any = ["rock.v1.proto"] if binary else None
    path = f"/v1/sandboxes/{box or _own(site)}/exec"
    headers = dict(site.metadata("sandbox"))
    said = ""
    try:
        async with websockets.connect(
            site.rest.websocket(path), additional_headers=headers, subprotocols=protocols, proxy=None
        ) as socket_:
            await socket_.send(frame)
            async with asyncio.timeout(SILENCE_S):
                async for told in socket_:
                    said = told if isinstance(told, str) else repr(told)
            closed = socket_.close_code or 0
    except ConnectionClosed as error:
        closed = error.rcvd.code if error.rcvd else 0
    except InvalidStatus as error:
        return Answer(str(error.response.status_code), bytes(error.response.body or b"").decode()[:300])
    except TimeoutError:
        return Answer("OK", f"still open: {said[:200]}")
    with contextlib.suppress(ValueError, KeyError, TypeError):
        said = json.loads(said)["error"]["message"]
    status = (
        str(closed - 4000) if 4400 <= closed < 4600 else {1007: "400", 1003: "400", 1009: "413"}.get(closed)
    )
    return Answer(status or "OK", said or f"closed with {closed}")


def _ws(frame: Any, *, binary: bool = False) -> Attack:
    return lambda site: _ws_first_frame(site, frame, binary=binary)


async def _ws_other_box(site: Site) -> Answer:
    """Open the socket of one's own box and name another's in the frame."""
    frame = json.dumps({"start": {"sandbox_id": _others(site), "argv": ["cat", "f"]}})
    return await _ws_first_frame(site, frame)


STRANGE_REST: Mapping[str, Attack] = {
    "paths that climb from an open page": _paths(
        "/healthz/../v1/sandboxes", "/docs/../v1/sandboxes", "/healthz/%2e%2e/v1/sandboxes"
    ),
    "paths in disguise": _paths(
        "//v1/sandboxes", "/V1/sandboxes", "/v1//sandboxes", "/v1/sandboxes;x=1", "/v1%2fsandboxes"
    ),
    "a whole address of another host": _head("GET http://example.org/v1/sandboxes HTTP/1.1", "Host: x"),
    "a path given by other headers": _head(
        GET, "Host: x", "X-Original-URL: /healthz", "X-Rewrite-URL: /healthz", "X-Forwarded-Prefix: /healthz"
    ),
    "a token in the address": _head(
        "GET /v1/sandboxes?authorization=Bearer%20KEY&token=KEY HTTP/1.1", "Host: x"
    ),
    "a token in a cookie": _head(GET, "Host: x", "Cookie: authorization=Bearer KEY; rock=KEY"),
    "a token twice": _head(GET, "Host: x", AS_KEY, "Authorization: Bearer rock_0_" + "A" * 43),
    "a token with a space before the colon": _head(GET, "Host: x", "Authorization : Bearer KEY"),
    "a method by another header": _head(
        "GET /healthz HTTP/1.1", "Host: x", "X-HTTP-Method-Override: DELETE", "Content-Length: -1"
    ),
    "a length below zero": _head(POST, "Host: x", AS_KEY, JSON, "Content-Length: -1", body=b"{}"),
    "a length with a plus sign": _head(POST, "Host: x", AS_KEY, JSON, "Content-Length: +2", body=b"{}"),
    "two lengths that differ": _head(
        POST, "Host: x", AS_KEY, JSON, "Content-Length: 2", "Content-Length: 3", body=b"{} "
    ),
    "a coding of bodies in disguise": _head(
        POST, "Host: x", AS_KEY, JSON, "Transfer-Encoding: xchunked", body=b"2\r\n{}\r\n0\r\n\r\n"
    ),
    "a zero byte in a header": _head(GET, "Host: x", "Authorization: Bearer KEY\0"),
    "HTTP/0.9": lambda site: site.bytes(b"GET /v1/sandboxes\r\n\r\n"),
    "a tunnel": _head("CONNECT 127.0.0.1:22 HTTP/1.1", "Host: 127.0.0.1:22"),
    "an echo of the request": _head("TRACE /v1/sandboxes HTTP/1.1", "Host: x", AS_KEY),
    "a browser's question beforehand": _head(
        "OPTIONS /v1/sandboxes HTTP/1.1",
        "Host: x",
        "Origin: http://evil",
        "Access-Control-Request-Method: POST",
    ),
    "a socket without a token": _ws_stranger,
    "a socket by a wrong subprotocol": _ws_bad_subprotocol,
    "a socket with two tokens": _ws_two_tokens,
    "a socket with a token in its address": _ws_query_token,
    "a socket where there is none": _ws_no_route,
    "a frame that is no JSON": _ws("{"),
    "a frame that is no message": _ws(b"\xff\xff\xff\xff", binary=True),
    "a frame of bytes where text is spoken": _ws(b"{}"),
    "an empty frame first": _ws(""),
    "a frame nested 100,000 times": _ws('{"start":' * 100_000),
    "a frame that names another's box": _ws_other_box,
    "a label of a port that climbs": _paths(
        "/ports/../v1/sandboxes", "/ports/%2e%2e/x", "/ports/", "/ports/a%00b/"
    ),
    "a host name with a guessed label": _head(GET, f"Host: {'a' * 60}.localhost"),
    "a key of E2B that is a sandbox's own": lambda site: site.http(
        "GET", "/e2b/v2/sandboxes", who="", **{"x-api-key": site.keys["inside"]}
    ),
    "a key of a tenant where E2B wants a sandbox's": lambda site: site.http(
        "GET", "/e2b/files?path=f", who="", **{"x-access-token": site.keys["sandbox"]}
    ),
    "E2B without any key": _rest("POST", "/e2b/sandboxes", b"{}"),
}


# -- tenants


def _twice(name: str, make: Callable[[str], Any], kind: str) -> Attack:
    """Ask for another's thing and for one that never was; the two answers may differ in the id alone."""

    async def act(site: Site) -> Answer:
        real = _others(site, kind)
        parts = real.split("-", 1)
        never = f"{parts[0]}-{'0' * len(parts[1])}" if kind != "env" else "e00000000-1"
        one, two = [await site.call(name, make(each)) for each in (real, never)]
        if (one.status, one.said.replace(real, "ID")) != (two.status, two.said.replace(never, "ID")):
            return Answer("OK", f"it tells {one.said[:120]!r} from {two.said[:120]!r}")
        return one

    return act


async def _streams_that_change(site: Site) -> Answer:
    """Begin streams in one's own box and go on in another's, whose file stays as it is."""
    own, other = _own(site), _others(site)
    start = pb.ExecStart(sandbox_id=own, argv=["cat"], no_stdin=True)
    away = pb.ExecStart(sandbox_id=other, argv=["cat", "f"], no_stdin=True)
    answers = [
        await site.call(
            "SandboxService.Exec", iter([pb.ExecRequest(start=start), pb.ExecRequest(start=away)])
        ),
        await site.call(
            "SandboxService.WriteFile",
            iter(
                [
                    pb.WriteFileRequest(sandbox_id=own, path="f", data=b"own", more=True),
                    pb.WriteFileRequest(sandbox_id=other, path="f", data=b"paid"),
                ]
            ),
        ),
        await site.call(
            "SandboxService.Session",
            iter(
                [
                    pb.SessionInput(session_id=_own(site, "session"), command="true"),
                    pb.SessionInput(session_id=_others(site, "session"), command="cat f"),
                ]
            ),
        ),
    ]
    read = await site.call(
        "SandboxService.ReadFile", pb.ReadFileRequest(sandbox_id=other, path="f"), who="victim"
    )
    if "others" not in read.said:
        return Answer("OK", f"the other's file is {read.said}")
    leaked = next((each for each in answers if "others" in each.said), None)
    return leaked or Answer(FAILED, "; ".join(f"{each.status} {each.said[:60]}" for each in answers))


async def _a_shared_key(site: Site) -> Answer:
    """Use the key of another's Create, Snapshot and environment: each tenant has keys of its own."""
    key = "a key of two tenants"
    made = pb.CreateSandboxRequest(idempotency_key=key)
    mine, theirs = [await site.call("SandboxService.Create", made, who=who) for who in ("victim", "stranger")]
    ids = [each.said.split("sb-")[1][:16] for each in (mine, theirs) if "sb-" in each.said]
    for who, box in zip(("victim", "stranger"), ids, strict=False):
        await site.call("SandboxService.Delete", pb.DeleteSandboxRequest(id=f"sb-{box}"), who=who)
    if len(ids) == 2 and ids[0] == ids[1]:
        return Answer("OK", "two tenants were given one sandbox")
    return Answer(FAILED, f"each has its own: {ids}")


async def _a_batch_of_theirs(site: Site) -> Answer:
    """Close, step and grade another's environment in batches, beside one's own."""
    other = _others(site, "env")
    answers = [
        await site.call(
            "EnvService.CloseMany", env_pb2.CloseManyRequest(items=[env_pb2.CloseRequest(env_id=other)])
        ),
        await site.call(
            "EnvService.StepMany",
            env_pb2.StepManyRequest(
                items=[env_pb2.StepRequest(env_id=other, sequence=2, idempotency_key="s")]
            ),
        ),
        await site.call(
            "EnvService.EvaluateMany",
            env_pb2.EvaluateManyRequest(
                items=[env_pb2.EvaluateRequest(env_id=other, sequence=2, idempotency_key="e")]
            ),
        ),
    ]
    after = await site.call("EnvService.Checkpoint", env_pb2.CheckpointRequest(env_id=other), who="victim")
    if after.status != "OK":
        return Answer("OK", f"the other's environment is gone: {after.said}")
    return Answer(FAILED, " | ".join(f"{each.status} {each.said[:90]}" for each in answers))


def _listed(name: str, message: Any) -> Attack:
    """List with what names another's: nothing of theirs may be in the answer."""

    async def act(site: Site) -> Answer:
        asked = message(site)
        answer = await site.call(name, asked)
        if answer.refused:
            return answer
        marks = (_others(site), _others(site, "snapshot"), "green")
        return Answer("OK" if any(each in answer.said for each in marks) else FAILED, answer.said)

    return act


def _pages(token: str) -> Attack:
    return _rpc("SandboxService.List", lambda site: pb.ListSandboxesRequest(page_token=token, page_size=1))


async def _their_artifact(site: Site) -> Answer:
    names = ("0" * 64, "../" * 20, "A" * 64, "", "0" * 63, "\0" * 64)
    mine, other = _own(site, "env"), _others(site, "env")
    asked = [env_pb2.ReadArtifactRequest(env_id=env, sha256=name) for env in (mine, other) for name in names]
    return _worst([await site.call("EnvService.ReadArtifact", each) for each in asked])


async def _inside(site: Site) -> Answer:
    """Use a sandbox's own token for all that it may not: its life, snapshots, and an environment upon it."""
    box = _own(site)
    calls: list[tuple[str, Any]] = [
        ("SandboxService.Get", pb.GetSandboxRequest(id=box)),
        ("SandboxService.Delete", pb.DeleteSandboxRequest(id=box)),
        ("SandboxService.Snapshot", pb.SnapshotSandboxRequest(id=box)),
        ("SandboxService.Fork", pb.ForkSandboxRequest(id=box, count=1)),
        ("SandboxService.IssueToken", pb.IssueSandboxTokenRequest(sandbox_id=box)),
        ("SandboxService.Watch", pb.WatchSandboxesRequest()),
        ("EnvService.TakeOver", env_pb2.TakeOverRequest(sandbox_id=box)),
        ("EnvService.ListEnvs", env_pb2.ListEnvsRequest()),
        ("SandboxService.ProcessLogs", pb.ProcessLogsRequest(process_id=_others(site, "process"))),
        ("SandboxService.CloseSession", pb.CloseSessionRequest(session_id=_others(site, "session"))),
        ("AdminService.Capacity", b""),
    ]
    return _worst([await site.call(name, message, who="inside") for name, message in calls])


def _climbing(kind: str, verb: str, path: str) -> Attack:
    """Name another's session or process behind one's own in a path."""

    async def act(site: Site) -> Answer:
        own, other = _own(site), _others(site, kind)
        forms = (f"{own}/../{other}", f"{own}%2F..%2F{other}", f"{own}/{other}", f"{other}/../{other}")
        return _worst(
            [await site.http(verb, path.format(each), body={} if verb == "POST" else b"") for each in forms]
        )

    return act


TENANTS_1: Mapping[str, Attack] = {
    "whether another's sandbox exists (Get)": _twice(
        "SandboxService.Get", lambda box: pb.GetSandboxRequest(id=box), "sandbox"
    ),
    "whether another's sandbox exists (Renew)": _twice(
        "SandboxService.Renew",
        lambda box: pb.RenewSandboxRequest(id=box, lease=Duration(seconds=60)),
        "sandbox",
    ),
    "whether another's sandbox exists (Expose)": _twice(
        "SandboxService.Expose", lambda box: pb.ExposeRequest(sandbox_id=box, port=8000), "sandbox"
    ),
    "whether another's sandbox exists (TakeOver)": _twice(
        "EnvService.TakeOver", lambda box: env_pb2.TakeOverRequest(sandbox_id=box), "sandbox"
    ),
    "whether another's snapshot exists (Get)": _twice(
        "SandboxService.GetSnapshot", lambda each: pb.GetSnapshotRequest(id=each), "snapshot"
    ),
    "whether another's snapshot exists (Delete)": _twice(
        "SandboxService.DeleteSnapshot", lambda each: pb.DeleteSnapshotRequest(id=each), "snapshot"
    ),
    "whether another's snapshot exists (Create)": _twice(
        "SandboxService.Create", lambda each: pb.CreateSandboxRequest(snapshot_id=each), "snapshot"
    ),
    "whether another's environment exists (Fork)": _twice(
        "EnvService.Fork", lambda each: env_pb2.ForkRequest(env_id=each, count=1), "env"
    ),
    "one's own box on another's snapshot": lambda site: site.call(
        "SandboxService.Restore",
        pb.RestoreSandboxRequest(id=_own(site), snapshot_id=_others(site, "snapshot")),
    ),
    "streams that change over to another's box": _streams_that_change,
    "another tenant's key of repetition": _a_shared_key,
    "batches that name another's environment": _a_batch_of_theirs,
    "a list of what was frozen of another's box": _listed(
        "SandboxService.ListSnapshots", lambda site: pb.ListSnapshotsRequest(sandbox_id=_others(site))
    ),
    "a list by another's labels": _listed(
        "SandboxService.List", lambda site: pb.ListSandboxesRequest(labels={"of": "others"})
    ),
    "a page by another's sandbox": _listed(
        "SandboxService.List", lambda site: pb.ListSandboxesRequest(page_token=_others(site))
    ),
    "artifacts by guessed digests": _their_artifact,
    "a sandbox's token for its own life": _inside,
    "another's session behind one's own": _climbing("session", "DELETE", "/v1/sessions/{}"),
    "another's process behind one's own": _climbing("process", "POST", "/v1/processes/{}/signal"),
    "a revision that is not yet": _rpc(
        "SandboxService.Watch", lambda site: pb.WatchSandboxesRequest(after_revision=2**63)
    ),
}


# -- the order of calls on an environment, its keys and checkpoints


class _Played:
    """An environment of the attacker's own, and calls on it by number and key."""

    def __init__(self, site: Site, env_id: str) -> None:
        self.site = site
        self.id = env_id

    async def reset(self, sequence: int = 1, key: str = "r", task: str = "train/0", **more: Any) -> Answer:
        request = env_pb2.ResetRequest(
            env_id=self.id, sequence=sequence, idempotency_key=key, task_id=task, **more
        )
        return await self.site.call("EnvService.Reset", request)

    async def step(self, sequence: int, key: str = "s", action: str = "x") -> Answer:
        request = env_pb2.StepRequest(env_id=self.id, sequence=sequence, idempotency_key=key, action=action)
        return await self.site.call("EnvService.Step", request)

    async def evaluate(self, sequence: int, key: str = "e") -> Answer:
        request = env_pb2.EvaluateRequest(env_id=self.id, sequence=sequence, idempotency_key=key)
        return await self.site.call("EnvService.Evaluate", request)

    async def close(self) -> Answer:
        return await self.site.call("EnvService.Close", env_pb2.CloseRequest(env_id=self.id))


async def _make(site: Site, env: str, params: str = "{}") -> tuple[str, Answer]:
    """Make an environment; return its id, or none and the answer."""
    method = "/rock.v1.EnvService/Make"
    request = env_pb2.MakeRequest(env=env, params_json=params).SerializeToString()
    try:
        told = await site.channel.unary_unary(method)(request, metadata=site.metadata("sandbox"), timeout=60)
    except grpc.aio.AioRpcError as error:
        return "", Answer(error.code().name, error.details() or "")
    return env_pb2.MakeResponse.FromString(told).env_id, Answer("OK", "made")


def _playing(play: Callable[[_Played], Awaitable[Answer]], env: str = "toy", params: str = "{}") -> Attack:
    async def act(site: Site) -> Answer:
        env_id, made = await _make(site, env, params)
        if not env_id:
            return made
        played = _Played(site, env_id)
        try:
            return await play(played)
        finally:
            await played.close()

    return act


def _after_reset(
    *calls: Callable[[_Played], Awaitable[Answer]], env: str = "toy", params: str = "{}"
) -> Attack:
    """Reset, make these calls, and return what the last one was answered."""

    async def play(env_: _Played) -> Answer:
        answer = await env_.reset()
        for call in calls:
            answer = await call(env_)
        return answer

    return _playing(play, env, params)


def _numbers(*numbers: int) -> Attack:
    async def play(env: _Played) -> Answer:
        await env.reset()
        return _worst([await env.step(number, f"n{number}") for number in numbers])

    return _playing(play)


async def _closed(env: _Played) -> Answer:
    await env.reset()
    await env.close()
    return _worst([await env.step(2), await env.evaluate(2), await env.reset(2, "again")])


async def _wrong_tasks(env: _Played) -> Answer:
    names = (
        "",
        "train",
        "train/",
        "train/-1",
        f"train/{10**30}",
        "train/x",
        "../train/0",
        "train/0/0",
        "nope/0",
    )
    near = ("train/+0", "train/ 0", "train/0_0", "train/\u0660", "TRAIN/0", "train/0\n", "train/0\0")
    answers = [await env.reset(1, f"k{at}", name) for at, name in enumerate((*names, *near))]
    return _worst(answers)


def _restoring(**fields: Any) -> Callable[[_Played], Awaitable[Answer]]:
    async def act(env: _Played) -> Answer:
        given = {"sequence": 2, "idempotency_key": "c", **fields}
        return await env.site.call("EnvService.Restore", env_pb2.RestoreRequest(env_id=env.id, **given))

    return act


def _forking(**fields: Any) -> Callable[[_Played], Awaitable[Answer]]:
    async def act(env: _Played) -> Answer:
        return await env.site.call("EnvService.Fork", env_pb2.ForkRequest(env_id=env.id, **fields))

    return act


def _pointing(key: str) -> Callable[[_Played], Awaitable[Answer]]:
    async def act(env: _Played) -> Answer:
        request = env_pb2.CheckpointRequest(env_id=env.id, idempotency_key=key)
        return await env.site.call("EnvService.Checkpoint", request)

    return act


async def _one_key_two_environments(site: Site) -> Answer:
    """Make two environments of different kinds under one key: the second may not be the first."""
    made = [env_pb2.MakeRequest(env=env, idempotency_key="one of two") for env in ("toy", "math")]
    first, second = [await site.call("EnvService.Make", each) for each in made]
    return second if first.status == "OK" else Answer("OK", f"the first was refused: {first.said}")


async def _two_restores(env: _Played) -> Answer:
    """Restore to one checkpoint and, under the same number and key, to another."""
    names = []
    await env.reset()
    for number in (2, 3):
        request = env_pb2.CheckpointRequest(env_id=env.id).SerializeToString()
        told = await env.site.channel.unary_unary("/rock.v1.EnvService/Checkpoint")(
            request, metadata=env.site.metadata("sandbox"), timeout=30
        )
        names.append(env_pb2.CheckpointResponse.FromString(told).checkpoint_id)
        await env.step(number, f"s{number}")
    answer = Answer("OK", "no restore")
    for name in names:
        answer = await _restoring(sequence=4, checkpoint_id=name)(env)
    return answer


async def _another_kind(env: _Played) -> Answer:
    return await _restoring(checkpoint_id=_own(env.site, "checkpoint"))(env)


async def _prefixes(env: _Played) -> Answer:
    wrong = [env_pb2.PrefixTurn(action="x", observation_hash=bytes(32))]
    odd = [env_pb2.PrefixTurn(action="x", observation_hash=b"\xff")]
    return _worst(
        [
            await env.reset(1, "a", prefix=wrong),
            await env.reset(1, "b", prefix=odd),
            await env.reset(1, "c", initial_observation_hash=b"x"),
        ]
    )


async def _two_at_once(env: _Played) -> Answer:
    """Send twenty steps of one number and twenty keys at once: one counts."""
    await env.reset()
    answers = await asyncio.gather(*(env.step(2, f"k{at}", str(at)) for at in range(20)))
    paid = [each for each in answers if each.status == "OK"]
    if len(paid) != 1:
        return Answer("OK", f"{len(paid)} of twenty counted")
    return _worst([each for each in answers if each.status != "OK"])


async def _forged_episode(site: Site) -> Answer:
    """Make a sandbox that says it is an environment's, and take it over for its grade."""
    request = pb.CreateSandboxRequest(
        environment="swe", labels={"env_id": _others(site, "env"), "of": "forged"}, idempotency_key="forged"
    )
    made = await site.call("SandboxService.Create", request)
    if made.refused:
        return made
    box = "sb-" + made.said.split("sb-")[1][:16]
    try:
        return await site.call(
            "EnvService.TakeOver", env_pb2.TakeOverRequest(sandbox_id=box, idempotency_key="t")
        )
    finally:
        await site.call("SandboxService.Delete", pb.DeleteSandboxRequest(id=box))


def _batch(name: str, message: Any) -> Attack:
    return _rpc(f"EnvService.{name}", lambda site: message)


async def _many_forks(site: Site) -> Answer:
    """Fork with as many seeds as fit, which are not as many as the forks."""
    seeds = env_pb2.ForkRequest(env_id=_own(site, "env"), count=2, resume_seeds=[1, 2, 3])
    return await site.call("EnvService.Fork", seeds)


def _same_key(name: str, first: Callable[[Site], Any], second: Callable[[Site], Any]) -> Attack:
    """Use one key for two requests that differ: the second is refused."""

    async def act(site: Site) -> Answer:
        made = await site.call(name, first(site))
        answer = await site.call(name, second(site))
        for box in {part[:16] for part in made.said.split("sb-")[1:] if "sb-" + part[:16] != _own(site)}:
            await site.call("SandboxService.Delete", pb.DeleteSandboxRequest(id=f"sb-{box}"))
        return answer if made.status == "OK" else Answer("OK", f"the first was refused: {made.said}")

    return act


ORDERS_1: Mapping[str, Attack] = {
    "a step before a reset": _playing(lambda env: env.step(1)),
    "a grade before a reset": _playing(lambda env: env.evaluate(1)),
    "numbers of steps that are not next": _numbers(0, 1, 3, 2**32, 2**63, 2**64 - 1),
    "a step repeated with another key": _after_reset(
        lambda env: env.step(2, "s", "a"), lambda env: env.step(2, "other", "a")
    ),
    "a key of a reset for a step": _after_reset(lambda env: env.step(1, "r")),
    "twenty steps of one number at once": _playing(_two_at_once),
    "calls on what was closed": _playing(_closed),
    "names of tasks that are none": _playing(_wrong_tasks, "frozen_lake"),
    "a prefix that was never seen": _playing(_prefixes),
    "a checkpoint of another kind of environment": _after_reset(_another_kind, env="frozen_lake"),
    "a checkpoint that never was": _after_reset(_restoring(checkpoint_id="c" * 30)),
    "a checkpoint without a name": _after_reset(_restoring()),
    "no forks": _after_reset(_forking(count=0)),
    "four billion forks of an environment": _after_reset(_forking(count=2**32 - 1)),
    "fewer forks than seeds": _many_forks,
    "an environment that is forked before a reset": _playing(_forking(count=1)),
    "a sandbox that says it is an environment's": _forged_episode,
    "a take-over of a plain sandbox": lambda site: site.call(
        "EnvService.TakeOver", env_pb2.TakeOverRequest(sandbox_id=_own(site))
    ),
    "a step repeated with another action": _after_reset(
        lambda env: env.step(2, "s", "a"), lambda env: env.step(2, "s", "b")
    ),
    "more turns recovered than there were": _playing(lambda env: env.reset(recovered_turn=2**64 - 1)),
    "a task by another spelling": _playing(lambda env: env.reset(task="train/000"), env="frozen_lake"),
    "one key for two environments that differ": _one_key_two_environments,
    "one key for two numbers of forks": _after_reset(
        _forking(count=1, idempotency_key="f"), _forking(count=2, idempotency_key="f")
    ),
    "a checkpoint's key for a fork": _after_reset(_pointing("c"), _forking(count=1, idempotency_key="c")),
    "a fork's key for a checkpoint": _after_reset(_forking(count=1, idempotency_key="f"), _pointing("f")),
    "a restore that repeats a key with another checkpoint": _playing(_two_restores),
    "a batch without an end to its items' time": _batch(
        "StepMany", env_pb2.StepManyRequest(items=[env_pb2.StepRequest()], item_timeout_s=float("nan"))
    ),
    "a batch whose items have no time": _batch(
        "ResetMany", env_pb2.ResetManyRequest(items=[env_pb2.ResetRequest()], item_timeout_s=-1.0)
    ),
    "one key for two sandboxes that differ": _same_key(
        "SandboxService.Create",
        lambda site: pb.CreateSandboxRequest(idempotency_key="two", labels={"a": "1"}),
        lambda site: pb.CreateSandboxRequest(idempotency_key="two", labels={"a": "2"}),
    ),
    "one key for two forks that differ": _same_key(
        "SandboxService.Fork",
        lambda site: pb.ForkSandboxRequest(id=_own(site), count=1, idempotency_key="fork"),
        lambda site: pb.ForkSandboxRequest(id=_own(site), count=2, idempotency_key="fork"),
    ),
    "one key for a sandbox and a batch": _same_key(
        "SandboxService.CreateMany",
        lambda site: pb.CreateManyRequest(items=[pb.CreateSandboxRequest()], idempotency_key="many"),
        lambda site: pb.CreateManyRequest(items=[pb.CreateSandboxRequest()] * 2, idempotency_key="many"),
    ),
    "no items at all": _rpc("SandboxService.CreateMany", lambda site: pb.CreateManyRequest()),
}


# -- hosted libraries and parameters


def _answering(env: str, *answers: str) -> Attack:
    """Give these answers, one to an episode: an error in one line, or no reward."""

    async def act(site: Site) -> Answer:
        env_id, made = await _make(site, env)
        if not env_id:
            return made
        played = _Played(site, env_id)
        seen = []
        try:
            for at, answer in enumerate(answers):
                began = await played.reset(2 * at + 1, f"r{at}")
                if began.status != "OK":
                    return began
                told = await site.channel.unary_unary("/rock.v1.EnvService/Step")(
                    env_pb2.StepRequest(
                        env_id=env_id, sequence=2 * at + 2, idempotency_key=f"s{at}", action=answer
                    ).SerializeToString(),
                    metadata=site.metadata("sandbox"),
                    timeout=30,
                )
                step = env_pb2.StepResponse.FromString(told)
                if step.reward > 0.5:
                    return Answer("OK", f"reward {step.reward} for {answer[:60]!r}")
                seen.append(f"{step.reward:g}")
        except grpc.aio.AioRpcError as error:
            return Answer(error.code().name, error.details() or "")
        finally:
            await played.close()
        return Answer(FAILED, "rewards: " + " ".join(seen))

    return act


def _named(*names: str) -> Attack:
    async def act(site: Site) -> Answer:
        answers = []
        for name in names:
            env_id, made = await _make(site, name)
            if env_id:
                return Answer("OK", f"{name!r} was made")
            answers.append(made)
        return _worst(answers)

    return act


def _params(env: str, *texts: str) -> Attack:
    """Make an environment with each of these arguments; one that is made is an answer of success."""

    async def act(site: Site) -> Answer:
        answers = []
        for text in texts:
            env_id, made = await _make(site, env, text)
            if env_id:
                await _Played(site, env_id).close()
                return Answer("OK", f"{text[:80]!r} was taken")
            answers.append(made)
        return _worst(answers)

    return act


CODE = (
    "__import__('os').system('id')",
    "().__class__.__base__.__subclasses__()",
    "{i: open('/etc/passwd').read() for i in [1]}",
    "lambda: 1",
    "f'{__builtins__}'",
)
HUGE = ("9" * 1_000_000, "1e999999999", "9**9**9", "-" * 100_000 + "1", "nan", "inf", "0x" + "f" * 100_000)
DEEP_TEXT = ("[" * 50_000, "(" * 50_000, "{" * 50_000, "\\boxed{" * 20_000, '{"a":' * 50_000)
ODD_TEXT = ("\0", "\ud7ff\u202e", "\x1b[2J", "<answer>" * 10_000, "\u0660", "%s%n{0}", "", " " * 100_000)

HOSTED_1: Mapping[str, Attack] = {
    "a library's name that imports a module": _named(
        "gym:os:CartPole-v1", "gym:antigravity:CartPole-v1", "gym:this:x", "gym:posix:Taxi-v4"
    ),
    "a library's name that is a path": _named(
        "gem:../../etc/passwd", "gem:/etc/passwd", "gym:./x", "gem:game:../x"
    ),
    "a library's name that is nothing": _named(
        "gem:", "gym:", ":", ":x", "gem::", "gem:\0", "gem:\n", "gem:\x1b[2J"
    ),
    "a library's name of 4,000 letters": _named("gem:" + "x" * 4000),
    "a library that nobody hosts": _named("os:system", "numpy:random", "ale:x", "GEM:game:GuessTheNumber-v0"),
    "a library's id that runs its answers": _named(
        "gem:code:CodeContest", "gem:math:Math12K", "gem:eval:AIME24"
    ),
    "a game's answer that is code": _answering("gem:game:GuessTheNumber-v0-hard", *CODE),
    "a game's answer that is huge": _answering("gem:game:GuessTheNumber-v0-hard", *HUGE),
    "a game's answer that is deep": _answering("gem:game:GuessTheNumber-v0-hard", *DEEP_TEXT),
    "a game's answer that is odd": _answering("gem:game:GuessTheNumber-v0-hard", *ODD_TEXT),
    "a puzzle's answer that is code": _answering("gem:rg:basic_arithmetic", *CODE),
    "a puzzle's answer that is huge": _answering("gem:rg:basic_arithmetic", *HUGE),
    "a puzzle's answer that is deep": _answering("gem:rg:basic_arithmetic", *DEEP_TEXT),
    "a factor that is many numbers": _answering("gem:rg:prime_factorization", "\\boxed{-1 -1 -1}"),
    "a factor of 5,000 digits": _answering("gem:rg:prime_factorization", "\\boxed{" + "9" * 5000 + "}"),
    "a Sudoku of code": _answering(
        "gem:game:Sudoku-v0-easy", *CODE, *(rf"\boxed{{{each}}}" for each in CODE)
    ),
    "a taxi's action that is code": _answering("gym:Taxi-v4", *CODE),
    "a taxi's action that is huge": _answering("gym:Taxi-v4", *HUGE),
    "a taxi's action that is odd": _answering(
        "gym:Taxi-v4", *ODD_TEXT, "-1", "6", "1.5", "true", "[1]", "1e0"
    ),
    "a library's id that lacks what it needs": _named("gym:Ant-v5", "gym:LunarLander-v3"),
    "a library's arguments that are none": _params(
        "gym:Taxi-v4",
        '{"render_mode": "human"}',
        '{"__class__": 1}',
        '{"kwargs": {"x": 1}}',
        '{"id": "os:x"}',
    ),
}

PARAMETERS_1: Mapping[str, Attack] = {
    "arguments that are no object": _params("toy", "[]", "null", "1", '"x"', "{", "{}{}", "\0", "\ufeff{}"),
    "arguments of inner names": _params(
        "toy",
        '{"__class__": "x"}',
        '{"model_config": {}}',
        '{"__dict__": {}}',
        '{"self": 1}',
        '{"Prefix": "x"}',
    ),
    "a size beyond its bounds": _params(
        "frozen_lake", '{"size": 1}', '{"size": -4}', '{"size": 33}', '{"size": 9223372036854775808}'
    ),
    "a probability that is no number": _params(
        "frozen_lake",
        *(f'{{"frozen_probability": {each}}}' for each in ("NaN", "Infinity", "-0.5", "1e400", "0")),
    ),
    "a lake that is drawn for ever": _playing(
        lambda env: env.reset(), "frozen_lake", '{"size": 32, "frozen_probability": 1e-300}'
    ),
    "a level that cannot be": _params(
        "sokoban",
        '{"level": "custom", "rows": 6, "cols": 6, "boxes": 7}',
        '{"level": "custom", "rows": 1000000, "cols": 6, "boxes": 1}',
        '{"level": "9x9"}',
    ),
    "families that nobody knows": _params("math", '{"families": "../../etc"}', '{"families": "\\u0000"}'),
    "levels the wrong way round": _params("math", '{"min_level": 5, "max_level": 1}'),
    "a shop's file by a path": _params(
        "webshop", '{"products_file": "/etc/passwd"}', '{"products_file": "../x"}'
    ),
    "a shop of too many products": _params(
        "webshop", '{"products": 100001}', '{"products": 1}', '{"products": -1}'
    ),
    "a terminal's odd settings": _params(
        "terminal",
        '{"command_timeout_s": 1e308}',
        '{"command_timeout_s": NaN}',
        '{"family": "../.."}',
        '{"max_turns": 0}',
    ),
    "a forked chain of too many paths": _params(
        "fork_chain", '{"length": 65}', '{"width": 1}', '{"crucial": 65}'
    ),
    "a text of half a character": _params("toy", '{"prefix": "\\ud800"}'),
}


# -- snapshots and forks of sandboxes


async def _box(site: Site, **fields: Any) -> str:
    """Make a sandbox of the attacker's own and return its id."""
    request = pb.CreateSandboxRequest(**fields).SerializeToString()
    method = "/rock.v1.SandboxService/Create"
    told = await site.channel.unary_unary(method)(request, metadata=site.metadata("stranger"), timeout=60)
    return pb.SandboxInfo.FromString(told).id


def _boxed(*calls: Callable[[Site, str], Awaitable[Answer]]) -> Attack:
    """Make a sandbox, make these calls, delete it, and return the last one's answer."""

    async def act(site: Site) -> Answer:
        box, answer = await _box(site), Answer("OK", "")
        try:
            for call in calls:
                answer = await call(site, box)
            return answer
        finally:
            await site.call("SandboxService.Delete", pb.DeleteSandboxRequest(id=box), who="stranger")

    return act


def _calls(name: str, make: Callable[[str], Any]) -> Callable[[Site, str], Awaitable[Answer]]:
    return lambda site, box: site.call(name, make(box), who="stranger")


def _runs(*argv: str, **more: Any) -> Callable[[Site, str], Awaitable[Answer]]:
    async def act(site: Site, box: str) -> Answer:
        start = pb.ExecStart(sandbox_id=box, argv=argv, no_stdin=True, timeout=Duration(seconds=8), **more)
        return await site.call("SandboxService.Exec", iter([pb.ExecRequest(start=start)]), who="stranger")

    return act


_deleted = _calls("SandboxService.Delete", lambda box: pb.DeleteSandboxRequest(id=box))
_paused = _calls("SandboxService.Pause", lambda box: pb.PauseSandboxRequest(id=box))
_frozen = _calls("SandboxService.Snapshot", lambda box: pb.SnapshotSandboxRequest(id=box))


async def _deleted_snapshot(site: Site, box: str) -> Answer:
    """Delete a snapshot and start, restore and freeze from it."""
    request = pb.SnapshotSandboxRequest(id=box).SerializeToString()
    method = "/rock.v1.SandboxService/Snapshot"
    told = await site.channel.unary_unary(method)(request, metadata=site.metadata("stranger"), timeout=60)
    name = pb.SnapshotSandboxResponse.FromString(told).snapshot_id
    await site.call("SandboxService.DeleteSnapshot", pb.DeleteSnapshotRequest(id=name), who="stranger")
    return _worst(
        [
            await site.call(
                "SandboxService.Create", pb.CreateSandboxRequest(snapshot_id=name), who="stranger"
            ),
            await site.call(
                "SandboxService.Restore", pb.RestoreSandboxRequest(id=box, snapshot_id=name), who="stranger"
            ),
        ]
    )


async def _ends_and_forks(site: Site, box: str) -> Answer:
    """Fork, freeze and delete one sandbox at once; nothing may stay, and no answer may blame the server."""
    answers = await asyncio.gather(
        *(
            site.call("SandboxService.Fork", pb.ForkSandboxRequest(id=box, count=2), who="stranger")
            for _ in range(2)
        ),
        _frozen(site, box),
        _deleted(site, box),
        _frozen(site, box),
    )
    listed = await site.call("SandboxService.List", pb.ListSandboxesRequest(), who="stranger")
    for part in listed.said.split("sb-")[1:]:
        await _deleted(site, f"sb-{part[:16]}")
    bad = next((each for each in answers if each.status in ("INTERNAL", "UNKNOWN", "UNAVAILABLE")), None)
    return bad or Answer(FAILED, " ".join(each.status for each in answers))


SNAPSHOTS_1: Mapping[str, Attack] = {
    "a fork of a sandbox that is gone": _boxed(
        _deleted, _calls("SandboxService.Fork", lambda box: pb.ForkSandboxRequest(id=box, count=1))
    ),
    "a snapshot of a sandbox that is gone": _boxed(_deleted, _frozen),
    "a sandbox that is gone, resumed": _boxed(
        _deleted, _calls("SandboxService.Resume", lambda box: pb.ResumeSandboxRequest(id=box))
    ),
    "a command in a sandbox that stands still": _boxed(_paused, _runs("true")),
    "more forks than the quota": _boxed(
        _calls("SandboxService.Fork", lambda box: pb.ForkSandboxRequest(id=box, count=9))
    ),
    "a fork with 65 labels": _boxed(
        _calls(
            "SandboxService.Fork",
            lambda box: pb.ForkSandboxRequest(id=box, count=1, labels={str(at): "" for at in range(65)}),
        )
    ),
    "a fork whose lease has ended": _boxed(
        _calls(
            "SandboxService.Fork",
            lambda box: pb.ForkSandboxRequest(id=box, count=1, lease=Duration(seconds=-5)),
        )
    ),
    "a start from a snapshot that was deleted": _boxed(_deleted_snapshot),
    "a fork, a snapshot and an end at once": _boxed(_ends_and_forks),
    "a snapshot of folders 500 deep": _boxed(
        _runs("python3", "-c", "import os\nfor _ in range(500):\n os.mkdir('d'); os.chdir('d')"), _frozen
    ),
    "a snapshot for an image": lambda site: site.call(
        "SandboxService.Create",
        pb.CreateSandboxRequest(snapshot_id=_own(site, "snapshot"), spec=pb.SandboxSpec(image="debian:12")),
    ),
    "a snapshot by a sandbox's name": lambda site: site.call(
        "SandboxService.Create", pb.CreateSandboxRequest(snapshot_id=_own(site))
    ),
    "a snapshot by a path": lambda site: site.call(
        "SandboxService.Create", pb.CreateSandboxRequest(snapshot_id="../../../etc")
    ),
    "an environment that nobody offers for a sandbox": lambda site: site.call(
        "SandboxService.Create", pb.CreateSandboxRequest(environment="x" * 5000)
    ),
}


# -- commands, sessions, ports and files


def _fails_inside(*argv: str, sign: str) -> Attack:
    """Run a command that must fail in the sandbox: it pays if its output has the sign."""

    async def act(site: Site, box: str) -> Answer:
        answer = await _runs(*argv)(site, box)
        if answer.status != "OK":
            return answer
        return Answer("OK" if sign in answer.said else FAILED, answer.said)

    return _boxed(act)


async def _port_of_the_server(site: Site) -> Answer:
    """Dial the server's own port from within a sandbox, which has a loopback of its own."""
    port = int(site.rest.url.rpartition(":")[2])
    start = pb.DialRequest(start=pb.DialStart(sandbox_id=_own(site), port=port))
    return await site.call(
        "SandboxService.Dial", iter([start, pb.DialRequest(data=b"GET / HTTP/1.0\r\n\r\n")])
    )


def _session(**fields: Any) -> Callable[[Site, str], Awaitable[Answer]]:
    async def act(site: Site, box: str) -> Answer:
        opened = await site.call(
            "SandboxService.OpenSession",
            pb.OpenSessionRequest(sandbox_id=box, terminal=pb.TerminalSize(rows=24, columns=80)),
            who="stranger",
        )
        if opened.refused:
            return opened
        message = pb.SessionInput(session_id=f"{box}/s1", **fields)
        return await site.call("SandboxService.Session", iter([message]), who="stranger")

    return act


COMMANDS_1: Mapping[str, Attack] = {
    "a command of no words": _boxed(_runs()),
    "a command with a zero byte": _boxed(_runs("a\0b")),
    "a command with half a variable": _boxed(_runs("true", env={"A=B": "x", "": "y", "C\0": "z"})),
    "a command's offset beyond its output": _boxed(_runs("true", stdout_offset=2**63)),
    "a command's key of a megabyte": _boxed(_runs("true", idempotency_key="k" * (1 << 20))),
    "a key of a command that never ran": _boxed(_runs(idempotency_key="never")),
    "a key of a command with other words": _boxed(
        _runs("echo", "a", idempotency_key="k"), _runs("echo", "b", idempotency_key="k")
    ),
    "a command of minus ten seconds": lambda site: site.call(
        "SandboxService.Exec",
        iter(
            [
                pb.ExecRequest(
                    start=pb.ExecStart(sandbox_id=_own(site), argv=["true"], timeout=Duration(seconds=-10))
                )
            ]
        ),
    ),
    "input before a command": lambda site: site.call(
        "SandboxService.Exec", iter([pb.ExecRequest(stdin=b"x"), pb.ExecRequest(stdin_closed=True)])
    ),
    "a signal that is none": _boxed(
        _calls(
            "SandboxService.SignalProcess",
            lambda box: pb.SignalProcessRequest(process_id=f"{box}/p1", signal=2**32 - 1),
        )
    ),
    "a signal to the guest": _boxed(
        _calls(
            "SandboxService.SignalProcess",
            lambda box: pb.SignalProcessRequest(process_id=f"{box}/1", signal=9),
        )
    ),
    "a process by a number": _rpc(
        "SandboxService.ProcessLogs", lambda site: pb.ProcessLogsRequest(process_id="1")
    ),
    "a terminal of four billion rows": _boxed(
        _session(resize=pb.TerminalSize(rows=2**32 - 1, columns=2**32 - 1))
    ),
    "a terminal opened four billion wide": _boxed(
        _calls(
            "SandboxService.OpenSession",
            lambda box: pb.OpenSessionRequest(
                sandbox_id=box, terminal=pb.TerminalSize(rows=2**32 - 1, columns=1)
            ),
        )
    ),
    "a terminal that is asked for a command": _boxed(_session(command="true")),
    "a terminal's output from the future": _boxed(_session(offset=2**63)),
    "a signal to a terminal that is none": _boxed(_session(signal=4096)),
    "the server's own port through a sandbox": _port_of_the_server,
    "port zero of a sandbox": _boxed(
        _calls("SandboxService.Expose", lambda box: pb.ExposeRequest(sandbox_id=box))
    ),
    "the host's shadow file by a link": _boxed(
        _runs("ln", "-s", "/proc/1/root/etc/shadow", "l"),
        _calls("SandboxService.ReadFile", lambda box: pb.ReadFileRequest(sandbox_id=box, path="l")),
    ),
    "a file that is a folder": _boxed(
        lambda site, box: site.call(
            "SandboxService.WriteFile",
            iter([pb.WriteFileRequest(sandbox_id=box, path="/tmp")]),
            who="stranger",
        )
    ),
    "a read of a pipe that nobody writes": _boxed(
        _runs("mkfifo", "p"),
        _calls("SandboxService.ReadFile", lambda box: pb.ReadFileRequest(sandbox_id=box, path="p")),
    ),
    "a read of 2^64 bytes from the end of all": _boxed(
        _runs("sh", "-c", "echo x > g"),
        _calls(
            "SandboxService.ReadFile",
            lambda box: pb.ReadFileRequest(sandbox_id=box, path="g", offset=2**64 - 1, length=2**64 - 1),
        ),
    ),
    "a device in a sandbox": _fails_inside("sh", "-c", "mknod /tmp/d b 8 0 && echo pa''id", sign="paid"),
    "another namespace in a sandbox": _fails_inside("sh", "-c", "unshare -Ur id && echo pa''id", sign="paid"),
    "the token of a sandbox in its own files": _fails_inside(
        "sh",
        "-c",
        "cat /proc/1/environ /opt/rock/run/token /proc/1/fd/* 2>/dev/null && echo pa''id",
        sign="paid",
    ),
    "a host's kernel setting in a sandbox": _fails_inside(
        "sh", "-c", "echo x > /proc/sys/kernel/core_pattern && echo pa''id", sign="paid"
    ),
    "a terminal's queue in a sandbox": _fails_inside(
        "sh",
        "-c",
        """python3 -c "import fcntl,os; fcntl.ioctl(os.openpty()[1],0x5412,b'x'); print('pa'+'id')" 2>&- """,
        sign="paid",
    ),
}


# -- E2B's calls


def _e2b(verb: str, path: str, body: Any = b"", **headers: str) -> Attack:
    async def act(site: Site) -> Answer:
        sent = {"x-api-key": site.keys["sandbox"], **headers}
        return await site.http(verb, path.replace("OTHER", _others(site)), who="", body=body, **sent)

    return act


def _envd(verb: str, path: str, body: Any = b"", box: str = "own", **headers: str) -> Attack:
    """Call into a sandbox as E2B's SDK does, with the token of one's own."""

    async def act(site: Site) -> Answer:
        which = _own(site) if box == "own" else _others(site)
        sent = {
            "x-access-token": site.keys["inside"],
            "e2b-sandbox-id": which,
            "e2b-sandbox-port": "49983",
            **headers,
        }
        return await site.http(verb, path, who="", body=body, **sent)

    return act


CONNECT = {"content-type": "application/connect+json"}


async def _envd_other(site: Site) -> Answer:
    """Another's sandbox with one's own token: the SDK is told that it is gone, with a 502."""
    answer = await _envd("GET", "/e2b/files?path=f", box="other")(site)
    gone = answer.status == "502" and "others" not in answer.said
    return Answer("NOT_FOUND", answer.said) if gone else answer


E2B_1: Mapping[str, Attack] = {
    "E2B: another's sandbox looked at": _e2b("GET", "/e2b/sandboxes/OTHER"),
    "E2B: another's sandbox ended": _e2b("DELETE", "/e2b/sandboxes/OTHER"),
    "E2B: another's sandbox taken up": _e2b("POST", "/e2b/sandboxes/OTHER/connect", {"timeout": 10}),
    "E2B: another's sandbox given time": _e2b("POST", "/e2b/sandboxes/OTHER/timeout", {"timeout": 10}),
    "E2B: a timeout below zero": _e2b("POST", "/e2b/sandboxes", {"templateID": "base", "timeout": -1}),
    "E2B: a timeout that is no number": _e2b(
        "POST", "/e2b/sandboxes", b'{"templateID": "base", "timeout": NaN}'
    ),
    "E2B: a timeout without end": _e2b("POST", "/e2b/sandboxes", b'{"templateID": "base", "timeout": 1e308}'),
    "E2B: a template that is a list": _e2b("POST", "/e2b/sandboxes", {"templateID": ["base"]}),
    "E2B: variables that are no texts": _e2b(
        "POST", "/e2b/sandboxes", {"templateID": "base", "envVars": {"A": {}}}
    ),
    "E2B: labels that are no texts": _e2b("POST", "/e2b/sandboxes", {"templateID": "base", "metadata": [1]}),
    "E2B: a body that is a text": _e2b("POST", "/e2b/sandboxes", b'"base"'),
    "E2B: a state that is none": _e2b("GET", "/e2b/v2/sandboxes?state=nope&limit=-1&nextToken=%00"),
    "E2B: a file of another's sandbox": _envd_other,
    "E2B: the host's shadow file": _envd("GET", "/e2b/files?path=../../../../etc/shadow"),
    "E2B: a form without an end": _envd(
        "POST",
        "/e2b/files",
        b'--b\r\nContent-Disposition: form-data; name="file"; filename="x"\r\n\r\nx',
        **{"content-type": "multipart/form-data; boundary=b"},
    ),
    "E2B: a form without a boundary": _envd(
        "POST", "/e2b/files", b"x", **{"content-type": "multipart/form-data"}
    ),
    "E2B: a form's file that climbs": _envd(
        "POST",
        "/e2b/files",
        b'--b\r\nContent-Disposition: form-data; name="file"; filename="../../../../etc/cron.d/x"\r\n'
        b"\r\nx\r\n--b--\r\n",
        **{"content-type": "multipart/form-data; boundary=b"},
    ),
    "E2B: a command in a frame of 4 GiB": _envd(
        "POST", "/e2b/process.Process/Start", b"\x00\xff\xff\xff\xff{}", **CONNECT
    ),
    "E2B: a command in a torn frame": _envd("POST", "/e2b/process.Process/Start", b"\x00\x00", **CONNECT),
    "E2B: a command in a packed frame": _envd(
        "POST", "/e2b/process.Process/Start", b"\x01\x00\x00\x00\x02{}", **CONNECT
    ),
    "E2B: a command of numbers": _envd(
        "POST", "/e2b/process.Process/Start", b'\x00\x00\x00\x00\x16{"process":{"cmd":1}}', **CONNECT
    ),
    "E2B: a pid that is none": _envd(
        "POST", "/e2b/process.Process/SendSignal", {"process": {"pid": -1}, "signal": "SIGNAL_SIGKILL"}
    ),
    "E2B: a signal that is none": _envd(
        "POST", "/e2b/process.Process/SendSignal", {"process": {"pid": 1}, "signal": "SIGNAL_NOPE"}
    ),
    "E2B: a state of a page that is none": _e2b("GET", "/e2b/v2/sandboxes?limit=-1&nextToken=%00"),
    "E2B: a list of infinite depth": _envd(
        "POST", "/e2b/filesystem.Filesystem/ListDir", b'{"path": ".", "depth": 1e99}'
    ),
    "E2B: a move out of the sandbox": _envd(
        "POST", "/e2b/filesystem.Filesystem/Move", {"source": "f", "destination": "../../../../etc/x"}
    ),
    "E2B: the end of all files": _envd("POST", "/e2b/filesystem.Filesystem/Remove", {"path": "/"}),
}

# -- the gateway


def _post(path: str, body: Any, *, key: int | str = 0, **headers: str) -> Attack:
    return lambda site: site.gateway.post(path, body, key=key, **headers)


CHAT = "/v1/chat/completions"
HELLO: dict[str, Any] = {"model": "m", "messages": [{"role": "user", "content": "hello"}]}


SAID = json.dumps(HELLO).encode()


async def _gateway_bytes(site: Site, data: bytes) -> Answer:
    host, _, port = site.gateway.url.removeprefix("http://").rpartition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    try:
        writer.write(data.replace(b"KEY", site.gateway.keys[0].encode()))
        async with asyncio.timeout(SILENCE_S):
            told = await reader.read(-1)
    except TimeoutError:
        return Answer("OK", f"still open after {SILENCE_S:g} s")
    except ConnectionError:
        told = b""
    finally:
        writer.transport.abort()
    head, _, body = told.partition(b"\r\n\r\n")
    status = head[9:12].decode("latin-1") or FAILED
    return Answer(status, body.decode("utf-8", "replace") or "the connection was closed")


def _gateway_head(*lines: str, body: bytes = b"") -> Attack:
    text = "\r\n".join((*lines, "Connection: close", "", "")).encode("latin-1")
    return lambda site: _gateway_bytes(site, text + body)


async def _two_sessions(site: Site) -> Answer:
    return await site.gateway.post(f"/s/{site.gateway.keys[1]}{CHAT}", HELLO, key=0)


def _messages(*messages: Any) -> dict[str, Any]:
    return {"model": "m", "messages": list(messages)}


def _nested_schema(depth: int) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": "string"}
    for _ in range(depth):
        schema = {"type": "object", "properties": {"a": schema}}
    return {**HELLO, "tools": [{"type": "function", "function": {"name": "t", "parameters": schema}}]}


GATEWAY_1: Mapping[str, Attack] = {
    "gateway: the keys of two sessions": _two_sessions,
    "gateway: a key of one letter": _post(CHAT, HELLO, key="x"),
    "gateway: a key of ROCK's": lambda site: site.gateway.post(CHAT, HELLO, key=site.keys["sandbox"]),
    "gateway: a label that cannot be claimed": _post(CHAT, HELLO, **{"x-ale-label": "superseded"}),
    "gateway: a label that nobody knows": _post(CHAT, HELLO, **{"x-ale-label": "MAIN"}),
    "gateway: a conversation of 129 letters": _post(CHAT, HELLO, **{"x-ale-conversation": "x" * 129}),
    "gateway: a packed body": _post(CHAT, b"\x1f\x8b\x08", **{"content-encoding": "gzip"}),
    "gateway: messages that are no list": _post(CHAT, {"model": "m", "messages": {"role": "user"}}),
    "gateway: a role that nobody has": _post(CHAT, _messages({"role": "god", "content": "x"})),
    "gateway: no messages": _post(CHAT, _messages()),
    "gateway: a picture": _post(
        CHAT,
        _messages(
            {"role": "user", "content": [{"type": "image_url", "image_url": {"url": "file:///etc/passwd"}}]}
        ),
    ),
    "gateway: a call without a name": _post(
        CHAT,
        _messages({"role": "assistant", "tool_calls": [{"id": "a", "type": "function", "function": {}}]}),
    ),
    "gateway: a schema nested 101 deep": _post(CHAT, _nested_schema(101)),
    "gateway: tokens without number": _post(
        CHAT, b'{"model":"m","messages":[{"role":"user","content":"x"}],"max_tokens":NaN}'
    ),
    "gateway: tokens and a half": _post(CHAT, {**HELLO, "max_tokens": 1.5}),
    "gateway: an empty text to stop at": _post(CHAT, {**HELLO, "stop": [""]}),
    "gateway: log-probabilities": _post(CHAT, {**HELLO, "logprobs": True}),
    "gateway: a call that must be made": _post(CHAT, {**HELLO, "tool_choice": "required"}),
    "gateway: an answer that was stored": _post(
        "/v1/responses", {"model": "m", "input": "x", "previous_response_id": "r"}
    ),
    "gateway: a path that is none": _post("/v1/sessions", HELLO),
    "gateway: two lengths": _gateway_head(
        f"POST {CHAT} HTTP/1.1",
        "Host: x",
        "Authorization: Bearer KEY",
        "Content-Length: 2",
        "Content-Length: 30",
        body=b"{}",
    ),
    "gateway: a length and chunks": _gateway_head(
        f"POST {CHAT} HTTP/1.1",
        "Host: x",
        "Authorization: Bearer KEY",
        "Content-Length: 2",
        "Transfer-Encoding: chunked",
        JSON,
        body=b"%x\r\n%s\r\n0\r\n\r\n" % (len(SAID), SAID),
    ),
    "gateway: a head of 70,000 letters": _gateway_head(
        "GET /v1/models HTTP/1.1", "Host: x", "X: " + "x" * 70_000
    ),
    "gateway: a method that is none": _gateway_head("BREW / HTTP/1.1", "Host: x"),
    "gateway: a model's name that steers a terminal": lambda site: site.gateway.post(
        CHAT, {**HELLO, "model": {"\x1b[2J": 1}}
    ),
}


# -- the command line


async def _ale(folder: Path, *words: str, steers: bool = False) -> Answer:
    """Run `ale` there; a refusal is a line on standard error and a code that blames the input."""
    env = {
        **os.environ,
        "ALE_HOME": str(folder / "home"),
        "HOME": str(folder),
        "COLUMNS": "500",
        "NO_COLOR": "1",
    }
    gone = ("ROCK_TOKEN", "ROCK_ADDRESS")
    process = await asyncio.create_subprocess_exec(
        *("/bin/sh", "-c", 'ulimit -v 4000000; exec "$@"', "sh", sys.executable, "-m", "ale", *words),
        cwd=folder,
        env={name: value for name, value in env.items() if name not in gone},
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        out, error = await asyncio.wait_for(process.communicate(), 45)
    except TimeoutError:
        process.kill()
        await process.wait()
        return Answer("INTERNAL", "no end after 45 s")
    if any(each in out + error for each in (b"\x1b]", b"\x1b[2J", b"\x9b", b"\x07")):
        return Answer("INTERNAL", f"steers the terminal: {(out + error)[:200]!r}")
    lines = [line for line in error.decode("utf-8", "replace").splitlines() if line.strip()]
    said = lines[-1] if lines else out.decode("utf-8", "replace")[-200:]
    if b"Traceback" in error:
        return Answer("INTERNAL", f"a traceback: {said}")
    if process.returncode in (2, 65, 66, 73, 78):
        return Answer(
            "INVALID_ARGUMENT" if len(lines) <= 2 else "INTERNAL",
            said if len(lines) <= 2 else " / ".join(lines),
        )
    return Answer("OK", f"code {process.returncode}: {said}")


def _told(
    *words: str, files: Mapping[str, bytes] | None = None, links: Mapping[str, str] | None = None
) -> Attack:
    """Write these files in a folder of their own and run `ale` there."""

    async def act(site: Site) -> Answer:
        with tempfile.TemporaryDirectory() as place:
            folder = Path(place)
            for name, data in (files or {}).items():
                (folder / name).parent.mkdir(parents=True, exist_ok=True)
                (folder / name).write_bytes(data)
            for name, where in (links or {}).items():
                (folder / name).parent.mkdir(parents=True, exist_ok=True)
                (folder / name).symlink_to(where)
            return await _ale(folder, *words)

    return act


STEER = "\x1b]0;owned\x07\x1b[2J"
COMMAND_LINE_1: Mapping[str, Attack] = {
    "ale: records that are no records": _told(
        "replay", "show", "r", files={"r/trajectories/000001.rollouts": b"\xff" * 4096}
    ),
    "ale: records that are a link to the shadow file": _told(
        "replay", "show", "r", links={"r/trajectories/000001.rollouts": "/etc/shadow"}
    ),
    "ale: records that are a device": _told("replay", "show", "/dev/zero"),
    "ale: a run's name that steers the terminal": _told("replay", "show", STEER),
    "ale: a run's name that climbs": _told("replay", "list", "../../../../etc"),
    "ale: a pack that is none": _told(
        "replay", "unpack", "p.tar.gz", "--out", "o", files={"p.tar.gz": b"\x1f\x8b\x08\0" * 9}
    ),
    "ale: a document nested 100,000 deep": _told(
        "replay", "import", "a", "--out", "o", files={"a/x.json": b"[" * 100_000}
    ),
    "ale: a document of odd numbers": _told(
        "replay", "import", "a", "--out", "o", files={"a/x.json": b'{"schema_version": NaN, "steps": 1e999}'}
    ),
    "ale: a config that steers the terminal": _told(
        "train", "--config", "c.toml", "--dry-run", files={"c.toml": b'env = "\\u001b]0;owned\\u0007"\n'}
    ),
    "ale: a config that is no TOML": _told(
        "train", "--config", "c.toml", "--dry-run", files={"c.toml": b"\xff\xfe"}
    ),
    "ale: a config nested 10,000 deep": _told(
        "train", "--config", "c.toml", "--dry-run", files={"c.toml": b"a = " + b"[" * 10_000}
    ),
    "ale: a config that is a device": _told("train", "--config", "/dev/zero", "--dry-run"),
    "ale: a number that is none": _told("train", "--env", "frozen_lake", "-s", "optim.lr=nan", "--dry-run"),
    "ale: steps below zero": _told("train", "--env", "frozen_lake", "-s", "steps=-5", "--dry-run"),
    "ale: shares that are no numbers": _told("train", "--env", "frozen_lake:nan,math:inf", "--dry-run"),
    "ale: an environment by a path": _told("train", "--env", "../../x", "--dry-run"),
    "ale: a resume of nothing": _told("train", "--resume", "--run", "./nothing"),
    "ale: a lineage of a circle": _told(
        "lineage", "./a", files={"a/lineage.json": b'{"parent": "./a", "run": "./a"}', "a/config.toml": b""}
    ),
    "ale: a model that is a pickle": _told(
        "eval", "./m", "--env", "frozen_lake", files={"m/model.pt": b"cos\nsystem\n(S'touch owned'\ntR."}
    ),
    "ale: an environment's name that steers the terminal": _told("env", "show", STEER),
    "ale: an environment that is removed by a path": _told("env", "remove", "../../../etc"),
    "ale: a token file that others may read": _told(
        "rock", "token", "list", "--tokens", "t.json", files={"t.json": b"{}"}
    ),
}

ROUND_1: Mapping[str, Attack] = {
    **STRANGERS_1,
    **STRANGE_REST,
    **TENANTS_1,
    **ORDERS_1,
    **HOSTED_1,
    **PARAMETERS_1,
    **SNAPSHOTS_1,
    **COMMANDS_1,
    **E2B_1,
    **GATEWAY_1,
    **COMMAND_LINE_1,
}
