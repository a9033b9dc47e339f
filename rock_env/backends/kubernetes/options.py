"""What an operator decides about pods: `--backend kubernetes:KEY=VALUE,…`."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, Self

from pydantic import Field, field_validator, model_validator

from rock_env.backends.kubernetes.manifest import own_fields
from rock_env.backends.plugin import BackendOptions
from rock_env.errors import InvalidArgument
from rock_env.foreign.files import read_text
from rock_env.security.auth import check_tenant

__all__ = ["KubernetesOptions", "read_template"]


_NAMESPACE = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?", re.ASCII)


class KubernetesOptions(BackendOptions):
    """Options of the `kubernetes` backend."""

    namespace: str = Field("", pattern=r"^([a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?)?$")
    """Namespace of the pods; empty: that of the kubeconfig's context, or of the server's own pod. Only where it is named do
    servers of one store take up each other's sandboxes."""
    tenants: Mapping[str, str] = Field(default_factory=dict)
    """`TENANT:NAMESPACE;TENANT:NAMESPACE`: namespaces that hold one tenant's pods each, and nobody else's."""
    others: Literal["refuse", "namespace"] = "refuse"
    """Where `tenants` does not name the tenant: refuse its sandboxes, or have them in `namespace` together."""
    cluster: str = Field("", pattern=r"^[A-Za-z0-9._-]{0,63}$")
    """A name for the cluster, equal at all its servers; needed where servers of one store use several clusters."""
    kubeconfig: Path | None = None
    """Instead of the pod's service account, `KUBECONFIG` or `~/.kube/config`."""
    context: str = ""
    """Of the kubeconfig; empty: its current one."""
    guest: str = ""
    """Image that brings the guest into a pod, as `ale rock image push` names it."""
    image: str = ""
    """For sandboxes that name no image; empty: these are refused."""
    port: int = Field(8130, ge=1024, le=65535)
    """Where a pod's guest listens."""
    profile: Literal["restricted", "image"] = "restricted"
    """`restricted` refuses images that run as root; `image` lets an image have the user it names, root without a capability
    included."""
    user: int | None = Field(None, ge=1, le=4294967294)
    """Run every image as this user instead of its own."""
    read_only_root: bool = False
    """Only the working folder and `/tmp` can be written."""
    network: Literal["none", "namespace"] = "none"
    """Whether a sandbox may ask for what the namespace's policies let it reach."""
    gpu: str = "nvidia.com/gpu"
    """Resource that `gpus` counts."""
    reserved: float = Field(1.0, gt=0, le=1)
    """Share of its CPUs that a pod has for itself; the rest it gets while the node has them to spare."""
    slot: str = Field(
        "", pattern=r"^([a-z0-9]([a-z0-9.-]*[a-z0-9])?/[A-Za-z0-9]([A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?)?$"
    )
    """Extended resource of which every pod takes one: what a node has of it caps the sandboxes there."""
    template: Path | None = None
    """JSON file with fields of a pod's spec: tolerations, affinity, imagePullSecrets, nodeSelector, priorityClassName, …"""
    start_s: float = Field(300.0, gt=0, le=3600)
    """How long a pod may take to be placed, pull its image and start, in seconds."""
    room_s: float = Field(3600.0, gt=0, le=3600)
    """How long of these it may have no node: where no autoscaler makes one, there is little to wait for."""
    snapshots: Path | None = None
    """Folder, mounted by all servers of the store and used by nobody else, that holds snapshots instead of each server's
    state folder: then any of them can use those of the others."""
    snapshot_bytes: int = Field(1 << 30, ge=1)
    """What the changed files of one snapshot may hold, in bytes."""
    snapshot_room: int = Field(20 << 30, ge=1)
    """What all snapshots in a folder may hold, in bytes."""

    @field_validator("tenants", mode="before")
    @classmethod
    def _read_tenants(cls, given: Any) -> Any:
        if not isinstance(given, str):
            return given
        pairs = [part.partition(":")[::2] for part in given.split(";")]
        if len(dict(pairs)) != len(pairs):
            raise ValueError("a tenant is named twice")
        return dict(pairs)

    @model_validator(mode="after")
    def _check_tenants(self) -> Self:
        for tenant, namespace in self.tenants.items():
            check_tenant(tenant)
            if not _NAMESPACE.fullmatch(namespace):
                raise ValueError(f"the tenant {tenant!r} needs the name of a namespace, got {namespace!r}")
        if self.tenants and not self.namespace:
            raise ValueError("with tenants, the namespace for all others must be named too (namespace=NAME)")
        if len({self.namespace, *self.tenants.values()}) != 1 + len(self.tenants):
            raise ValueError("two tenants, or one and all others, would share a namespace: give each its own")
        return self


def read_template(path: Path) -> dict[str, Any]:
    """Read the file of `template`. Blocks. Raise `InvalidArgument`."""
    try:
        return own_fields(read_text(path), str(path))
    except OSError as error:
        raise InvalidArgument(f"the template {path} cannot be read: {error.strerror}") from error
