"""A sandbox core with its checkpoint tree over a node in memory, and how it is killed and started again.

Used by the tests of the tree; what a killed server leaves is the node's and the store's.
"""

from __future__ import annotations

from contextvars import ContextVar

from memory_backend import KillableStore, Killed, MemoryBackend, Node

from rock_env.server.sandboxes.checkpoints import CheckpointTree
from rock_env.server.sandboxes.core import SandboxCore, SandboxWish
from rock_env.spec import SandboxSpec

CALLER: ContextVar[str] = ContextVar("caller", default="")


class Server:
    """A sandbox core with its tree on a node; killed, it leaves the node and the store as they are."""

    def __init__(self, node: Node, store: KillableStore, name: str = "process") -> None:
        self.node = node
        self.backend = MemoryBackend(node, name)
        self.core = SandboxCore(self.backend, store, tenant=CALLER.get, durable=True)
        self.tree = CheckpointTree(self.core)

    async def kill(self) -> None:
        self.node.calls_left = 0
        self.core.ledger.deadlines.close()
        await self.core.tasks.finish(0)
        await self.core.lives.close()

    async def make(self, snapshot_id: str = "", key: str = "") -> str:
        wish = SandboxWish(SandboxSpec(), snapshot_id=snapshot_id, key=key)
        return (await self.core.create(wish)).id

    async def write(self, sandbox_id: str, path: str, content: bytes) -> None:
        async with self.core.using(sandbox_id) as box:
            await box.write_file(path, content)


async def started(node: Node, store: KillableStore) -> Server:
    node.calls_left = None
    server = Server(node, store)
    await server.core.__aenter__()
    return server


async def killed_amid_its_start(node: Node, store: KillableStore, calls: int) -> None:
    node.calls_left = calls
    server = Server(node, store)
    try:
        await server.core.__aenter__()
    except* Killed:
        pass
    await server.kill()


async def again(server: Server) -> Server:
    """Kill the server and start the next one."""
    await server.kill()
    store = server.core.ledger.store
    assert isinstance(store, KillableStore)
    return await started(server.node, store)
