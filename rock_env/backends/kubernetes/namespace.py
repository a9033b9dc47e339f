"""The pods of one namespace as boxes, from any image.

Used by the `kubernetes` backend only, which has one of these or one per tenant beside it. Each box is one pod whose first
process is the guest, which listens on TCP and is reached at the pod's address: the API makes, follows and deletes pods and
carries no command. All servers of one store know all its pods, so any of them can take a box up.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import logging
import secrets
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from rock_env.backends.kubernetes.access import find_access
from rock_env.backends.kubernetes.api import Api, ApiRefusal
from rock_env.backends.kubernetes.archives import Archives
from rock_env.backends.kubernetes.manifest import (
    BOX_ID,
    LABEL_OWNER,
    LABEL_TEMPORARY,
    MADE_BY,
    PodOrder,
    check_spec,
    guest_config,
    pod,
    pod_name,
)
from rock_env.backends.kubernetes.options import KubernetesOptions, read_template
from rock_env.backends.kubernetes.pods import Pods
from rock_env.backends.kubernetes.reasons import address_of, end_of, is_over, late, trouble_of
from rock_env.backends.kubernetes.secret import kept_secret
from rock_env.errors import InfraError, InvalidArgument, NotFound, ResourceExhausted, RockError, Unavailable
from rock_env.guest.steering import Steering
from rock_env.guest_host.box import GuestBox
from rock_env.guest_host.link import GuestLink
from rock_env.spec import SandboxSpec
from rock_env.threads import for_life

__all__ = ["NamespaceBackend"]

_LISTEN_S = 20.0
"""How long the API may take to list the pods."""
_GONE_S = 30.0
"""How long a deleted pod's node may take to end it; then the pod is deleted without its node."""
_ENDED_S = 3.0
"""How long the news may take that a pod whose guest ended is over; then the pod is told to end."""
_KNOCKS_S = (0.02, 0.02, 0.05, 0.05, 0.1, 0.1, 0.2, 0.2, 0.5)
"""Pauses between attempts to reach a guest whose container starts just now; the last one again and again."""

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class _Wish:
    """What one box was asked to be."""

    sandbox_id: str
    spec: SandboxSpec
    durable: bool
    lease_s: float | None
    snapshot: str = ""


@dataclass(frozen=True, slots=True)
class _Cluster:
    """What the first use of the backend finds and makes."""

    api: Api
    pods: Pods
    path: str
    order: PodOrder
    secret: bytes
    owner: str

    def name(self, sandbox_id: str) -> str:
        return pod_name(self.owner, sandbox_id)

    def token(self, sandbox_id: str) -> bytes:
        """Return what the guest of a box and its servers know each other by; no server keeps it anywhere."""
        return hmac.digest(self.secret, b"rock-guest\0" + sandbox_id.encode(), hashlib.sha256)


class NamespaceBackend:
    """Make, find again and destroy boxes in pods of `options.namespace`. Satisfies `backends.base.Backend`.

    `secret` gives the secret of the store, which all its servers share; without it `root`, a folder, keeps one; without
    both, no box outlives this server. `archives` are the snapshots, the caller's to close.
    """

    name = "kubernetes"

    def __init__(
        self,
        options: KubernetesOptions,
        archives: Archives,
        *,
        root: Path | None = None,
        secret: Callable[[], Awaitable[bytes]] | None = None,
    ) -> None:
        self._options = options
        self._root = root
        self._secret = secret
        self._lock = asyncio.Lock()
        self._cluster: _Cluster | None = None
        self._watching: asyncio.Task[None] | None = None
        self._boxes: dict[str, tuple[GuestBox, _Wish]] = {}
        self._archives = archives
        self._closed = False

    @property
    def site(self) -> str:
        """Return where the pods are, by name; empty for a server that shares its store with nobody."""
        options = self._options
        return f"{options.cluster}/{options.namespace}" if self._secret and options.namespace else ""

    def hosts(self, spec: SandboxSpec) -> bool:
        """Return whether the spec names an image, or the operator one for all."""
        return bool(spec.image or self._options.image)

    def holds(self, sandbox_id: str) -> bool:
        """Return whether this server made or adopted the box here."""
        return sandbox_id in self._boxes

    def has_heard_of(self, sandbox_id: str) -> bool:
        """Return whether the box has a pod here, as far as the stream of changes has told."""
        cluster = self._cluster
        return cluster is not None and cluster.pods.get(cluster.name(sandbox_id)) is not None

    async def create(
        self,
        spec: SandboxSpec,
        *,
        sandbox_id: str,
        snapshot: str = "",
        durable: bool = False,
        lease_s: float | None = None,
    ) -> GuestBox:
        """Start one box from its image, and give it a snapshot's files; see `Backend.create`."""
        if (
            not spec.image
        ):  # what it would have imported ahead is of a Python that the operator's image has not
            spec = replace(spec, image=self._options.image, preload=())
        check_spec(spec, open_network=self._options.network == "namespace")
        cluster = await self._prepare()
        if durable and self._temporary:
            raise InvalidArgument(
                "a durable sandbox needs a server with a state folder (`--state DIR`) or a shared store"
            )
        if snapshot:
            await self._archives.need(snapshot)
        return await self._make(cluster, _Wish(sandbox_id, spec, durable, lease_s, snapshot))

    async def adopt(self, sandbox_id: str, *, spec: SandboxSpec) -> GuestBox | None:
        """Take up a durable box of an earlier server, or of another server of the store; None if it is gone."""
        cluster = await self._prepare()
        name = cluster.name(sandbox_id)
        try:
            found = await cluster.api.call("GET", f"{cluster.path}/{name}")
        except ApiRefusal as refusal:
            if refusal.status != 404:  # that says nothing of the box
                raise Unavailable(refusal.message) from refusal
            return None
        if is_over(found) or found["metadata"].get("deletionTimestamp"):
            log.info("a sandbox is gone sandbox_id=%s: %s", sandbox_id, end_of(found))
            await self._remove(cluster, sandbox_id)
            return None
        cluster.pods.expect(found)
        try:
            link = await self._enter(cluster, sandbox_id)
        except BaseException:
            cluster.pods.forget(name)
            raise
        return self._hold(cluster, _Wish(sandbox_id, spec, True, None), link)

    async def census(self) -> Mapping[str, str]:
        """Return every box that has a pod, whichever server of the store made it: id -> what it is."""
        cluster = await self._prepare()
        found = {}
        for each in (await cluster.pods.list())["items"]:
            about = each["metadata"]
            state = (
                "Terminating" if about.get("deletionTimestamp") else each["status"].get("phase", "Pending")
            )
            found[about.get("annotations", {}).get(BOX_ID, about["name"])] = f"pod {about['name']} ({state})"
        return found

    async def destroy(self, sandbox_id: str) -> None:
        """Remove whatever there is of a box. Nothing there: nothing is done."""
        held = self._boxes.get(sandbox_id)
        if held is not None:
            await held[0].close()
        else:
            await self._remove(await self._prepare(), sandbox_id)

    async def snapshot(self, sandbox_id: str, *, snapshot_id: str) -> int:
        """Keep what of the box's files is no more as its image has it; return its bytes."""
        box = self._find(sandbox_id)[0]
        await box.pause()
        try:
            changes = box.changes(most_bytes=self._options.snapshot_bytes)
            return await self._archives.keep(snapshot_id, changes, share=sandbox_id)
        finally:
            with suppress(RockError):  # of a box that is gone, which its loss says
                await asyncio.shield(box.resume())

    async def snapshots(self) -> set[str]:
        """Return the ids of all snapshots, of whichever namespace: they are files, and no pods."""
        return await self._archives.all()

    async def delete_snapshot(self, snapshot_id: str) -> None:
        """Remove a snapshot; no pod and no other snapshot needs it. Nothing there: nothing is done."""
        await self._archives.delete(snapshot_id)

    async def restore(self, sandbox_id: str, *, snapshot: str) -> GuestBox:
        """Replace the box by a new pod of the same id with the files of a snapshot."""
        cluster, (box, wish) = await self._prepare(), self._find(sandbox_id)
        await self._archives.need(snapshot)
        await box.close()
        return await self._make(cluster, replace(wish, snapshot=snapshot))

    async def take_over(self, sandbox_id: str, *, snapshot: str, steering: Steering) -> list[str]:
        """Have a clean box's guest take a snapshot's files but those that `steering` refuses; return these."""
        box = self._find(sandbox_id)[0]
        await self._archives.need(snapshot)
        return await box.take_over(self._archives.read(snapshot, share=sandbox_id), steering)

    async def let_go(self) -> None:
        """Close all connections: durable boxes live on, others are destroyed."""
        await self._leave(
            [box.let_go() if wish.durable else box.close() for box, wish in tuple(self._boxes.values())]
        )

    async def close(self) -> None:
        """Destroy every box this backend made or adopted."""
        await self._leave([box.close() for box, _ in tuple(self._boxes.values())])

    @property
    def _patience(self) -> tuple[float, ...]:
        """Return until when a pod must have a node, and its guest must answer."""
        return min(self._options.room_s, self._options.start_s), self._options.start_s

    @property
    def _temporary(self) -> bool:
        return self._secret is None and self._root is None

    async def _leave(self, ends: list[Coroutine[Any, Any, None]]) -> None:
        """End the boxes, then everything else; what fails does not keep the rest from ending, and is raised last."""
        failed = [error for error in await asyncio.gather(*ends, return_exceptions=True) if error is not None]
        self._boxes.clear()
        async with self._lock:
            self._closed = True
            cluster, self._cluster = self._cluster, None
            if self._watching is not None:
                self._watching.cancel()
                await asyncio.gather(self._watching, return_exceptions=True)
            if cluster is not None:
                await cluster.api.close()
        if failed:
            raise failed[0]

    async def _prepare(self) -> _Cluster:
        async with self._lock:
            if self._closed:
                raise NotFound("the kubernetes backend is closed")
            if self._cluster is None:
                self._cluster = await self._open()
            return self._cluster

    async def _open(self) -> _Cluster:
        options = self._options
        if not options.guest:
            raise InvalidArgument(
                "the kubernetes backend needs the image that brings the guest into pods. Build and push it "
                "(`ale rock image push REGISTRY`), then name it: --backend kubernetes:guest=REGISTRY/rock-guest:VERSION."
            )
        secret = await self._own_secret()
        access = await for_life(find_access, options.kubeconfig, options.context)
        template = await for_life(read_template, options.template) if options.template else {}
        owner = hashlib.sha256(b"rock-owner\0" + secret).hexdigest()[:12]
        namespace = options.namespace or access.namespace
        api = Api(access)
        order = PodOrder(
            guest_image=options.guest,
            port=options.port,
            profile=options.profile,
            user=options.user,
            read_only_root=options.read_only_root,
            gpu=options.gpu,
            slot=options.slot,
            reserved=options.reserved,
            template=template,
        )
        pods = Pods(api, namespace, f"{LABEL_OWNER}={owner}")
        self._watching = asyncio.create_task(pods.run())
        try:
            async with asyncio.timeout(_LISTEN_S):
                await pods.opened()
        except BaseException as error:
            self._watching.cancel()
            await asyncio.gather(self._watching, return_exceptions=True)
            await api.close()
            if isinstance(error, TimeoutError):
                raise Unavailable(
                    f"the pods of namespace {namespace!r} cannot be listed at {access.url} in {_LISTEN_S:g} s; the "
                    "server's log says why"
                ) from error
            raise
        return _Cluster(api, pods, f"/api/v1/namespaces/{namespace}/pods", order, secret, owner)

    async def _own_secret(self) -> bytes:
        if self._secret is not None:
            return await self._secret()
        return secrets.token_bytes(32) if self._root is None else await for_life(kept_secret, self._root)

    async def _make(self, cluster: _Cluster, wish: _Wish) -> GuestBox:
        posting = asyncio.ensure_future(self._post(cluster, wish))
        try:
            made = await asyncio.shield(posting)
        except asyncio.CancelledError:
            with suppress(RockError):
                await posting
                await self._discard(cluster, wish.sandbox_id)
            raise
        try:
            cluster.pods.expect(made)
            link = await self._enter(cluster, wish.sandbox_id)
            try:
                await link.configure(guest_config(wish.spec, cluster.order, durable=wish.durable))
                if wish.lease_s is not None:
                    await link.lease(wish.lease_s)
            except BaseException:
                await link.close(end=False)
                raise
        except BaseException:
            await asyncio.shield(self._discard(cluster, wish.sandbox_id))
            raise
        pod_made = made["metadata"]["name"]
        log.debug("sandbox started sandbox_id=%s spec=%s pod=%s", wish.sandbox_id, wish.spec.digest, pod_made)
        box = self._hold(cluster, wish, link)
        if wish.snapshot:
            try:
                await box.take_changes(self._archives.read(wish.snapshot, share=wish.sandbox_id))
            except BaseException:
                await asyncio.shield(box.close())
                raise
        return box

    async def _post(self, cluster: _Cluster, wish: _Wish) -> dict[str, Any]:
        """Make the pod once, also where the answer to it is lost on the way."""
        name, made_by = cluster.name(wish.sandbox_id), secrets.token_hex(8)
        body = pod(
            wish.spec,
            cluster.order,
            name=name,
            sandbox_id=wish.sandbox_id,
            token=cluster.token(wish.sandbox_id),
            labels={LABEL_OWNER: cluster.owner, LABEL_TEMPORARY: str(self._temporary).lower()},
            made_by=made_by,
        )
        try:
            made: dict[str, Any] = await cluster.api.call("POST", cluster.path, body=body)
        except ApiRefusal as refusal:
            if refusal.reason != "AlreadyExists":
                raise
            made = await cluster.api.call("GET", f"{cluster.path}/{name}")
            if made["metadata"].get("annotations", {}).get(MADE_BY) != made_by:
                raise InvalidArgument(f"a sandbox {wish.sandbox_id!r} exists already") from refusal
        return made

    async def _enter(self, cluster: _Cluster, sandbox_id: str) -> GuestLink:
        """Wait for the pod and reach its guest. Raise what keeps it from coming up."""
        name = cluster.name(sandbox_id)
        failing = asyncio.ensure_future(cluster.pods.until(name, trouble_of))
        reaching = asyncio.ensure_future(self._reach(cluster, sandbox_id))
        try:
            waited_s = 0.0
            for until_s in self._patience:
                timeout_s, waited_s = until_s - waited_s, until_s
                await asyncio.wait(
                    (reaching, failing), timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED
                )
                if reaching.done():
                    return reaching.result()
                if failing.done():
                    raise failing.result()
                error = late(cluster.pods.get(name), waited_s)
                if isinstance(error, ResourceExhausted):  # it has no node, and what is left is for its start
                    break
            raise error
        finally:
            failing.cancel()
            if not reaching.done():
                reaching.cancel()
            await asyncio.gather(failing, reaching, return_exceptions=True)

    async def _reach(self, cluster: _Cluster, sandbox_id: str) -> GuestLink:
        """Knock at the pod's address until its guest listens: nothing tells when it does sooner than itself."""
        name, token = cluster.name(sandbox_id), cluster.token(sandbox_id)
        entered = False

        async def explain() -> str:
            return await cluster.pods.explain(name) if entered else ""

        address = await cluster.pods.until(name, address_of)
        attempt = 0
        while True:
            try:
                link = await GuestLink.reach(address, cluster.order.port, token=token, explain=explain)
            except InfraError as error:
                if not isinstance(error.__cause__, OSError):  # it listens, and is not the one we look for
                    raise
                await asyncio.sleep(_KNOCKS_S[min(attempt, len(_KNOCKS_S) - 1)])
                attempt += 1
            else:
                entered = True
                return link

    def _hold(self, cluster: _Cluster, wish: _Wish, link: GuestLink) -> GuestBox:
        async def clean_up() -> None:
            self._boxes.pop(wish.sandbox_id, None)  # first: if the rest fails, `destroy` begins anew
            await self._remove(cluster, wish.sandbox_id, ended=True)

        box = GuestBox(wish.sandbox_id, link, isolation=wish.spec.runtime or "kubernetes", clean_up=clean_up)
        self._boxes[wish.sandbox_id] = (box, wish)
        return box

    def _find(self, sandbox_id: str) -> tuple[GuestBox, _Wish]:
        held = self._boxes.get(sandbox_id)
        if held is None:
            raise NotFound(f"there is no sandbox {sandbox_id!r} in this backend")
        return held

    async def _discard(self, cluster: _Cluster, sandbox_id: str) -> None:
        """Delete the pod of a box in which nothing ever ran, without waiting for its node: its guest ends by itself."""
        name = cluster.name(sandbox_id)
        await self._delete(cluster, name, grace_s=0)
        cluster.pods.forget(name)

    async def _remove(self, cluster: _Cluster, sandbox_id: str, *, ended: bool = False) -> None:
        """Delete a box's pod, once its containers have ended; one whose node does not answer is deleted all the same.

        `ended`: its guest was told to end, so that the pod may end by itself, which saves a write.
        """
        name = cluster.name(sandbox_id)
        now = cluster.pods.get(name)
        uid = now["metadata"]["uid"] if now is not None and (ended or is_over(now)) else ""
        if not uid or not await cluster.pods.ended(name, uid, within_s=_ENDED_S):
            uid = await self._delete(cluster, name, grace_s=1)
            if uid and not await cluster.pods.ended(name, uid, within_s=_GONE_S):
                log.warning("its node does not end a sandbox sandbox_id=%s within %g s", sandbox_id, _GONE_S)
        if uid:
            # Its kubelet would take some seconds more; until then the pod counts against the quota.
            await self._delete(cluster, name, grace_s=0)
        cluster.pods.forget(name)

    async def _delete(self, cluster: _Cluster, name: str, *, grace_s: int) -> str:
        """Have a pod deleted; return its uid, empty where there is none."""
        try:
            deleted = await cluster.api.call(
                "DELETE", f"{cluster.path}/{name}", params={"gracePeriodSeconds": str(grace_s)}
            )
        except ApiRefusal as refusal:
            if refusal.status != 404:
                raise
            return ""
        return str(deleted["metadata"].get("uid") or deleted["details"]["uid"])
