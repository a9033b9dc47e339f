"""The site that attacks are tried on: a ROCK server and a gateway, each below a memory limit, and how answers are judged.

Every process of a server counts against its limit, boxes and workers included. An attack is refused if it gets an
error that is the caller's fault, in one clear line; anything else, an answer of success included, is not.
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc
import httpx
import psutil
from fuzz_messages import Known
from fuzz_server import Stubs, furnish
from rest_servers import RestServer
from secure_servers import TOYS, token

from rock_env.backends.process import cgroups
from rock_env.proto.v1 import sandbox_pb2 as pb
from rock_env.wire.channel import CLIENT_OPTIONS, target
from rock_env.wire.rest_routes import methods

__all__ = ["Answer", "Gateway", "Site", "hostile_site", "why_not_limited"]

MEMORY_BYTES = 1 << 30
"""What a server and all it starts may use."""
ANSWER_S = 60.0
"""What has no answer then never gets one."""
MOST_SAID = 1500
QUOTAS = "[capacity]\nboxes = 40\n[default]\nboxes = 8\n"
_REFUSALS = frozenset(
    {
        *("INVALID_ARGUMENT", "UNAUTHENTICATED", "PERMISSION_DENIED", "NOT_FOUND", "RESOURCE_EXHAUSTED"),
        *("FAILED_PRECONDITION", "OUT_OF_RANGE", "UNIMPLEMENTED", "ALREADY_EXISTS", "ABORTED"),
    }
)
_INSIDES = ("Traceback", "0x7f", 'File "/', "site-packages")
_METHODS = {method.name: method for method in methods()}
_LIMITED = """
import os, sys
from rock_env.backends.process import cgroups
os.close(cgroups.join(cgroups.find(), sys.argv[1], {"memory_bytes": int(sys.argv[2]), "pids": 0, "cpus": 0}))
os.execv(sys.executable, [sys.executable, *sys.argv[3:]])
"""


@dataclass(frozen=True)
class Answer:
    """How an attack was answered: a status of gRPC or HTTP, and what was said."""

    status: str
    said: str

    @property
    def refused(self) -> bool:
        """Whether it is an error that blames the caller, not the server."""
        if self.status.isdigit():
            return 400 <= int(self.status) < 500 and self.status != "499"
        return self.status in _REFUSALS

    @property
    def clear(self) -> bool:
        """Whether it is one line that says something and shows no insides."""
        text = self.said.strip()
        return (
            bool(text)
            and len(text) <= MOST_SAID
            and "\n" not in text
            and not any(part in text for part in _INSIDES)
        )


def why_not_limited() -> str:
    """Return what this machine lacks to limit a server's memory, or an empty string."""
    try:
        cgroups.find()
    except OSError as error:
        return f"no control group for memory can be made ({error}): run as root, or delegate one"
    return ""


def _removed(group: str) -> None:
    """Remove a server's control groups, and those of its boxes below; what still runs in one keeps it."""
    for top in cgroups.find().values():
        for folder, _, _ in os.walk(Path(top) / group, topdown=False):
            with suppress(OSError):
                Path(folder).rmdir()


@contextmanager
def _limited(name: str, words: Iterable[str], folder: Path) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """Run Python with these words in a control group of its own; yield it and its first line."""
    group = f"hostile-{name}-{folder.name}-{os.getpid()}"
    with (
        (folder / f"{name}.log").open("w") as log,
        subprocess.Popen(
            [sys.executable, "-c", _LIMITED, group, str(MEMORY_BYTES), *words],
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
            start_new_session=True,
        ) as server,
    ):
        try:
            assert server.stdout is not None
            first = server.stdout.readline().strip()
            assert first, (folder / f"{name}.log").read_text()
            yield server, first
        finally:
            server.terminate()
            server.wait()
            _removed(group)


@dataclass
class Gateway:
    """A gateway of its own process, with two sessions."""

    url: str
    keys: list[str]
    pid: int

    async def post(
        self, path: str, body: bytes | Mapping[str, Any], *, key: int | str = 0, **headers: str
    ) -> Answer:
        """Send a request with a session's key, or with another text as the key."""
        content = body if isinstance(body, bytes) else json.dumps(body).encode()
        bearer = self.keys[key] if isinstance(key, int) else key
        sent = {"authorization": f"Bearer {bearer}", "content-type": "application/json", **headers}
        return await _http("POST", self.url + path, content, sent)


@dataclass
class Site:
    """The servers, the callers' tokens, and the ids of what there is."""

    rest: RestServer
    keys: dict[str, str]
    known: Known
    gateway: Gateway
    channel: grpc.aio.Channel

    def where(self) -> dict[str, Any]:
        """Return what another process needs to join in."""
        rest, gateway = self.rest, self.gateway
        return {
            "rest": [rest.grpc, rest.url, rest.pid],
            "keys": self.keys,
            "known": [self.known.own, self.known.doomed, self.known.others],
            "gateway": [gateway.url, gateway.keys, gateway.pid],
        }

    @classmethod
    @asynccontextmanager
    async def joined(cls, where: Mapping[str, Any]) -> AsyncIterator[Site]:
        """Yield the site that another process has opened."""
        (grpc_address, url, pid), (door, keys, door_pid) = where["rest"], where["gateway"]
        rest = RestServer(grpc_address, url, pid, Path(), where["keys"]["sandbox"])
        async with grpc.aio.insecure_channel(target(grpc_address), options=CLIENT_OPTIONS) as channel:
            gateway = Gateway(door, keys, door_pid)
            yield cls(rest, where["keys"], Known(*where["known"]), gateway, channel)

    @property
    def alive(self) -> bool:
        """Whether both servers are those that were started."""
        pids = self.rest.pid, self.gateway.pid
        return all(
            psutil.pid_exists(pid) and psutil.Process(pid).status() != psutil.STATUS_ZOMBIE for pid in pids
        )

    def metadata(self, who: str) -> tuple[tuple[str, str], ...]:
        """Return the headers of a caller by role; an unknown role is a token as it stands, "" none."""
        key = self.keys.get(who, who)
        return (("authorization", f"Bearer {key}"),) if key else ()

    async def call(
        self, name: str, *messages: Any, who: str = "sandbox", more: tuple[tuple[str, str], ...] = ()
    ) -> Answer:
        """Make a call of gRPC; a message is one of the call's own, or bytes. One iterator in place of messages streams."""
        method = _METHODS[name]
        options = {"metadata": (*self.metadata(who), *more), "timeout": ANSWER_S}
        return await self.raw(
            method.grpc_path, messages, method.client_streaming, method.server_streaming, options
        )

    async def raw(
        self, path: str, messages: Any, asks: bool, tells: bool, options: Mapping[str, Any]
    ) -> Answer:
        """Make a call by its path and shape, with bytes or messages."""
        shape = f"{'stream' if asks else 'unary'}_{'stream' if tells else 'unary'}"
        multi = getattr(self.channel, shape)(path)
        told = bytearray()
        try:
            if asks:
                sent = (
                    messages[0] if len(messages) == 1 and hasattr(messages[0], "__next__") else iter(messages)
                )
                call = multi(map(_plain, sent), **options)
            else:
                call = multi(_plain(messages[0]), **options)
            if tells:
                async for part in call:
                    told += part[:1000]
                    if len(told) > 100_000:
                        call.cancel()
                        break
            else:
                told += await call
            code, said = (await call.code()).name, await call.details()
        except grpc.aio.AioRpcError as error:
            code, said = error.code().name, error.details() or ""
        except asyncio.CancelledError:
            code, said = "OK", ""
        return Answer(code, repr(bytes(told[:300])) if code == "OK" else said)

    async def http(
        self, verb: str, path: str, *, who: str = "sandbox", body: Any = b"", **headers: str
    ) -> Answer:
        """Send a request to the REST face; a body that is no bytes and no iterator goes as JSON."""
        sent = {"content-type": "application/json", **dict(self.metadata(who)), **headers}
        if not isinstance(body, bytes) and not hasattr(body, "__aiter__"):
            body = json.dumps(body).encode()
        return await _http(verb, self.rest.url + path, body, sent)

    async def bytes(self, request: bytes) -> Answer:
        """Send bytes to the REST port and return what comes back, as far as it is HTTP."""
        host, _, port = self.rest.url.removeprefix("http://").rpartition(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        try:
            writer.write(request)
            async with asyncio.timeout(ANSWER_S):
                answer = await reader.read(-1)
        finally:
            writer.transport.abort()
        head, _, body = answer.partition(b"\r\n\r\n")
        return Answer(head[9:12].decode("latin-1"), _message(body))


def _plain(message: Any) -> bytes:
    return message if isinstance(message, bytes) else message.SerializeToString()


async def _http(verb: str, url: str, content: Any, headers: Mapping[str, str]) -> Answer:
    # Without certificates to read, which takes longer than the call; nothing here speaks TLS.
    async with httpx.AsyncClient(timeout=ANSWER_S, verify=False) as client:
        try:
            reply = await client.request(verb, url, content=content, headers=dict(headers))
        except (httpx.WriteError, httpx.ReadError, httpx.RemoteProtocolError) as error:
            return Answer("cut", f"the connection was cut: {type(error).__name__}")
    return Answer(str(reply.status_code), _message(reply.content))


def _message(body: bytes) -> str:
    """Return what an error says: the message of our problems, of E2B's and of the providers' errors."""
    try:
        tree = json.loads(body)
    except ValueError:
        return body.decode("utf-8", "replace")
    if isinstance(tree, dict):
        inner = tree.get("error")
        found = tree.get("detail") or tree.get("message") or (inner if isinstance(inner, str) else None)
        if isinstance(inner, dict):
            found = inner.get("message")
        if isinstance(found, str):
            return found
    return body.decode("utf-8", "replace")


@asynccontextmanager
async def hostile_site(folder: Path) -> AsyncIterator[Site]:
    """Serve with fences, quotas, tokens and every installed environment; open a gateway with two sessions."""
    tokens, quotas = folder / "tokens.json", folder / "quotas.toml"
    quotas.write_text(QUOTAS)
    roles = {
        "sandbox": token(tokens, "blue", "sandbox", "env"),
        "stranger": token(tokens, "red", "sandbox", "env"),
        "victim": token(tokens, "green", "sandbox", "env"),
        "admin": token(tokens, "op", "sandbox", "env", "admin"),
        "expired": token(tokens, "blue", "sandbox", "env", expires_at=1.0),
        "env only": token(tokens, "blue", "env"),
    }
    words = [
        "-m",
        "rock_env.server",
        "--listen=127.0.0.1:0",
        "--http=127.0.0.1:0",
        "--workers=1",
        "--isolation=namespaces",
        f"--tokens={tokens}",
        f"--quotas={quotas}",
        f"--env={TOYS}:TOY",
        "--most-environments=3000",
    ]
    gate = [str(Path(__file__).with_name("hostile_gateway.py"))]
    with (
        _limited("rock", words, folder) as (server, address),
        _limited("gateway", gate, folder) as (door, opened),
    ):
        assert server.stdout is not None
        url = server.stdout.readline().strip()
        said = json.loads(opened)
        rest = RestServer(address, url, server.pid, tokens, roles["sandbox"])
        gateway = Gateway(said["url"], said["keys"], door.pid)
        async with grpc.aio.insecure_channel(target(address), options=CLIENT_OPTIONS) as channel:
            site = Site(rest, roles, Known({}, {}, {}), gateway, channel)
            stubs = Stubs(channel)
            own = await furnish(stubs, site.metadata("sandbox"), "own")
            others = await furnish(stubs, site.metadata("victim"), "others")
            site.known = Known(own, own, others)
            issue = pb.IssueSandboxTokenRequest(sandbox_id=own["sandbox"][0])
            issued = await stubs.box.IssueToken(issue, metadata=site.metadata("sandbox"))
            site.keys["inside"] = issued.token
            yield site
