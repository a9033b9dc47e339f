"""ROCK as the chart installs it on a cluster whose nodes run on this machine's Docker engine, for tests.

Images go by way of a registry on loopback, PostgreSQL's is built here, and the Service's port is this machine's.
"""

from __future__ import annotations

import base64
import json
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from hashlib import sha256
from importlib.metadata import version
from pathlib import Path
from typing import Any, TypeVar

import httpx
import pytest
from integration.command_line import ale
from kubernetes_cluster import kubectl

from rock_env.client import Client, Credentials

T = TypeVar("T")

CHART = Path(__file__).parents[3] / "helm" / "rock"
EARLIER = Path(__file__).parents[1] / "kept"
"""Charts as they were released."""
LEFT_OVER = "all,secret,configmap,pvc,networkpolicy,role,rolebinding"
CONTEXT = "installed"
_DATABASE_USER = 999

_DOCKERFILE = f"""
FROM debian:bookworm-slim
RUN apt-get update && DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends postgresql \\
 && rm -rf /var/lib/apt/lists/* && ln -s /usr/lib/postgresql/*/bin/* /usr/local/bin/ \\
 && useradd --uid {_DATABASE_USER} --user-group database
ENV LANG=C.UTF-8
STOPSIGNAL SIGINT
COPY start /start
ENTRYPOINT ["bash", "/start"]
"""
_START = r"""
set -eu
if [ ! -s "$PGDATA/PG_VERSION" ]; then
  printf %s "$POSTGRES_PASSWORD" >/tmp/password
  initdb --username="$POSTGRES_USER" --pwfile=/tmp/password $POSTGRES_INITDB_ARGS
  rm /tmp/password
  echo 'host all all all scram-sha-256' >>"$PGDATA/pg_hba.conf"
  echo "CREATE DATABASE \"$POSTGRES_DB\"" | postgres --single postgres
fi
exec postgres -c 'listen_addresses=*'
"""
"""What the official image does with these variables."""
DATABASE = f"rock-test:postgresql-{sha256((_DOCKERFILE + _START).encode()).hexdigest()[:12]}"


def why_not_here() -> str:
    """Return what an installation is missing, and how to get it; empty where it can be tried."""
    for program in (os.environ.get("ROCK_HELM", "helm"), "docker"):
        if shutil.which(program) is None:
            return f"{program} is not installed"
    nodes = json.loads(kubectl("get", "nodes", "-o", "json"))["items"]
    runtimes = {node["status"]["nodeInfo"]["containerRuntimeVersion"].partition(":")[0] for node in nodes}
    if runtimes != {"docker"}:
        return (
            f"its nodes run {', '.join(sorted(runtimes))} and pull from no registry on this machine's loopback. "
            "tests/integration/test_chart_on_cluster.py installs from yours: ROCK_CHART_VALUES"
        )
    return ""


def helm(*words: str) -> str:
    """Run Helm; return what it printed."""
    done = subprocess.run(
        [os.environ.get("ROCK_HELM", "helm"), *words], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, f"helm {' '.join(words)}\n{done.stdout}{done.stderr}"
    return done.stdout


def database_image() -> str:
    """Build PostgreSQL into this machine's engine, once; return the image's name."""
    if subprocess.run(["docker", "image", "inspect", DATABASE], capture_output=True, check=False).returncode:
        with tempfile.TemporaryDirectory() as folder:
            (Path(folder) / "Dockerfile").write_text(_DOCKERFILE)
            (Path(folder) / "start").write_text(_START)
            built = subprocess.run(
                ["docker", "build", "-t", DATABASE, folder],
                capture_output=True,
                text=True,
                check=False,
                env={**os.environ, "DOCKER_BUILDKIT": "0"},
            )
        assert built.returncode == 0, built.stdout + built.stderr
    return DATABASE


def objects() -> set[str]:
    """Return what the cluster has of the kinds that an installation makes, in all namespaces.

    What Kubernetes itself puts into each namespace, some time after it was made, is left out.
    """
    columns = "custom-columns=N:.metadata.namespace,K:.kind,M:.metadata.name"
    lines = kubectl("get", LEFT_OVER, "-A", "-o", columns, "--no-headers").splitlines()
    found = (line.split() for line in lines)
    return {
        " ".join(each) for each in found if not each[2].startswith(("kube-root-ca.crt", "default-token-"))
    }


@dataclass(frozen=True)
class Installed:
    """A release `rock` in a namespace of its own."""

    namespace: str
    registry: str
    folder: Path
    """For the files of its callers."""

    @property
    def sandboxes(self) -> str:
        """Return the namespace of its sandboxes."""
        return f"{self.namespace}-rock-sandboxes"

    def image(self, what: str) -> str:
        return f"{self.registry}/rock-{what}:{version('ale-rl')}"

    def values(self, **more: Any) -> str:
        """Write a file of values and return its path; `more` takes the place of whole sections."""
        small = {"requests": {"cpu": "100m", "memory": "256Mi"}, "limits": {"memory": "2Gi"}}
        values: dict[str, Any] = {
            "image": {"registry": self.registry},
            "server": {
                "backends": ["kubernetes:reserved=0.05"],
                "workers": 1,
                "drainSeconds": 5,
                "resources": small,
            },
            "service": {"type": "NodePort"},
            "sandboxes": {"image": self.image("tasks"), "podSecurity": "baseline"},  # images as they are
            "postgresql": {
                "image": DATABASE,
                "userId": _DATABASE_USER,
                "persistence": {"keep": False, "size": "1Gi"},
            },
        }
        file = self.folder / "values.json"
        file.write_text(json.dumps({**values, **more}))
        return str(file)

    def install(self, chart: Path, values: str) -> None:
        """Install a chart and wait until its pods are ready."""
        helm("install", "rock", str(chart), "-n", self.namespace, "--values", values)
        self._give_the_volume()
        self.until_ready()

    def upgrade(self, values: str, *words: str) -> None:
        """Install this chart over what is there, and wait until every replica is new."""
        helm("upgrade", "rock", str(CHART), "-n", self.namespace, "--values", values, *words)
        self.until_ready()

    def until_ready(self) -> None:
        for what in ("statefulset/rock-postgresql", "deployment/rock"):
            kubectl("-n", self.namespace, "rollout", "status", what, "--timeout=280s")

    def _give_the_volume(self) -> None:
        """Let PostgreSQL's user write to its volume: one that is a folder of the node knows nothing of `fsGroup`."""
        claim = ("-n", self.namespace, "get", "pvc", "rock-postgresql", "-o", "jsonpath={.spec.volumeName}")
        volume = eventually(lambda: kubectl(*claim))
        path = kubectl("get", "pv", volume, "-o", "jsonpath={.spec.hostPath.path}")
        os.chown(path, _DATABASE_USER, _DATABASE_USER)

    def servers(self) -> list[dict[str, Any]]:
        """Return the pods of its replicas."""
        label = "app.kubernetes.io/component=server"
        listed = kubectl("-n", self.namespace, "get", "pods", "-l", label, "-o", "json")
        return list(json.loads(listed)["items"])

    def boxes(self) -> Mapping[str, Any]:
        """Return the pods of its sandboxes by the sandbox's id."""
        listed = json.loads(kubectl("-n", self.sandboxes, "get", "pods", "-o", "json"))["items"]
        return {pod["metadata"]["annotations"]["rock.sandbox"]: pod for pod in listed}

    @cached_property
    def _address(self) -> str:
        service = json.loads(kubectl("-n", self.namespace, "get", "service", "rock", "-o", "json"))
        (port,) = [each["nodePort"] for each in service["spec"]["ports"] if each["name"] == "grpc"]
        return f"grpcs://127.0.0.1:{port}"

    def _secret(self, name: str, key: str) -> Path:
        """Keep a value of a Secret in a file of its caller's alone."""
        data = json.loads(kubectl("-n", self.namespace, "get", "secret", name, "-o", "json"))["data"]
        file = self.folder / key
        file.touch(mode=0o600)
        file.write_bytes(base64.b64decode(data[key]))
        return file

    def client(self, *, retry_for_s: float = 120.0) -> Client:
        token, ca = self._secret("rock-tokens", "token"), self._secret("rock-tls", "ca.crt")
        credentials = Credentials(token=token.read_text(), ca=str(ca))
        return Client(self._address, credentials=credentials, retry_for_s=retry_for_s)

    def environment(self) -> dict[str, str]:
        """Return the variables of a user whose context `installed` is this installation."""
        own = {"XDG_CONFIG_HOME": str(self.folder), "ALE_HOME": str(self.folder / "home")}
        token, ca = self._secret("rock-tokens", "token"), self._secret("rock-tls", "ca.crt")
        words = (
            "rock",
            "context",
            "add",
            CONTEXT,
            self._address,
            "--token-file",
            str(token),
            "--ca",
            str(ca),
        )
        added = ale(*words, cwd=self.folder, **own)
        assert added.returncode == 0, added.stderr
        return own


def environments_of(server: Mapping[str, Any]) -> int:
    """Return how many environments with a sandbox a replica serves, by its metrics."""
    page = httpx.get(f"http://{server['status']['podIP']}:9120/metrics", timeout=30).text
    name = 'rock_envs{hosting="sandbox"}'
    return sum(int(float(line.split()[-1])) for line in page.splitlines() if line.startswith(name))


@contextmanager
def own_namespace(name: str) -> Iterator[str]:
    """Make a namespace with its default account, which pods need; delete it afterwards."""
    kubectl("create", "namespace", name)
    try:
        account = ("-n", name, "get", "serviceaccount", "default", "--ignore-not-found", "-o", "name")
        eventually(lambda: kubectl(*account))
        yield name
    finally:
        kubectl("delete", "namespace", name, "--wait=false")


def eventually(look: Callable[[], T], *, told: Callable[[], object] = str, within_s: float = 120.0) -> T:
    """Look every fifth of a second until something true is seen, and return it; fail with what is `told`."""
    until = time.monotonic() + within_s
    while not (seen := look()):
        assert time.monotonic() < until, f"not so after {within_s:g} s: {told()}"
        time.sleep(0.2)
    return seen


def skip_where_it_cannot_be() -> None:
    if problem := why_not_here():
        pytest.skip(f"no installation on this cluster: {problem}")
