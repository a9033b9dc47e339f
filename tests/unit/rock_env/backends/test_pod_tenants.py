"""A namespace per tenant: who is mapped where, and that a box is found in whichever namespace it is."""

from __future__ import annotations

import asyncio
import json
import re
import ssl
from collections import Counter
from pathlib import Path
from typing import Any

import httpx
import pytest

from rock_env.backends.base import own_part, part_of, site_of, sites_of
from rock_env.backends.kubernetes import namespace as in_namespace
from rock_env.backends.kubernetes.access import Access
from rock_env.backends.kubernetes.api import Api
from rock_env.backends.kubernetes.backend import KubernetesBackend
from rock_env.backends.kubernetes.manifest import BOX_ID
from rock_env.backends.kubernetes.namespace import NamespaceBackend
from rock_env.backends.kubernetes.options import KubernetesOptions
from rock_env.backends.observed import observed
from rock_env.backends.plugin import choose_backends
from rock_env.backends.pool import PooledBackend
from rock_env.backends.router import BackendRouter
from rock_env.errors import FailedPrecondition, InvalidArgument, PermissionDenied, Unavailable
from rock_env.security.kubeconfig import TokenSource
from rock_env.spec import SandboxSpec

SPEC = SandboxSpec(image="debian")


def options(text: str) -> KubernetesOptions:
    (chosen,) = choose_backends([f"kubernetes:guest=guest,{text}"])
    assert isinstance(chosen.options, KubernetesOptions)
    return chosen.options


async def secret() -> bytes:
    return b"s" * 32


TWO = "namespace=boxes,tenants=research:boxes-a;a.b_c:boxes-b"


def test_tenants_are_read_with_their_namespaces() -> None:
    read = options(TWO)
    assert read.tenants == {"research": "boxes-a", "a.b_c": "boxes-b"}
    assert (read.others, options("namespace=boxes").tenants) == ("refuse", {})
    assert KubernetesOptions.model_validate_json(read.model_dump_json()) == read


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("namespace=boxes,tenants=a:one;b:one", "would share a namespace"),
        ("namespace=boxes,tenants=a:boxes", "would share a namespace"),
        ("namespace=boxes,tenants=a:one;a:two", "named twice"),
        ("tenants=a:one", "namespace for all others must be named"),
        ("namespace=boxes,tenants=", "bad tenant name ''"),
        ("namespace=boxes,tenants=a", "needs the name of a namespace"),
        ("namespace=boxes,tenants=a:One", "needs the name of a namespace"),
        ("namespace=boxes,tenants=a:../kube-system", "needs the name of a namespace"),
        ("namespace=boxes,tenants=a:b/pods", "needs the name of a namespace"),
        (f"namespace=boxes,tenants=a:{'x' * 64}", "needs the name of a namespace"),
        ("namespace=boxes,tenants=A:one", "bad tenant name 'A'"),
        (f"namespace=boxes,tenants={'a' * 64}:one", "bad tenant name"),
        ("namespace=boxes,tenants=a:one,others=anywhere", "others"),
    ],
)
def test_what_would_put_two_tenants_together_is_refused(text: str, said: str) -> None:
    with pytest.raises(InvalidArgument, match=said):
        options(text)


async def test_a_tenant_has_its_namespace_and_others_are_refused_without_naming_it() -> None:
    backend = KubernetesBackend(options(TWO), secret=secret)
    parts = {tenant: part_of(backend, tenant) for tenant in ("research", "a.b_c")}
    assert [site_of(part) for part in parts.values()] == ["@kubernetes//boxes-a", "@kubernetes//boxes-b"]
    for stranger in ("", "Research", "research ", "a-b-c", "boxes-a", "researc", "*"):
        with pytest.raises(PermissionDenied, match="no namespace") as refused:
            own_part(backend, stranger)
        assert "boxes-" not in refused.value.message.replace(repr(stranger), "")
    with pytest.raises(FailedPrecondition, match="stock of a warm pool"):
        await backend.create(SPEC, sandbox_id="pool-1")
    await backend.close()


async def test_others_share_a_namespace_by_choice() -> None:
    backend = KubernetesBackend(options(f"{TWO},others=namespace"), secret=secret)
    assert own_part(backend, "else") is None
    assert part_of(backend, "else") is backend
    assert own_part(backend, "research") is not None
    alone = KubernetesBackend(options("namespace=boxes"))
    assert own_part(alone, "anybody") is None
    for each in (backend, alone):
        await each.close()


async def test_the_sites_are_those_of_all_namespaces_through_every_layer() -> None:
    backend = KubernetesBackend(options(TWO), secret=secret)
    pool = PooledBackend(observed(backend, None))
    everywhere = {"@kubernetes//boxes", "@kubernetes//boxes-a", "@kubernetes//boxes-b"}
    assert sites_of(pool) == BackendRouter(pool).sites == everywhere
    assert site_of(pool) == "@kubernetes//boxes", "where stock is"
    assert site_of(part_of(pool, "research")) == "@kubernetes//boxes-a"
    unshared = KubernetesBackend(options(TWO))
    assert sites_of(unshared) == frozenset()
    for each in (pool, unshared):
        await each.close()


class Cluster:
    """The API of a cluster, as far as pods that are there already need it: list, watch, get and delete."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.pods: dict[str, dict[str, dict[str, Any]]] = {"boxes": {}, "boxes-a": {}, "boxes-b": {}}
        self.forbidden = ""
        self.broken = ""
        self.calls: Counter[str] = Counter()
        access = Access("https://cluster.example", ssl.create_default_context(), TokenSource("word"), "x")
        monkeypatch.setattr(in_namespace, "find_access", lambda *_: access)
        monkeypatch.setattr(in_namespace, "Api", self._api)

    def _api(self, access: Access) -> Api:
        made = Api(access)
        made._client = httpx.AsyncClient(
            transport=httpx.MockTransport(self._answer), base_url="https://cluster.example"
        )
        return made

    def add(self, namespace: str, name: str, box_id: str) -> None:
        about = {"name": name, "uid": name, "annotations": {BOX_ID: box_id}}
        self.pods[namespace][name] = {"metadata": about, "status": {"phase": "Succeeded"}}

    async def _answer(self, request: httpx.Request) -> httpx.Response:
        found = re.fullmatch(r"/api/v1/namespaces/([^/]+)/pods(?:/(.+))?", request.url.path)
        assert found is not None
        namespace, name = found.groups()
        self.calls[f"{request.method} {namespace} {name or ''}".strip()] += 1
        if namespace == self.forbidden:
            return httpx.Response(403, json={"message": "pods is forbidden"})
        if "watch" in request.url.params:
            await asyncio.Event().wait()
        pods = self.pods[namespace]
        if not name:
            return httpx.Response(200, json={"items": [*pods.values()], "metadata": {"resourceVersion": "1"}})
        if namespace == self.broken:
            return httpx.Response(500, json={"message": "etcdserver: leader changed"})
        if name not in pods:
            return httpx.Response(404, json={"message": "not found", "reason": "NotFound"})
        return httpx.Response(200, json=pods.pop(name) if request.method == "DELETE" else pods[name])


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Cluster:
    return Cluster(monkeypatch)


async def name_of(backend: KubernetesBackend, sandbox_id: str) -> str:
    return (await backend._shared._prepare()).name(sandbox_id)


async def test_boxes_of_all_namespaces_are_counted_and_each_is_destroyed_where_it_is(
    cluster: Cluster,
) -> None:
    backend = KubernetesBackend(options(TWO), secret=secret)
    for namespace, box_id in (("boxes", "one"), ("boxes-a", "two"), ("boxes-b", "three")):
        cluster.add(namespace, await name_of(backend, box_id), box_id)
    cluster.calls.clear()
    assert set(await backend.census()) == {"one", "two", "three"}
    await backend.destroy("two")
    deletes = {call for call in cluster.calls if call.startswith("DELETE")}
    assert deletes == {f"DELETE boxes-a {await name_of(backend, 'two')}"}, "nobody else is asked"
    assert set(await backend.census()) == {"one", "three"}
    await backend.destroy("unheard of")
    assert set(await backend.census()) == {"one", "three"}
    await backend.close()


async def test_a_box_is_looked_for_in_every_namespace_and_one_that_cannot_be_asked_says_so(
    cluster: Cluster,
) -> None:
    backend = KubernetesBackend(options(TWO), secret=secret)
    assert await backend.adopt("gone", spec=SPEC) is None
    await backend.close()
    cluster.forbidden = "boxes-b"
    backend = KubernetesBackend(options(TWO), secret=secret)
    with pytest.raises(FailedPrecondition, match="refuses this server"):
        await backend.adopt("gone", spec=SPEC)
    await backend.close()


async def test_a_namespace_whose_api_fails_does_not_say_that_a_box_is_lost(cluster: Cluster) -> None:
    cluster.broken = "boxes-a"
    backend = KubernetesBackend(options(TWO), secret=secret)
    with pytest.raises(Unavailable, match="leader changed"):
        await backend.adopt("somewhere", spec=SPEC)
    await backend.close()


async def test_a_namespace_that_does_not_answer_keeps_no_box_of_another(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    found, given_up = object(), []

    async def adopt(part: NamespaceBackend, sandbox_id: str, *, spec: SandboxSpec) -> object:
        if part.site.endswith("/boxes-b"):
            return found
        try:
            return await asyncio.Event().wait()
        except asyncio.CancelledError:
            given_up.append(part.site)
            raise

    monkeypatch.setattr(NamespaceBackend, "adopt", adopt)
    backend = KubernetesBackend(options(TWO), secret=secret)
    async with asyncio.timeout(30):
        assert await backend.adopt("box", spec=SPEC) is found
    assert sorted(given_up) == ["/boxes", "/boxes-a"]
    await backend.close()


async def test_namespaces_share_the_room_for_snapshots(tmp_path: Path) -> None:
    backend = KubernetesBackend(options(f"{TWO},snapshot_room=1000"), root=tmp_path)
    (tmp_path / "snapshots").mkdir()
    (tmp_path / "snapshots" / "s.tar").write_bytes(b"x")
    assert await backend.snapshots() == {"s"}
    assert {part._archives for part in backend._parts} == {backend._archives}
    await backend.delete_snapshot("s")
    assert await backend.snapshots() == set()
    await backend.close()


def test_the_options_of_tenants_cannot_hide_another_option() -> None:
    """A comma ends the option: whoever can write a tenant's name there is the operator, whose chart refuses commas."""
    with pytest.raises(InvalidArgument, match="KEY=VALUE"):
        options("namespace=boxes,tenants=a:one;b,c:two")
    assert json.loads(options(TWO).model_dump_json())["tenants"]["a.b_c"] == "boxes-b"
