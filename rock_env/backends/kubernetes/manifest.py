"""What a sandbox's pod is asked to be: one pure translation from a spec and the operator's options.

Used by the `kubernetes` backend only. Every limit and every right of a pod is decided here, and nothing else: nothing of
this module talks to the cluster.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from rock_env.backends.docker.bundle import BOX_RUN, BOX_TOOLS, GUEST_ARGV
from rock_env.backends.image_boxes import check_inside, check_resources, guest_basics, limits
from rock_env.backends.kubernetes.reasons import BOX
from rock_env.errors import InvalidArgument, Unimplemented
from rock_env.foreign.files import parsed
from rock_env.spec import Resources, SandboxSpec

__all__ = [
    "BOX_ID",
    "CARRIER",
    "LABEL_OWNER",
    "LABEL_TEMPORARY",
    "MADE_BY",
    "PodOrder",
    "check_spec",
    "guest_config",
    "pod",
    "pod_name",
]

LABEL_OWNER = "rock.server"
"""Whose the pod is: derived from the secret of a store, so that all its servers have the same."""
LABEL_TEMPORARY = "rock.temporary"
LABEL_NETWORK = "rock.network"
"""`none` or `open`: the chart's policies select by it."""
BOX_ID = "rock.sandbox"
MADE_BY = "rock.made-by"
"""A random word of the call that made the pod: one whose answer was lost knows its own by it."""

DEFAULT_WORKDIR = SandboxSpec().workdir
GUEST_BYTES = 16 << 20
"""What the guest itself may need beside the commands."""
TOKEN_FILE = f"{BOX_RUN}/door/token"
"""Where `carry` puts it, in the box."""
TOOLS_BYTES = 192 << 20
TOKEN_BYTES = 1 << 20
CARRIER = 65532
"""The user that the guest image runs as."""
_LATE_S = 120
"""How much later than the guest the kubelet ends a pod whose lifetime is over."""
_IMAGE = re.compile(r"[A-Za-z0-9][A-Za-z0-9_./:@-]{0,511}", re.ASCII)
_NAME = re.compile(r"[a-z0-9]([a-z0-9-]{0,38}[a-z0-9])?", re.ASCII)
_CLOSED = ("/proc", "/sys", "/dev", BOX_TOOLS, "/etc/hosts", "/etc/hostname", "/etc/resolv.conf")
_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_OOM_COUNTERS = ("/sys/fs/cgroup/memory.events", "/sys/fs/cgroup/memory/memory.oom_control")
"""Of control groups of version 2, then 1."""


@dataclass(frozen=True, slots=True)
class PodOrder:
    """What the operator decided for all pods."""

    guest_image: str
    port: int
    profile: Literal["restricted", "image"]
    user: int | None
    read_only_root: bool
    gpu: str
    slot: str
    reserved: float
    template: Mapping[str, Any]
    """Fields of a pod's spec as they are: tolerations, affinity, pull secrets, …"""


def check_spec(spec: SandboxSpec, *, open_network: bool) -> None:
    """Raise `InvalidArgument` or `Unimplemented` for what no pod can be."""
    if not spec.image:
        raise InvalidArgument(
            "the kubernetes backend needs an image; a sandbox without one is the process backend's. The operator may give "
            "one for all that have none: --backend kubernetes:image=NAME."
        )
    if not _IMAGE.fullmatch(spec.image) or ".." in spec.image or "//" in spec.image:
        raise InvalidArgument(f"{spec.image[:200]!r} is not an image name such as 'debian:bookworm-slim'")
    check_inside(spec, _CLOSED)
    if spec.network.allow:
        raise Unimplemented(
            "the kubernetes backend gives no sandbox an allow list of its own: what sandboxes with a network may reach is "
            "the namespace's (sandboxes.internet and .allow of the chart). Leave network.allow empty, or use docker."
        )
    if spec.network.enabled and not open_network:
        raise Unimplemented(
            "the operator gives sandboxes no network in this cluster (--backend kubernetes:network=namespace, and "
            "sandboxes.internet of the chart, would); ask for network off, or use the docker backend"
        )
    check_resources(spec)


def pod_name(owner: str, sandbox_id: str) -> str:
    """Return the name of a sandbox's pod: equal ids give equal names, so that no sandbox is made twice."""
    inner = (
        sandbox_id if _NAME.fullmatch(sandbox_id) else hashlib.sha256(sandbox_id.encode()).hexdigest()[:32]
    )
    return f"rock-{owner}-{inner}"


def pod(
    spec: SandboxSpec,
    order: PodOrder,
    *,
    name: str,
    sandbox_id: str,
    token: bytes,
    labels: Mapping[str, str],
    made_by: str,
) -> dict[str, Any]:
    """Return the pod for a sandbox, as the API takes it."""
    may = limits(spec)
    body: dict[str, Any] = {
        **order.template,
        "restartPolicy": "Never",
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "hostname": "sandbox",
        "terminationGracePeriodSeconds": 1,
        "activeDeadlineSeconds": math.ceil(spec.lifetime_s) + _LATE_S,
        "securityContext": {"seccompProfile": {"type": "RuntimeDefault"}},
        "initContainers": [_carrier(order, token)],
        "containers": [_box(spec, order, may)],
        "volumes": _volumes(spec, order, may),
    }
    if spec.runtime:
        body["runtimeClassName"] = spec.runtime
    network = {LABEL_NETWORK: "open" if spec.network.enabled else "none"}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name,
            "labels": {"app.kubernetes.io/managed-by": "rock", **labels, **network},
            "annotations": {BOX_ID: sandbox_id, MADE_BY: made_by},
        },
        "spec": body,
    }


def _rights(order: PodOrder, *, user: int | None) -> dict[str, Any]:
    rights: dict[str, Any] = {
        "allowPrivilegeEscalation": False,
        "capabilities": {"drop": ["ALL"]},
        "privileged": False,
    }
    if order.profile == "restricted" or user:
        rights["runAsNonRoot"] = True
    if user is not None:
        rights["runAsUser"] = user
    return rights


def _carrier(order: PodOrder, token: bytes) -> dict[str, Any]:
    small = {"cpu": "100m", "memory": "64Mi", "ephemeral-storage": str(TOOLS_BYTES)}
    return {
        "name": "guest",
        "image": order.guest_image,
        "imagePullPolicy": "IfNotPresent",
        "command": [*GUEST_ARGV[:-1], f"{BOX_TOOLS}/carry.pyc", "/rock/tools"],
        "env": [{"name": "ROCK_TOKEN", "value": token.hex()}],
        "resources": {"limits": {**small, "cpu": "1"}, "requests": small},
        "securityContext": {**_rights(order, user=CARRIER), "readOnlyRootFilesystem": True},
        "volumeMounts": [
            {"name": "rock-tools", "mountPath": "/rock/tools"},
            {"name": "rock-run", "mountPath": "/rock/run"},
        ],
    }


def _box(spec: SandboxSpec, order: PodOrder, may: Resources) -> dict[str, Any]:
    most = {
        "cpu": f"{math.ceil(may.cpus * 1000)}m",
        "memory": str(may.memory_bytes + GUEST_BYTES),
        "ephemeral-storage": str(may.disk_bytes + TOOLS_BYTES),
    }
    if may.gpus:
        most[order.gpu] = str(may.gpus)
    if order.slot:
        most[order.slot] = "1"
    mounts = [
        {"name": "rock-tools", "mountPath": BOX_TOOLS, "readOnly": True},
        {"name": "rock-run", "mountPath": BOX_RUN},
    ]
    return {
        "name": BOX,
        "image": spec.image,
        "imagePullPolicy": "IfNotPresent",
        "command": [*GUEST_ARGV, "--listen-tcp", f"0.0.0.0:{order.port}", "--token-file", TOKEN_FILE],
        "ports": [{"name": "guest", "containerPort": order.port}],
        "resources": {
            "limits": most,
            "requests": {**most, "cpu": f"{math.ceil(may.cpus * 1000 * order.reserved)}m"},
        },
        "securityContext": {
            **_rights(order, user=order.user),
            "readOnlyRootFilesystem": order.read_only_root,
        },
        "volumeMounts": [*mounts, *_own_mounts(spec, order)],
    }


def _own_mounts(spec: SandboxSpec, order: PodOrder) -> list[dict[str, Any]]:
    """Return the empty folders that the box works in."""
    mounts = []
    if spec.workdir == DEFAULT_WORKDIR:
        mounts.append({"name": "workspace", "mountPath": DEFAULT_WORKDIR})
    if order.read_only_root:
        mounts.append({"name": "tmp", "mountPath": "/tmp"})
    return mounts


def _volumes(spec: SandboxSpec, order: PodOrder, may: Resources) -> list[dict[str, Any]]:
    room = {"sizeLimit": str(may.disk_bytes)}
    volumes: list[dict[str, Any]] = [
        {"name": "rock-tools", "emptyDir": {"sizeLimit": str(TOOLS_BYTES)}},
        {"name": "rock-run", "emptyDir": {"medium": "Memory", "sizeLimit": str(TOKEN_BYTES)}},
    ]
    return volumes + [{"name": each["name"], "emptyDir": room} for each in _own_mounts(spec, order)]


def guest_config(spec: SandboxSpec, order: PodOrder, *, durable: bool) -> dict[str, object]:
    """Return what the guest is told once. What only the image knows, the guest sees for itself: see `guest/places`."""
    return guest_basics(spec, durable=durable) | {
        "image": {
            "env": {"PATH": _PATH, "HOME": "/", "TERM": "dumb", "LANG": "C.UTF-8"},
            "hidden": ["KUBERNETES_"],
            "default_workdir": DEFAULT_WORKDIR,
            "oom": list(_OOM_COUNTERS),
        },
        "workdir": spec.workdir,
        "public_workdir": spec.workdir,
        "volumes": [each["mountPath"] for each in _own_mounts(spec, order)],
        "env": dict(spec.env),
        "oom": None,
    }


def own_fields(text: str, source: str) -> dict[str, Any]:
    """Read the operator's template. Raise `InvalidArgument` for a field that is not theirs to set."""
    fields = parsed(json.loads, text, f"the template {source} is not JSON")
    if not isinstance(fields, dict) or (wrong := sorted(fields.keys() - _TEMPLATE)):
        got = ", ".join(wrong) if isinstance(fields, dict) else type(fields).__name__
        raise InvalidArgument(
            f"the template {source} may have the fields {', '.join(sorted(_TEMPLATE))} of a pod's spec, got {got}"
        )
    return fields


_TEMPLATE = {
    "affinity",
    "imagePullSecrets",
    "nodeSelector",
    "priorityClassName",
    "schedulerName",
    "tolerations",
    "topologySpreadConstraints",
}
