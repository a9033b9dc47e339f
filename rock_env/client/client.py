"""The connection to a ROCK server: makes environments and carries their calls.

Opened by the trainer's rollout workers, the command line and user code, once per event loop. Calls made by many
coroutines in one tick travel as one batch; nothing needs to ask for that.
"""

from __future__ import annotations

import asyncio
import itertools
import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self

import grpc

from rock_env.client.coalesce import Call, Coalescer, Verb, outcome
from rock_env.client.credentials import Credentials
from rock_env.client.env import AsyncEnv
from rock_env.client.installations import resolved
from rock_env.client.sandbox.calls import SandboxCalls
from rock_env.client.sandbox.sandboxes import Sandboxes
from rock_env.env import StepResult
from rock_env.errors import RockError
from rock_env.proto.v1 import env_pb2 as pb
from rock_env.proto.v1 import env_pb2_grpc
from rock_env.wire.envs import step_result
from rock_env.wire.fields import read

__all__ = ["Client", "EnvDescription"]


@dataclass(frozen=True, slots=True)
class EnvDescription:
    """One environment a server offers."""

    name: str
    version: str
    summary: str
    params_schema_json: str
    """JSON Schema of its arguments."""
    replayable: bool
    snapshots: bool
    sandboxed: bool


class Client:
    """A connection to `address`: `unix:///path`, `host:port`, `grpc://host:port`, `grpcs://host:port` with TLS, or the name
    of a context (`ale rock context add`).

    `credentials` None takes what the environment holds (`ROCK_TOKEN`, `ROCK_CA`, `ROCK_CERT`, `ROCK_KEY`).
    `retry_for_s` bounds how long a lost connection is retried, always with the same idempotency keys. An attempt to connect
    takes at most 20 s, where nothing comes back from the address; a connection that stood is lost 10 s after the network.
    """

    def __init__(
        self, address: str, *, credentials: Credentials | None = None, retry_for_s: float = 10.0
    ) -> None:
        self.address = address
        # A bad one is refused here, not when it is entered.
        self._reached_at, self._credentials = resolved(address, credentials)
        self._retry_for_s = retry_for_s
        self._channel: grpc.aio.Channel | None = None
        self._coalescer: Coalescer | None = None
        self._sandboxes: Sandboxes | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._key_prefix = secrets.token_hex(6)  # with the counter: unique, at a tenth of a uuid4's cost
        self._keys = itertools.count(1)

    async def __aenter__(self) -> Self:
        self._loop = asyncio.get_running_loop()
        self._channel = self._credentials.channel(self._reached_at)
        self._coalescer = Coalescer(
            env_pb2_grpc.EnvServiceStub(self._channel),
            address=self.address,
            metadata=self._credentials.metadata(),
            retry_for_s=self._retry_for_s,
        )
        self._sandboxes = Sandboxes(
            SandboxCalls(
                self._channel,
                address=self.address,
                metadata=self._credentials.metadata(),
                retry_for_s=self._retry_for_s,
                key=self.key,
            )
        )
        return self

    async def __aexit__(self, *exc: object) -> None:
        self.sandboxes.close()
        await self.coalescer.close()
        if self._channel is not None:
            await self._channel.close()

    @property
    def sandboxes(self) -> Sandboxes:
        """Return the server's sandboxes. The client must have been entered."""
        if self._sandboxes is None:
            raise RuntimeError("the client is not open: use `async with Client(address) as client`.")
        return self._sandboxes

    async def make(self, env: str, params_json: str = "{}") -> AsyncEnv:
        """Make an environment. Raise `UnknownName` for an unknown environment or argument."""
        request = pb.MakeRequest(env=env, params_json=params_json, idempotency_key=self.key())
        call = Call("", request, self.future())
        self.coalescer.submit(Verb.MAKE, call, 0.0)
        try:
            reply = outcome(await asyncio.shield(call.future))
        except asyncio.CancelledError:  # the server makes it all the same: free it when its id is known
            call.future.add_done_callback(self._discard)
            raise
        return AsyncEnv(self, env_id=reply.env_id, name=env, version=reply.version, params_json=params_json)

    def _discard(self, made: asyncio.Future[Any]) -> None:
        if not made.cancelled() and not isinstance(made.result(), RockError):
            env_id = made.result().env_id
            self.coalescer.submit(
                Verb.CLOSE, Call(env_id, pb.CloseRequest(env_id=env_id), self.future()), 0.0
            )

    async def step_many(
        self, steps: Sequence[tuple[AsyncEnv, str]], *, timeout_s: float | None = None
    ) -> list[StepResult | RockError]:
        """Step many environments in one RPC; results in order, failures as values. `timeout_s` is per item."""
        calls = [env.begin_step(action) for env, action in steps]
        await self.coalescer.send(Verb.STEP, calls, timeout_s or 0.0)
        replies = [call.future.result() for call in calls]
        return [reply if isinstance(reply, RockError) else step_result(reply) for reply in replies]

    async def list_envs(self) -> list[EnvDescription]:
        """Return what the server offers."""
        reply = await self.ask("ListEnvs", pb.ListEnvsRequest())
        return [read(env, EnvDescription) for env in reply.envs]

    async def splits(self, env: str, params_json: str = "{}") -> dict[str, int]:
        """Return the task splits of an environment and how many tasks each has."""
        reply = await self.ask("ListSplits", pb.ListSplitsRequest(env=env, params_json=params_json))
        return {split.name: split.count for split in reply.splits}

    # -- for AsyncEnv

    @property
    def coalescer(self) -> Coalescer:
        """Return what sends calls. The client must have been entered."""
        if self._coalescer is None:
            raise RuntimeError("the client is not open: use `async with Client(address) as client`.")
        return self._coalescer

    async def ask(self, rpc: str, request: Any) -> Any:
        """Send one request that is not coalesced and return its reply, or raise its error."""
        call = Call("", request, self.future())
        await self.coalescer.unary(rpc, call)
        return outcome(call.future.result())

    def key(self) -> str:
        """Return a fresh idempotency key."""
        return f"{self._key_prefix}-{next(self._keys):x}"

    def future(self) -> asyncio.Future[Any]:
        """Return a future on the client's loop."""
        if self._loop is None:
            raise RuntimeError("the client is not open: use `async with Client(address) as client`.")
        return self._loop.create_future()
