"""A real server for requests nobody should send: who may call it, what is in it, and how its answers are judged."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc
import psutil
from fuzz_http import HttpCase
from fuzz_messages import UNKNOWN, GrpcCase, Known
from grpc._cython.cygrpc import ExecuteBatchError
from rest_servers import RestServer, guarded_rest
from secure_servers import token

from rock_env.proto.v1 import admin_pb2, env_pb2
from rock_env.proto.v1 import sandbox_pb2 as pb
from rock_env.proto.v1.admin_pb2_grpc import AdminServiceStub
from rock_env.proto.v1.env_pb2_grpc import EnvServiceStub
from rock_env.proto.v1.sandbox_pb2_grpc import SandboxServiceStub
from rock_env.wire.channel import CLIENT_OPTIONS, target

__all__ = ["OWN_WORDS", "Fuzzed", "Verdicts", "fuzzed_server", "send_grpc", "send_http"]

QUOTAS = "[capacity]\nboxes = 40\n[default]\nboxes = 16\n"
GRPC_S = 3.0
"""The deadline that each call tells the server."""
PATIENT_S = 30.0
"""The deadline of a second try: on a busy machine an answer may take longer than the first allows."""
HANG_S = 40.0
"""What has no answer then never gets one."""
LISTENING = frozenset(
    {"Watch", "WatchFiles", "ProcessLogs", "Exec", "Session", "Dial", "WatchBuild", "Validate"}
)
"""Calls that may have nothing to say: they are left after a while."""
LISTEN_S = 0.4
MOST_ANSWERS = 300

OWN_WORDS = "Internal error from Core"
"""What gRPC's client says itself where the answer overtakes what it still writes."""


def bearer(text: str) -> tuple[tuple[str, str], ...]:
    return (("authorization", f"Bearer {text}"),)


@dataclass(frozen=True)
class Fuzzed:
    """The server, a token per role, and its process."""

    rest: RestServer
    keys: dict[str, str]
    log: Path

    @property
    def process(self) -> psutil.Process:
        return psutil.Process(self.rest.pid)

    def metadata(self, who: str) -> tuple[tuple[str, str], ...]:
        return bearer(self.keys[who]) if who in self.keys else ()

    @asynccontextmanager
    async def channel(self) -> AsyncIterator[grpc.aio.Channel]:
        async with grpc.aio.insecure_channel(target(self.rest.grpc), options=CLIENT_OPTIONS) as channel:
            yield channel


@contextmanager
def fuzzed_server(folder: Path) -> Iterator[Fuzzed]:
    """Serve with fences, quotas and tokens: `sandbox` of tenant blue, `stranger` of red, `admin` of the operator.

    Nothing is sent with the token of the `victim`, tenant green, but by the tests themselves.
    """
    (folder / "quotas.toml").write_text(QUOTAS)
    more = [f"--quotas={folder}/quotas.toml", "--isolation=namespaces"]
    with guarded_rest(folder, more) as server:
        keys = {
            "sandbox": server.key,
            "stranger": token(server.tokens, "red", "sandbox", "env"),
            "victim": token(server.tokens, "green", "sandbox", "env"),
            "admin": token(server.tokens, "op", "sandbox", "env", "admin"),
            "wrong": f"rock_0123456789ab_{'0' * 64}",
            "malformed": "rock_",
        }
        yield Fuzzed(server, keys, folder / "log")


# -- what is in it


async def furnish(stubs: Stubs, who: Any, tag: str) -> dict[str, list[str]]:
    """Make one of everything and return the ids."""
    box = (await stubs.box.Create(pb.CreateSandboxRequest(labels={"of": tag}), metadata=who)).id
    write = pb.WriteFileRequest(sandbox_id=box, path="f", data=tag.encode())
    await stubs.box.WriteFile(iter([write]), metadata=who)
    session = await stubs.box.OpenSession(pb.OpenSessionRequest(sandbox_id=box), metadata=who)
    start = pb.ExecStart(sandbox_id=box, argv=["sleep", "600"])
    process = await stubs.box.StartProcess(pb.StartProcessRequest(start=start), metadata=who)
    snapshot = await stubs.box.Snapshot(pb.SnapshotSandboxRequest(id=box), metadata=who)
    made = await stubs.env.Make(env_pb2.MakeRequest(env="toy", params_json="{}"), metadata=who)
    reset = env_pb2.ResetRequest(env_id=made.env_id, sequence=1, idempotency_key="r", task_id="train/0")
    await stubs.env.Reset(reset, metadata=who)
    point = await stubs.env.Checkpoint(env_pb2.CheckpointRequest(env_id=made.env_id), metadata=who)
    return {
        "sandbox": [box],
        "session": [session.session_id],
        "process": [process.process_id],
        "snapshot": [snapshot.snapshot_id],
        "env": [made.env_id],
        "checkpoint": [point.checkpoint_id],
    }


class Stubs:
    """The services over one channel."""

    def __init__(self, channel: Any) -> None:
        self.channel = channel
        self.box = SandboxServiceStub(channel)
        self.env = EnvServiceStub(channel)
        self.admin = AdminServiceStub(channel)


async def furnished(stubs: Stubs, server: Fuzzed) -> Known:
    """Make everything that the cases name."""
    own = await furnish(stubs, server.metadata("sandbox"), "own")
    doomed = await furnish(stubs, server.metadata("sandbox"), "doomed")
    others = await furnish(stubs, server.metadata("victim"), "others")
    issue = pb.IssueSandboxTokenRequest(sandbox_id=own["sandbox"][0])
    server.keys["inside"] = (await stubs.box.IssueToken(issue, metadata=server.metadata("sandbox"))).token
    return Known(own, doomed, others)


async def cleared(stubs: Stubs, server: Fuzzed) -> list[Any]:
    """Delete everything as its owners do, and return what the node still has then."""
    operator = server.metadata("admin")
    for pool in (await stubs.admin.ListPools(admin_pb2.ListPoolsRequest(), metadata=operator)).pools:
        await stubs.admin.SetPool(admin_pb2.SetPoolRequest(spec=pool.spec, size=0), metadata=operator)
    for role in ("sandbox", "stranger", "victim", "admin"):
        who = server.metadata(role)
        while found := (await stubs.box.List(pb.ListSandboxesRequest(), metadata=who)).sandboxes:
            for info in found:
                await stubs.box.Delete(pb.DeleteSandboxRequest(id=info.id), metadata=who)
        for snapshot in (await stubs.box.ListSnapshots(pb.ListSnapshotsRequest(), metadata=who)).snapshots:
            await stubs.box.DeleteSnapshot(pb.DeleteSnapshotRequest(id=snapshot.id), metadata=who)
    census = await stubs.admin.Census(admin_pb2.CensusRequest(), metadata=operator)
    return [one for one in census.backends if one.boxes or one.layers or one.orphans or one.ghosts]


# -- judging


class Verdicts:
    """How the answers were; an offender is described so that its case can be made again."""

    def __init__(self) -> None:
        self.counts: dict[str, int] = {}
        self.offenders: list[str] = []

    def note(self, case: object, answer: str, wrong: str = "") -> None:
        self.counts[answer] = self.counts.get(answer, 0) + 1
        if wrong:
            self.offenders.append(f"{case}: {answer}: {wrong}")

    def first(self) -> str:
        """Show two offenders of each sort."""
        sorts: dict[str, list[str]] = {}
        for each in self.offenders:
            sorts.setdefault(each[-80:], []).append(each)
        shown = "\n".join(each for sort in sorts.values() for each in sort[:2])
        return f"{len(self.offenders)} of {sum(self.counts.values())} were answered badly:\n{shown}"


def _wrong_status(code: str, kind: str, details: str) -> str:
    """Return what is wrong with an error, from its status and the service's own code."""
    if details == "the sandbox was closed":
        return ""  # by another request, while this one listened
    if code in ("UNKNOWN", "INTERNAL", "DATA_LOSS") or kind in ("internal", "infra"):
        return f"blames the server ({kind or 'no code'}): {details[:300]}"
    if code == "RESOURCE_EXHAUSTED" and kind not in ("resource_exhausted", "disk_full"):
        return details[:200]
    if not details.strip():
        return "says nothing"
    if "Traceback" in details or "0x7f" in details:
        return f"shows its insides: {details[:300]}"
    return ""


async def send_grpc(
    case: GrpcCase, channel: Any, server: Fuzzed, verdicts: Verdicts, *, within_s: float = GRPC_S
) -> None:
    """Make the call, take all it answers, and judge how it ended; one that was late is made again, with more time."""
    method = case.method
    shape = f"{_shape(method.client_streaming)}_{_shape(method.server_streaming)}"
    listening = method.name.partition(".")[2] in LISTENING
    options = {
        "metadata": (*server.metadata(case.who), *case.metadata),
        "timeout": LISTEN_S if listening else within_s,
    }
    call_of = getattr(channel, shape)(method.grpc_path)
    try:
        async with asyncio.timeout(HANG_S):
            if method.client_streaming:
                call = call_of(**options)
                await _say(call, case)
                if not case.ends:
                    call.cancel()
                    verdicts.note(case, "left")
                    return
            else:
                call = call_of(case.messages[0], **options)
            await _hear(call, streaming=method.server_streaming)
            code, trailing, details = await call.code(), await call.trailing_metadata(), await call.details()
    except grpc.aio.AioRpcError as error:
        code, trailing, details = error.code(), error.trailing_metadata(), error.details()
    except TimeoutError:
        verdicts.note(case, "hangs", f"no answer in {HANG_S:g} s")
        return
    kind = str(dict(trailing or ()).get("rock-error-code", ""))
    refused = code is grpc.StatusCode.UNAUTHENTICATED
    if case.who in UNKNOWN and (code is grpc.StatusCode.OK or (kind and not refused)):
        verdicts.note(
            case, f"{code.name} to nobody", f"was answered though nobody knows who called: {details}"
        )
    elif code is grpc.StatusCode.OK:
        verdicts.note(case, "OK")
    elif details == OWN_WORDS and method.client_streaming:
        verdicts.note(case, "cut off")
    elif code is grpc.StatusCode.DEADLINE_EXCEEDED and listening:
        verdicts.note(case, "listened")
    elif code is grpc.StatusCode.DEADLINE_EXCEEDED and kind == "":
        if within_s < PATIENT_S:
            await send_grpc(case, channel, server, verdicts, within_s=PATIENT_S)
        else:
            verdicts.note(case, "late", f"no answer in {within_s:g} s")
    else:
        verdicts.note(case, f"{code.name} {kind}", _wrong_status(code.name, kind, details or ""))


async def _say(call: Any, case: GrpcCase) -> None:
    """Write the messages, as far as the server takes them."""
    with suppress(asyncio.InvalidStateError, grpc.aio.AioRpcError, ExecuteBatchError):  # the call has ended
        for message in case.messages:
            await call.write(message)
        if case.ends:
            await call.done_writing()


async def _hear(call: Any, *, streaming: bool) -> None:
    """Take the answers; of one that does not end, some."""
    if not streaming:
        await call
        return
    for _ in range(MOST_ANSWERS):
        if (await call.read()) is grpc.aio.EOF:
            return
    call.cancel()


def _shape(streaming: bool) -> str:
    return "stream" if streaming else "unary"


async def send_http(case: HttpCase, url: str, verdicts: Verdicts) -> None:
    """Send the request, take the answer and judge it."""
    host, port = url.removeprefix("http://").rsplit(":", 1)
    listening = case.name.partition(".")[2] in LISTENING
    try:
        async with asyncio.timeout(HANG_S):
            reader, writer = await asyncio.open_connection(host, int(port), limit=1 << 22)
            try:
                try:
                    writer.write(case.request)
                    await writer.drain()
                    if not case.whole:
                        await asyncio.sleep(0)
                        verdicts.note(case, "left")
                        return
                    if listening:
                        answer = await _some(reader)
                    else:
                        answer = await reader.read(-1)
                except ConnectionError:
                    answer = await _rest_of(reader)
            finally:
                writer.transport.abort()
    except TimeoutError:
        verdicts.note(case, "hangs", f"no answer in {HANG_S:g} s")
        return
    _judge_http(case, answer, listening, verdicts)


async def _some(reader: asyncio.StreamReader) -> bytes:
    """Read what comes within the time for calls that may go on for ever."""
    found = bytearray()
    try:
        async with asyncio.timeout(LISTEN_S + 0.6):
            while (block := await reader.read(65536)) and len(found) < 1 << 20:
                found += block
    except TimeoutError:
        pass
    return bytes(found)


async def _rest_of(reader: asyncio.StreamReader) -> bytes:
    try:
        return await reader.read(-1)
    except ConnectionError:
        return b""


def _judge_http(case: HttpCase, answer: bytes, listening: bool, verdicts: Verdicts) -> None:
    answer = answer.removeprefix(b"HTTP/1.1 100 Continue\r\n\r\n")
    head, _, body = answer.partition(b"\r\n\r\n")
    status = head[9:12].decode("latin-1")
    if not head.startswith(b"HTTP/1.1 "):
        if b"70000" in case.request or len(case.request) > 60_000:
            verdicts.note(case, "cut off")  # it was told to go away while it still wrote
        elif listening and not answer:
            verdicts.note(case, "listened")
        else:
            verdicts.note(case, "no answer", repr(answer[:100]))
        return
    if status.startswith(("2", "3")):
        wrong = "was answered though nobody knows who called" if case.who in UNKNOWN else ""
        if b"event: error" in body and (b'"code": "internal"' in body or b'"code": "infra"' in body):
            wrong = body[-300:].decode("utf-8", "replace")
        verdicts.note(case, status, wrong)
        return
    text = body.decode("utf-8", "replace")
    if text == "Invalid HTTP request received.":  # it never came so far as to be a call
        verdicts.note(case, "no HTTP")
        return
    wrong = ""
    if (
        b"application/problem+json" not in head
        and not case.other_words
        and not case.request.startswith(b"HEAD")
    ):
        wrong = f"is no problem: {text[:200]!r}"
    elif case.other_words and status == "502" and "was not found" in text:
        pass  # what E2B's SDK is told where a box is not for the caller
    elif status in ("500", "502") or "Traceback" in text:
        wrong = text[:400]
    verdicts.note(case, status, wrong)
