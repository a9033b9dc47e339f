"""More attacks: commands, sessions, files, ports, streams, images, E2B, the gateway, and what `ale` reads."""

from __future__ import annotations

import asyncio
import gzip
import io
import json
import os
import re
import signal
import sys
import tarfile
import tempfile
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from attacks import Attack
from google.protobuf.duration_pb2 import Duration
from hostile_site import Answer, Site
from wires import CHAT, MESSAGES, RESPONSES, Wire

from rock_env.proto.v1 import env_pb2, registry_pb2
from rock_env.proto.v1 import sandbox_pb2 as pb

__all__ = ["ROUND_2"]

MIB = 1 << 20
MOST = 2**64 - 1
STEERS = "\x1b]0;owned\x07\x1b[31m\u202e"
"""Sets a terminal's title, its colour, and turns the text around."""


# -- calls on one's own things


def _own(site: Site, kind: str = "sandbox") -> str:
    return site.known.own[kind][0]


def _theirs(site: Site, kind: str = "sandbox") -> str:
    return site.known.others[kind][0]


def _call(name: str, make: Callable[[str], Any], kind: str = "sandbox") -> Attack:
    return lambda site: site.call(name, make(_own(site, kind)))


def _stream(name: str, make: Callable[[Site], Sequence[Any]]) -> Attack:
    return lambda site: site.call(name, iter(make(site)))


def _exec(*more: Any, **fields: Any) -> Attack:
    def messages(site: Site) -> Sequence[Any]:
        start = pb.ExecStart(sandbox_id=_own(site), **{"argv": ["true"], **fields})
        return [pb.ExecRequest(start=start), *more]

    return _stream("SandboxService.Exec", messages)


def _again(site: Site) -> Sequence[Any]:
    first = pb.ExecStart(sandbox_id=_own(site), argv=["cat"])
    other = pb.ExecStart(sandbox_id=_theirs(site), argv=["cat", "f"])
    return [pb.ExecRequest(start=first), pb.ExecRequest(start=other)]


async def _run(site: Site, script: str, *, timeout_s: int = 10) -> Answer:
    """Run a script in one's own box."""
    limit = Duration(seconds=timeout_s)
    start = pb.ExecStart(sandbox_id=_own(site), argv=["sh", "-c", script], timeout=limit, no_stdin=True)
    return await site.call("SandboxService.Exec", iter([pb.ExecRequest(start=start)]))


def _prepared(script: str, act: Callable[[Site], Awaitable[Answer]]) -> Attack:
    """Put something into the box with a command, then act."""

    async def both(site: Site) -> Answer:
        made = await _run(site, script)
        return await act(site) if made.status == "OK" else made

    return both


async def _soon(answer: Awaitable[Answer], limit_s: float = 8.0) -> Answer:
    """Return the answer, or that there was none in time."""
    try:
        async with asyncio.timeout(limit_s):
            return await answer
    except TimeoutError:
        return Answer("DEADLINE_EXCEEDED", f"no answer within {limit_s:g} s")


def _read(path: str, **fields: int) -> Attack:
    return lambda site: _soon(
        site.call("SandboxService.ReadFile", pb.ReadFileRequest(sandbox_id=_own(site), path=path, **fields))
    )


def _write(path: str, **fields: Any) -> Attack:
    return lambda site: _soon(
        site.call(
            "SandboxService.WriteFile",
            iter([pb.WriteFileRequest(sandbox_id=_own(site), path=path, data=b"x", **fields)]),
        )
    )


COMMANDS: Mapping[str, Attack] = {
    "a command that changes its box half-way": _stream("SandboxService.Exec", _again),
    "an Exec that begins with input": _stream(
        "SandboxService.Exec", lambda site: [pb.ExecRequest(stdin=b"ls")]
    ),
    "an Exec without a message": _stream("SandboxService.Exec", lambda site: []),
    "a signal that there is not": _exec(pb.ExecRequest(signal=2**32 - 1), argv=["sleep", "5"]),
    "a variable with an equals sign in its name": _exec(env={"A=B": "x"}),
    "a variable with a zero byte": _exec(env={"A": "x\0y"}),
    "a timeout of two signs": _exec(timeout=Duration(seconds=5, nanos=-1)),
    "a timeout below nothing": _exec(timeout=Duration(seconds=-1)),
    "an output offset beyond all output": _exec(idempotency_key="round-2-offset", stdout_offset=MOST),
    "a working folder with a zero byte": _exec(cwd="a\0b"),
    "a background process without words": _call(
        "SandboxService.StartProcess",
        lambda box: pb.StartProcessRequest(start=pb.ExecStart(sandbox_id=box)),
    ),
    "a signal of 2^31 for a process": _call(
        "SandboxService.SignalProcess",
        lambda it: pb.SignalProcessRequest(process_id=it, signal=2**31),
        "process",
    ),
    "the signal for another's process": lambda site: site.call(
        "SandboxService.SignalProcess",
        pb.SignalProcessRequest(process_id=_theirs(site, "process"), signal=signal.SIGKILL),
    ),
    "a process by a path through another box": lambda site: site.call(
        "SandboxService.ProcessLogs",
        pb.ProcessLogsRequest(process_id=f"{_own(site)}/../{_theirs(site, 'process')}"),
    ),
    "logs from beyond all offsets": _call(
        "SandboxService.ProcessLogs",
        lambda it: pb.ProcessLogsRequest(process_id=it, stdout_offset=MOST, stderr_offset=MOST),
        "process",
    ),
}


def _session(*more: Mapping[str, Any]) -> Attack:
    def messages(site: Site) -> Sequence[Any]:
        first, *rest = more
        return [
            pb.SessionInput(session_id=_own(site, "session"), **first),
            *(pb.SessionInput(**m) for m in rest),
        ]

    return lambda site: _soon(site.call("SandboxService.Session", iter(messages(site))))


def _terminal(**fields: Any) -> Attack:
    return _call(
        "SandboxService.OpenSession", lambda box: pb.OpenSessionRequest(**{"sandbox_id": box, **fields})
    )


def _dial(**fields: Any) -> Attack:
    return _stream(
        "SandboxService.Dial",
        lambda site: [pb.DialRequest(start=pb.DialStart(**{"sandbox_id": _own(site), **fields}))],
    )


def _port_path(path: bytes, *, method: bytes = b"GET") -> Attack:
    """Ask for a port's page by a path as it stands."""

    async def act(site: Site) -> Answer:
        told = await site.http("POST", f"/v1/sandboxes/{_own(site)}/ports", body={"port": 9})
        url = json.loads(told.said)["url"] if told.status == "200" else ""
        label = url.split("/ports/")[-1].strip("/").encode()
        line = method + b" " + path.replace(b"LABEL", label) + b" HTTP/1.1\r\n"
        got = await site.bytes(line + b"Host: x\r\nConnection: close\r\n\r\n")
        kept = got.status == "502" and "port 9" in got.said  # it went to the port, as any path below it does
        return Answer("PERMISSION_DENIED", got.said) if kept else got

    return act


SESSIONS: Mapping[str, Attack] = {
    "a terminal of four billion rows": _terminal(terminal=pb.TerminalSize(rows=2**32 - 1, columns=2**32 - 1)),
    "a terminal in another's box": lambda site: site.call(
        "SandboxService.OpenSession",
        pb.OpenSessionRequest(sandbox_id=_theirs(site), terminal=pb.TerminalSize(rows=1, columns=1)),
    ),
    "another's session": lambda site: site.call(
        "SandboxService.Session", iter([pb.SessionInput(session_id=_theirs(site, "session"), command="id")])
    ),
    "a session without an id": _stream(
        "SandboxService.Session", lambda site: [pb.SessionInput(command="id")]
    ),
    "a resize of a shell without a terminal": _session({"resize": pb.TerminalSize(rows=5, columns=5)}),
    "keys for a shell without a terminal": _session({"data": b"ls\n"}),
    "a shell's command with a zero byte": _session({"command": "echo a\0b"}),
    "a session that becomes another's": lambda site: _soon(
        site.call(
            "SandboxService.Session",
            iter(
                [
                    pb.SessionInput(session_id=_own(site, "session"), command="true"),
                    pb.SessionInput(session_id=_theirs(site, "session"), command="cat f"),
                ]
            ),
        )
    ),
    "the end of another's session": lambda site: site.call(
        "SandboxService.CloseSession", pb.CloseSessionRequest(session_id=_theirs(site, "session"))
    ),
    "a connection to port 0": _dial(port=0),
    "a connection to port 2^32 - 1": _dial(port=2**32 - 1),
    "a connection where nobody listens": _dial(port=9),
    "a connection without a start": _stream("SandboxService.Dial", lambda site: [pb.DialRequest(data=b"x")]),
    "a connection into another's box": lambda site: site.call(
        "SandboxService.Dial",
        iter([pb.DialRequest(start=pb.DialStart(sandbox_id=_theirs(site), port=8000))]),
    ),
    "the URL of port 0": _call("SandboxService.Expose", lambda box: pb.ExposeRequest(sandbox_id=box)),
    "a port's page that is the server's own": _port_path(b"/ports/LABEL/../../v1/sandboxes"),
    "a port's page with an encoded way out": _port_path(b"/ports/LABEL/%2e%2e/%2e%2e/v1/sandboxes"),
    "a port's page asked for as a proxy": _port_path(b"http://127.0.0.1:22/ports/LABEL/"),
    "CONNECT to another machine": _port_path(b"127.0.0.1:22", method=b"CONNECT"),
}


# -- files


def _tar(*members: tuple[tarfile.TarInfo, bytes], **pax: str) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for info, data in members:
            info.size, info.pax_headers = len(data), dict(pax)
            archive.addfile(info, io.BytesIO(data))
    return out.getvalue()


def _member(name: str, data: bytes = b"", kind: bytes = tarfile.REGTYPE, link: str = "") -> Any:
    info = tarfile.TarInfo(name)
    info.type, info.linkname = kind, link
    return info, data


def _upload(tar: bytes, path: str = "round-2") -> Attack:
    return lambda site: _soon(
        site.call(
            "SandboxService.Upload", iter([pb.UploadRequest(sandbox_id=_own(site), path=path, tar=tar)])
        )
    )


def _raw_size(field: bytes) -> bytes:
    """Return an archive whose one member has these twelve bytes as its size."""
    block = bytearray(tarfile.TarInfo("f").tobuf(tarfile.GNU_FORMAT))
    block[124:136] = field
    block[148:156] = b" " * 8
    block[148:156] = b"%06o\0 " % sum(block)
    return bytes(block) + bytes(1024)


async def _two_boxes(site: Site) -> Answer:
    tar = _tar(_member("f", b"spoiled"))
    parts = [
        pb.UploadRequest(sandbox_id=_own(site), path="two", tar=tar[:512]),
        pb.UploadRequest(sandbox_id=_theirs(site), path=".", tar=tar[512:]),
    ]
    return await site.call("SandboxService.Upload", iter(parts))


async def _odd_names(site: Site) -> Answer:
    """A listing of names that are no text must come whole, or be refused; the box is one's own."""
    made = await _run(site, "mkdir -p odd; cd odd; : > \"$(printf 'a\\377b')\"; : > \"$(printf 'c\\nd')\"")
    if made.status != "OK":
        return made
    told = await site.call("SandboxService.ListFiles", pb.ListFilesRequest(sandbox_id=_own(site), path="odd"))
    return Answer("PERMISSION_DENIED", told.said) if told.status == "OK" or told.refused else told


FILES: Mapping[str, Attack] = {
    "a read from beyond all files": _read("f", offset=MOST, length=MOST),
    "a read of a device without end": _read("/dev/zero", length=MOST),
    "a read of a pipe that nobody writes to": _prepared("rm -f p; mkfifo p", _read("p")),
    "a write into a pipe that nobody reads": _prepared("rm -f q; mkfifo q", _write("q", append=True)),
    "a read of a folder": _read("."),
    "a write onto a folder": _prepared("mkdir -p folder/x", _write("folder")),
    "a file with all bits of a mode": _write("mode", mode=2**32 - 1),
    "a file with an endless name": _write("n" * 300),
    "a write through a link that leads out": _prepared("ln -sfn /etc out", _write("out/cron.d")),
    "a write through a loop of links": _prepared("ln -sfn l1 l2; ln -sfn l2 l1", _write("l1")),
    "an append without a file": _write("", append=True),
    "a list of names that are no text": _odd_names,
    "a watch of what is not there": _call(
        "SandboxService.WatchFiles", lambda box: pb.WatchFilesRequest(sandbox_id=box, path="nowhere")
    ),
    "a watch of all processes": _call(
        "SandboxService.WatchFiles",
        lambda box: pb.WatchFilesRequest(sandbox_id=box, path="/proc", recursive=True),
    ),
    "a download of the kernel's memory": _call(
        "SandboxService.Download", lambda box: pb.DownloadRequest(sandbox_id=box, path="/proc/kcore")
    ),
    "files for two boxes in one stream": _two_boxes,
    "files of a size below nothing": _upload(_raw_size(b"\xff" * 12)),
    "files of a size of 2^80": _upload(_raw_size(b"\x80" + b"\xff" * 11)),
    "files of no time": _upload(_tar(_member("f"), mtime="nan")),
    "files of an owner of 2^70": _upload(_tar(_member("f"), uid=str(2**70))),
    "files whose size is said twice": _upload(_tar(_member("f", b"abc"), size="-1")),
    "a link to what comes later": _upload(_tar(_member("h", kind=tarfile.LNKTYPE, link="later"))),
    "a member through a link": _upload(
        _tar(_member("d", kind=tarfile.SYMTYPE, link="."), _member("d/f", b"x"))
    ),
    "a link to its own parent's parent": _upload(_tar(_member("a/l", kind=tarfile.SYMTYPE, link="../../.."))),
    "a pipe in an archive": _upload(_tar(_member("p", kind=tarfile.FIFOTYPE))),
    "an archive below a file": _upload(_tar(_member("x")), path="f"),
    "a member with an endless name": _upload(_tar(_member("n" * 300, b"x"))),
}


# -- REST and its streams, WebSockets, E2B


def _rest(verb: str, path: str, body: Any = b"", **headers: str) -> Attack:
    def act(site: Site) -> Awaitable[Answer]:
        put = path.replace("BOX", _own(site)).replace("OTHER", _theirs(site))
        return _soon(site.http(verb, put, body=body, **{k.replace("_", "-"): v for k, v in headers.items()}))

    return act


async def _whole(site: Site, request: bytes) -> Answer:
    """Send bytes; return the answer without the marks of its chunks."""
    got = await site.bytes(request)
    return Answer(got.status, re.sub(r"(^|\r\n)[0-9a-f]+\r\n", "", got.said).strip())


def _raw(*lines: bytes, body: bytes = b"") -> Attack:
    """Send a request of these lines with a token."""

    def act(site: Site) -> Awaitable[Answer]:
        first, *rest = (line.replace(b"BOX", _own(site).encode()) for line in lines)
        head = [first, b"Host: x", b"Authorization: Bearer " + site.keys["sandbox"].encode(), *rest]
        return _soon(_whole(site, b"\r\n".join([*head, b"Connection: close", b"", body])))

    return act


def _e2b(verb: str, path: str, body: Any = b"", *, inside: bool = False, **headers: str) -> Attack:
    def act(site: Site) -> Awaitable[Answer]:
        name, who = ("x-access-token", "inside") if inside else ("x-api-key", "sandbox")
        put = path.replace("BOX", _own(site)).replace("OTHER", _theirs(site))
        sent = {name: site.keys[who], "e2b-sandbox-id": _own(site)}
        sent.update({k.replace("_", "-"): v for k, v in headers.items()})
        return _soon(site.http(verb, "/e2b" + put, who="", body=body, **sent))

    return act


def _envelope(size: int, data: bytes = b"{}", flags: int = 0) -> bytes:
    """Return a message of Connect's streams that claims to have such a size."""
    return bytes([flags]) + size.to_bytes(4, "big") + data


REST: Mapping[str, Attack] = {
    "a deadline that is no number": _rest("GET", "/v1/sandboxes", rock_timeout_s="nan"),
    "a deadline below nothing": _rest("GET", "/v1/sandboxes", rock_timeout_s="-1"),
    "a field twice in a query": _rest("GET", "/v1/sandboxes?page_size=1&page_size=2"),
    "a page of -1": _rest("GET", "/v1/sandboxes?page_size=-1"),
    "a forged page": _rest("GET", "/v1/sandboxes?page_token=%00%ff"),
    "a state that there is not": _rest("GET", "/v1/sandboxes?states=NOPE"),
    "a path and a body that contradict each other": _rest("POST", "/v1/sandboxes/BOX/renew", {"id": "OTHER"}),
    "a folded box of another": _rest("POST", "/v1/sandboxes/BOX%2F..%2FOTHER/renew", {"lease": "9s"}),
    "a body of UTF-16": _rest("POST", "/v1/sandboxes", '{"labels": {}}'.encode("utf-16")),
    "a key of a body twice": _rest("POST", "/v1/sandboxes", b'{"labels": {}, "labels": {"a": "b"}}'),
    "a compressed body": _rest(
        "POST", "/v1/sandboxes", gzip.compress(b" " * (64 * MIB), 9), content_encoding="gzip"
    ),
    "half a surrogate in a label": _rest("POST", "/v1/sandboxes", b'{"labels": {"a": "\\ud800"}}'),
    "a duration of 10^400 seconds": _rest("POST", "/v1/sandboxes", {"lease": "1" + "0" * 400 + "s"}),
    "a duration of Arabic digits": _rest("POST", "/v1/sandboxes", {"lease": "٣٣s"}),
    "a box as a form": _rest(
        "POST", "/v1/sandboxes", b"a=b", content_type="application/x-www-form-urlencoded"
    ),
    "a range that ends before it begins": _rest("GET", "/v1/sandboxes/BOX/file?path=f", range="bytes=5-2"),
    "a range beyond all files": _rest("GET", "/v1/sandboxes/BOX/file?path=f", range=f"bytes={2**70}-"),
    "an event's id that is none": _rest("GET", "/v1/processes/BOX%2Fp1/logs", last_event_id="-1:x\x7f"),
    "lines of a Register that are no messages": _rest(
        "POST", "/v1/images", b'{"start": 7}\n[]\n', content_type="application/x-ndjson"
    ),
    "a chunk of a size below nothing": _raw(
        b"POST /v1/sandboxes HTTP/1.1",
        b"Content-Type: application/json",
        b"Transfer-Encoding: chunked",
        body=b"-1\r\n{}\r\n0\r\n\r\n",
    ),
    "a length of plus two": _raw(
        b"POST /v1/sandboxes HTTP/1.1", b"Content-Type: application/json", b"Content-Length: +2", body=b"{}"
    ),
    "a header with a bare line end": _raw(b"GET /v1/sandboxes HTTP/1.1", b"X: a\nY: b\x00"),
    "a WebSocket of version 99": _raw(
        b"GET /v1/sandboxes/BOX/exec HTTP/1.1",
        b"Upgrade: websocket",
        b"Connection: Upgrade",
        b"Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==",
        b"Sec-WebSocket-Version: 99",
    ),
    "a WebSocket with a key that is none": _raw(
        b"GET /v1/sandboxes/BOX/exec HTTP/1.1",
        b"Upgrade: websocket",
        b"Connection: Upgrade",
        b"Sec-WebSocket-Key: x",
        b"Sec-WebSocket-Version: 13",
    ),
    "an E2B timeout below nothing": _e2b("POST", "/sandboxes", {"templateID": "base", "timeout": -1}),
    "an E2B timeout of 2^63": _e2b("POST", "/sandboxes", {"templateID": "base", "timeout": 2**63}),
    "E2B metadata that is no text": _e2b(
        "POST", "/sandboxes", {"templateID": "base", "metadata": {"a": {"b": 1}}}
    ),
    "an E2B template by a path": _e2b("POST", "/sandboxes", {"templateID": "../../etc", "timeout": 9}),
    "an E2B box of another": _e2b("DELETE", "/sandboxes/OTHER"),
    "an E2B move out of the box": _e2b(
        "POST",
        "/filesystem.Filesystem/Move",
        {"source": "f", "destination": "/etc/../../x"},
        inside=True,
    ),
    "an E2B message of 4 GiB": _e2b(
        "POST",
        "/process.Process/Start",
        _envelope(2**32 - 1),
        inside=True,
        content_type="application/connect+json",
    ),
    "an E2B message compressed by nothing known": _e2b(
        "POST",
        "/process.Process/Start",
        _envelope(2, flags=1),
        inside=True,
        content_type="application/connect+json",
    ),
    "an E2B signal for no process": _e2b(
        "POST",
        "/process.Process/SendSignal",
        {"process": {"pid": 2**31}, "signal": "SIGNAL_SIGKILL"},
        inside=True,
    ),
    "an E2B form without an end": _e2b(
        "POST",
        "/files?path=x",
        b'--b\r\nContent-Disposition: form-data; name="file"; filename="../../x"\r\n\r\n',
        inside=True,
        content_type="multipart/form-data; boundary=b",
    ),
}


# -- environments and the registry


def _env(name: str, **fields: Any) -> Attack:
    kind = getattr(env_pb2, name + "Request")
    return lambda site: _soon(
        site.call(f"EnvService.{name}", kind(**{"env_id": _own(site, "env"), **fields}))
    )


def _task(task: str) -> Attack:
    """Reset a new environment to a task that there is not."""

    async def act(site: Site) -> Answer:
        made = await site.http("POST", "/v1/envs", body={"env": "frozen_lake", "params_json": "{}"})
        if made.status != "200":
            return made
        env = json.loads(made.said)["env_id"]
        reset = env_pb2.ResetRequest(env_id=env, sequence=1, idempotency_key="round-2", task_id=task)
        told = await site.call("EnvService.Reset", reset)
        await site.call("EnvService.Close", env_pb2.CloseRequest(env_id=env))
        return told

    return act


def _register(*messages: Any) -> Attack:
    return lambda site: _soon(site.call("RegistryService.Register", iter(messages)))


def _start(**fields: Any) -> Any:
    return registry_pb2.RegisterRequest(start=registry_pb2.RegisterStart(**fields))


_DOCKERFILE = registry_pb2.RegisterRequest(tar=_tar(_member("Dockerfile", b"FROM scratch\n")))

ENVIRONMENTS: Mapping[str, Attack] = {
    "a task of Arabic digits": _task("train/٣"),
    "a task of -1": _task("train/-1"),
    "a task of 10^4000": _task("train/1" + "0" * 4000),
    "a task with a line end": _task("train/0\n"),
    "a task of a folder up": _task("train/../held_out/0"),
    "a step from the far future": _env("Step", sequence=2**63 - 1, idempotency_key="s", action="x"),
    "a step before the first": _env("Step", sequence=0, idempotency_key="s", action="x"),
    "a second action of one number": _env("Step", sequence=1, idempotency_key="r", action="x"),
    "four billion forks of a game": _env("Fork", count=2**32 - 1, idempotency_key="f"),
    "forks with seeds for others": _env("Fork", count=2, idempotency_key="g", resume_seeds=[1]),
    "a checkpoint's key of a zero byte": _env("Restore", sequence=2, idempotency_key="h", checkpoint_id="\0"),
    "an artifact by a path": _env("ReadArtifact", sha256="../../../etc/passwd"),
    "an artifact of no episode": _env("ReadArtifact", sha256="0" * 64),
    "another's sandbox as an environment": lambda site: site.call(
        "EnvService.TakeOver", env_pb2.TakeOverRequest(sandbox_id=_theirs(site), idempotency_key="t")
    ),
    "one's own sandbox as an environment": lambda site: site.call(
        "EnvService.TakeOver", env_pb2.TakeOverRequest(sandbox_id=_own(site), idempotency_key="t")
    ),
    "a batch that waits no number of seconds": lambda site: site.call(
        "EnvService.StepMany", env_pb2.StepManyRequest(items=[], item_timeout_s=float("nan"))
    ),
    "an environment of a steering name": lambda site: site.call(
        "EnvService.Make", env_pb2.MakeRequest(env=STEERS, params_json="{}")
    ),
    "parameters with half a surrogate": lambda site: site.call(
        "EnvService.Make", env_pb2.MakeRequest(env="frozen_lake", params_json='{"size": "\\ud800"}')
    ),
    "parameters with a key twice": lambda site: site.call(
        "EnvService.Make", env_pb2.MakeRequest(env="frozen_lake", params_json='{"size": 4, "size": -4}')
    ),
    "a snapshot to restore that is another's": lambda site: site.call(
        "SandboxService.Restore",
        pb.RestoreSandboxRequest(id=_own(site), snapshot_id=_theirs(site, "snapshot")),
    ),
    "a lease of half a nanosecond back": _call(
        "SandboxService.Renew", lambda box: pb.RenewSandboxRequest(id=box, lease=Duration(nanos=-1))
    ),
    "a snapshot's deletion with a path": lambda site: site.call(
        "SandboxService.DeleteSnapshot", pb.DeleteSnapshotRequest(id=f"../{_theirs(site, 'snapshot')}")
    ),
    "changes from the far future": lambda site: _soon(
        site.call("SandboxService.Watch", pb.WatchSandboxesRequest(after_revision=MOST)), 3.0
    ),
    "an image of a steering name": _register(_start(name=STEERS), _DOCKERFILE),
    "an image whose name is an option": _register(_start(name="--privileged"), _DOCKERFILE),
    "a Dockerfile outside its folder": _register(
        _start(name="r2", dockerfile="../../etc/passwd"), _DOCKERFILE
    ),
    "a build's argument with a line end": _register(
        _start(name="r2", build_args={"A\nB": "x\0"}), _DOCKERFILE
    ),
    "files before the name": _register(_DOCKERFILE, _start(name="r2")),
    "a folder without a Dockerfile": _register(
        _start(name="r2"), registry_pb2.RegisterRequest(tar=_tar(_member("x", b"y")))
    ),
    "a name and a second name": _register(_start(name="r2"), _start(name="r3"), _DOCKERFILE),
    "another's build by a guess": lambda site: _soon(
        site.call("RegistryService.WatchBuild", registry_pb2.WatchBuildRequest(build_id="../1", offset=MOST))
    ),
    "the end of an image with a path": lambda site: site.call(
        "RegistryService.Delete", registry_pb2.DeleteImageRequest(name="../../x" + STEERS)
    ),
}


# -- the gateway


def _gate(wire: Wire, *, stream: bool = False, **fields: Any) -> Attack:
    return lambda site: _soon(site.gateway.post(wire.path, {**wire.body("hello", stream=stream), **fields}))


def _gate_raw(wire: Wire, body: bytes, **headers: str) -> Attack:
    sent = {name.replace("_", "-"): value for name, value in headers.items()}
    return lambda site: _soon(site.gateway.post(wire.path, body, **sent))


def _item(**fields: Any) -> Attack:
    return _gate(RESPONSES, input=[fields])


GATEWAY: Mapping[str, Attack] = {
    "a number of tokens with 5,000 digits": _gate_raw(
        CHAT, b'{"model":"m","messages":[{"role":"user","content":"a"}],"max_tokens":' + b"9" * 5000 + b"}"
    ),
    "no number of tokens": _gate_raw(
        CHAT, b'{"model":"m","messages":[{"role":"user","content":"a"}],"max_tokens":NaN}'
    ),
    "tokens that are true": _gate(CHAT, max_tokens=True),
    "half a token": _gate(MESSAGES, max_tokens=0.5),
    "a body of UTF-16 for an agent": _gate_raw(CHAT, json.dumps(CHAT.body("a")).encode("utf-16")),
    "a compressed body for an agent": _gate_raw(CHAT, gzip.compress(b"[" * MIB), content_encoding="gzip"),
    "a role that there is not": _gate(CHAT, messages=[{"role": "root" + STEERS, "content": "a"}]),
    "a message that is a number": _gate(CHAT, messages=[7]),
    "a picture among the messages": _gate(
        CHAT,
        messages=[{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "file:///etc"}}]}],
    ),
    "a call that must be made": _gate(CHAT, tool_choice="required"),
    "a call without a name": _gate(
        CHAT,
        messages=[{"role": "assistant", "tool_calls": [{"id": "1", "type": "function", "function": {}}]}],
    ),
    "5,000 parts of one message": _gate(
        CHAT, messages=[{"role": "user", "content": [{"type": "text", "text": "x"}] * 5000}]
    ),
    "a schema 200 deep": _gate_raw(
        CHAT,
        json.dumps(
            {
                **CHAT.body("a"),
                "tools": [
                    {"type": "function", "function": {"name": "t", "parameters": "@"}},
                ],
            }
        )
        .replace('"@"', '{"properties":{"a":' * 200 + "{}" + "}}" * 200)
        .encode(),
    ),
    "an empty text to stop at": _gate(MESSAGES, stop_sequences=[""]),
    "an answer in the background": _gate(RESPONSES, background=True),
    "an answer after another's": _gate(RESPONSES, previous_response_id="resp_1"),
    "an item by reference": _item(type="item_reference", id="x"),
    "an encrypted item": _item(type="compaction", encrypted_content="x"),
    "servers of tools": _gate(
        MESSAGES, mcp_servers=[{"type": "url", "url": "http://127.0.0.1:22", "name": "x"}]
    ),
    "results that are a document": _gate(
        MESSAGES,
        messages=[
            {
                "role": "user",
                "content": [{"type": "tool_result", "tool_use_id": "a", "content": [{"type": "document"}]}],
            }
        ],
    ),
    "a count of a conversation that is none": lambda site: site.gateway.post(
        "/v1/messages/count_tokens", {"model": "m", "messages": {"a": 1}}
    ),
    "a context beyond the model's": _gate(CHAT, messages=[{"role": "user", "content": "x" * (2 * MIB)}]),
    "a key with a line's rest": lambda site: site.gateway.post(
        CHAT.path, CHAT.body("a"), key=site.gateway.keys[0] + " x"
    ),
    "a session's key cut short": lambda site: site.gateway.post(
        CHAT.path, CHAT.body("a"), key=site.gateway.keys[0][:-1]
    ),
    "a ROCK token for the gateway": lambda site: site.gateway.post(
        CHAT.path, CHAT.body("a"), key=site.keys["sandbox"]
    ),
    "a path of the gateway up": lambda site: site.gateway.post("/v1/%2e%2e/metrics", CHAT.body("a")),
    "a model that is a list": _gate(CHAT, model=["m"]),
    "a stream that is a text": _gate(CHAT, stream="yes"),
}


# -- what `ale` is given to read

_ALE = (sys.executable, "-m", "ale")
_LIMIT = 'ulimit -v 4000000; exec "$@"'
_STYLES = re.compile(r"\x1b\[[0-9;]*m")
_FAULTS = frozenset({1, 2, 65, 66, 69, 73, 74, 75, 77})


async def _ale(folder: Path, *words: str, limit_s: float = 20.0, **variables: str) -> Answer:
    """Run `ale` in a folder under a memory limit; a fault of its caller's is one line on standard error."""
    homes = {name: str(folder / "home") for name in ("HOME", "ALE_HOME", "XDG_CONFIG_HOME")}
    process = await asyncio.create_subprocess_exec(
        *("bash", "-c", _LIMIT, "ale", *_ALE, *words),
        cwd=folder,
        env={**os.environ, "COLUMNS": "1000", **homes, **variables},
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        start_new_session=True,
    )
    try:
        async with asyncio.timeout(limit_s):
            out, err = await process.communicate()
    except TimeoutError:
        os.killpg(process.pid, signal.SIGKILL)
        await process.wait()
        return Answer("DEADLINE_EXCEEDED", f"ale did not end within {limit_s:g} s")
    told = _STYLES.sub("", (out + err).decode("utf-8", "replace"))
    if "Traceback" in told:
        return Answer("INTERNAL", told[told.index("Traceback") :][-300:])
    if re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202e]", told):
        return Answer("INTERNAL", f"it steers the terminal: {told[-200:]!r}")
    if process.returncode == 0:
        return Answer("OK", told[-300:])
    lines = [line for line in err.decode("utf-8", "replace").splitlines() if line.startswith("ale: ")]
    said = lines[-1] if lines else " ".join(re.sub("[─╭╮╰╯│]", " ", told).split())[-300:]
    return Answer("INVALID_ARGUMENT" if process.returncode in _FAULTS else "INTERNAL", said)


def _files(make: Callable[[Path], Sequence[str]]) -> Attack:
    """Let `make` lay out files in a folder and say the words of `ale`."""

    async def act(site: Site) -> Answer:
        with tempfile.TemporaryDirectory() as name:
            return await _ale(Path(name), *make(Path(name)))

    return act


def _text(name: str, text: str | bytes, *words: str) -> Attack:
    """Write one file and run `ale`."""

    def make(folder: Path) -> Sequence[str]:
        (folder / name).write_bytes(text if isinstance(text, bytes) else text.encode())
        return words

    return _files(make)


def _alone(*words: str) -> Attack:
    return _files(lambda folder: words)


def _line(**fields: Any) -> str:
    """Return a line of chat messages."""
    talk = [{"role": "user", "content": "P"}, {"role": "assistant", "content": "right"}]
    return (
        json.dumps({"id": "a", "env": "frozen_lake@1", "task": "train/0", "messages": talk, **fields}) + "\n"
    )


def _imported(text: str | bytes, name: str = "c.jsonl") -> Attack:
    return _text(name, text, "replay", "import", name, "--out", "out")


def _shown(text: str, *words: str) -> Attack:
    """Import lines, then show them: what is shown may not steer the terminal."""

    async def act(site: Site) -> Answer:
        with tempfile.TemporaryDirectory() as name:
            (Path(name) / "c.jsonl").write_text(text)
            kept = await _ale(Path(name), "replay", "import", "c.jsonl", "--out", "out")
            shown = await _ale(Path(name), "replay", *words) if kept.status == "OK" else kept
            return Answer("PERMISSION_DENIED", "shown as text") if shown.status == "OK" else shown

    return act


def _pipe(name: str, *words: str) -> Attack:
    """Run `ale` on a pipe that nobody writes to."""

    def make(folder: Path) -> Sequence[str]:
        os.mkfifo(folder / name)
        return words

    return _files(make)


def _pack(*members: tuple[tarfile.TarInfo, bytes]) -> Attack:
    return _text("p.tar.gz", gzip.compress(_tar(*members)), "replay", "unpack", "p.tar.gz", "--out", "out")


def _harbor(spoil: Callable[[Path], object], toml: str = "") -> Attack:
    """Lay out a task, spoil it, and register it without building where that can be."""

    def make(folder: Path) -> Sequence[str]:
        task = folder / "task"
        (task / "environment").mkdir(parents=True)
        (task / "tests").mkdir()
        (task / "task.toml").write_text(f'version = "1.0"\n{toml}')
        (task / "instruction.md").write_text("Do it.")
        (task / "environment" / "Dockerfile").write_text("FROM scratch\n")
        (task / "tests" / "test.sh").write_text("true\n")
        (folder / "secret").write_text("a file of the host")
        spoil(task)
        return ("env", "register", "task", "--name", "round-2-task", "--no-check")

    return _files(make)


def _linked(name: str, target: str = "../secret") -> Attack:
    """Register a task of which one part is a link out of it."""

    def spoil(task: Path) -> None:
        part = task / name
        if part.is_dir():
            for inner in part.iterdir():
                inner.unlink()
            part.rmdir()
            (task.parent / "outside").mkdir()
            (task.parent / "outside" / "Dockerfile").write_text("FROM scratch\n")
            (task.parent / "outside" / "test.sh").write_text("true\n")
            (task.parent / "outside" / "secret").write_text("a file of the host")
            part.symlink_to("../outside")
        else:
            part.unlink(missing_ok=True)
            part.symlink_to(target)

    return _harbor(spoil)


def _pipe_in_task(task: Path) -> None:
    (task / "instruction.md").unlink()
    os.mkfifo(task / "instruction.md")


def _laughs() -> str:
    """Return YAML of a few hundred bytes that stands for 9^9 texts."""
    lines = ["a0: &a0 [" + ",".join("x" * 9) + "]"]
    lines += [f"a{n}: &a{n} [" + ",".join([f"*a{n - 1}"] * 9) + "]" for n in range(1, 9)]
    return "\n".join([*lines, "instruction: *a8", ""])


async def _index_elsewhere(site: Site) -> Answer:
    """List a folder whose index is a link to another folder; nothing may be written there."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "c.jsonl").write_text(_line(reward=1.0, passed=True))
        kept = await _ale(folder, "replay", "import", "c.jsonl", "--out", "out")
        if kept.status != "OK":
            return kept
        (folder / "elsewhere").mkdir()
        index = folder / "out" / "trajectories" / ".index"
        if index.is_dir():
            for old in index.iterdir():
                old.unlink()
            index.rmdir()
        index.symlink_to(folder / "elsewhere")
        told = await _ale(folder, "replay", "list", "out")
        written = [file.name for file in (folder / "elsewhere").iterdir()]
    if written:
        return Answer("OK", f"it wrote {written} through the link")
    return Answer("PERMISSION_DENIED", "nothing was written") if told.status == "OK" else told


async def _index_pipe(site: Site) -> Answer:
    """List a folder whose index has a pipe for rows."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "c.jsonl").write_text(_line(reward=1.0, passed=True))
        kept = await _ale(folder, "replay", "import", "c.jsonl", "--out", "out")
        if kept.status != "OK":
            return kept
        index = folder / "out" / "trajectories" / ".index"
        index.mkdir(exist_ok=True)
        (index / "imported.rollouts.msgpack").unlink(missing_ok=True)
        os.mkfifo(index / "imported.rollouts.msgpack")
        told = await _ale(folder, "replay", "list", "out")
    return Answer("PERMISSION_DENIED", "the pipe was passed over") if told.status == "OK" else told


def _config(text: str) -> Attack:
    return _text("c.toml", text, "train", "--config", "c.toml", "--dry-run")


def _run_of(text: str) -> Attack:
    def make(folder: Path) -> Sequence[str]:
        (folder / "runs" / "r").mkdir(parents=True)
        (folder / "runs" / "r" / "config.toml").write_text(text)
        return ("train", "--resume", "--run", "r")

    return _files(make)


def _agent(text: str) -> Attack:
    return _text("a.yaml", text, "agent", "show", "./a.yaml")


def _contexts(text: str) -> Attack:
    def make(folder: Path) -> Sequence[str]:
        (folder / "home" / "rock").mkdir(parents=True)
        file = folder / "home" / "rock" / "contexts.json"
        file.write_text(text)
        file.chmod(0o600)
        return ("rock", "context", "list")

    return _files(make)


async def _label_of_bytes(site: Site) -> Answer:
    """Create a sandbox with a label of a byte that is no text."""
    with tempfile.TemporaryDirectory() as name:
        words = ("rock", "create", "--label", "x=\udcff", "--rock", site.rest.grpc)
        return await _ale(Path(name), *words, ROCK_TOKEN=site.keys["sandbox"])


PAPERS: Mapping[str, Attack] = {
    "a reward that is no number": _imported(_line(passed=True).replace('"a"', '"a", "reward": NaN', 1)),
    "a reward of 10^999": _imported(_line(passed=True).replace('"a"', '"a", "reward": 1e999', 1)),
    "messages nested 200,000 times": _imported('{"messages":' + "[" * 200_000),
    "an ATIF document of another time": _imported(
        '{"schema_version": "ATIF-v9\\u001b]0;x\\u0007"}', "a.json"
    ),
    "a .traj that is a number": _imported('{"trajectory": 7}', "a.traj"),
    "a document without end": _alone("replay", "import", "/dev/zero", "--out", "out"),
    "a document that nobody writes": _pipe("a.json", "replay", "import", "a.json", "--out", "out"),
    "a rollout's name that steers the terminal": _shown(_line(id=STEERS, task=STEERS), "list", "out"),
    "an action that steers the terminal": _shown(
        _line(messages=[{"role": "user", "content": STEERS}, {"role": "assistant", "content": STEERS}]),
        "show",
        "out",
    ),
    "records that nobody writes, among others": _pipe("a.rollouts", "replay", "list", "."),
    "records of random bytes": _text("a.rollouts", bytes(range(256)) * 20, "replay", "list", "a.rollouts"),
    "records of which only the beginning is there": _text("a.rollouts", b"ALE-SEG\n", "replay", "stats", "."),
    "an index of records that lies elsewhere": _index_elsewhere,
    "an index of records that nobody writes": _index_pipe,
    "a pack with a way out": _pack(_member("../out-of-it", b"x")),
    "a pack with a link": _pack(_member("l", kind=tarfile.SYMTYPE, link="/tmp")),
    "a pack nine folders deep": _pack(_member("a/" * 9 + "x", b"x")),
    "a pack with a file that is a folder": _pack(_member("a", b"x"), _member("a/b", b"x")),
    "a pack whose sizes are below nothing": _text(
        "p.tar", _raw_size(b"\xff" * 12), "replay", "unpack", "p.tar", "--out", "out"
    ),
    "a pack that nobody writes": _pipe("p.tar.gz", "replay", "unpack", "p.tar.gz", "--out", "out"),
    "settings with a rate that is none": _config("env = 'frozen_lake'\n[optim]\nlr = nan\n"),
    "settings nested 20,000 times": _config("x = " + "[" * 20_000),
    "a setting of 20,000 names": _config("a." * 20_000 + "b = 1\n"),
    "a setting with a number of 5,000 digits": _config("steps = " + "9" * 5000),
    "settings with a name that steers": _config('"\\u001b]0;x\\u0007" = 1\n'),
    "settings of a run that steer": _run_of('env = "\\u001b]0;x\\u0007"\n'),
    "settings of a run with steps below nothing": _run_of("env = 'frozen_lake'\nsteps = -1\n"),
    "an option nested 5,000 times": _alone(
        "train", "--env", "frozen_lake", "--dry-run", "-s", "optim.lr=" + "[" * 5000
    ),
    "an argument of 5,000 digits": _alone(
        "train", "--env", "frozen_lake", "--dry-run", "--env-arg", "size=" + "9" * 5000
    ),
    "a share of a mixture that is no number": _alone("train", "--env", "frozen_lake:nan,math:1", "--dry-run"),
    "a label that is no text": _label_of_bytes,
    "an environment's name that steers": _alone("env", "show", STEERS),
    "a registered environment by a path": _alone("env", "remove", "../../.."),
    "an instruction that is the host's file": _linked("instruction.md"),
    "tests that are the host's folder": _linked("tests"),
    "an image's folder that is the host's": _linked("environment"),
    "a grader that is the host's file": _linked("tests/test.sh", "../../secret"),
    "a Dockerfile that is the host's file": _linked("environment/Dockerfile", "../../secret"),
    "an instruction that nobody writes": _harbor(_pipe_in_task),
    "a task of 2^63 megabytes": _harbor(
        lambda task: None, "[environment]\nmemory_mb = 9223372036854775808\n"
    ),
    "a task of infinite processors": _harbor(lambda task: None, "[environment]\ncpus = inf\n"),
    "a task with a field that steers": _harbor(lambda task: None, '"\\u001b]0;x\\u0007" = 1\n'),
    "a task with a variable of the host": _harbor(lambda task: None, '[environment.env]\nA = "${HOME}"\n'),
    "instances nested 100,000 times": _text(
        "i.jsonl", "[" * 100_000, "env", "register", "i.jsonl", "--no-check", "--option", "image=x"
    ),
    "an instance whose repository is a path": _text(
        "i.jsonl",
        json.dumps(
            {
                "instance_id": STEERS,
                "repo": "../../etc",
                "base_commit": "--upload-pack=true",
                "patch": "x",
                "test_patch": "y",
                "problem_statement": "p",
                "FAIL_TO_PASS": ["a"],
                "PASS_TO_PASS": [],
            }
        ),
        *("env", "register", "i.jsonl", "--name", "r2", "--no-check", "--option", "repos=."),
    ),
    "an agent's file that makes objects": _agent("!!python/object/apply:os.system ['true']\n"),
    "an agent's file that stands for 9^9 texts": _agent(_laughs()),
    "an agent's name that steers": _agent('name: "\\e]0;x\\a"\n'),
    "an agent's model server that is a file": _alone(
        "agent", "run", "codex", "hi", "--url", "file:///etc/passwd"
    ),
    "contexts nested 100,000 times": _contexts('{"contexts":' + "[" * 100_000),
    "contexts with a field that steers": _contexts('{"\\u001b]0;x\\u0007": 1}'),
    "a context by a name that steers": _alone("rock", "context", "add", STEERS, "127.0.0.1:1"),
    "a context's address that steers": _alone("rock", "ps", "--rock", "grpc://" + STEERS + ":1"),
    "a kubeconfig nested 5,000 times": _text(
        "k", "clusters: " + "[" * 5000, "rock", "context", "add", "k", "--kubernetes", "--kubeconfig", "k"
    ),
}


def _terminal_bench(site: Site) -> Awaitable[Answer]:
    def make(folder: Path) -> Sequence[str]:
        (folder / "task").mkdir()
        (folder / "task" / "task.yaml").write_text(_laughs())
        (folder / "task" / "Dockerfile").write_text("FROM scratch\n")
        return ("env", "register", "task", "--name", "r2", "--no-check")

    return _files(make)(site)


PAPERS = {**PAPERS, "a task's file that stands for 9^9 texts": _terminal_bench}

ROUND_2: Mapping[str, Attack] = {**COMMANDS, **SESSIONS, **FILES, **REST, **ENVIRONMENTS, **GATEWAY, **PAPERS}
"""All of this round, by name."""
