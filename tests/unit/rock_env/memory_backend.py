"""A backend whose boxes are dicts and whose layers are real: it keeps what a node keeps, across servers that come and go.

It refuses what no backend survives, such as freeing a layer in use. A server can be killed before any of its calls to the
node or to the store: from then on every call of it raises `Killed`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

from rock_env.errors import InfraError, NotFound, RockError
from rock_env.spec import SandboxSpec
from rock_env.store.sqlite.records import SqliteStore

T = TypeVar("T")
Files = dict[str, bytes]


class Killed(BaseException):
    """The server was killed: nothing of it runs any more."""


@dataclass
class Layer:
    parent: str
    files: Files


@dataclass
class Box:
    base: str = ""
    upper: Files = field(default_factory=dict)
    durable: bool = True
    paused: bool = False
    lease_s: float | None = None


@dataclass
class Node:
    """What outlives a server."""

    boxes: dict[str, Box] = field(default_factory=dict)
    layers: dict[str, Layer] = field(default_factory=dict)
    fail: dict[str, RockError] = field(default_factory=dict)
    """What the next call of a method is refused with."""
    engine_missing: RockError | None = None
    calls_left: int | None = None
    """How many calls the server has yet to make before it is killed; None: it lives."""

    hangs: bool = False
    """Boxes do not answer to `pause`."""
    misuse: list[str] = field(default_factory=list)
    """What no real node would have survived."""

    def call(self, method: str) -> None:
        if self.calls_left is not None:
            self.calls_left -= 1
            if self.calls_left < 0:
                raise Killed
        if method in self.fail:
            raise self.fail.pop(method)

    def content(self, layer: str, upper: Mapping[str, bytes] | None = None) -> Files:
        below = self.content(self.layers[layer].parent, self.layers[layer].files) if layer else {}
        return {**below, **(upper or {})}

    def files(self, box_id: str) -> Files:
        return self.content(self.boxes[box_id].base, self.boxes[box_id].upper)


class MemoryBox:
    """A connection to a box."""

    def __init__(self, node: Node, box_id: str) -> None:
        self._node = node
        self.id = box_id
        self.gone: asyncio.Future[str] = asyncio.get_running_loop().create_future()

    def _box(self) -> Box:
        if self.id not in self._node.boxes:
            raise InfraError("the box is gone")
        return self._node.boxes[self.id]

    async def write_file(self, path: str, content: bytes, **_: Any) -> None:
        self._box().upper[path] = content

    async def read_file(self, path: str) -> bytes:
        return self._node.files(self.id)[path]

    async def lost(self) -> str:
        return await asyncio.shield(self.gone)

    async def pause(self) -> None:
        self._node.call("pause")
        if self._node.hangs:
            await asyncio.Event().wait()
        self._box().paused = True

    async def resume(self) -> None:
        self._node.call("resume")
        self._box().paused = False

    async def lease(self, seconds: float) -> None:
        self._node.call("lease")
        self._box().lease_s = seconds

    async def let_go(self) -> None:
        self._node.call("let_go")
        if not self.gone.done():
            self.gone.set_result("let go of")

    async def close(self) -> None:
        self._node.call("close")
        self._node.boxes.pop(self.id, None)
        if not self.gone.done():
            self.gone.set_result("closed")


class MemoryBackend:
    """One server's view of a node; satisfies `Backend`."""

    def __init__(self, node: Node, name: str = "process") -> None:
        self.node = node
        self.name = name
        self.boxes: dict[str, MemoryBox] = {}

    def hosts(self, spec: SandboxSpec) -> bool:
        return bool(spec.image) == (self.name == "docker")

    def _call(self, method: str) -> None:
        if self.node.engine_missing is not None:
            raise self.node.engine_missing
        self.node.call(method)

    async def create(
        self,
        spec: SandboxSpec,
        *,
        sandbox_id: str,
        snapshot: str = "",
        durable: bool = False,
        lease_s: float | None = None,
    ) -> Any:
        await asyncio.sleep(0)
        self._call("create")
        if snapshot and snapshot not in self.node.layers:
            raise NotFound(f"no layer {snapshot}")
        assert sandbox_id not in self.node.boxes
        self.node.boxes[sandbox_id] = Box(snapshot, durable=durable, lease_s=lease_s)
        return self._connect(sandbox_id)

    def _connect(self, box_id: str) -> MemoryBox:
        box = self.boxes[box_id] = MemoryBox(self.node, box_id)
        return box

    async def adopt(self, sandbox_id: str, *, spec: SandboxSpec) -> Any:
        self._call("adopt")
        return self._connect(sandbox_id) if sandbox_id in self.node.boxes else None

    async def census(self) -> dict[str, str]:
        self._call("census")
        return {box_id: f"box {box_id}" for box_id in self.node.boxes}

    async def destroy(self, sandbox_id: str) -> None:
        self._call("destroy")
        self.node.boxes.pop(sandbox_id, None)

    async def snapshot(self, sandbox_id: str, *, snapshot_id: str) -> int:
        await asyncio.sleep(0)
        self._call("snapshot")
        box = self.node.boxes[sandbox_id]
        self.node.layers[snapshot_id] = Layer(box.base, dict(box.upper))
        box.base, box.upper = snapshot_id, {}
        return sum(map(len, self.node.layers[snapshot_id].files.values()))

    async def snapshots(self) -> set[str]:
        self._call("snapshots")
        return set(self.node.layers)

    async def delete_snapshot(self, snapshot_id: str) -> None:
        self._call("delete_snapshot")
        users = [key for key, box in self.node.boxes.items() if box.base == snapshot_id]
        users += [key for key, layer in self.node.layers.items() if layer.parent == snapshot_id]
        if users:
            self.node.misuse.append(f"layer {snapshot_id} is freed while {users} need it")
        self.node.layers.pop(snapshot_id, None)

    async def restore(self, sandbox_id: str, *, snapshot: str) -> Any:
        await asyncio.sleep(0)
        self._call("restore")
        if snapshot not in self.node.layers:
            raise NotFound(f"no layer {snapshot}")
        box = self.node.boxes[sandbox_id]
        box.base, box.upper, box.paused = snapshot, {}, False
        old = self.boxes[sandbox_id]
        if not old.gone.done():
            old.gone.set_result("restored")
        return self._connect(sandbox_id)

    async def let_go(self) -> None:
        for box_id in [box_id for box_id, box in self.node.boxes.items() if not box.durable]:
            await self.destroy(box_id)

    async def close(self) -> None:
        self.node.boxes.clear()
        self.node.layers.clear()


class KillableStore(SqliteStore):
    """A store that a killed server writes no more into; the file, or the memory, stays."""

    node = Node()

    async def _run(self, act: Callable[..., T], *arguments: object) -> T:
        self.node.call("store")
        return await super()._run(act, *arguments)

    async def _write(self, act: Callable[..., T], *arguments: object) -> T:
        self.node.call("store")
        return await super()._write(act, *arguments)


async def killable_store(node: Node) -> KillableStore:
    store = await KillableStore.open()
    assert isinstance(store, KillableStore)
    store.node = node
    return store
