"""A worker of one tenant that runs the rules of its environments with a sandbox: resets, steps and grades.

The sandboxes are the service's. Started by `rules_pool`, as `python -m`, with a socket; answers until that closes.
"""

from __future__ import annotations

import asyncio
import logging
import pickle
import resource
import socket
from itertools import count
from typing import Any, NamedTuple, cast

import msgspec

from rock_env.env import Attaching, Attachment, FreshGraded, KeepsRunning, RestorableSandboxEnv, SandboxEnv
from rock_env.env_workers.catalog import Catalog
from rock_env.env_workers.host import ById, inherited
from rock_env.env_workers.rules_box import Answer, Asker, RemoteFreshBoxes, remote_box
from rock_env.env_workers.rules_wire import Done, Wish, failed, framed, read_frame
from rock_env.errors import ResourceExhausted, RockError, Unavailable, as_rock_error, from_code
from rock_env.sandbox import Sandbox
from rock_env.spec import EnvParams, TaskSpec

__all__ = ["RulesHost", "main"]

log = logging.getLogger(__name__)
_encode = msgspec.msgpack.Encoder().encode
_BYTES = bytes | bytearray | memoryview


class _Hosted(NamedTuple):
    name: str
    params: EnvParams
    env: SandboxEnv


class RulesHost:
    """The environments of one worker and the calls that run."""

    def __init__(self, writer: asyncio.StreamWriter, catalog: Catalog) -> None:
        self._writer, self._catalog = writer, catalog
        self._envs: ById[_Hosted] = ById()
        self._calls: dict[int, asyncio.Task[None]] = {}
        self._asked: dict[int, asyncio.Future[Answer]] = {}
        self._asks = count(1)

    async def serve(self, reader: asyncio.StreamReader) -> None:
        """Answer messages until the service closes the socket."""
        while True:
            try:
                call, op, arguments = pickle.loads(await read_frame(reader))
            except asyncio.IncompleteReadError:
                return
            if op == "answer":
                self._take(*arguments)
            elif op == "cancel":
                if task := self._calls.get(call):
                    task.cancel()
            else:
                self._calls[call] = asyncio.create_task(self._run(call, op, arguments))

    def _take(self, ask: int, value: Any, error: tuple[Any, ...] | None, failure: str) -> None:
        future = self._asked.pop(ask, None)
        if future is None or future.done():
            return
        if error is None:
            future.set_result(Answer(value, failure))
        else:
            code, message, retry_after_s, own_limit = error
            told = from_code(code, message, retry_after_s=retry_after_s)
            told.own_limit = own_limit
            future.set_exception(told)

    async def _run(self, call: int, op: str, arguments: tuple[Any, ...]) -> None:
        """Run one call; this is the boundary where a plugin's failure becomes the call's error."""
        try:
            reply: Any = Done(call, _raw(await getattr(self, f"_{op}")(self._asker(call), *arguments)))
            body = framed(_encode(reply))
        except asyncio.CancelledError:
            body = framed(_encode(failed(call, Unavailable("the call was given up"))))
        except Exception as error:
            if not isinstance(error, RockError):
                log.exception("plugin failed call=%s", op)
            body = framed(_encode(failed(call, _known(error, op))))
        finally:
            del self._calls[call]
        self._writer.write(body)

    def _asker(self, call: int) -> Asker:
        async def ask(of: int, method: str, *arguments: Any, **named: Any) -> Answer:
            number = next(self._asks)
            future: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
            self._asked[number] = future
            try:
                words, content, name = _apart(arguments, named)
                wish = Wish(call, number, of, method, _raw((words, named)), content, name)
                self._writer.write(framed(_encode(wish)))
                return await future
            finally:
                self._asked.pop(number, None)

        return ask

    async def _make(self, _: Asker, env_id: str, name: str, params_json: str) -> list[Any]:
        params = self._catalog.params(name, params_json)
        env = cast("SandboxEnv", self._catalog.spec(name).factory(params))
        self._envs[env_id] = _Hosted(name, params, env)
        kinds = (FreshGraded, RestorableSandboxEnv, Attaching)
        return [params.canonical(), *(isinstance(env, kind) for kind in kinds)]

    async def _drop(self, _: Asker, env_id: str) -> None:
        self._envs.pop(env_id, None)

    def _named(self, hosted: _Hosted, task_id: str) -> TaskSpec:
        return self._catalog.task(hosted.name, hosted.params, task_id)

    async def _task(self, _: Asker, env_id: str, task_id: str) -> TaskSpec:
        return self._named(self._envs[env_id], task_id)

    async def _reset(self, ask: Asker, env_id: str, box_id: str, task_id: str, seed: int) -> list[Any]:
        hosted = self._envs[env_id]
        observation, info = await hosted.env.reset(_own(ask, box_id), self._named(hosted, task_id), seed)
        return [observation, dict(info)]

    async def _step(self, ask: Asker, env_id: str, box_id: str, action: str) -> Any:
        return await self._envs[env_id].env.step(_own(ask, box_id), action)

    async def _evaluate(self, ask: Asker, env_id: str, box_id: str) -> Any:
        return await self._envs[env_id].env.evaluate(_own(ask, box_id))

    async def _grade(self, ask: Asker, env_id: str, box_id: str) -> Any:
        env = cast("FreshGraded", self._envs[env_id].env)
        return await env.grade(_own(ask, box_id), RemoteFreshBoxes(ask))

    async def _keeps_running(self, _: Asker, env_id: str) -> bool:
        env = self._envs[env_id].env
        return isinstance(env, KeepsRunning) and env.keeps_running()

    async def _attachments(self, _: Asker, env_id: str) -> list[Attachment]:
        return list(cast("Attaching", self._envs[env_id].env).attachments())

    async def _snapshot(self, _: Asker, env_id: str) -> bytes:
        return cast("RestorableSandboxEnv", self._envs[env_id].env).snapshot()

    async def _restore(self, _: Asker, env_id: str, state: bytes) -> None:
        cast("RestorableSandboxEnv", self._envs[env_id].env).restore(state)


def _apart(arguments: tuple[Any, ...], named: dict[str, Any]) -> tuple[tuple[Any, ...], bytes | None, str]:
    """Return the arguments without the one that is bytes, that one, and its name; it is taken out of the named ones."""
    for name, value in named.items():
        if isinstance(value, _BYTES):
            return arguments, bytes(named.pop(name)), name
    if arguments and isinstance(arguments[-1], _BYTES):
        return arguments[:-1], bytes(arguments[-1]), ""
    return arguments, None, ""


def _raw(value: Any) -> msgspec.Raw:
    return msgspec.Raw(_encode(value))


def _own(ask: Asker, box_id: str) -> Sandbox:
    return remote_box(ask, 0, box_id)


def _known(error: Exception, op: str) -> RockError:
    if isinstance(error, MemoryError):
        limit = resource.getrlimit(resource.RLIMIT_DATA)[0]
        return ResourceExhausted(
            f"the environment's code needed more memory than a worker of this server may use ({limit} bytes). Use smaller "
            "arguments."
        )
    return as_rock_error(error, doing=f"{op} of the environment")


async def _serve(connection: socket.socket, catalog: Catalog) -> None:
    with connection:
        reader, writer = await asyncio.open_connection(sock=connection.dup())
        await RulesHost(writer, catalog).serve(reader)


def main() -> None:
    """Serve the inherited socket."""
    asyncio.run(_serve(*inherited()))


if __name__ == "__main__":
    main()
