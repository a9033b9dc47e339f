"""What the console asks of a ROCK server: sandboxes, what they wrote, places, images. It changes nothing there.

Asked by `ale.console.rock_routes`. The server may be anybody's: each answer has bounds of time, bytes and entries, and its
texts come out cut, visible and without the token that it was shown. Each raises a `RockError`.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from contextlib import asynccontextmanager
from dataclasses import asdict
from typing import Any

import grpc

from ale.console.run import finite
from ale.rock.logs import ending
from rock_env.client import Credentials
from rock_env.client.installations import resolved
from rock_env.client.registry import Image
from rock_env.client.retry import rock_error
from rock_env.client.sandbox.types import SandboxInfo, sandbox_info
from rock_env.errors import DeadlineExceeded, InfraError, InvalidArgument, ResourceExhausted, RockError
from rock_env.inventory import PoolStatus, TenantPlaces
from rock_env.lifecycle import SandboxState
from rock_env.proto.v1 import (
    admin_pb2,
    admin_pb2_grpc,
    env_pb2,
    env_pb2_grpc,
    registry_pb2,
    registry_pb2_grpc,
    sandbox_pb2,
    sandbox_pb2_grpc,
)
from rock_env.telemetry.logs import without_secrets
from rock_env.telemetry.shown import visible
from rock_env.wire.channel import is_rest
from rock_env.wire.fields import read
from rock_env.wire.inventory import limits, pool_status, tenant_places
from rock_env.wire.sandboxes import process_info

__all__ = ["Rock"]

ASK_S = 10.0
"""For one answer, however many calls it takes."""
MOST_BYTES = 4 << 20
"""Of one message. A page of sandboxes takes at most about as much, with 200 changes each."""
PAGE = 100
MOST_ROWS = 2000
"""Of one list."""
MOST_TEXT, MOST_PROBLEM = 500, 2000
"""Characters of one text, and of what an error says."""
MOST_LOG = 256 << 10
"""Bytes of each output of a process that are shown: the last ones."""
MOST_READ = 34 << 20
"""Bytes that are read for them; a server keeps at most 16 MiB of each output."""
MOST_QUESTIONS = 8
"""At once: a server that is slow holds up no more than these."""
_ID = re.compile(r"sb-[0-9a-f]{16}", re.ASCII)
_SHORTEST_SECRET, _LONGEST_SECRET = 8, 500
_UNREADABLE = (ValueError, TypeError, OverflowError, LookupError, AttributeError)
"""What reading the words of another server raises."""
_IN_A_LIST = ("id", "reason", "backend", "environment", "labels", "tenant", "image", "durable", "created_at")

Told = dict[str, Any]


class Rock:
    """A ROCK server by its address or by the name of a context, asked with that context's own token."""

    def __init__(self, place: str) -> None:
        """Raise `RockError` for a place that is neither, or that is reached over REST."""
        _reached(place)
        self.place = place
        self._questions = asyncio.Semaphore(MOST_QUESTIONS)

    async def sandboxes(self, *, everything: bool = False) -> Told:
        """Return the sandboxes that are not deleted, or with `everything` those that are, too."""
        states = [sandbox_pb2.SandboxState.Value(f"SANDBOX_STATE_{state}") for state in SandboxState]
        request = sandbox_pb2.ListSandboxesRequest(page_size=PAGE, states=states if everything else ())
        rows: list[Told] = []
        async with self._asking() as calls:
            for _ in range(MOST_ROWS // PAGE):
                page = await calls.ask(calls.sandboxes.List, request)
                rows += await asyncio.to_thread(calls.rows, page.sandboxes)
                request.page_token = page.next_page_token
                if not request.page_token:
                    break
        return {"rows": rows, "more": bool(request.page_token)}

    async def sandbox(self, identity: str) -> Told:
        """Return one sandbox with its history, oldest first. To ask for it is no use of it."""
        async with self._asking() as calls:
            reply = await calls.ask(calls.sandboxes.Get, sandbox_pb2.GetSandboxRequest(id=_checked(identity)))
            return await asyncio.to_thread(calls.whole, reply)

    async def processes(self, identity: str) -> list[Told]:
        """Return the background processes of a sandbox. That is a use of it: its idle time begins anew."""
        request = sandbox_pb2.ListProcessesRequest(sandbox_id=_checked(identity))
        async with self._asking() as calls:
            reply = await calls.ask(calls.sandboxes.ListProcesses, request)
            return await asyncio.to_thread(calls.processes, reply.processes[:MOST_ROWS])

    async def log(self, identity: str, process: str) -> Told:
        """Return the end of each output of a process, and how many bytes came before. A use, as `processes` is."""
        request = sandbox_pb2.ProcessLogsRequest(process_id=f"{_checked(identity)}/{process}")
        kept: dict[str, bytearray] = {"stdout": bytearray(), "stderr": bytearray()}
        ends, left = dict.fromkeys(kept, 0), MOST_READ
        async with self._asking() as calls:
            async for event in calls.stream(calls.sandboxes.ProcessLogs, request):
                name = event.WhichOneof("kind")
                if name not in kept:
                    break
                chunk = getattr(event, name)
                left -= len(chunk.data)
                if left < 0:
                    raise InfraError(
                        f"the server sent more than {MOST_READ} bytes as a log: a server keeps less. Do not trust it."
                    )
                kept[name] += chunk.data
                del kept[name][: -MOST_LOG - _LONGEST_SECRET]
                ends[name] = chunk.offset + len(chunk.data)

            told = {name: (bytes(data), ends[name] - len(data)) for name, data in kept.items()}
            return await asyncio.to_thread(lambda: {name: calls.end(*each) for name, each in told.items()})

    async def places(self) -> Told:
        """Return what the server and each tenant hold and how many wait, the pools, and the environments that run."""
        async with self._asking() as calls:
            quotas = calls.or_why(calls.admin.ListQuotas, admin_pb2.ListQuotasRequest(), calls.quotas)
            pools = calls.or_why(calls.admin.ListPools, admin_pb2.ListPoolsRequest(), calls.pools)
            load = calls.or_why(calls.admin.Capacity, admin_pb2.CapacityRequest(), calls.load)
            told = await asyncio.gather(quotas, pools, load)
        return dict(zip(("quotas", "pools", "load"), told, strict=True))

    async def images(self) -> Told:
        """Return the registered images, and the environments that the server offers."""
        async with self._asking() as calls:
            images = calls.or_why(calls.registry.List, registry_pb2.ListImagesRequest(), calls.images)
            envs = calls.or_why(calls.envs.ListEnvs, env_pb2.ListEnvsRequest(), calls.offered)
            told = await asyncio.gather(images, envs)
        return dict(zip(("images", "envs"), told, strict=True))

    @asynccontextmanager
    async def _asking(self) -> AsyncIterator[_Calls]:
        """Yield a connection of its own, for `ASK_S` seconds: files of tokens are read anew, and nothing is kept."""
        if self._questions.locked():
            raise ResourceExhausted(
                f"the console asks {MOST_QUESTIONS} questions of {self.place} already, which has not answered yet."
            )
        async with self._questions:
            channel: Any = None
            try:
                async with asyncio.timeout(ASK_S):
                    address, credentials = await asyncio.to_thread(_reached, self.place)
                    channel = credentials.channel(address, most_bytes=MOST_BYTES)
                    yield _Calls(channel, self.place, credentials)
            except RockError:
                raise
            except TimeoutError as error:
                raise DeadlineExceeded(
                    f"the ROCK server at {self.place} did not answer within {ASK_S:g} s. Is it overloaded?"
                ) from error
            except _UNREADABLE as error:
                raise _nonsense(self.place, error) from error
            finally:
                if channel is not None:
                    await channel.close()


def _reached(place: str) -> tuple[str, Credentials]:
    address, credentials = resolved(place)
    if is_rest(address):
        raise InvalidArgument(
            f"the console asks over gRPC: got {address}, a REST address. Give the address that the server printed first."
        )
    credentials.check(address)
    return address, credentials


def _nonsense(place: str, error: Exception) -> InfraError:
    return InfraError(
        f"the ROCK server at {place} sent what is no answer: {type(error).__name__}. Is it a ROCK server of this version?"
    )


def _checked(identity: str) -> str:
    if not _ID.fullmatch(identity):
        raise InvalidArgument(f"{identity[:40]!r} is no sandbox's id: expected sb- and 16 digits.")
    return identity


class _Calls:
    """One connection, and how what comes over it is told."""

    def __init__(self, channel: Any, place: str, credentials: Credentials) -> None:
        self.sandboxes = sandbox_pb2_grpc.SandboxServiceStub(channel)
        self.admin = admin_pb2_grpc.AdminServiceStub(channel)
        self.registry = registry_pb2_grpc.RegistryServiceStub(channel)
        self.envs = env_pb2_grpc.EnvServiceStub(channel)
        self._place = place
        self._metadata = credentials.metadata()
        token = credentials.token
        shown = (token, token.rpartition("_")[2])
        self._secrets = [each for each in shown if len(each) >= _SHORTEST_SECRET]

    async def ask(self, call: Callable[..., Awaitable[Any]], request: Any) -> Any:
        try:
            return await call(request, metadata=self._metadata)
        except grpc.aio.AioRpcError as failure:
            raise self._error(failure) from failure

    async def stream(self, call: Callable[..., Any], request: Any) -> AsyncIterator[Any]:
        try:
            async for event in call(request, metadata=self._metadata):
                yield event
        except grpc.aio.AioRpcError as failure:
            raise self._error(failure) from failure

    async def or_why(
        self, call: Callable[..., Awaitable[Any]], request: Any, tell: Callable[[Any], Any]
    ) -> Told:
        """Return what one part of an answer says, or why it says nothing: a token may be good for some of them."""
        try:
            return {"told": await asyncio.to_thread(tell, await self.ask(call, request)), "problem": ""}
        except RockError as error:
            return {"told": None, "problem": self.text(str(error), MOST_PROBLEM)}
        except _UNREADABLE as error:
            return {"told": None, "problem": str(_nonsense(self._place, error))}

    def _error(self, failure: grpc.aio.AioRpcError) -> RockError:
        error, _ = rock_error(failure, self._place)
        return type(error)(self.text(str(error), MOST_PROBLEM))

    def text(self, given: str, most: int = MOST_TEXT) -> str:
        """Return a text of the server as a page may show it, at most about `most` characters."""
        cut = given[: most + _LONGEST_SECRET]  # so that no secret is cut in two and left
        for secret in self._secrets:
            cut = cut.replace(secret, "***")
        return visible(without_secrets(cut)[:most])

    def end(self, data: bytes, before: int) -> Told:
        """Return the end of an output; what may be the end of a secret that began before it is left out."""
        left_out = _LONGEST_SECRET if before else 0
        text = self.text(data[left_out:].decode(errors="replace"), len(data))
        return {"text": text, "before": before + left_out}

    def plain(self, value: Any) -> Any:
        """Return a value of lists, maps, texts and numbers as JSON can hold it."""
        match value:
            case str():
                return self.text(value)
            case float():
                return finite(value)
            case Mapping():
                return {self.text(str(key)): self.plain(each) for key, each in sorted(value.items())[:50]}
            case list() | tuple():
                return [self.plain(each) for each in value[:MOST_ROWS]]
            case _:
                return value

    def rows(self, infos: Iterable[Any]) -> list[Told]:
        return [self._row(sandbox_info(info)) for info in list(infos)[:PAGE]]

    def _row(self, info: SandboxInfo) -> Told:
        deadlines = (info.expires_at, info.lease_expires_at, info.idle_expires_at)
        told = {name: self.plain(getattr(info, name)) for name in _IN_A_LIST}
        ends = min(at for at in deadlines if at is not None)
        return {**told, "state": str(info.state), "ends": finite(ends)}

    def whole(self, message: Any) -> Told:
        info = sandbox_info(message)
        names = ("spec_digest", "snapshot_id", "expires_at", "lease_expires_at", "idle_expires_at")
        told = {name: self.plain(getattr(info, name)) for name in names}
        history = [
            [str(change.state), self.text(change.reason), finite(change.at)] for change in info.history[-200:]
        ]
        resources = self.plain(asdict(info.resources)) if info.resources else None
        return {**self._row(info), **told, "history": history, "resources": resources}

    def processes(self, messages: Iterable[Any]) -> list[Told]:
        return [
            {
                "name": self.text(process.id.partition("/")[2]),
                "command": self.text(" ".join(process.argv[:100])),
                "pid": process.pid,
                "for_s": finite(process.running_for_s),
                "state": self.text(ending(process.end)),
            }
            for process in map(process_info, messages)
        ]

    def quotas(self, reply: admin_pb2.ListQuotasResponse) -> list[Told]:
        whole = TenantPlaces("", limits(reply.capacity), limits(reply.used), reply.waiting)
        tenants = [tenant_places(each) for each in reply.tenants[:MOST_ROWS]]
        return [{"server": each is whole, **self.plain(asdict(each))} for each in (whole, *tenants)]

    def pools(self, reply: admin_pb2.ListPoolsResponse) -> list[Told]:
        names = [name for name in PoolStatus.__slots__ if name not in ("spec", "retry_in_s")]
        known = map(pool_status, reply.pools[:MOST_ROWS])
        return [
            {**{name: self.plain(getattr(pool, name)) for name in names}, "image": self.text(pool.spec.image)}
            for pool in known
        ]

    def load(self, reply: admin_pb2.CapacityResponse) -> Told:
        return {
            name: getattr(reply, name)
            for name in ("envs_in_workers", "envs_in_sandboxes", "workers", "max_workers")
        }

    def images(self, reply: registry_pb2.ListImagesResponse) -> list[Told]:
        return [self.plain(asdict(read(image, Image))) for image in reply.images[:MOST_ROWS]]

    def offered(self, reply: env_pb2.ListEnvsResponse) -> list[Told]:
        names = ("name", "version", "summary", "sandboxed")
        return [{name: self.plain(getattr(env, name)) for name in names} for env in reply.envs[:MOST_ROWS]]
