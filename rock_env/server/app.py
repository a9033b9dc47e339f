"""The ROCK server process: `ale rock serve` or `python -m rock_env.server`.

Started by hand, by a service manager or by the embedded mode (`rock_env.local`). It prints its address on one
line when it is ready. SIGTERM and SIGINT make it refuse new calls and let running ones finish; a second one ends them
at once. With `--exit-with-parent` it also stops when its stdin closes, so it never outlives an owner that was killed.
"""

from __future__ import annotations

import asyncio
import logging
import os
import shutil
import signal
import sys
from collections.abc import Sequence
from pathlib import Path

import grpc
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection

from rock_env.auth import current_tenant
from rock_env.backends.base import Backend
from rock_env.backends.inprocess import EnvHostPool
from rock_env.backends.process import ProcessBackend
from rock_env.catalog import Catalog
from rock_env.channel import SERVER_OPTIONS, target
from rock_env.errors import RockError, Unavailable
from rock_env.server import admin, sandbox_service
from rock_env.server import grpc as env_service
from rock_env.server.access import AccessInterceptor
from rock_env.server.core import CoreOptions, EnvServiceCore
from rock_env.server.options import ServerOptions, parse
from rock_env.server.sandbox_core import SandboxCore
from rock_env.store.sqlite import SqliteStore
from rock_env.tls import server_credentials
from rock_env.token_file import TokenFile

__all__ = ["main", "serve"]

log = logging.getLogger(__name__)

_SERVICES = (env_service.SERVICE, sandbox_service.SERVICE, admin.SERVICE)
_OWNER_ONLY = 0o177
"""The umask under which a unix socket is made: who may connect may run code here."""


async def serve(options: ServerOptions, backend: Backend) -> None:
    """Serve until told to stop. Raise `InvalidArgument` for a bad option and `Unavailable` if it cannot listen."""
    options.check()
    interceptors = [AccessInterceptor(TokenFile(Path(options.tokens)))] if options.tokens else []
    credentials = server_credentials(options.cert, options.key, options.client_ca) if options.tls else None
    core = EnvServiceCore(
        catalog=Catalog(options.env),
        pool=EnvHostPool(workers=options.workers, references=options.env, hang_grace_s=options.hang_grace_s),
        backend=backend,
        options=CoreOptions(
            idle_timeout_s=options.idle_timeout_s,
            step_timeout_s=options.step_timeout_s,
            sandbox_timeout_s=options.sandbox_timeout_s,
        ),
    )
    stop = _Stop()
    stop.on_signals()
    if options.exit_with_parent:
        stop.on_stdin_close()
    async with (
        core,
        await SqliteStore.open(Path(options.store) if options.store else None) as store,
        SandboxCore(backend, store, tenant=current_tenant) as sandboxes,
    ):
        server = grpc.aio.server(interceptors=interceptors, options=SERVER_OPTIONS)
        env_service.add_env_service(server, core)
        sandbox_service.add_sandbox_service(server, sandboxes)
        admin.add_admin_service(server, core)
        status = await _add_health_and_reflection(server)
        address = _bind(server, target(options.listen), credentials)
        await server.start()
        sys.stdout.write(f"{address}\n")
        sys.stdout.flush()
        await stop.asked.wait()
        await status.enter_graceful_shutdown()
        sandboxes.stop()
        await _drain(server, stop, options.drain_s)


async def _drain(server: grpc.aio.Server, stop: _Stop, drain_s: float) -> None:
    """Refuse new calls, and let running ones finish within `drain_s` or until somebody is in a hurry."""
    draining = asyncio.ensure_future(server.stop(drain_s))
    hurried = asyncio.ensure_future(stop.hurried.wait())
    await asyncio.wait((draining, hurried), return_when=asyncio.FIRST_COMPLETED)
    hurried.cancel()
    await server.stop(None)  # ends what still runs; nothing does where the drain was complete
    await draining


async def _add_health_and_reflection(server: grpc.aio.Server) -> health.aio.HealthServicer:
    status = health.aio.HealthServicer()
    health_pb2_grpc.add_HealthServicer_to_server(status, server)
    for name in ("", *_SERVICES):
        await status.set(name, health_pb2.HealthCheckResponse.SERVING)
    reflection.enable_server_reflection((*_SERVICES, health.SERVICE_NAME, reflection.SERVICE_NAME), server)
    return status


def _bind(server: grpc.aio.Server, listen: str, credentials: grpc.ServerCredentials | None) -> str:
    """Listen and return the address in the form clients are given."""
    former = os.umask(_OWNER_ONLY)
    try:
        secured = credentials is not None
        port = server.add_secure_port(listen, credentials) if secured else server.add_insecure_port(listen)
    except RuntimeError as error:
        raise Unavailable(
            f"cannot listen on {listen}. Is another server using it, is the address another machine's, or is the "
            "folder missing?"
        ) from error
    finally:
        os.umask(former)
    if listen.startswith("unix:"):
        return f"unix://{Path(listen.removeprefix('unix:')).absolute()}"
    return f"{'grpcs' if secured else 'grpc'}://{listen.rpartition(':')[0]}:{port}"


class _Stop:
    """Whether the server was asked to stop, and whether it was asked again."""

    def __init__(self) -> None:
        self.asked = asyncio.Event()
        self.hurried = asyncio.Event()

    def ask(self) -> None:
        (self.hurried if self.asked.is_set() else self.asked).set()

    def on_signals(self) -> None:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self.ask)

    def on_stdin_close(self) -> None:
        loop = asyncio.get_running_loop()

        def readable() -> None:
            if not os.read(0, 4096):
                loop.remove_reader(0)
                self.asked.set()

        loop.add_reader(0, readable)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the server; return the process's exit code."""
    options, level = parse(argv)
    logging.basicConfig(level=level, format="%(asctime)s %(levelname)s %(name)s %(message)s")
    try:
        asyncio.run(serve(options, ProcessBackend(isolation=options.sandbox_isolation)))
    except RockError as error:
        sys.stderr.write(f"rock server: {error}\n")
        return error.exit_code
    finally:
        if options.remove_folder:
            shutil.rmtree(Path(options.listen.removeprefix("unix://")).parent, ignore_errors=True)
    return 0
