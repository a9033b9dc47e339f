"""The ROCK server process: `ale rock serve` or `python -m rock_env.server`.

Started by hand, by a service manager or by the embedded mode (`rock_env.local`). It prints its address on one
line when it is ready, and with `--http` that of REST on a second one. SIGTERM and SIGINT make it refuse new calls and
let running ones finish; a second one ends them at once. With `--exit-with-parent` it also stops when its stdin closes,
so it never outlives an owner that was killed.
"""

from __future__ import annotations

import asyncio
import logging
import os
import shutil
import signal
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import grpc
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection

from rock_env.arguments import Data
from rock_env.backends.plugin import BackendPlace, ChosenBackend, choose_backends
from rock_env.backends.router import BackendRouter
from rock_env.env_workers.catalog import Catalog
from rock_env.env_workers.fencing import Fencing
from rock_env.env_workers.pool import EnvHostPool
from rock_env.env_workers.worker_view import WorkerView
from rock_env.errors import InvalidArgument, RockError, of_full_disk
from rock_env.platforms import check_hosting
from rock_env.security.auth import current_tenant
from rock_env.security.tls import server_credentials
from rock_env.security.token_file import TokenFile
from rock_env.server.e2b.mount import e2b_face
from rock_env.server.envs.core import CoreOptions, EnvServiceCore
from rock_env.server.envs.rules_pool import RulesPool
from rock_env.server.interceptors.access import AccessControl, AccessInterceptor
from rock_env.server.interceptors.boundary import BoundaryInterceptor
from rock_env.server.interceptors.leaving import LeavingInterceptor
from rock_env.server.interceptors.revocation import Revocation
from rock_env.server.node import Node
from rock_env.server.observe import Observation
from rock_env.server.options import ServerOptions, parse
from rock_env.server.replicas.sharing import Sharing, StoreSecret, sharing
from rock_env.server.rest import app as rest
from rock_env.server.sandboxes.core import SandboxCore
from rock_env.server.services import admin
from rock_env.server.services import envs as env_service
from rock_env.server.services import registry as registry_service
from rock_env.server.services import sandboxes as sandbox_service
from rock_env.server.strangers.guard import front
from rock_env.store.address import is_postgres
from rock_env.store.base import SandboxStore
from rock_env.store.open import open_store
from rock_env.telemetry.setup import set_up_telemetry
from rock_env.telemetry.shown import show_visibly
from rock_env.threads import for_life
from rock_env.wire.bulk import keep_large_blocks
from rock_env.wire.channel import SERVER_OPTIONS, target
from rock_env.wire.listening import bind

__all__ = ["hosting", "in_process", "main", "serve"]

log = logging.getLogger(__name__)

_SERVICES = (env_service.SERVICE, sandbox_service.SERVICE, registry_service.SERVICE, admin.SERVICE)
_LEAST_DRAIN_S = 0.2
"""For calls that were let in while boxes were handed over."""


async def serve(options: ServerOptions, *, ready: Callable[[], None] = lambda: None) -> None:
    """Serve until told to stop; `ready` is called once it listens.

    Raise `InvalidArgument` for a bad option and `Unavailable` if it cannot listen.
    """
    options.check()
    keep_large_blocks()
    observed = Observation(metrics=options.metrics)
    stop = _Stop()
    stop.on_signals()
    if options.exit_with_parent:
        stop.on_stdin_close()
    async with _running(options, observed) as (core, sandboxes, around):
        await _serve(options, stop, core, sandboxes, around, ready)


@asynccontextmanager
async def in_process(options: ServerOptions) -> AsyncIterator[EnvServiceCore]:
    """Yield the EnvService of a server that listens nowhere. Raise `InvalidArgument` for a bad option."""
    options.check()
    async with _running(options, Observation(metrics="")) as (core, _, _):
        yield core


@asynccontextmanager
async def _running(
    options: ServerOptions, observed: Observation
) -> AsyncIterator[tuple[EnvServiceCore, SandboxCore, _Around]]:
    secret = StoreSecret() if is_postgres(options.store) else None
    async with (
        Node.open(options) as node,
        hosting(options, node, observed, secret) as backends,
        _stored(options, secret, backends) as (store, shared),
        SandboxCore(
            backends,
            observed.store(store),
            tenant=current_tenant,
            durable=bool(options.state),
            admission=node.admission,
            pin=node.pin,
            provide=node.provide,
            ownership=shared.ownership,
            most_snapshots=options.most_snapshots,
            most_snapshot_bytes=options.most_snapshot_bytes,
        ) as sandboxes,
        shared.serving(sandboxes),
        _env_service(options, sandboxes, shared) as core,
        observed.serving(core, sandboxes, node),
    ):
        await node.share(shared)
        yield core, sandboxes, _Around(node, shared, observed)


@dataclass(frozen=True, slots=True)
class _Around:
    """What stands around the services of one server."""

    node: Node
    shared: Sharing
    observed: Observation


async def _serve(
    options: ServerOptions,
    stop: _Stop,
    core: EnvServiceCore,
    sandboxes: SandboxCore,
    around: _Around,
    ready: Callable[[], None],
) -> None:
    tokens = TokenFile(Path(options.tokens)) if options.tokens else None
    forward = around.shared.forward
    door = AccessControl(tokens, sandboxes.known, forward)
    credentials = server_credentials(options.cert, options.key, options.client_ca) if options.tls else None
    leaving = LeavingInterceptor()
    revocation = Revocation(tokens, leaving.end)
    sandboxes.ledger.watchers.told.append(revocation.changed)
    # Nothing that reads or forwards a message stands before the door.
    guards = [leaving, *around.observed.interceptors, AccessInterceptor(door, revocation)]
    behind = [BoundaryInterceptor()] if forward is None else [forward, BoundaryInterceptor()]
    server = grpc.aio.server(interceptors=[*guards, *behind], options=SERVER_OPTIONS)
    branches = env_service.add_env_service(server, core, around.shared.borrow)
    ports = sandbox_service.add_sandbox_service(server, sandboxes)
    places = around.node.open_for(server, sandboxes)
    admin.add_admin_service(
        server, core, sandboxes, places, around.shared.shelf, drain=stop.drain, guarded=door.guarded
    )

    def serving() -> bytes:
        now = (
            health_pb2.HealthCheckResponse.NOT_SERVING
            if stop.asked.is_set()
            else health_pb2.HealthCheckResponse.SERVING
        )
        return bytes(health_pb2.HealthCheckResponse(status=now).SerializeToString())

    status = await _add_health_and_reflection(server)
    fronted = tokens is not None and not target(options.listen).startswith("unix:")
    addresses = [] if fronted else [bind(server, target(options.listen), credentials)]
    around.shared.bind(server, branches)
    async with AsyncExitStack() as faces:
        inner = faces.enter_context(rest.inner_port(server)) if options.http or options.tls or fronted else ""
        await server.start()
        watching = asyncio.ensure_future(revocation.watch())
        faces.callback(watching.cancel)
        faces.push_async_callback(server.stop, None)  # also where the REST port is taken
        if fronted:
            addresses.append(await faces.enter_async_context(front(options, inner, door, serving)))
        if options.http:
            addresses.append(await faces.enter_async_context(rest.face(inner, options, door, e2b_face)))
            ports.url = options.http_url or addresses[-1]
        ready()
        sys.stdout.write("".join(f"{address}\n" for address in addresses))
        sys.stdout.flush()
        await stop.asked.wait()
        await status.enter_graceful_shutdown()
        sandboxes.stop()
        drain_s = options.drain_s if stop.within_s is None else stop.within_s
        began = time.monotonic()
        await stop.unless_hurried(around.shared.hand_over(drain_s))
        left_s = max(began + drain_s - time.monotonic(), _LEAST_DRAIN_S)
        await leaving.stop(server, left_s, via=inner or target(addresses[0]), hurried=stop.hurried)


@asynccontextmanager
async def hosting(
    options: ServerOptions, node: Node, observed: Observation, secret: StoreSecret | None = None
) -> AsyncIterator[BackendRouter]:
    """Yield the backends of a server; afterwards let go of their durable boxes if there is a folder for these.

    `secret` is that of a shared store, which is opened later.
    """
    chosen = choose_backends(options.backends)
    state = await for_life(_state_folder, options.state, chosen) if options.state else None
    place = BackendPlace(
        shared=state is not None and is_postgres(options.store),
        shelf=await for_life(_shelf, options.shelf) if options.shelf else None,
        isolation=options.sandbox_isolation,
        secret=secret,
    )
    backends = [one.build(replace(place, root=state and state / one.spec.name)) for one in chosen]
    router = node.pooled(
        *map(observed.backend, backends),
        uses_registry=[one.spec.name for one in chosen if one.spec.uses_registry],
    )
    try:
        yield router
    finally:
        await (router.close() if state is None else router.let_go())


def _shelf(name: str) -> Path:
    folder = Path(name).absolute()
    if not folder.is_dir():
        raise InvalidArgument(
            f"--shelf must be a folder that exists, got {name!r}. Make it, or leave --shelf out."
        )
    return folder


def _state_folder(name: str, chosen: Sequence[ChosenBackend]) -> Path:
    folder = Path(name).absolute()
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        for one in chosen:
            (folder / one.spec.name).mkdir(mode=0o700, exist_ok=True)
    except OSError as error:
        raise InvalidArgument(
            f"cannot make the folder --state: {error}. Name one that can be written."
        ) from error
    return folder


@asynccontextmanager
async def _stored(
    options: ServerOptions, secret: StoreSecret | None, backends: BackendRouter
) -> AsyncIterator[tuple[SandboxStore, Sharing]]:
    """Yield the store, and how this server takes part among those that share it; tell the backends its `secret`."""
    where = options.store or (options.state and str(Path(options.state) / "records.db"))
    async with (
        await open_store(where) as store,
        # Without a folder, a server ends with every box that it took up.
        sharing(store, options, where, backends.sites if options.state else ()) as shared,
    ):
        if secret is not None:
            secret.tell(shared.secret)
        yield store, shared


def _env_service(options: ServerOptions, sandboxes: SandboxCore, shared: Sharing) -> EnvServiceCore:
    memory_bytes = int(options.worker_memory_gib * (1 << 30))
    view = partial(WorkerView, options.env, options.named_data.values())
    fencing = Fencing(view, options.worker_fence, trust_libraries=options.trust_libraries)
    rules = None
    if not options.private:
        rules = RulesPool(
            references=options.env,
            memory_bytes=memory_bytes,
            fencing=fencing,
            make_timeout_s=options.step_timeout_s,
            hang_grace_s=options.hang_grace_s,
        )
    core = EnvServiceCore(
        catalog=Catalog(options.env, data=Data(options.named_data, any_path=options.private)),
        pool=EnvHostPool(
            workers=options.workers,
            references=options.env,
            hang_grace_s=options.hang_grace_s,
            memory_bytes=memory_bytes,
            fencing=fencing,
        ),
        rules=rules,
        sandboxes=sandboxes,
        prefix=shared.environments,
        forgotten=shared.forget,
        options=CoreOptions(
            idle_timeout_s=options.idle_timeout_s,
            step_timeout_s=options.step_timeout_s,
            sandbox_timeout_s=options.sandbox_timeout_s,
            most_environments=options.most_environments,
        ),
    )
    shared.hear(core.makes)
    return core


async def _add_health_and_reflection(server: grpc.aio.Server) -> health.aio.HealthServicer:
    status = health.aio.HealthServicer()
    health_pb2_grpc.add_HealthServicer_to_server(status, server)
    for name in ("", *_SERVICES):
        await status.set(name, health_pb2.HealthCheckResponse.SERVING)
    reflection.enable_server_reflection((*_SERVICES, health.SERVICE_NAME, reflection.SERVICE_NAME), server)
    return status


class _Stop:
    """Whether the server was asked to stop, and whether it was asked again."""

    def __init__(self) -> None:
        self.asked = asyncio.Event()
        self.hurried = asyncio.Event()
        self.within_s: float | None = None
        """How long running calls may take to finish, where an operator said so."""

    def ask(self) -> None:
        (self.hurried if self.asked.is_set() else self.asked).set()

    def drain(self, within_s: float | None) -> None:
        """Stop gracefully; safe to call twice."""
        if not self.asked.is_set():
            self.within_s = within_s
            self.asked.set()

    async def unless_hurried(self, act: Awaitable[Any]) -> None:
        """Wait for `act`, or cancel it when somebody is in a hurry."""
        acting, hurried = asyncio.ensure_future(act), asyncio.ensure_future(self.hurried.wait())
        await asyncio.wait((acting, hurried), return_when=asyncio.FIRST_COMPLETED)
        for task in (acting, hurried):
            task.cancel()
        outcome = (await asyncio.gather(acting, hurried, return_exceptions=True))[0]
        if isinstance(outcome, RockError):  # what was not handed over is taken up when this server has ended
            log.warning("draining went wrong: %s", outcome)

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
    show_visibly()
    try:
        check_hosting(sys.platform)
        set_up_telemetry(level, options.log_format)
        asyncio.run(serve(options))
    except RockError as error:
        sys.stderr.write(f"rock server: {of_full_disk(error) or error}\n")
        return error.exit_code
    finally:
        if options.remove_folder:
            shutil.rmtree(Path(options.listen.removeprefix("unix://")).parent, ignore_errors=True)
    return 0
