"""Tenants with a namespace each: a used-up quota is one tenant's trouble, and another server finds every box."""

from __future__ import annotations

import asyncio
import json
import secrets
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager

import pytest
from kubernetes_cluster import guest_image, kubectl, namespace, tools_image  # noqa: F401  fixtures

from rock_env.backends.base import part_of
from rock_env.backends.kubernetes.backend import KubernetesBackend
from rock_env.backends.kubernetes.options import KubernetesOptions
from rock_env.errors import PermissionDenied, ResourceExhausted
from rock_env.spec import Resources, SandboxSpec

SPEC = SandboxSpec(resources=Resources(cpus=1, memory_bytes=128 << 20, disk_bytes=128 << 20))


@pytest.fixture
def own(guest_image: str) -> Iterator[dict[str, str]]:  # noqa: F811
    """Make a namespace for each of two tenants: the first may have one pod."""
    made = {tenant: f"rock-boxes-{tenant}-{secrets.token_hex(4)}" for tenant in ("a", "b")}
    try:
        for name in made.values():
            kubectl("create", "namespace", name)
        kubectl("-n", made["a"], "create", "quota", "rock", "--hard=pods=1")
        yield made
    finally:
        kubectl("delete", "namespace", *made.values(), "--ignore-not-found", "--wait=false")


@asynccontextmanager
async def opened(options: KubernetesOptions) -> AsyncIterator[KubernetesBackend]:
    async def secret() -> bytes:
        return b"t" * 32

    backend = KubernetesBackend(options, secret=secret)
    try:
        yield backend
    finally:
        await backend.let_go()


async def pods_of(name: str) -> set[str]:
    listed = await asyncio.to_thread(kubectl, "-n", name, "get", "pods", "-o", "json")
    return {each["metadata"]["annotations"]["rock.sandbox"] for each in json.loads(listed)["items"]}


async def test_a_tenant_that_uses_up_its_quota_leaves_others_theirs(
    own: dict[str, str],
    namespace: str,  # noqa: F811
    guest_image: str,  # noqa: F811
    tools_image: str,  # noqa: F811
) -> None:
    options = KubernetesOptions(
        namespace=namespace,
        tenants=own,
        guest=guest_image,
        image=tools_image,
        profile="image",
        reserved=0.1,
    )
    async with opened(options) as first:
        a, b = (part_of(first, tenant) for tenant in ("a", "b"))
        await a.create(SPEC, sandbox_id="of-a", durable=True)
        with pytest.raises(ResourceExhausted, match="exceeded quota"):
            await a.create(SPEC, sandbox_id="more-of-a")
        box = await b.create(SPEC, sandbox_id="of-b", durable=True)
        await box.write_file("kept", b"b's")
        with pytest.raises(PermissionDenied, match="no namespace"):
            part_of(first, "c")
        assert [await pods_of(name) for name in (own["a"], own["b"], namespace)] == [
            {"of-a"},
            {"of-b"},
            set(),
        ]
    async with opened(options) as second:
        assert set(await second.census()) == {"of-a", "of-b"}
        taken = await second.adopt("of-b", spec=SPEC)
        assert taken is not None
        assert await taken.read_file("kept") == b"b's"
        for box_id in ("of-a", "of-b"):  # one that nobody took up, and one that is held
            await second.destroy(box_id)
        assert not await second.census()
        assert [await pods_of(name) for name in own.values()] == [set(), set()]


async def test_boxes_from_before_a_tenant_had_a_namespace_go_on(
    own: dict[str, str],
    namespace: str,  # noqa: F811
    guest_image: str,  # noqa: F811
    tools_image: str,  # noqa: F811
) -> None:
    before = KubernetesOptions(
        namespace=namespace, guest=guest_image, image=tools_image, profile="image", reserved=0.1
    )
    async with opened(before) as first:
        await (await part_of(first, "a").create(SPEC, sandbox_id="old", durable=True)).write_file("f", b"1")
    async with opened(before.model_copy(update={"tenants": own})) as second:
        taken = await second.adopt("old", spec=SPEC)
        assert taken is not None
        assert await taken.read_file("f") == b"1"
        await second.destroy("old")
        assert not await pods_of(namespace)
