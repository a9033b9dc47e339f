"""A Kubernetes cluster for tests: the one that KUBECONFIG names, a namespace of our own in it, and the guest's image."""

from __future__ import annotations

import json
import os
import secrets
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml  # type: ignore[import-untyped]
from docker_engine import TOOLS, skip_without, why_no_engine

from ale.rock.own_images import guest, tasks

__all__ = [
    "evict",
    "give_slots",
    "guest_image",
    "kubeconfig_of_an_account",
    "kubectl",
    "namespace",
    "tasks_image",
    "tools_image",
]

PYTHON = "python:3.11-slim"


ADMIN = "ROCK_TEST_ADMIN"
"""Names the kubeconfig that tests themselves use where KUBECONFIG is an account with fewer rights."""
GIVEN_NAMESPACE = "ROCK_TEST_NAMESPACE"
"""Names the namespace that such an account has its rights in."""


def kubectl(*words: str, given: str = "") -> str:
    """Run the cluster's client; return what it printed."""
    own = {**os.environ, "KUBECONFIG": os.environ.get(ADMIN) or os.environ.get("KUBECONFIG", "")}
    done = subprocess.run(
        ["kubectl", *words], input=given, capture_output=True, text=True, check=False, env=own
    )
    assert done.returncode == 0, f"kubectl {' '.join(words)}\n{done.stderr}"
    return done.stdout.strip()


def evict(namespace: str, name: str) -> None:
    """Evict a pod, as a node that is drained does."""
    # Before the kubelet has told of it, Kubernetes 1.20 leaves a deletion until it looks at all pods, within 90 s.
    kubectl("-n", namespace, "wait", "--for=condition=Ready", f"pod/{name}", "--timeout=60s")
    eviction = {
        "apiVersion": "policy/v1beta1",
        "kind": "Eviction",
        "metadata": {"name": name, "namespace": namespace},
    }
    path = f"/api/v1/namespaces/{namespace}/pods/{name}/eviction"
    kubectl("create", "--raw", path, "-f", "-", given=json.dumps(eviction))


def give_slots(namespace: str, count: int) -> str:
    """Give the first node so many of a resource that nobody else asks for, all others none; return its name."""
    node = json.loads(kubectl("get", "nodes", "-o", "json"))["items"][0]
    slot = f"rock.test/{namespace}"
    node["status"]["capacity"][slot] = str(count)
    path = f"/api/v1/nodes/{node['metadata']['name']}/status"
    kubectl("replace", "--raw", path, "-f", "-", given=json.dumps(node))
    return slot


def kubeconfig_of_an_account(
    namespace: str, folder: Path, *, role: list[dict[str, Any]] | None, server: str = ""
) -> Path:
    """Make a service account with these rights and nothing else; return a kubeconfig of it.

    `server` takes the place of the API's URL.
    """

    def put(kind: str, name: str, **fields: Any) -> None:
        group = "v1" if kind == "ServiceAccount" else "rbac.authorization.k8s.io/v1"
        body = {"apiVersion": group, "kind": kind, "metadata": {"name": name}, **fields}
        kubectl("-n", namespace, "apply", "-f", "-", given=json.dumps(body))

    name = "with-rights" if role else "without-rights"
    put("ServiceAccount", name)
    if role:
        put("Role", name, rules=role)
        put(
            "RoleBinding",
            name,
            roleRef={"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": name},
            subjects=[{"kind": "ServiceAccount", "name": name, "namespace": namespace}],
        )
    config = yaml.safe_load(kubectl("config", "view", "--raw", "--minify", "-o", "yaml"))
    request = {
        "apiVersion": "authentication.k8s.io/v1",
        "kind": "TokenRequest",
        "spec": {"expirationSeconds": 3600},
    }
    path = f"/api/v1/namespaces/{namespace}/serviceaccounts/{name}/token"
    answer = json.loads(kubectl("create", "--raw", path, "-f", "-", given=json.dumps(request)))
    config["users"][0]["user"] = {"token": answer["status"]["token"]}
    if server:
        config["clusters"][0]["cluster"] = {"server": server}
    file = folder / f"{name}.yaml"
    file.write_text(yaml.safe_dump(config))
    return file


@cache
def why_no_cluster() -> str:
    """Return what is missing and how to get it; empty where pods can run."""
    if not os.environ.get("KUBECONFIG"):
        return "none is named. Start one of any kind (kind create cluster --kubeconfig FILE) and name it in KUBECONFIG"
    if shutil.which("kubectl") is None:
        return "kubectl is not installed (kubernetes.io)"
    nodes = json.loads(kubectl("get", "nodes", "-o", "json"))["items"]
    runtimes = {node["status"]["nodeInfo"]["containerRuntimeVersion"].partition(":")[0] for node in nodes}
    if {"ROCK_GUEST_IMAGE", "ROCK_TOOLS_IMAGE"} <= os.environ.keys():
        return ""
    if runtimes != {"docker"}:
        return (
            f"its nodes run {', '.join(sorted(runtimes))}, which does not see this machine's images. Push a guest image "
            "(ale rock image push REGISTRY) and one with bash and GNU tools, and name them in ROCK_GUEST_IMAGE and "
            "ROCK_TOOLS_IMAGE"
        )
    return why_no_engine()


@pytest.fixture(scope="session")
def guest_image() -> str:
    """Return the name of the guest's image; where the nodes share this machine's engine it is built into that."""
    if problem := why_no_cluster():
        pytest.skip(f"no Kubernetes cluster: {problem}")
    if given := os.environ.get("ROCK_GUEST_IMAGE"):
        return given
    return _loaded("rock-guest", lambda archive, folder, name: guest.build(archive, folder, name=name))


def _loaded(name: str, build: Callable[[Path, Path, str], str]) -> str:
    """Build an image into this machine's engine; return its name.

    Its tag is its id's beginning: two checkouts on one machine have an image each, and no node keeps an old one.
    """
    with tempfile.TemporaryDirectory() as folder:
        archive = Path(folder) / "image.tar"
        image_id = build(archive, Path(folder), f"{name}:test").removeprefix("sha256:")
        loaded = subprocess.run(
            ["docker", "load", "--input", archive], capture_output=True, text=True, check=False
        )
        assert loaded.returncode == 0, loaded.stderr
    tagged = f"{name}:test-{image_id[:12]}"
    subprocess.run(["docker", "tag", image_id, tagged], check=True)
    return tagged


@pytest.fixture(scope="session")
def tasks_image(guest_image: str) -> str:
    """Return the name of the image of the built-in tasks."""
    if given := os.environ.get("ROCK_TASKS_IMAGE"):
        return given
    if "ROCK_GUEST_IMAGE" in os.environ:
        pytest.skip(
            "no image for the built-in tasks: push one (ale rock image push) and name it in ROCK_TASKS_IMAGE"
        )
    skip_without(PYTHON)
    return _loaded(
        "rock-tasks", lambda archive, folder, name: tasks.build(archive, folder, base=PYTHON, name=name)
    )


@pytest.fixture(scope="session")
def tools_image(guest_image: str) -> str:
    """Return the name of an image with bash and the usual tools."""
    return os.environ.get("ROCK_TOOLS_IMAGE", TOOLS)


@pytest.fixture(scope="session")
def namespace(guest_image: str) -> Iterator[str]:
    """Make a namespace for the pods of this test process, and delete it afterwards."""
    if given := os.environ.get(GIVEN_NAMESPACE):
        yield given
        return
    name = f"rock-boxes-{secrets.token_hex(4)}"
    kubectl("create", "namespace", name)
    try:
        yield name
    finally:
        kubectl("delete", "namespace", name, "--wait=false")
