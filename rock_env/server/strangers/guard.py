"""The server's side of the process at its TCP port: starts it, and says who is no stranger.

Used by `server/app` for a server with tokens, whose gRPC then listens on a socket of its own only. The process asks about
the first call of each connection. Whoever shows a token of this server, whatever it is for, is let through to gRPC, which
decides about each call once more.
"""

from __future__ import annotations

import asyncio
import json
import logging
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import grpc

from rock_env.errors import PermissionDenied, RockError, Unimplemented
from rock_env.server.calls import shortened, trailers
from rock_env.server.interceptors.access import OPEN, AccessControl
from rock_env.server.options import ServerOptions
from rock_env.telemetry.shown import output_of_children
from rock_env.wire.channel import target
from rock_env.wire.listening import listen

__all__ = ["front"]

log = logging.getLogger(__name__)

_MODULE = "rock_env.server.strangers.front"
_AGAIN_S = 1.0
_ENDING_S = 5.0


class _Answers:
    """Answers the questions of one process, one after the other."""

    def __init__(self, door: AccessControl, serving: Callable[[], bytes]) -> None:
        self._door = door
        self._serving = serving

    async def run(self, control: socket.socket) -> None:
        """Answer until the process has ended."""
        reader, writer = await asyncio.open_connection(sock=control, limit=1 << 20)
        try:
            while line := await reader.readline():
                question = json.loads(line)
                writer.write(
                    json.dumps({"n": question["n"], **await self._answer(question)}).encode() + b"\n"
                )
        except ConnectionError:
            return
        finally:
            writer.close()

    async def _answer(self, question: Any) -> dict[str, Any]:
        method = question["method"]
        metadata = [("authorization", value) for value in question["authorization"]]
        try:
            if method == f"/{OPEN}/Check":
                return {"message": self._serving().hex(), "trailers": [["grpc-status", "0"]]}
            if method.startswith(f"/{OPEN}/") and not metadata:
                raise Unimplemented(
                    "without a token the health service answers Check only. Send one, or call Check."
                )
            # What health tells is open to everybody, and a connection to gRPC is not.
            await self._door.admit("/-/-" if method.startswith(f"/{OPEN}/") else method, metadata)
        except PermissionDenied:
            pass  # a token of this server, for other calls: gRPC says so
        except RockError as error:
            log.info(
                "call refused method=%s peer=%s code=%s cause=%s",
                method,
                question["peer"],
                error.code,
                error,
            )
            return {"trailers": _trailers(error)}
        return {"admitted": True}


def _trailers(error: RockError) -> list[tuple[str, str]]:
    status: int = grpc.StatusCode[error.grpc].value[0]
    return [("grpc-status", str(status)), ("grpc-message", shortened(error.message)), *trailers(error)]


@asynccontextmanager
async def front(
    options: ServerOptions, inner: str, door: AccessControl, serving: Callable[[], bytes]
) -> AsyncIterator[str]:
    """Let callers with a token through to the server at `inner`, for the time of the block; yield the address.

    `serving` is what the health service answers. Raise `Unavailable` where it cannot listen.
    """
    listener = listen(options.listen)
    told = {
        "listener": listener.fileno(),
        "inner": inner.removeprefix("unix:"),
        "cert": options.cert,
        "key": options.key,
        "client_ca": options.client_ca,
    }
    running = asyncio.ensure_future(_kept_up(told, _Answers(door, serving)))
    try:
        host = target(options.listen).rpartition(":")[0]
        yield f"{'grpcs' if options.tls else 'grpc'}://{host}:{listener.getsockname()[1]}"
    finally:
        running.cancel()
        await asyncio.wait({running})
        listener.close()


async def _kept_up(told: dict[str, Any], answers: _Answers) -> None:
    """Have the process run, for ever."""
    while True:
        ours, theirs = socket.socketpair()
        with theirs:
            told["control"] = theirs.fileno()
            process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-P", "-m", _MODULE, json.dumps(told)),
                pass_fds=(told["listener"], told["control"]),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=output_of_children(),
            )
        try:
            (bug,) = await asyncio.gather(answers.run(ours), return_exceptions=True)
        finally:
            ours.close()
            await _ended(process)
        log.error(
            "the process at the port ended with %s and is started again", process.returncode, exc_info=bug
        )
        await asyncio.sleep(_AGAIN_S)


async def _ended(process: asyncio.subprocess.Process) -> None:
    """Wait until the process has let its pipes run dry."""
    try:
        async with asyncio.timeout(_ENDING_S):
            await process.wait()
    except TimeoutError:
        process.kill()
        await process.wait()
