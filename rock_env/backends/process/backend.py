"""The `process` backend: boxes made of processes, each in namespaces, limits and a file system of its own.

Used by the sandbox core through `backends.base.Backend`. A zygote (`backends/process/launcher`,
`backends/process/zygote`) becomes each box; `backends/process/fence` says what a box sees, `backends/process/cgroups`
what it may use, `backends/process/layers` what it starts from. Where the machine allows no namespaces the same guest
runs bare: commands work and are cleaned up after, but nothing is hidden from them; that is said once, loudly, and can
be read from `isolation`.
"""

from __future__ import annotations

import asyncio
import logging
import os
import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Literal

from rock_env.backends.plugin import BackendOptions, BackendPlace, BackendSpec
from rock_env.backends.process import fence
from rock_env.backends.process.box import ProcessBox, standing_still
from rock_env.backends.process.box_config import (
    BoxRecord,
    check_spec,
    configuration,
    limits,
    process_limits,
)
from rock_env.backends.process.host_view import box_identity
from rock_env.backends.process.launcher import (
    COPY_S,
    Holder,
    Launcher,
    ZygoteLost,
    holder_of,
    recorded_process,
)
from rock_env.backends.process.layers import MAX_LINEAGE, Layer, remove_tree
from rock_env.backends.process.setup import Ready, begin, read_lineages, remove_remains
from rock_env.backends.process.state_folder import ProcessStateFolder, on_disk
from rock_env.errors import (
    FailedPrecondition,
    InfraError,
    InvalidArgument,
    NotFound,
    Unimplemented,
)
from rock_env.guest_host.link import GuestLink, listen
from rock_env.spec import SandboxSpec
from rock_env.store.whole_file import make_private_file
from rock_env.threads import for_life

__all__ = ["BACKEND", "Isolation", "ProcessBackend", "ProcessBox", "why_not_fenced"]

Isolation = Literal["namespaces", "none"]
_NODE_GRACE_S = 5.0
"""How much later than its server a box ends itself: while the server lives, it is to say why."""
_LOOK_S = 0.002

log = logging.getLogger(__name__)


@dataclass(slots=True)
class _Held:
    """One box that this server made or adopted."""

    box: ProcessBox
    holder: Holder
    spec: SandboxSpec
    record: BoxRecord


class ProcessBackend:
    """Make and destroy process sandboxes. `isolation="namespaces"` refuses to run without them; `auto` falls back.

    `root` keeps boxes and layers over restarts; without it they end with this object. `shared`: other servers of one
    store use it at the same time, each with boxes of its own. `shelf`: a folder that every box sees, read-only.
    """

    def __init__(
        self,
        *,
        root: Path | None = None,
        shared: bool = False,
        isolation: Literal["auto", "namespaces", "none"] = "auto",
        python_packages: tuple[str, ...] = ("pytest", "playwright"),
        shelf: Path | None = None,
    ) -> None:
        self._wanted = isolation
        self._python_packages = python_packages
        self._root = root
        self._shared = shared
        self._shelf = shelf
        self._lock = asyncio.Lock()
        self._ready: Ready | None = None
        self._boxes: dict[str, _Held] = {}
        self._lineages: dict[str, tuple[str, ...]] = {}
        """The layers that each box on the node was started from, also boxes that nobody adopted."""
        self._closed = False

    @property
    def name(self) -> str:
        return "process"

    def hosts(self, spec: SandboxSpec) -> bool:
        return not spec.image

    async def isolation(self) -> Isolation:
        """Return what fences this backend's boxes in. The first call finds out."""
        return "namespaces" if (await self._prepare()).fenced else "none"

    async def create(
        self,
        spec: SandboxSpec,
        *,
        sandbox_id: str,
        snapshot: str = "",
        durable: bool = False,
        lease_s: float | None = None,
    ) -> ProcessBox:
        """Start one box; where the zygote is lost meanwhile, once more by another. Raise `Unimplemented` for what only other
        backends offer.
        """
        check_spec(spec)
        make = partial(
            self._create, spec, sandbox_id=sandbox_id, snapshot=snapshot, durable=durable, lease_s=lease_s
        )
        try:
            return await make()
        except ZygoteLost as error:
            log.warning("a sandbox is made once more sandbox_id=%s: %s", sandbox_id, error)
            return await make()

    async def _create(
        self, spec: SandboxSpec, *, sandbox_id: str, snapshot: str, durable: bool, lease_s: float | None
    ) -> ProcessBox:
        ready = await self._prepare()
        if durable and not ready.state.lasting:
            raise Unimplemented(
                "sandboxes outlive their server only where it keeps a state folder; give it one (--state)"
            )
        layer = ready.layers.get(snapshot) if snapshot else None
        record = BoxRecord(
            durable=durable,
            identity=layer.identity if layer else box_identity(),
            lineage=layer.lineage if layer and ready.launcher.overlay else (),
        )
        folder = ready.state.boxes / sandbox_id
        with on_disk():
            try:
                folder.mkdir(mode=0o700)
            except FileExistsError as error:
                raise InvalidArgument(f"a sandbox {sandbox_id!r} exists already") from error
        self._lineages[sandbox_id] = record.lineage
        try:
            with on_disk():
                order = self._order(ready, sandbox_id, spec, (record, layer))
                holder, link = await self._start(ready, await self._launcher(ready, spec), folder, order)
                await self._configure(link, ready, folder, (spec, record, lease_s))
            if self._closed:
                raise NotFound("the process backend was closed meanwhile")
        except BaseException:
            await asyncio.shield(self._remove(ready.state, sandbox_id))
            raise
        return self._hold(ready, link, holder, (sandbox_id, spec, record))

    async def adopt(self, sandbox_id: str, *, spec: SandboxSpec) -> ProcessBox | None:
        """Take up a durable box of an earlier server again; None, and nothing left of it, if it is gone."""
        ready = await self._prepare()
        folder = ready.state.boxes / sandbox_id
        record = BoxRecord.read(folder)
        holder = holder_of(folder) if record is not None and record.durable else None
        if holder is None or record is None:
            await self.destroy(sandbox_id)
            return None
        link: GuestLink | None = None

        async def explain() -> str:
            if link is None:
                return "it lives and does not let this server in"
            return await _explain(holder, ready.state, sandbox_id)

        try:
            token = (folder / "token").read_bytes()
            link = await GuestLink.connect(folder / "guest.sock", token=token, explain=explain)
        except BaseException:
            holder.let_go()
            raise
        return self._hold(ready, link, holder, (sandbox_id, spec, record))

    async def census(self) -> Mapping[str, str]:
        ready = await self._prepare()
        return await for_life(_census, ready.state)

    async def destroy(self, sandbox_id: str) -> None:
        if held := self._boxes.get(sandbox_id):
            await held.box.close()
            return
        ready = await self._prepare()
        await self._remove(ready.state, sandbox_id)

    async def snapshot(self, sandbox_id: str, *, snapshot_id: str) -> int:
        ready = await self._prepare()
        held = self._known(sandbox_id)
        overlay = ready.launcher.overlay
        if held.record.lineage and not overlay:
            raise FailedPrecondition(
                f"sandbox {sandbox_id!r} stands on layers, and overlays do not work here any more"
            )
        whole = not overlay or len(held.record.lineage) >= MAX_LINEAGE
        lineage = () if whole else held.record.lineage
        seen = "all" if whole and held.record.lineage else "upper"
        with on_disk():
            layer_files = ready.layers.begin(snapshot_id)
        try:
            source = ready.state.boxes / sandbox_id / "files"
            if ready.fenced:
                source = Path(f"/proc/{held.box.pid}/root{fence.FILES}/{seen}")
            async with standing_still(held.box):
                count = await self._copy(source, layer_files)
            layer = Layer((snapshot_id, *lineage), held.record.identity, whole, count)
            with on_disk():
                ready.layers.commit(snapshot_id, layer)
        except BaseException:
            await for_life(ready.layers.discard, snapshot_id)
            raise
        return count

    async def snapshots(self) -> set[str]:
        return (await self._prepare()).layers.names()

    async def delete_snapshot(self, snapshot_id: str) -> None:
        """Remove a layer. Raise `FailedPrecondition` while a box or another layer stands on it."""
        ready = await self._prepare()
        if self._shared:
            self._lineages = await for_life(read_lineages, ready.state)
        unused = ready.layers.forget(snapshot_id, boxes=self._lineages)
        if unused is not None:
            await for_life(remove_tree, unused)

    async def restore(self, sandbox_id: str, *, snapshot: str) -> ProcessBox:
        """Replace a box by one of the same id that starts from `snapshot`."""
        held = self._known(sandbox_id)
        (await self._prepare()).layers.get(snapshot)
        await held.box.close()
        return await self.create(
            held.spec, sandbox_id=sandbox_id, snapshot=snapshot, durable=held.record.durable
        )

    async def let_go(self) -> None:
        """Close all connections: durable boxes live on, others are destroyed."""
        async with asyncio.TaskGroup() as group:
            for held in tuple(self._boxes.values()):
                group.create_task(self._let_go(held) if held.record.durable else held.box.close())
        await self._release(empty=False)

    async def close(self) -> None:
        async with asyncio.TaskGroup() as group:
            for held in tuple(self._boxes.values()):
                group.create_task(held.box.close())
        await self._release(empty=True)

    # -- making and removing

    def _order(
        self, ready: Ready, sandbox_id: str, spec: SandboxSpec, start: tuple[BoxRecord, Layer | None]
    ) -> dict[str, object]:
        record, layer = start
        overlay = ready.launcher.overlay
        if layer is not None and not layer.whole and not overlay:
            raise FailedPrecondition(
                f"snapshot {layer.lineage[0]!r} needs overlays, which do not work here any more"
            )
        stacked = overlay and layer is not None
        return {
            "group": ready.state.group(sandbox_id),
            "folder": str(ready.state.boxes / sandbox_id),
            "workdir": spec.workdir,
            "identity": record.identity,
            "limits": limits(spec),
            "rlimits": process_limits(spec, fenced=ready.fenced, grouped=bool(ready.plan["cgroups"])),
            "lowers": [f"{name}/files" for name in record.lineage] if stacked else [],
            "copied": str(ready.layers.files(layer.lineage[0])) if layer is not None and not stacked else "",
            "probe": False,
        }

    async def _start(
        self, ready: Ready, launcher: Launcher, folder: Path, order: Mapping[str, object]
    ) -> tuple[Holder, GuestLink]:
        """Let the zygote become the box and connect to it. The box waits for us, the guest for the token."""
        token = secrets.token_bytes(32)
        make_private_file(folder / "token", token)
        path = folder / "guest.sock"
        with listen(path) as listener:
            holder = await launcher.bear(order, listener.fileno())
        try:
            explain = partial(_explain, holder, ready.state, folder.name)
            return holder, await GuestLink.connect(path, token=token, explain=explain)
        except BaseException as error:
            holder.kill()
            await asyncio.shield(holder.end())
            if holder.cause is not None:
                raise error from holder.cause
            raise

    async def _configure(
        self, link: GuestLink, ready: Ready, folder: Path, what: tuple[SandboxSpec, BoxRecord, float | None]
    ) -> None:
        """Tell the guest what it is to be, and record the box once it is that."""
        spec, record, lease_s = what
        config = configuration(
            spec,
            folder=folder,
            tools=ready.tools.folder,
            shelf=self._shelf,
            fenced=ready.fenced,
            grouped=bool(ready.plan["cgroups"]),
        )
        config["linger_s"] = None if record.durable else 0.0
        last = record.durable and lease_s is None
        config["deadline_s"] = spec.lifetime_s + _NODE_GRACE_S if last else None
        try:
            await link.configure(config)
            if lease_s is not None:
                await link.lease(lease_s)
            record.write(folder)
        except BaseException:
            await link.close()
            raise

    def _hold(
        self, ready: Ready, link: GuestLink, holder: Holder, made_of: tuple[str, SandboxSpec, BoxRecord]
    ) -> ProcessBox:
        sandbox_id, spec, record = made_of

        async def clean_up() -> None:
            if link.silent:
                await for_life(ready.state.thaw, sandbox_id, holder.pid)
                holder.kill()
            await holder.end()
            await self._remove(ready.state, sandbox_id)

        isolation: Isolation = "namespaces" if ready.fenced else "none"
        box = ProcessBox(sandbox_id, link, isolation=isolation, clean_up=clean_up, pid=holder.pid)
        self._boxes[sandbox_id] = _Held(box, holder, spec, record)
        log.debug("sandbox started sandbox_id=%s spec=%s isolation=%s", sandbox_id, spec.digest, isolation)
        return box

    async def _remove(self, state: ProcessStateFolder, sandbox_id: str) -> None:
        """Remove whatever there is of a box: processes, control groups, files, books."""
        folder = state.boxes / sandbox_id
        if (holder := holder_of(folder)) is not None:
            await for_life(state.thaw, sandbox_id, holder.pid)
            holder.kill()
            await holder.end()
        await for_life(remove_remains, state, sandbox_id)
        self._boxes.pop(sandbox_id, None)
        self._lineages.pop(sandbox_id, None)

    async def _let_go(self, held: _Held) -> None:
        await held.box.let_go()
        held.holder.let_go()
        self._boxes.pop(held.box.id, None)

    async def _release(self, *, empty: bool) -> None:
        self._closed = True
        async with self._lock:
            if self._ready is not None:
                for launcher in (self._ready.launcher, *self._ready.warm.values()):
                    await launcher.close()
                await for_life(self._ready.state.release, empty=empty)
                self._ready = None

    async def _copy(self, source: Path, target: Path) -> int:
        """Copy a tree in a process of the zygote's, which may read what a box's user made unreadable."""
        ready = await self._prepare()
        fds = []
        try:
            fds.append(os.open(source, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC))
            fds.append(os.open(target, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC))
            order = {
                "op": "copy",
                "opaque": "user.overlay.opaque" if ready.plan["user"] else "trusted.overlay.opaque",
                "within_s": COPY_S,
            }
            count = await ready.launcher.order(order, fds)
        except OSError as error:
            raise InfraError(f"cannot read the files of a sandbox: {error}") from error
        finally:
            for fd in fds:
                os.close(fd)
        assert isinstance(count, int)
        return count

    def _known(self, sandbox_id: str) -> _Held:
        try:
            return self._boxes[sandbox_id]
        except KeyError:
            raise NotFound(f"this server holds no sandbox {sandbox_id!r}") from None

    # -- preparing

    async def _launcher(self, ready: Ready, spec: SandboxSpec) -> Launcher:
        async with self._lock:
            if self._closed:
                raise NotFound("the process backend is closed")
            return await ready.launcher_for(spec)

    async def _prepare(self) -> Ready:
        async with self._lock:
            if self._closed:
                raise NotFound("the process backend is closed")
            if self._ready is None:
                with on_disk():
                    self._ready = await begin(
                        self._root,
                        self._wanted,
                        self._python_packages,
                        shared=self._shared,
                        shelf=self._shelf,
                    )
                self._lineages |= self._ready.lineages
            elif self._ready.launcher.lost.done():
                log.warning("the process that makes sandboxes ended; starting another")
                await self._ready.launcher.close()
                self._ready.launcher = await Launcher.start(self._ready.plan)
            return self._ready


async def _explain(holder: Holder, state: ProcessStateFolder, box: str) -> str:
    """Say what became of a box whose guest hung up, and that its memory was full where the kernel killed for that."""
    reason = await holder.explain()
    killed = await for_life(state.killed_for_memory, box)
    if not killed:
        return reason
    return f"{reason}; it had run out of memory, for which the kernel killed {killed} of its processes"


def _census(state: ProcessStateFolder) -> dict[str, str]:
    found = dict.fromkeys(state.in_groups(), "control groups")
    for folder in state.boxes.iterdir():
        holder = recorded_process(folder)
        found[folder.name] = f"process {holder}" if holder else f"folder {folder}"
    return found


async def why_not_fenced() -> str:
    """Return why boxes cannot be fenced in on this machine; empty if they can."""
    backend = ProcessBackend(isolation="namespaces")
    try:
        await backend.isolation()
    except InfraError as error:
        return error.message
    finally:
        await backend.close()
    return ""


def _build(place: BackendPlace, options: BackendOptions) -> ProcessBackend:
    del options  # it has none of its own
    return ProcessBackend(root=place.root, shared=place.shared, isolation=place.isolation, shelf=place.shelf)


BACKEND = BackendSpec(
    name="process",
    summary="processes of this machine in namespaces, upon its own file system, read-only",
    build=_build,
)
