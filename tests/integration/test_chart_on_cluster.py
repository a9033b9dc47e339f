"""The chart helm/rock on the cluster that KUBECONFIG names: its API takes every object, upgrades keep what was generated,
and nothing stays. Pods need not run.

It makes two namespaces with names of its own, and deletes them.
"""

import json
import os
import secrets
import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

CHART = Path(__file__).parents[2] / "helm" / "rock"
KEPT = Path(__file__).parent / "kept"
"""Charts as they were released: `helm package helm/rock -d tests/integration/kept`."""
LEFT_OVER = "all,secret,configmap,pvc,networkpolicy,role,rolebinding,poddisruptionbudget,resourcequota,limitrange,ingress"
GIVEN = ("--set", "image.registry=registry.example.org/team", "--set", "postgresql.persistence.keep=false")


def run(*command: str, given: str = "") -> str:
    done = subprocess.run(command, input=given, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{' '.join(command)}\n{done.stdout}{done.stderr}"
    return done.stdout


def helm(*words: str) -> str:
    return run(os.environ.get("ROCK_HELM", "helm"), *words)


def there(kinds: str, namespace: str) -> list[str]:
    return run("kubectl", "-n", namespace, "get", kinds, "-o", "name", "--ignore-not-found").split()


def until_gone(namespace: str) -> None:
    """Wait for the end of a namespace; one that is gone already is an error of kubectl's."""
    command = ("kubectl", "wait", "--for=delete", f"namespace/{namespace}", "--timeout=120s")
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0 or "no matching resources found" in done.stderr, done.stderr


@pytest.fixture(scope="module", autouse=True)
def cluster() -> None:
    missing = [name for name in (os.environ.get("ROCK_HELM", "helm"), "kubectl") if not shutil.which(name)]
    if missing:
        pytest.skip(
            f"the chart on a cluster needs {' and '.join(missing)}: install them (helm.sh, kubernetes.io)"
        )
    if not os.environ.get("KUBECONFIG"):
        pytest.skip(
            "the chart on a cluster needs one, of any kind (kind create cluster --kubeconfig FILE): name it in KUBECONFIG"
        )


@pytest.fixture
def namespace() -> Iterator[str]:
    name = f"rock-test-{secrets.token_hex(4)}"
    run("kubectl", "create", "namespace", name)
    try:
        yield name
    finally:
        run("kubectl", "delete", "namespace", name, "--wait=false")


def secrets_of(namespace: str) -> dict[str, Any]:
    names = ("rock-tokens", "rock-tls", "rock-postgresql")
    return {
        name: json.loads(run("kubectl", "-n", namespace, "get", "secret", name, "-o", "json"))["data"]
        for name in names
    }


def test_install_upgrade_and_uninstall_leave_nothing(namespace: str) -> None:
    before = there(LEFT_OVER, namespace)
    notes = helm("install", "rock", str(CHART), "-n", namespace, *GIVEN)
    assert f"kubectl -n {namespace} rollout status deployment/rock" in notes
    made = there(LEFT_OVER, namespace)
    assert {"deployment.apps/rock", "statefulset.apps/rock-postgresql"} <= set(made)
    sandboxes = f"{namespace}-rock-sandboxes"
    assert {"role.rbac.authorization.k8s.io/rock", "resourcequota/rock", "limitrange/rock"} <= set(
        there(LEFT_OVER, sandboxes)
    )
    generated = secrets_of(namespace)
    helm("upgrade", "rock", str(CHART), "-n", namespace, *GIVEN, "--set", "server.replicas=3")
    assert secrets_of(namespace) == generated
    helm("upgrade", "rock", str(CHART), "-n", namespace, *GIVEN, "--set", "tls.extraNames={rock.example.org}")
    changed = secrets_of(namespace)
    assert changed["rock-tls"] != generated["rock-tls"]  # other names, another certificate
    assert {**changed, "rock-tls": None} == {**generated, "rock-tls": None}
    helm("uninstall", "rock", "-n", namespace)
    until_gone(sandboxes)
    for _ in range(600):
        if there(LEFT_OVER, namespace) == before:
            return
        time.sleep(0.2)
    assert there(LEFT_OVER, namespace) == before


def test_pods_run_play_and_are_replaced(namespace: str) -> None:
    """Where the cluster has the images: ROCK_CHART_VALUES names a file with the values that say which."""
    values = os.environ.get("ROCK_CHART_VALUES")
    if not values:
        pytest.skip(
            "pods of the chart need its images: push them (ale rock image push REGISTRY), and name a file of values with "
            "image.registry and postgresql.image in ROCK_CHART_VALUES"
        )
    given = ("rock", str(CHART), "-n", namespace, "--values", values, "--wait", "--timeout", "4m")
    helm("install", *given)
    assert "Succeeded" in helm("test", "rock", "-n", namespace)
    helm("upgrade", *given, "--set", "server.logLevel=DEBUG")
    assert "Succeeded" in helm("test", "rock", "-n", namespace)
    helm("uninstall", "rock", "-n", namespace, "--wait")


@pytest.mark.parametrize("chart", sorted(KEPT.glob("*.tgz")), ids=lambda path: path.stem)
def test_an_installation_of_an_earlier_chart_is_upgraded(namespace: str, chart: Path) -> None:
    helm("install", "rock", str(chart), "-n", namespace, *GIVEN)
    generated, made = secrets_of(namespace), set(there("deployment,statefulset,service,pvc", namespace))
    helm("upgrade", "rock", str(CHART), "-n", namespace, *GIVEN)
    assert secrets_of(namespace) == generated
    assert made <= set(there("deployment,statefulset,service,pvc", namespace))
    helm("uninstall", "rock", "-n", namespace)


def test_the_server_takes_every_object_of_a_full_configuration(namespace: str) -> None:
    """By server-side dry run. Objects for the sandboxes' namespace go to one that is there."""
    values = (
        "ingress.enabled=true,ingress.grpcHost=a.example.org,ingress.httpHost=b.example.org,ingress.tlsSecret=hosts,"
        f"sandboxes.internet=true,sandboxes.createNamespace=false,sandboxes.namespace={namespace},rbac.clusterWide=true"
    )
    api = ("--validate",)
    rendered = helm("template", "rock", str(CHART), "-n", "other", *GIVEN, "--set", values, *api)
    run("kubectl", "-n", namespace, "apply", "--dry-run=server", "-f", "-", given=rendered)


def test_the_databases_volume_and_password_stay_and_are_taken_up_again(namespace: str) -> None:
    helm("install", "rock", str(CHART), "-n", namespace, *GIVEN[:2])
    password = secrets_of(namespace)["rock-postgresql"]
    helm("uninstall", "rock", "-n", namespace)
    assert "secret/rock-postgresql" in there("secret", namespace)
    assert "persistentvolumeclaim/rock-postgresql" in there("pvc", namespace)
    until_gone(f"{namespace}-rock-sandboxes")
    helm("install", "rock", str(CHART), "-n", namespace, *GIVEN[:2])
    assert secrets_of(namespace)["rock-postgresql"] == password
    helm("uninstall", "rock", "-n", namespace)
