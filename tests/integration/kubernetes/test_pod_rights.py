"""The rights that the chart gives a server are those that it uses: no more, no fewer."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml  # type: ignore[import-untyped]
from kubernetes_cluster import (  # noqa: F401  fixtures
    ADMIN,
    GIVEN_NAMESPACE,
    guest_image,
    kubeconfig_of_an_account,
    namespace,
    tools_image,
)
from recording_proxy import recording_proxy, right

from rock_env.backends.kubernetes.access import find_access

CHART = Path(__file__).parents[3] / "helm" / "rock"
SUITE = (
    "test_kubernetes_contract.py",
    "test_kubernetes_backend.py",
    "test_pod_snapshots.py",
    "test_pods_of_replicas.py",
)
CHOSEN = (
    "files_round_trip or exit_codes or holder_is_killed "  # of the contract of all backends
    "or takes_a_box_up or nobody_adopted or full_cluster or answer_is_lost or given_up "  # adoption, refusals
    "or goes_back or takes_the_work_over or stock"  # snapshots and warm pools
)


def test_requests_are_told_as_access_control_tells_them() -> None:
    pods = "/api/v1/namespaces/boxes/pods"
    assert right("GET", pods, watch=False) == ("", "pods", "list")
    assert right("GET", pods, watch=True) == ("", "pods", "watch")
    assert right("GET", f"{pods}/a", watch=False) == ("", "pods", "get")
    assert right("DELETE", pods, watch=False) == ("", "pods", "deletecollection")
    assert right("POST", f"{pods}/a/eviction", watch=False) == ("", "pods/eviction", "create")
    assert right("PATCH", "/apis/apps/v1/namespaces/b/deployments/d", watch=False) == (
        "apps",
        "deployments",
        "patch",
    )
    with pytest.raises(ValueError, match="not about objects"):
        right("GET", "/version", watch=False)


@pytest.mark.timeout(600)
def test_a_suite_uses_exactly_the_rights_that_the_chart_gives(
    guest_image: str,  # noqa: F811
    namespace: str,  # noqa: F811
    tmp_path: Path,
) -> None:
    """An account with the Role of the chart and nothing else runs it, through a proxy that notes what it asks for."""
    rules = roles_rules()
    granted = {
        (group, resource, verb)
        for rule in rules
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }
    folder = Path(__file__).parent
    with recording_proxy(find_access()) as (url, used):
        account = kubeconfig_of_an_account(namespace, tmp_path, role=rules, server=url)
        own = {"KUBECONFIG": str(account), ADMIN: os.environ["KUBECONFIG"], GIVEN_NAMESPACE: namespace}
        files = [str(folder / name) for name in SUITE]
        words = [
            sys.executable,
            "-m",
            "pytest",
            *files,
            "-k",
            CHOSEN,
            "-q",
            "-x",
            "-p",
            "no:cacheprovider",
            "--durations=20",
        ]
        done = subprocess.run(
            words,
            capture_output=True,
            text=True,
            check=False,
            env={**os.environ, **own},
            cwd=folder.parents[2],
        )
        print(done.stdout)  # noqa: T201
        assert done.returncode == 0, done.stdout + done.stderr
        assert " passed" in done.stdout
        assert " skipped" not in done.stdout, done.stdout
    assert used == granted


def roles_rules() -> list[dict[str, list[str]]]:
    """Return the rules of the Role that the chart gives its server."""
    program = os.environ.get("ROCK_HELM", "helm")
    if shutil.which(program) is None:
        pytest.skip(f"{program} is not installed (helm.sh)")
    words = [
        program,
        "template",
        "rock",
        str(CHART),
        "--namespace",
        "rock",
        "--set",
        "image.registry=registry.example.org",
    ]
    rendered = subprocess.run(words, capture_output=True, text=True, check=True).stdout
    (role,) = [each for each in yaml.safe_load_all(rendered) if each and each["kind"] == "Role"]
    rules: list[dict[str, list[str]]] = role["rules"]
    return rules
