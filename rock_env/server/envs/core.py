"""The EnvService without a transport: which environments exist, where they live, and what their checkpoints hold.

Environments without a sandbox live in env-host workers; those with one are `SandboxedEnv`s here. Whatever spans several
steps runs in tasks the core owns, so a caller that goes away leaves nothing half done. It never decides whether an
action may run: the journal beside each environment does.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import logging
import secrets
from collections import Counter
from collections.abc import AsyncIterator, Callable, Collection, Coroutine, Sequence
from typing import Any

from rock_env.env_workers.catalog import Catalog
from rock_env.env_workers.frames import Kind
from rock_env.env_workers.pool import EnvHostPool, EnvHostWorker
from rock_env.errors import InvalidArgument, NotFound, ResourceExhausted, RockError, plugin_call
from rock_env.proto.v1 import admin_pb2 as pb_admin
from rock_env.proto.v1 import env_pb2 as pb
from rock_env.proto.v1 import host_pb2 as host
from rock_env.security.auth import acting_for, current_tenant
from rock_env.server.envs.artifacts import ArtifactRoom
from rock_env.server.envs.batch import MESSAGES, Batch, Reply, Shard
from rock_env.server.envs.boxes import EnvBoxes
from rock_env.server.envs.hosted import CoreOptions, Hosted
from rock_env.server.envs.keys import Makes, own_key
from rock_env.server.envs.rules import OwnRules, Rules
from rock_env.server.envs.rules_pool import RulesPool
from rock_env.server.envs.sandboxed import SandboxedEnv
from rock_env.server.own_tasks import logged
from rock_env.server.sandboxes.core import SandboxCore
from rock_env.spec import EnvSpec
from rock_env.wire.envs import error_of, fill_error

__all__ = ["CoreOptions", "EnvServiceCore", "Hosted"]

log = logging.getLogger(__name__)

_FULL_RETRY_S = 5.0
_LONGEST_S = 1e9
"""Longest timeout that a caller may name: one that never comes."""


class EnvServiceCore:
    """The service. Enter it as an async context on the server's event loop."""

    def __init__(
        self,
        *,
        catalog: Catalog,
        pool: EnvHostPool,
        sandboxes: SandboxCore,
        options: CoreOptions,
        rules: RulesPool | None = None,
        prefix: str = "",
        forgotten: Callable[[Collection[str]], None] = lambda keys: None,
    ) -> None:
        """`prefix` begins the ids of its environments; `forgotten` hears of the keys whose environments are closed."""
        self.catalog = catalog
        self._pool = pool
        self._rules = rules
        self.boxes = EnvBoxes(sandboxes, idle_timeout_s=options.idle_timeout_s)
        self.artifacts = ArtifactRoom()
        self._options = options
        self.sandbox_timeout_s = options.sandbox_timeout_s
        """Longest call on an environment with a sandbox, where its caller sets no deadline."""
        self._hosted: dict[str, Hosted] = {}
        self._made = Makes()
        self._tasks = asyncio.TaskGroup()
        self._running: set[asyncio.Task[None]] = set()
        self._counts: Counter[str] = Counter()
        """Environments by tenant, those that are being made included."""
        self._prefix = prefix or f"e{secrets.token_hex(4)}"
        self._forgotten = forgotten
        self._count = 0
        self._reaper: asyncio.TimerHandle | None = None
        self.kept: dict[str, asyncio.Future[Any]] = {}
        """Replies by idempotency key, for as long as the environment they belong to."""
        self.reapers: list[Callable[[float], None]] = []
        """Each drops what was not used since a time of the event loop."""

    async def __aenter__(self) -> EnvServiceCore:
        await self._tasks.__aenter__()
        self._reap()
        return self

    async def __aexit__(self, *exc: object) -> None:
        if self._reaper is not None:
            self._reaper.cancel()
        for task in self._running:
            task.cancel()
        await self._tasks.__aexit__(None, None, None)
        await self._pool.close()
        if self._rules is not None:
            await self._rules.close()

    def spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Run `work` in a task of the core's own; it must handle its own errors."""
        task = self._tasks.create_task(work)
        self._running.add(task)
        task.add_done_callback(self._running.discard)
        return task

    # -- finding

    def find(self, env_id: str) -> Hosted:
        """Return a live environment and mark it used. Raise `NotFound`, or `EnvLost` if its worker died."""
        hosted = self._visible(env_id)
        if hosted is None:
            raise NotFound(
                f"unknown environment id {env_id!r}: it was closed, was idle for {self._options.idle_timeout_s:g} s, "
                "or belongs to another server (or to this one before a restart). Make it again."
            )
        if hosted.worker is not None and hosted.worker.lost is not None:
            raise hosted.worker.lost
        hosted.last_used = self._now()
        return hosted

    def _visible(self, env_id: str) -> Hosted | None:
        hosted = self._hosted.get(env_id)
        return hosted if hosted is not None and hosted.tenant == current_tenant() else None

    def _now(self) -> float:
        return asyncio.get_running_loop().time()

    def timeout_s(self, hosted: Hosted, asked_s: float | None) -> float:
        """Return the deadline of one call: the caller's, or the default of its kind of hosting."""
        if asked_s:
            return asked_s
        return self._options.sandbox_timeout_s if hosted.sandboxed else self._options.step_timeout_s

    def load(self) -> pb_admin.CapacityResponse:
        """Count what runs here, of all tenants."""
        sandboxed = sum(hosted.sandboxed is not None for hosted in self._hosted.values())
        return pb_admin.CapacityResponse(
            envs_in_workers=len(self._hosted) - sandboxed,
            envs_in_sandboxes=sandboxed,
            workers=len(self._pool.workers),
            max_workers=self._pool.size,
        )

    def list_envs(self) -> pb.ListEnvsResponse:
        """Describe every environment this server offers; one that does not load says so in its summary."""
        reply = pb.ListEnvsResponse()
        for name in self.catalog.names():
            try:
                with plugin_call(f"loading environment {name}"):
                    spec = self.catalog.spec(name)
                    schema = json.dumps(spec.params.model_json_schema())
            except RockError as error:
                reply.envs.add(name=name, summary=f"does not load: {error}")
                continue
            reply.envs.add(
                name=spec.name,
                version=spec.version,
                summary=spec.summary,
                params_schema_json=schema,
                replayable=spec.replayable,
                snapshots=spec.snapshots,
                sandboxed=spec.sandbox is not None,
            )
        return reply

    async def list_splits(self, request: pb.ListSplitsRequest) -> pb.ListSplitsResponse:
        """Return the task splits of an environment and their sizes, as one of the tenant's workers counts them.

        Raise `UnknownName`, `InvalidArgument`, or `DeadlineExceeded` after `step_timeout_s`.
        """
        with plugin_call(f"loading environment {request.env}"):
            params_json = self.catalog.resolve(request.env, request.params_json)
        wanted = host.HostSplitsRequest(env=request.env, params_json=params_json)
        reply = Reply(host.HostSplitsResponse)
        async with self._pool.lent() as worker:
            timeout_s = self._options.step_timeout_s
            worker.send(Kind.SPLITS, wanted.SerializeToString(), count=1, timeout_s=timeout_s, sink=reply)
            found: host.HostSplitsResponse = await reply.message()
        error = error_of(found)
        if error is not None:
            raise error
        return pb.ListSplitsResponse(splits=found.splits)

    # -- make

    async def make(self, items: Sequence[pb.MakeRequest]) -> list[pb.MakeResponse]:
        """Make environments. A repeated key gets the reply (or the pending reply) of the first, or an error if it asks for
        another environment."""
        replies: list[asyncio.Future[pb.MakeResponse]] = []
        fresh = []
        for item, key in zip(items, [*map(own_key, items)], strict=True):  # all checked before one is taken
            reply, is_new = self._made.take(key, item)
            if is_new:
                fresh.append((item, reply))
            replies.append(reply)
        if fresh:
            self.spawn(self._make_fresh(fresh))
        return [await asyncio.shield(reply) for reply in replies]

    def makes(self, key: str) -> bool:
        """Return whether an environment has this key, or is being made with it; see `own_key`."""
        return key in self._made

    async def _make_fresh(self, fresh: list[tuple[pb.MakeRequest, asyncio.Future[pb.MakeResponse]]]) -> None:
        in_workers = []
        replies: list[tuple[pb.MakeRequest, asyncio.Future[pb.MakeResponse], pb.MakeResponse]] = []
        for item, future in fresh:
            try:
                with plugin_call(f"making environment {item.env}"):
                    spec = self.catalog.spec(item.env)
                    params_json = self.catalog.resolve(item.env, item.params_json)
                    env_id = self.new_id()
                    if spec.sandbox is None:
                        made = host.HostMakeItem(env_id=env_id, env=item.env, params_json=params_json)
                        self.reserve()
                        in_workers.append((item, future, made))
                        continue
                    self.reserve()
                    try:
                        sandboxed = await self.sandboxed(env_id, spec, params_json)
                    except BaseException:
                        self.give_back()
                        raise
            except RockError as error:
                replies.append((item, future, fill_error(pb.MakeResponse(), error)))
                continue
            self.take_in(item.env, sandboxed)
            replies.append((item, future, pb.MakeResponse(env_id=env_id, version=spec.version)))
        if in_workers:
            made_replies = await self.make_in_workers([made for _, _, made in in_workers])
            replies += [(i, f, reply) for (i, f, _), reply in zip(in_workers, made_replies, strict=True)]
        for item, future, reply in replies:
            key = own_key(item)
            # Ids can be guessed: whoever asked may have closed it while others of the batch were being made.
            hosted = None if reply.HasField("error") else self._hosted.get(reply.env_id)
            if key and hosted is not None:
                hosted.keys.append(key)
            elif key:
                self._made.forget(key)  # there is nothing, so a retry may try again
                self._forgotten([key])
            if not future.done():
                future.set_result(reply)

    def reserve(self, count: int = 1) -> None:
        """Take places for the present tenant's environments. Raise `ResourceExhausted` where it has too many."""
        tenant, most = current_tenant(), self._options.most_environments
        if self._counts[tenant] + count > most:
            raise ResourceExhausted(
                f"you have {self._counts[tenant]} environments and ask for {count} more; one tenant has at most {most} "
                "here. Close some, or have the limit raised (--most-environments).",
                retry_after_s=_FULL_RETRY_S,
            )
        self._counts[tenant] += count

    def give_back(self, count: int = 1) -> None:
        """Give places back that were reserved and are not needed."""
        tenant = current_tenant()
        self._counts[tenant] -= count
        if not self._counts[tenant]:
            del self._counts[tenant]

    async def sandboxed(self, env_id: str, spec: EnvSpec, params_json: str) -> SandboxedEnv:
        """Build an environment with a sandbox; the box comes with its first Reset or Restore."""
        rules: Rules
        if self._rules is None:
            rules = OwnRules(spec, self.catalog.params(spec.name, params_json), self.catalog)
        else:
            rules = await self._rules.make(env_id, spec.name, params_json)
        return SandboxedEnv(env_id, spec=spec, rules=rules, boxes=self.boxes, room=self.artifacts)

    def take_in(self, env: str, sandboxed: SandboxedEnv, keys: Sequence[str] = ()) -> None:
        """Let an environment with a sandbox be found from now on; the replies of `keys` end with it."""
        env_id, version, arguments = sandboxed.journal.env_id, sandboxed.spec.version, sandboxed.params_json
        hosted = Hosted(env_id, env, arguments, version, self._now(), sandboxed=sandboxed, keys=[*keys])
        self._hosted[env_id] = hosted

    async def leave(self, env_id: str) -> None:
        """Close an environment with a sandbox, if it is here; a box that is another's by now stays."""
        hosted = self._visible(env_id)
        if hosted is not None and hosted.sandboxed is not None:
            self._forget(hosted)
            await logged(hosted.sandboxed.close())

    def new_id(self, name: str = "") -> str:
        """Return an id no other environment or checkpoint of any server has; of a call's `name` always the same."""
        if name:
            return f"{self._prefix}-{hashlib.blake2b(name.encode(), digest_size=8).hexdigest()}"
        self._count += 1
        return f"{self._prefix}-{self._count}"

    async def make_in_workers(self, items: Sequence[host.HostMakeItem]) -> list[pb.MakeResponse]:
        """Make environments on the least loaded workers; replies in request order, failures as their `error`."""
        libraries: dict[str, list[host.HostMakeItem]] = {}
        for item in items:
            libraries.setdefault(self.catalog.spec(item.env).library, []).append(item)
        parts = await asyncio.gather(*(self._make_of(library, some) for library, some in libraries.items()))
        by_id = {reply.env_id: reply for part in parts for reply in part}
        return [by_id[item.env_id] for item in items]

    async def _make_of(self, library: str, items: list[host.HostMakeItem]) -> list[pb.MakeResponse]:
        try:
            workers = await self._pool.assign(len(items), library=library)
        except RockError as error:
            self.give_back(len(items))
            return [fill_error(pb.MakeResponse(env_id=item.env_id), error) for item in items]
        shards: dict[EnvHostWorker, list[host.HostMakeItem]] = {}
        for item, worker in zip(items, workers, strict=True):
            shards.setdefault(worker, []).append(item)
        parts = await asyncio.gather(*(self._make_on(worker, shard) for worker, shard in shards.items()))
        return [reply for part in parts for reply in part]

    async def _make_on(self, worker: EnvHostWorker, items: list[host.HostMakeItem]) -> list[pb.MakeResponse]:
        async def one(item: host.HostMakeItem, reply: Reply) -> pb.MakeResponse:
            try:
                made: pb.MakeResponse = await reply.message()
            except RockError as error:
                made = fill_error(pb.MakeResponse(env_id=item.env_id), error)
            if made.HasField("error"):
                worker.envs -= 1
                self.give_back()
            else:
                self._hosted[item.env_id] = Hosted(
                    item.env_id, item.env, item.params_json, made.version, self._now(), worker=worker
                )
            return made

        waiting = []
        for item in items:
            reply = Reply(host.HostMakeResponse, item.env_id)
            payload = host.HostMakeRequest(items=[item]).SerializeToString()
            worker.send(Kind.MAKE, payload, count=1, timeout_s=self._options.step_timeout_s, sink=reply)
            waiting.append(one(item, reply))
        return [await made for made in waiting]

    # -- reset, step, evaluate, close

    async def one(self, kind: Kind, request: Any, asked_s: float | None) -> Any:
        """Run one call to its reply. Raise the `RockError` it ended in."""
        if kind is Kind.CLOSE and self._visible(request.env_id) is None:
            return pb.CloseResponse(env_id=request.env_id)
        if kind is Kind.CLOSE or (hosted := self.find(request.env_id)).worker is None:
            batch = self._start(kind, [request], asked_s)
            reply = MESSAGES[kind].many_response.FromString(await batch.chunk()).items[0]
        else:
            answer = Reply(MESSAGES[kind].many_response, request.env_id)
            message = MESSAGES[kind].many_request(items=[request])
            reply = await self.in_worker(hosted, kind, message, asked_s, answer)
        error = error_of(reply)
        if error is not None:
            raise error
        return reply

    async def in_worker(
        self, hosted: Hosted, kind: Kind, message: Any, asked_s: float | None, reply: Reply
    ) -> Any:
        """Send a one-item call to the worker of `hosted` and return what came for `reply`."""
        assert hosted.worker is not None  # the caller asked where it lives
        timeout_s = self.timeout_s(hosted, asked_s)
        hosted.worker.send(kind, message.SerializeToString(), count=1, timeout_s=timeout_s, sink=reply)
        return await reply.message()

    def many(self, kind: Kind, items: Sequence[Any], item_timeout_s: float) -> AsyncIterator[bytes]:
        """Run a batch; yields serialised `…ManyResponse`s as items finish, each item with its own error.

        Raise `InvalidArgument` for a timeout that is none; 0 is the default of the items' hosting.
        """
        if not 0 <= item_timeout_s <= _LONGEST_S:  # also where it is not a number
            raise InvalidArgument(
                f"item_timeout_s must be from 0 (the server's default) to {_LONGEST_S:g} seconds, got {item_timeout_s}"
            )
        return self._start(kind, items, item_timeout_s).chunks()

    def _start(self, kind: Kind, items: Sequence[Any], asked_s: float | None) -> Batch:
        batch = Batch(kind, len(items))
        shards: dict[EnvHostWorker | tuple[EnvHostWorker, str], tuple[EnvHostWorker, Any, Shard]] = {}
        now, hosted_by_id, tenant = self._now(), self._hosted, current_tenant()
        timeout_s = asked_s or self._options.step_timeout_s
        for item in items:
            hosted = hosted_by_id.get(item.env_id)
            if (
                hosted is None
                or hosted.tenant != tenant
                or (hosted.worker is not None and hosted.worker.lost is not None)
            ):
                self._answer_gone(kind, item.env_id, batch)
                continue
            hosted.last_used = now
            if kind is Kind.CLOSE:
                self._forget(hosted)
            worker = hosted.worker
            if worker is None:
                self.spawn(self._run_sandboxed(hosted, kind, item, asked_s, batch))
                continue
            place = (worker, item.env_id) if worker.forks else worker
            if place not in shards:
                shards[place] = worker, MESSAGES[kind].many_request(), Shard(batch)
            _, request, shard = shards[place]
            request.items.append(item)
            shard.env_ids.append(item.env_id)
        for worker, request, shard in shards.values():
            count = len(shard.env_ids)
            worker.send(kind, request.SerializeToString(), count=count, timeout_s=timeout_s, sink=shard)
        return batch

    def _answer_gone(self, kind: Kind, env_id: str, batch: Batch) -> None:
        if kind is Kind.CLOSE:  # what is gone already is closed
            gone = self._visible(env_id)
            if gone is not None:
                self._forget(gone)
            batch.reply(pb.CloseResponse(env_id=env_id))
            return
        try:
            self.find(env_id)
        except RockError as error:
            batch.fail([env_id], error)

    def _forget(self, hosted: Hosted) -> None:
        del self._hosted[hosted.env_id]
        with acting_for(hosted.tenant):
            self.give_back()
        if hosted.worker is not None:
            hosted.worker.envs -= 1
        for key in hosted.keys:
            self._made.forget(key)
            self.kept.pop(key, None)
        if hosted.keys:
            self._forgotten(hosted.keys)

    async def _run_sandboxed(
        self, hosted: Hosted, kind: Kind, item: Any, asked_s: float | None, batch: Batch
    ) -> None:
        assert hosted.sandboxed is not None  # the caller checked
        try:
            if kind is Kind.CLOSE:
                with plugin_call(f"closing environment {hosted.env_id}"):
                    await hosted.sandboxed.close()
                batch.reply(pb.CloseResponse(env_id=hosted.env_id))
            else:
                timeout_s = self.timeout_s(hosted, asked_s)
                batch.reply(await hosted.sandboxed.call(kind, item, timeout_s=timeout_s))
        except RockError as error:
            batch.fail([hosted.env_id], error)

    # -- idleness

    def _reap(self) -> None:
        """Close what nobody used; one timer for all, a fraction of the timeout apart."""
        now = self._now()
        oldest = now - self._options.idle_timeout_s
        idle = [
            hosted
            for hosted in self._hosted.values()
            if hosted.last_used < oldest
            and not (hosted.sandboxed and hosted.sandboxed.idle_s < self._options.idle_timeout_s)
        ]
        if idle:
            log.info("closing idle environments count=%d", len(idle))
        for tenant in {hosted.tenant for hosted in idle}:
            theirs = [hosted.env_id for hosted in idle if hosted.tenant == tenant]
            with acting_for(tenant):
                self._start(Kind.CLOSE, [pb.CloseRequest(env_id=env_id) for env_id in theirs], None)
        for reap in self.reapers:
            reap(oldest)
        self.spawn(self._pool.release())
        loop = asyncio.get_running_loop()
        self._reaper = loop.call_later(max(self._options.idle_timeout_s / 4, 0.05), self._reap)
