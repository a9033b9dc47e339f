"""The `docker` backend: boxes that are containers of a Docker engine on this machine, from any image.

Used by the sandbox core; satisfies `backends.base.Backend`. Each box is one container whose first process is the
guest, bound in read-only, so an image needs nothing of its own, not even a shell. All behaviour goes over the guest's
socket: the engine makes, watches, freezes and removes containers and is never asked to run a command.
"""

from __future__ import annotations

import asyncio
import io
import logging
import os
import tarfile
from collections.abc import Coroutine, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rock_env.backends.docker.container import (
    LABEL_BOX,
    LABEL_DURABLE,
    LABEL_SERVER,
    LABEL_SPEC,
    ImageFacts,
    check_spec,
    container,
    guest_config,
)
from rock_env.backends.docker.disk import DiskWatch
from rock_env.backends.docker.engine import Engine, EngineRefusal
from rock_env.backends.docker.graft import graft, merged_folder
from rock_env.backends.docker.layers import LABEL_FROM
from rock_env.backends.docker.network import resolve
from rock_env.backends.docker.node import EngineNode, open_node, remove_all
from rock_env.backends.docker.ready import ReadySignal
from rock_env.backends.docker.state import BoxFolder
from rock_env.backends.docker.take_over import take_over
from rock_env.backends.image_boxes import limits
from rock_env.backends.plugin import BackendOptions, BackendPlace, BackendSpec
from rock_env.errors import InfraError, InvalidArgument, NotFound, Unavailable, nearest
from rock_env.guest.steering import Steering
from rock_env.guest_host.box import GuestBox
from rock_env.guest_host.link import GuestLink
from rock_env.spec import SandboxSpec
from rock_env.threads import for_life

__all__ = ["BACKEND", "DockerBackend"]

_KERNEL_RUNTIMES = {"runc", "crun", "io.containerd.runc.v2"}
"""Runtimes whose boxes see the host's control groups."""
_LISTEN_S = 10.0
"""How long the engine may take to open its stream of events."""

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class _Order:
    """What one box was asked to be: enough to make it again from a snapshot."""

    sandbox_id: str
    spec: SandboxSpec
    snapshot: str
    durable: bool
    lease_s: float | None


@dataclass(frozen=True, slots=True)
class _Held:
    """A box that this server made or took up again, and the container it lives in."""

    box: GuestBox
    container: str
    order: _Order


class DockerBackend:
    """Make, find again, freeze and destroy boxes in containers.

    `root` is the state folder that durable boxes are found again by; without it a temporary one is used, and no box
    outlives this server. `socket` is the engine's, `bundles` where guest bundles are kept (default: in `root`).
    `shared`: other servers of one store use `root` at the same time, each with boxes of its own. `shelf`: a folder that
    every box sees, read-only.
    """

    name = "docker"

    def hosts(self, spec: SandboxSpec) -> bool:
        """Return whether the spec names an image."""
        return bool(spec.image)

    def __init__(
        self,
        *,
        root: Path | None = None,
        shared: bool = False,
        socket: Path | None = None,
        bundles: Path | None = None,
        shelf: Path | None = None,
    ) -> None:
        self._root = root
        self._shared = shared
        self._socket = socket
        self._bundles = bundles
        self._shelf = shelf
        self._lock = asyncio.Lock()
        self._node: EngineNode | None = None
        self._tasks: list[asyncio.Task[None]] = []
        self._boxes: dict[str, _Held] = {}
        self._closed = False

    async def create(
        self,
        spec: SandboxSpec,
        *,
        sandbox_id: str,
        snapshot: str = "",
        durable: bool = False,
        lease_s: float | None = None,
    ) -> GuestBox:
        """Start one box from its image, or from a snapshot; see `Backend.create`."""
        check_spec(spec)
        node = await self._prepare()
        if durable and node.state.temporary:
            raise InvalidArgument("a durable sandbox needs a server with a state folder (`--state DIR`)")
        if spec.runtime and spec.runtime not in node.runtimes:
            raise nearest("container runtime of this Docker engine", spec.runtime, node.runtimes)
        return await self._make(node, _Order(sandbox_id, spec, snapshot, durable, lease_s))

    async def adopt(self, sandbox_id: str, *, spec: SandboxSpec) -> GuestBox | None:
        """Take up a durable box of an earlier server again; None if it is gone."""
        node = await self._prepare()
        folder = node.state.box(sandbox_id)
        facts = await for_life(folder.facts)
        described = await node.engine.inspect(node.name(sandbox_id))
        if facts is None or described is None or not described["State"]["Running"]:
            await self._remove(node, sandbox_id)
            return None
        if described["State"]["Paused"]:  # the earlier server died within a snapshot
            await node.layers.thaw(described["Id"])
        node.deaths.watch(described["Id"])
        link = await self._enter(node, folder, described["Id"])
        order = _Order(sandbox_id, spec, facts["snapshot"], facts["durable"], facts["lease_s"])
        return self._hold(node, order, described["Id"], link)

    async def census(self) -> Mapping[str, str]:
        """Return every box that has a container or a folder here: id -> what it is."""
        node = await self._prepare()
        found = {box: f"folder {node.state.box(box).path}" for box in await for_life(node.state.boxes)}
        for listed in await node.engine.containers(f"{LABEL_SERVER}={node.state.id}", LABEL_BOX):
            if box := listed["Labels"][LABEL_BOX]:  # empty in what somebody else ran from a snapshot's image
                found[box] = f"container {listed['Id'][:12]} ({listed['State']})"
        return found

    async def destroy(self, sandbox_id: str) -> None:
        """Remove whatever there is of a box. Nothing there: nothing is done."""
        held = self._boxes.get(sandbox_id)
        if held is not None:
            await held.box.close()
        else:
            await self._remove(await self._prepare(), sandbox_id)

    async def snapshot(self, sandbox_id: str, *, snapshot_id: str) -> int:
        """Freeze the box's files as a layer upon those it was started from; return its bytes."""
        node, held = await self._prepare(), self._find(sandbox_id)
        described = await node.engine.inspect(held.container)
        if described is None:
            raise NotFound(
                f"sandbox {sandbox_id!r} is gone: {held.box.failure or 'its container was removed'}"
            )
        return await node.layers.commit(described, snapshot_id)

    async def snapshots(self) -> set[str]:
        """Return the ids of all layers this backend keeps on the node."""
        return await (await self._prepare()).layers.all()

    async def delete_snapshot(self, snapshot_id: str) -> None:
        """Remove a layer. Raise `FailedPrecondition` while a box or another layer builds upon it."""
        await (await self._prepare()).layers.delete(snapshot_id)

    async def restore(self, sandbox_id: str, *, snapshot: str) -> GuestBox:
        """Replace the box by a new one of the same id with the files of a snapshot."""
        node, held = await self._prepare(), self._find(sandbox_id)
        await node.layers.image(snapshot)
        await held.box.close()
        old = held.order
        return await self._make(node, _Order(sandbox_id, old.spec, snapshot, old.durable, old.lease_s))

    async def can_graft(self, spec: SandboxSpec, *, snapshot: str) -> bool:
        """Return whether `graft` is worth trying: for root, on overlay2, a small layer above the spec's own image."""
        node = await self._prepare()
        return os.geteuid() == 0 and await node.layers.above(snapshot, spec.image) is not None

    async def graft(self, sandbox_id: str, *, snapshot: str) -> bool:
        """Give a box in which nothing ever ran the files of a snapshot; return whether that was done.

        For pools: with clean boxes in stock a fork then costs a copy, not a container. False changes nothing and says that
        a box must be created upon the snapshot: as `can_graft`, or the container's files cannot be seen from here.
        Raise `NotFound`, and `InfraError`, after which the box must be destroyed. The box shares no layer with the
        snapshot, which can be deleted at once.
        """
        node, held = await self._prepare(), self._find(sandbox_id)
        described = await node.engine.inspect(held.container)
        if described is None:
            raise InfraError(
                f"sandbox {sandbox_id!r} is gone: {held.box.failure or 'its container was removed'}"
            )
        above = await node.layers.above(snapshot, described["Image"])
        target = merged_folder(described)
        if above is None or target is None:
            return False
        await for_life(graft, above, target)
        return True

    async def take_over(self, sandbox_id: str, *, snapshot: str, steering: Steering) -> list[str]:
        """Give a box the files of another one's snapshot but those that `steering` refuses; return these.

        For grades: nothing of an agent ever ran in the box. Raise `Unimplemented`, having changed nothing, where the files
        of containers cannot be reached from here, `NotFound`, `UnfitFiles` for those nested too deep, and `InfraError`.
        """
        node, held = await self._prepare(), self._find(sandbox_id)
        return await take_over(node.engine, node.layers, held.container, snapshot, steering)

    async def let_go(self) -> None:
        """Close all connections: durable boxes live on, others are destroyed."""
        boxes = tuple(self._boxes.values())
        ends = [held.box.let_go() if held.order.durable else held.box.close() for held in boxes]
        await self._leave(ends, remove=not any(held.order.durable for held in boxes))

    async def close(self) -> None:
        """Destroy every box this backend made or adopted; without a state folder its snapshots, too."""
        await self._leave([held.box.close() for held in tuple(self._boxes.values())], remove=True)

    async def _leave(self, ends: list[Coroutine[Any, Any, None]], *, remove: bool) -> None:
        """End the boxes, then everything else; what fails does not keep the rest from ending, and is raised last."""
        failed = [error for error in await asyncio.gather(*ends, return_exceptions=True) if error is not None]
        self._boxes.clear()
        async with self._lock:
            self._closed = True
            await self._end_node(remove=remove)
        if failed:
            raise failed[0]

    async def _end_node(self, *, remove: bool = False) -> None:
        node, self._node = self._node, None
        tasks, self._tasks = self._tasks, []
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        if node is None:
            return
        cleaned = False
        try:
            if node.state.temporary:
                await remove_all(node.engine, node.state)
            elif remove:
                await node.egress.close()
            cleaned = True
        finally:
            await node.engine.close()
            await for_life(node.state.close, keep=not cleaned)

    async def _prepare(self) -> EngineNode:
        async with self._lock:
            if self._closed:
                raise NotFound("the docker backend is closed")
            if self._node is None:
                self._node = await self._open()
            return self._node

    async def _open(self) -> EngineNode:
        node = await open_node(self._socket, self._root, bundles=self._bundles, shared=self._shared)
        disk = DiskWatch(node.engine, node.docker_root, boxes=self._disk_limits, on_full=self._overfull)
        self._tasks = [asyncio.create_task(watch) for watch in (node.deaths.run(), disk.run())]
        try:
            async with asyncio.timeout(_LISTEN_S):
                await node.deaths.listening()
        except BaseException as error:
            self._node = node
            await self._end_node()
            if isinstance(error, TimeoutError):
                raise Unavailable(f"the Docker engine's events cannot be read in {_LISTEN_S:g} s") from error
            raise
        return node

    async def _make(self, node: EngineNode, order: _Order) -> GuestBox:
        spec = order.spec
        if order.snapshot:
            image = await node.layers.image(order.snapshot)
        else:
            image = ImageFacts.of(await node.engine.image(spec.image))
        folder = node.state.box(order.sandbox_id)
        facts = {"snapshot": order.snapshot, "durable": order.durable, "lease_s": order.lease_s}
        folder.make(facts)  # here, not in a thread: a cancellation must not come between it and its removal
        try:
            made = await self._start(node, order, image)
            link = await self._enter(node, folder, made)
            try:
                home = await _home(node.engine, made, image)
                oom = node.oom_counter if (spec.runtime or node.default_runtime) in _KERNEL_RUNTIMES else None
                await link.configure(
                    guest_config(
                        spec,
                        image,
                        home=home,
                        durable=order.durable,
                        oom=oom,
                        shelf=self._shelf is not None,
                    )
                )
                if order.lease_s is not None:
                    await link.lease(order.lease_s)
            except BaseException:
                await link.close(end=False)
                raise
        except BaseException:
            await asyncio.shield(self._remove(node, order.sandbox_id))
            raise
        log.debug("sandbox started sandbox_id=%s spec=%s container=%s", order.sandbox_id, spec.digest, made)
        return self._hold(node, order, made, link)

    async def _start(self, node: EngineNode, order: _Order, image: ImageFacts) -> str:
        """Create and start the container and wait until its guest listens; return the container's id."""
        spec, folder = order.spec, node.state.box(order.sandbox_id)
        allowed = await resolve(spec.network) if spec.network.enabled else None
        if allowed is not None:
            await node.egress.prepare()
        labels = {
            LABEL_SERVER: node.state.id,
            LABEL_BOX: order.sandbox_id,
            LABEL_SPEC: spec.digest,
            LABEL_DURABLE: str(order.durable).lower(),
            LABEL_FROM: order.snapshot,
        }
        body = container(
            spec,
            image,
            bundle=node.bundle,
            run=folder.run,
            labels=labels,
            network=None if allowed is None else node.egress.settings(allowed),
            host_cpus=node.host_cpus,
            shelf=self._shelf,
        )
        name = node.name(order.sandbox_id)
        made: str = (await node.engine.heavy("POST", "/containers/create", params={"name": name}, body=body))[
            "Id"
        ]
        node.deaths.watch(made)
        if not image.is_root:
            await node.engine.make_folder(made, image.workdir_for(spec), mode=0o777)
        with ReadySignal(folder.ready) as ready:
            await node.engine.heavy("POST", f"/containers/{made}/start")
            await ready.wait(died=node.deaths.died(made))
        await for_life(folder.take_socket)
        if allowed is not None:
            described = await node.engine.inspect(made)
            if described is None:
                raise InfraError(f"a sandbox did not come up: {await node.deaths.explain(made)}")
            address = described["NetworkSettings"]["Networks"][node.egress.network]["IPAddress"]
            await node.egress.admit(order.sandbox_id, address, allowed)
        return made

    async def _enter(self, node: EngineNode, folder: BoxFolder, made: str) -> GuestLink:
        token = await for_life(lambda: folder.token)
        return await GuestLink.connect(folder.sock, token=token, explain=lambda: node.deaths.explain(made))

    def _hold(self, node: EngineNode, order: _Order, made: str, link: GuestLink) -> GuestBox:
        async def clean_up() -> None:
            self._boxes.pop(order.sandbox_id, None)  # first: if the rest fails, `destroy` begins anew
            node.deaths.forget(made)
            await self._remove(node, order.sandbox_id)

        box = GuestBox(order.sandbox_id, link, isolation=order.spec.runtime or "docker", clean_up=clean_up)
        self._boxes[order.sandbox_id] = _Held(box, made, order)
        return box

    async def _remove(self, node: EngineNode, sandbox_id: str) -> None:
        """Remove the rules before the container: its address may be another's right after."""
        await node.egress.dismiss(sandbox_id)
        await node.engine.remove(node.name(sandbox_id))
        await for_life(node.state.box(sandbox_id).remove)

    def _find(self, sandbox_id: str) -> _Held:
        held = self._boxes.get(sandbox_id)
        if held is None:
            raise NotFound(f"there is no sandbox {sandbox_id!r} in this backend")
        return held

    def _disk_limits(self) -> dict[str, int]:
        return {held.container: limits(held.order.spec).disk_bytes for held in self._boxes.values()}

    async def _overfull(self, made: str, reason: str) -> None:
        node = self._node
        if node is not None:
            log.info("sandbox over its disk limit container=%s: %s", made[:12], reason)
            node.deaths.blame(made, reason)
            await node.engine.remove(made)


async def _home(engine: Engine, made: str, image: ImageFacts) -> str:
    """Return the home folder of the image's user, as its /etc/passwd has it."""
    if image.is_root:
        return "/root"
    user = image.user.partition(":")[0]
    try:
        packed = await engine.archive(made, "/etc/passwd")
    except EngineRefusal:
        return "/"
    with tarfile.open(fileobj=io.BytesIO(packed)) as archive:
        file = archive.extractfile(archive.getmembers()[0])
        lines = file.read().decode(errors="replace").splitlines() if file is not None else []
    for fields in (line.split(":") for line in lines):
        if len(fields) > 5 and user in (fields[0], fields[2]):
            return fields[5] or "/"
    return "/"


def _build(place: BackendPlace, options: BackendOptions) -> DockerBackend:
    del options  # it has none of its own
    return DockerBackend(root=place.root, shared=place.shared, shelf=place.shelf)


BACKEND = BackendSpec(
    name="docker",
    summary="containers of the Docker engine of this machine, from any image",
    build=_build,
    uses_registry=True,
)
