"""The synchronous face: GEM's `reset / step / spawn / close` over the async client, and nothing of its own.

One background thread per process runs the event loop; where no address is given, one embedded server per process is
started. It never touches a global random generator.
"""

from __future__ import annotations

import asyncio
import atexit
import os
import threading
from collections.abc import Coroutine
from dataclasses import replace
from functools import cache
from pathlib import Path
from random import Random
from types import TracebackType
from typing import Any, Self, TypeVar

import msgspec

from rock_env.client.client import Client
from rock_env.client.credentials import Credentials
from rock_env.client.env import AsyncEnv
from rock_env.client.installations import resolved
from rock_env.client.sandbox.sync import Closed, face
from rock_env.env import Scalar, observation_hash
from rock_env.errors import InvalidArgument, NotFound, Unimplemented
from rock_env.local import EmbeddedServer, start_embedded

__all__ = ["Connection", "SyncEnv", "connect", "make"]

T = TypeVar("T")
Params = dict[str, Any]


class _Background:
    """An event loop in a daemon thread."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self.loop.run_forever, name="rock-client", daemon=True)
        self._thread.start()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        if self.loop.is_closed():
            work.close()
            raise Closed("this connection was closed: make what you call on an open one.")
        return asyncio.run_coroutine_threadsafe(work, self.loop).result()

    def close(self) -> None:
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join()
        self.loop.close()


class Connection:
    """A synchronous connection to one server. Close it, or use it as a context manager; `server` ends with it."""

    def __init__(
        self,
        address: str,
        *,
        credentials: Credentials | None = None,
        retry_for_s: float = 10.0,
        server: EmbeddedServer | None = None,
    ) -> None:
        self.address = address
        self._server = server
        self._client = Client(address, credentials=credentials, retry_for_s=retry_for_s)
        self._background = _Background()
        self._closed = False
        try:
            self.run(self._client.__aenter__())
        except InvalidArgument:
            self._background.close()
            raise

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine of the client's to its end."""
        return self._background.run(work)

    def make(self, env: str, **params: Any) -> SyncEnv:
        """Make an environment from its own arguments. Raise `UnknownName` for an unknown name."""
        made = self.run(self._client.make(env, msgspec.json.encode(params).decode()))
        return SyncEnv(self, made, params)

    @property
    def sandboxes(self) -> Any:
        """Return the server's sandboxes: `Sandboxes` of `rock_env.client`, each call waited for."""
        return face(self._client.sandboxes, self.run)

    def splits(self, env: str, params_json: str) -> dict[str, int]:
        """Return the task splits of an environment and their sizes."""
        return self.run(self._client.splits(env, params_json))

    def close(self) -> None:
        """Drop the connection; its environments end with their lease. Safe to call twice."""
        if not self._closed:
            self._closed = True
            self.run(self._client.__aexit__())
            self._background.close()
            if self._server is not None:
                self._server.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def connect(
    address: str = "",
    *,
    token: str | None = None,
    ca: str | Path | None = None,
    cert: str | Path | None = None,
    key: str | Path | None = None,
    trust_libraries: bool = False,
) -> Connection:
    """Connect to a running server: `unix:///path`, `host:port`, `grpc://host:port`, or `grpcs://host:port` with TLS, or the
    name of a context.

    Without an address a server is started for this connection alone, and ends with it; it fences hosted libraries (`gem:`,
    `gym:`) in, unless they are trusted to do what you may. `token` is an API token; `ca`,
    `cert` and `key` are PEM files: the CA to trust instead of the public ones, and the client's own certificate. What
    is None comes from the context, else from `ROCK_TOKEN`, `ROCK_CA`, `ROCK_CERT` and `ROCK_KEY`.
    """
    if not address:
        server = start_embedded(["--trust-libraries"] if trust_libraries else [])
        return Connection(server.address, credentials=Credentials(), server=server)
    given = {"token": token, "ca": ca, "cert": cert, "key": key}
    chosen = {name: str(value) for name, value in given.items() if value is not None}
    reached_at, known = resolved(address)
    return Connection(reached_at, credentials=replace(known, **chosen))


@cache
def _embedded(pid: int) -> Connection:
    """Start this process's embedded server; keyed by pid, so a forked child starts its own."""
    server = start_embedded()
    connection = Connection(server.address, credentials=Credentials())  # it asks for none

    def close() -> None:
        if os.getpid() == pid:
            connection.close()
            server.close()

    atexit.register(close)
    return connection


def make(env: str, **params: Any) -> SyncEnv:
    """Make an environment on this process's embedded server, which the first call starts."""
    return _embedded(os.getpid()).make(env, **params)


class SyncEnv:
    """One environment with the semantics of `gem.Env`."""

    def __init__(self, connection: Connection, env: AsyncEnv, params: Params) -> None:
        self._connection = connection
        self._env = env
        self._params = params
        self._random = Random()
        self._splits: dict[str, int] = {}
        self._start: tuple[str, int] | None = None
        self._turns: list[tuple[str, bytes]] = []

    def __repr__(self) -> str:
        return f"SyncEnv({self._env.name}@{self._env.version}, {self._env.env_id})"

    def reset(self, seed: int | None = None, *, task: str | None = None) -> tuple[str, dict[str, Scalar]]:
        """Start an episode and return (observation, info); info holds `task` and `instruction` too.

        The task is drawn from the train split, or is `task` (`split/index`). `seed` fixes the draw and all randomness
        of the episode, and seeds the draws of later resets without one.
        """
        if seed is not None:
            self._random = Random(seed)
        drawn = self._random.getrandbits(63)
        episode_seed = drawn if seed is None else seed
        task_id = task if task is not None else f"train/{Random(drawn).randrange(self._count('train'))}"
        observation, info, instruction = self._connection.run(self._env.reset(task_id, episode_seed))
        self._start, self._turns = (task_id, episode_seed), []
        return observation, {**info, "task": task_id, "instruction": instruction}

    def _count(self, split: str) -> int:
        if not self._splits:
            self._splits = self._connection.splits(self._env.name, self._env.params_json)
        count = self._splits.get(split, 0)
        if not count:
            raise NotFound(
                f"environment {self._env.name} has no {split!r} tasks, only {self._splits}. Pass `task=`."
            )
        return count

    def step(self, action: str) -> tuple[str, float, bool, bool, dict[str, Scalar]]:
        """Apply one action and return (observation, reward, terminated, truncated, info)."""
        result = self._connection.run(self._env.step(action))
        self._turns.append((action, observation_hash(result.observation)))
        return result.observation, result.reward, result.terminated, result.truncated, dict(result.info)

    def evaluate(self) -> tuple[float, bool]:
        """Grade the current state and return (reward, passed)."""
        verdict = self._connection.run(self._env.evaluate())
        return verdict.reward, verdict.passed

    @property
    def sandbox(self) -> Any:
        """Return the sandbox it acts in since `reset`: `AsyncSandbox` of `rock_env.client`, each call waited for.

        Raise `FailedPrecondition` where there is none.
        """
        return face(self._connection.run(self._env.sandbox()), self._connection.run)

    def spawn(self, same_state: bool = False, **params: Any) -> SyncEnv:
        """Make another environment with the same arguments, some replaced; or with the same state."""
        if not same_state:
            return self._connection.make(self._env.name, **{**self._params, **params})
        if params:
            raise InvalidArgument(f"the same state needs the same arguments: got {params!r}, expected none.")
        if self._start is None:
            return self.spawn()
        twin = SyncEnv(self._connection, self._connection.run(self._branch()), self._params)
        twin._start, twin._turns = self._start, list(self._turns)
        return twin

    async def _branch(self) -> AsyncEnv:
        """Clone the state, or rebuild it from the recorded actions where the environment cannot be cloned."""
        try:
            return (await self._env.fork(1))[0]
        except Unimplemented:
            twin = await self._env.again()
        assert self._start is not None  # the caller checked
        task_id, seed = self._start
        await twin.reset(task_id, seed, self._turns)
        return twin

    def sample_random_action(self) -> str:
        """Refuse: actions are free text, and only the environment's instruction says which are legal."""
        raise Unimplemented(
            f"environment {self._env.name} has free-text actions: there is none to draw from."
        )

    def close(self) -> None:
        """Free the environment. Safe to call twice."""
        self._connection.run(self._env.close())
