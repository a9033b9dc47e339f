"""The ROCK server process: `python -m rock_env.server --listen ADDRESS`.

Started by hand, by a service manager or by the embedded mode (`rock_env.local`). It prints its address on one
line when it is ready, stops gracefully on SIGTERM and SIGINT, and with `--exit-with-parent` also when its stdin
closes, so it never outlives an owner that was killed.
"""

from __future__ import annotations

import argparse
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

from rock_env.backends.base import Backend
from rock_env.backends.inprocess import EnvHostPool
from rock_env.backends.process import ProcessBackend
from rock_env.catalog import Catalog
from rock_env.channel import SERVER_OPTIONS, target
from rock_env.errors import RockError, Unavailable
from rock_env.server.core import CoreOptions, EnvServiceCore
from rock_env.server.grpc import SERVICE, add_env_service
from rock_env.server.sandbox_core import SandboxCore
from rock_env.server.sandbox_service import add_sandbox_service
from rock_env.store.sqlite import SqliteStore

__all__ = ["main", "run"]

log = logging.getLogger(__name__)

_STOP_GRACE_S = 2.0
"""How long running calls may take to finish when the server stops."""
_LOOPBACK = ("127.0.0.1:", "localhost:", "[::1]:", "unix:")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m rock_env.server", description="Serve environments over gRPC."
    )
    parser.add_argument("--listen", default="127.0.0.1:8120", help="unix:///path or host:port (port 0: any)")
    parser.add_argument("--workers", type=int, default=0, help="env-host processes; 0 means one per CPU")
    parser.add_argument(
        "--idle-timeout-s", type=float, default=1800.0, help="close what nobody used for so long"
    )
    parser.add_argument(
        "--step-timeout-s", type=float, default=60.0, help="longest call on an env in a worker"
    )
    parser.add_argument(
        "--sandbox-timeout-s", type=float, default=600.0, help="longest call on an env in a sandbox"
    )
    parser.add_argument("--hang-grace-s", type=float, default=5.0, help="then a worker that hangs is killed")
    parser.add_argument(
        "--env",
        action="append",
        default=[],
        metavar="MODULE:OBJECT",
        help="also offer this EnvSpec (or FILE.py:OBJECT)",
    )
    parser.add_argument(
        "--isolation",
        default="auto",
        choices=["auto", "bubblewrap", "none"],
        help="of process sandboxes; auto uses bubblewrap where it works",
    )
    parser.add_argument(
        "--store",
        type=Path,
        metavar="FILE",
        help="SQLite file for the records of sandboxes, made if absent; without it they are kept in memory",
    )
    parser.add_argument("--exit-with-parent", action="store_true", help="stop when stdin closes")
    parser.add_argument(
        "--remove-folder",
        action="store_true",
        help="at the end, remove the folder of the unix socket (embedded mode)",
    )
    parser.add_argument("--log-level", default="WARNING", choices=["DEBUG", "INFO", "WARNING", "ERROR"])
    return parser


async def run(arguments: argparse.Namespace, backend: Backend) -> None:
    """Serve until told to stop. Raise `InvalidArgument` for a bad option and `Unavailable` if it cannot listen."""
    listen = target(arguments.listen)
    if not listen.startswith(_LOOPBACK):
        log.warning(
            "listening on %s without authentication: everyone who reaches it can run code here", listen
        )
    core = EnvServiceCore(
        catalog=Catalog(arguments.env),
        pool=EnvHostPool(
            workers=arguments.workers, references=arguments.env, hang_grace_s=arguments.hang_grace_s
        ),
        backend=backend,
        options=CoreOptions(
            idle_timeout_s=arguments.idle_timeout_s,
            step_timeout_s=arguments.step_timeout_s,
            sandbox_timeout_s=arguments.sandbox_timeout_s,
        ),
    )
    stop = asyncio.Event()
    _stop_on_signals(stop)
    if arguments.exit_with_parent:
        _stop_on_stdin_close(stop)
    async with (
        core,
        await SqliteStore.open(arguments.store) as store,
        SandboxCore(backend, store) as sandboxes,
    ):
        server = grpc.aio.server(options=SERVER_OPTIONS)
        add_env_service(server, core)
        add_sandbox_service(server, sandboxes)
        status = await _add_health_and_reflection(server)
        address = _bind(server, listen)
        await server.start()
        sys.stdout.write(f"{address}\n")
        sys.stdout.flush()
        await stop.wait()
        await status.enter_graceful_shutdown()
        sandboxes.stop()
        await server.stop(_STOP_GRACE_S)


async def _add_health_and_reflection(server: grpc.aio.Server) -> health.aio.HealthServicer:
    status = health.aio.HealthServicer()
    health_pb2_grpc.add_HealthServicer_to_server(status, server)
    sandbox_service = SERVICE.replace("EnvService", "SandboxService")
    for name in ("", SERVICE, sandbox_service):
        await status.set(name, health_pb2.HealthCheckResponse.SERVING)
    reflection.enable_server_reflection(
        (SERVICE, sandbox_service, health.SERVICE_NAME, reflection.SERVICE_NAME), server
    )
    return status


def _bind(server: grpc.aio.Server, listen: str) -> str:
    """Listen and return the address in the form clients are given."""
    try:
        port = server.add_insecure_port(listen)
    except RuntimeError as error:
        raise Unavailable(
            f"cannot listen on {listen}: {error}. Is another server using it, or is the folder missing?"
        ) from error
    if listen.startswith("unix:"):
        path = Path(listen.removeprefix("unix:")).absolute()
        path.chmod(0o600)  # who may connect may run code here: the owner only
        return f"unix://{path}"
    return f"{listen.rpartition(':')[0]}:{port}"


def _stop_on_signals(stop: asyncio.Event) -> None:
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)


def _stop_on_stdin_close(stop: asyncio.Event) -> None:
    loop = asyncio.get_running_loop()

    def readable() -> None:
        if not os.read(0, 4096):
            loop.remove_reader(0)
            stop.set()

    loop.add_reader(0, readable)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the server; return the process's exit code."""
    arguments = _parser().parse_args(argv)
    logging.basicConfig(level=arguments.log_level, format="%(asctime)s %(levelname)s %(name)s %(message)s")
    try:
        asyncio.run(run(arguments, ProcessBackend(isolation=arguments.isolation)))
    except RockError as error:
        sys.stderr.write(f"rock server: {error}\n")
        return error.exit_code
    finally:
        if arguments.remove_folder:
            shutil.rmtree(Path(arguments.listen.removeprefix("unix://")).parent, ignore_errors=True)
    return 0
