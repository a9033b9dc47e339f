"""What a server adds to the spec of a box: that of an image once, that of what boxes may use each time."""

from __future__ import annotations

import asyncio
from dataclasses import replace

from memory_backend import MemoryBackend, Node, killable_store

from rock_env.backends.router import BackendRouter
from rock_env.server.sandboxes.checkpoints import CheckpointTree, TreeWish
from rock_env.server.sandboxes.core import SandboxCore, SandboxWish
from rock_env.spec import SandboxSpec


async def test_a_spec_is_given_what_the_server_has_for_boxes_with_a_snapshot_and_without() -> None:
    async with await killable_store(Node()) as store:
        backends = BackendRouter(MemoryBackend(Node(), "docker"))
        core = SandboxCore(
            backends,
            store,
            pin=lambda _, spec: asyncio.sleep(0, replace(spec, runtime="pinned")),
            provide=lambda _, spec: replace(spec, workdir="/given"),
        )
        async with core:
            box = await core.create(SandboxWish(SandboxSpec(image="debian")))
            snapshot = await CheckpointTree(core).snapshot(box.id, TreeWish())
            made = await core.create(SandboxWish(SandboxSpec(image="debian"), snapshot_id=snapshot.id))
            assert (box.spec.runtime, made.spec.runtime, made.spec.workdir) == ("pinned", "", "/given")
