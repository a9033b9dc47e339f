"""The sandboxes of a server: make one, take one up, list them, watch them.

Reached as `client.sandboxes`. What one sandbox can do is `AsyncSandbox`.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import aclosing

from rock_env.client.retry import patient
from rock_env.client.sandbox.calls import texts
from rock_env.client.sandbox.handle import AsyncSandbox, HeldSandboxes
from rock_env.client.sandbox.types import SandboxInfo, SnapshotInfo, sandbox_info, snapshot_info
from rock_env.errors import InvalidArgument
from rock_env.lifecycle import SandboxState
from rock_env.proto.v1 import sandbox_pb2 as pb
from rock_env.snapshots import SnapshotState
from rock_env.spec import SandboxSpec
from rock_env.wire.sandboxes import duration, spec_message

__all__ = ["DEFAULT_LEASE_S", "Sandboxes"]

DEFAULT_LEASE_S = 60.0
"""A sandbox outlives a user that died by at most this long."""


class Sandboxes(HeldSandboxes):
    """The SandboxService of one server. Use on its client's event loop."""

    async def create(
        self,
        image: str = "",
        *,
        spec: SandboxSpec | None = None,
        lease_s: float | None = DEFAULT_LEASE_S,
        idle_timeout_s: float | None = None,
        labels: Mapping[str, str] | None = None,
        environment: str = "",
        snapshot: str = "",
        wait_s: float = 0.0,
    ) -> AsyncSandbox:
        """Make a sandbox and return it running; its lease renews itself until it is deleted or let go.

        `image` is short for a spec with nothing else; neither means a process sandbox. `lease_s` None: no lease, it
        lives to its lifetime's end. `snapshot` is the id of one to start from, with its own spec where none is given.
        While the server has no capacity it is asked again for up to `wait_s` seconds. Raise `InvalidArgument`,
        `ResourceExhausted` and `InfraError`.
        """
        if image and spec is not None:
            raise InvalidArgument(f"got image {image!r} and a spec: put the image into the spec.")
        inherit = bool(snapshot) and spec is None and not image
        request = pb.CreateSandboxRequest(
            spec=None if inherit else spec_message(spec or SandboxSpec(image=image)),
            idempotency_key=self.calls.key(),
            labels=texts(labels, "labels"),
            lease=duration(lease_s),
            idle_timeout=duration(idle_timeout_s),
            environment=environment,
            snapshot_id=snapshot,
        )
        asked_at = asyncio.get_running_loop().time()

        async def ask() -> SandboxInfo:
            nonlocal asked_at
            asked_at = asyncio.get_running_loop().time()
            return sandbox_info(await self.calls.unary("Create", request))

        made = await patient(ask, for_s=wait_s)
        return self.taken(made, lease_s=lease_s, asked_at=asked_at)

    async def attach(self, sandbox_id: str, *, lease_s: float | None = None) -> AsyncSandbox:
        """Take up a sandbox that exists; with `lease_s` its lease is renewed from now on. Raise `NotFound`."""
        asked_at = asyncio.get_running_loop().time()
        box = AsyncSandbox(self, await self.get(sandbox_id), lease_s=lease_s, owned=False)
        if lease_s is not None:
            await box.renew(lease_s)
        box.keep(asked_at=asked_at)
        return box

    async def get(self, sandbox_id: str) -> SandboxInfo:
        """Return a sandbox's record. Raise `NotFound` for an id that is unknown or deleted long ago."""
        request = pb.GetSandboxRequest(id=sandbox_id)
        return sandbox_info(await self.calls.unary("Get", request, sandbox_id=sandbox_id))

    async def snapshots(
        self,
        *,
        sandbox_id: str = "",
        labels: Mapping[str, str] | None = None,
        states: Iterable[SnapshotState] = (),
    ) -> list[SnapshotInfo]:
        """Return the caller's snapshots, of one sandbox if it is named: those in `states`, or all that can be used."""
        found: list[SnapshotInfo] = []
        request = pb.ListSnapshotsRequest(
            sandbox_id=sandbox_id,
            labels=texts(labels, "labels"),
            states=[pb.SnapshotState.Value(f"SNAPSHOT_STATE_{state}") for state in states],
        )
        while True:
            page = await self.calls.unary("ListSnapshots", request)
            found += map(snapshot_info, page.snapshots)
            if not page.next_page_token:
                return found
            request.page_token = page.next_page_token

    async def get_snapshot(self, snapshot_id: str) -> SnapshotInfo:
        """Return a snapshot's record. Raise `NotFound`."""
        return snapshot_info(await self.calls.unary("GetSnapshot", pb.GetSnapshotRequest(id=snapshot_id)))

    async def delete_snapshot(self, snapshot_id: str) -> SnapshotInfo:
        """Delete a snapshot; its layer is kept while a sandbox or another snapshot builds upon it."""
        return snapshot_info(
            await self.calls.unary("DeleteSnapshot", pb.DeleteSnapshotRequest(id=snapshot_id))
        )

    async def list(
        self,
        *,
        labels: Mapping[str, str] | None = None,
        states: Iterable[SandboxState] = (),
        environment: str = "",
    ) -> list[SandboxInfo]:
        """Return the caller's sandboxes by id: those in `states`, or all that are not deleted."""
        found: list[SandboxInfo] = []
        request = pb.ListSandboxesRequest(
            labels=texts(labels, "labels"),
            states=[pb.SandboxState.Value(f"SANDBOX_STATE_{state}") for state in states],
            environment=environment,
        )
        while True:
            page = await self.calls.unary("List", request)
            found += map(sandbox_info, page.sandboxes)
            if not page.next_page_token:
                return found
            request.page_token = page.next_page_token

    async def watch(
        self, *, labels: Mapping[str, str] | None = None, after_revision: int = 0
    ) -> AsyncIterator[SandboxInfo]:
        """Yield the sandboxes as they are, or as they changed after a revision, then each change as it happens.

        A lost connection goes on after the last change that was seen. Raise `FailedPrecondition` for a revision the
        server has not reached.
        """
        seen = after_revision

        def request() -> pb.WatchSandboxesRequest:
            return pb.WatchSandboxesRequest(labels=texts(labels, "labels"), after_revision=seen)

        async with aclosing(self.calls.resumed("Watch", request)) as changes:
            async for change in changes:
                seen = max(seen, change.revision)
                yield sandbox_info(change)
