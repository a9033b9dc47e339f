"""What the rendered objects promise: rights, security contexts, secrets, names, and that the API takes them."""

import base64
import json
import re
from pathlib import Path
from typing import Any

import pytest
from chart import (
    NAMESPACE,
    OPTIONAL,
    RESEARCH,
    SANDBOXES,
    kinds,
    merged,
    only,
    pod_specs,
    render,
    render_as_is,
)

from rock_env.backends.kubernetes.options import KubernetesOptions
from rock_env.backends.plugin import choose_backends
from rock_env.security.auth import authenticate
from rock_env.security.token_file import read_tokens
from rock_env.server.options import parse

EXTERNAL = {"postgresql": {"enabled": False, "externalUrl": "postgresql://rock@db.example.org/rock"}}
CONFIGURATIONS = {
    "defaults": {},
    "everything": OPTIONAL,
    "external": merged(
        EXTERNAL,
        {
            "postgresql": {"existingSecret": "db"},
            "tokens": {"existingSecret": "t"},
            "tls": {"existingSecret": "c"},
        },
    ),
    "without sandboxes": {"sandboxes": {"enabled": False}},
}


@pytest.mark.parametrize("values", CONFIGURATIONS.values(), ids=CONFIGURATIONS)
def test_no_pod_is_root_or_privileged_or_sees_the_host(values: dict[str, Any]) -> None:
    pods = list(pod_specs(render(values)))
    assert pods
    for name, spec in pods:
        assert not {"hostNetwork", "hostPID", "hostIPC"} & set(spec), name
        assert spec["securityContext"]["runAsNonRoot"] is True
        assert spec["securityContext"]["runAsUser"] > 0
        assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
        assert not [volume for volume in spec["volumes"] if "hostPath" in volume]
        for container in spec["containers"] + spec.get("initContainers", []):
            security = container["securityContext"]
            assert security["readOnlyRootFilesystem"] is True
            assert security["allowPrivilegeEscalation"] is False
            assert security["privileged"] is False
            assert security["capabilities"] == {"drop": ["ALL"]}
            assert container["resources"]["limits"]["memory"]


def test_the_api_token_is_in_the_servers_pods_only_where_it_makes_pods() -> None:
    mounted = {name: spec["automountServiceAccountToken"] for name, spec in pod_specs(render())}
    assert mounted == {"rock": True, "rock-postgresql": False, "rock-test": False}
    objects = render({"sandboxes": {"enabled": False}})
    assert not any(spec["automountServiceAccountToken"] for _, spec in pod_specs(objects))
    assert not {kind for kind, _ in kinds(objects)} & {"Role", "RoleBinding", "Namespace", "ResourceQuota"}
    assert only(objects, "ServiceAccount")["automountServiceAccountToken"] is False


def test_its_rights_are_on_pods_in_the_sandboxes_namespace_alone() -> None:
    objects = render()
    role, binding = only(objects, "Role"), only(objects, "RoleBinding")
    assert role["metadata"]["namespace"] == binding["metadata"]["namespace"] == SANDBOXES != NAMESPACE
    assert role["rules"] == [
        {"apiGroups": [""], "resources": ["pods"], "verbs": ["create", "delete", "get", "list", "watch"]}
    ]
    assert binding["subjects"] == [{"kind": "ServiceAccount", "name": "rock", "namespace": NAMESPACE}]
    assert not {kind for kind, _ in kinds(objects)} & {"ClusterRole", "ClusterRoleBinding"}


def test_rights_in_all_namespaces_are_a_choice() -> None:
    objects = render({"rbac": {"clusterWide": True}})
    assert only(objects, "ClusterRole", "rock-rock")["rules"] == only(render(), "Role")["rules"]
    assert only(objects, "ClusterRoleBinding", "rock-rock")["roleRef"]["name"] == "rock-rock"
    assert not {kind for kind, _ in kinds(objects)} & {"Role", "RoleBinding"}


TENANTS = {"sandboxes": {"tenants": OPTIONAL["sandboxes"]["tenants"]}}


def test_every_tenant_has_a_namespace_with_all_that_the_shared_one_has() -> None:
    def within(namespace: str) -> dict[str, Any]:
        found = [each for each in render(TENANTS) if each["metadata"].get("namespace") == namespace]
        return {each["kind"]: {**each, "metadata": each["metadata"]["name"]} for each in found}

    shared, research, other = within(SANDBOXES), within(RESEARCH), within("abc")
    assert set(shared) == {"LimitRange", "NetworkPolicy", "ResourceQuota", "Role", "RoleBinding"}
    assert research == shared
    assert {kind for kind in shared if other[kind] != shared[kind]} == {"ResourceQuota"}
    hard = {name: within(name)["ResourceQuota"]["spec"]["hard"] for name in (SANDBOXES, "abc")}
    assert hard["abc"] == {**hard[SANDBOXES], "pods": "5"}
    made = {
        each["metadata"]["name"]: each["metadata"].get("annotations")
        for each in render(TENANTS)
        if each["kind"] == "Namespace"
    }
    assert made == {
        SANDBOXES: None,
        RESEARCH: {"rock.ale/tenant": "research"},
        "abc": {"rock.ale/tenant": "a.b_c"},
    }
    given_up = {"sandboxes": {"tenants": [{"name": "a", "quota": {"enabled": False}}]}}
    quotas = [each["metadata"]["namespace"] for each in render(given_up) if each["kind"] == "ResourceQuota"]
    assert quotas == [SANDBOXES]


def test_names_that_look_alike_have_namespaces_that_differ() -> None:
    names = ["a.b", "a_b", "a-b", "a--b", "a-", "a", "x" * 63, "x" * 62, "x" * 30]
    values = {"sandboxes": {"tenants": [{"name": name} for name in names]}}
    made = [each["metadata"]["name"] for each in render(values) if each["kind"] == "Namespace"]
    assert len(set(made)) == len(names) + 1
    assert all(re.fullmatch(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?", name) for name in made)
    (wish,) = backends(values)
    (chosen,) = choose_backends([wish])
    assert isinstance(chosen.options, KubernetesOptions)
    assert [*chosen.options.tenants] == names
    assert {*chosen.options.tenants.values(), SANDBOXES} == set(made)


def test_the_server_takes_its_arguments(tmp_path: Path) -> None:
    spec = dict(pod_specs(render(OPTIONAL)))["rock"]
    (container,) = spec["containers"]
    options, level = parse([word.replace("$(POD_IP)", "10.0.0.1") for word in container["args"]])
    assert level == "INFO"
    options.check()
    assert options.tokens == "/etc/rock/tokens/tokens.json"
    mounts = [mount["mountPath"] for mount in container["volumeMounts"]]
    for path in (options.tokens, options.cert, options.key, options.state, options.quotas):
        assert any(path.startswith(f"{mount}/") for mount in mounts), path
    assert "rock@rock-postgresql:5432" in options.store
    assert spec["terminationGracePeriodSeconds"] > options.drain_s + 5


def test_no_password_is_in_an_argument() -> None:
    for values in CONFIGURATIONS.values():
        spec = dict(pod_specs(render(values)))["rock"]
        assert "PGPASSWORD" in json.dumps(spec["containers"][0]["env"])
        assert "password" not in json.dumps(spec["containers"][0]["args"])
    (container,) = dict(pod_specs(render(EXTERNAL)))["rock"]["containers"]
    assert "PGPASSWORD" not in json.dumps(container["env"])  # a database that asks for none


@pytest.mark.parametrize("attempt", range(3))
def test_the_servers_token_file_admits_the_token_beside_it(tmp_path: Path, attempt: int) -> None:
    data = only(render_as_is({"commonLabels": {"attempt": str(attempt)}}), "Secret", "rock-tokens")["data"]
    file = tmp_path / "tokens.json"
    file.touch(mode=0o600)
    file.write_bytes(base64.b64decode(data["tokens.json"]))
    text = base64.b64decode(data["token"]).decode()
    caller = authenticate([f"Bearer {text}"], read_tokens(file))
    assert caller.tenant == "default"
    assert {scope.value for scope in caller.scopes} == {"admin", "env", "sandbox"}


def test_secrets_that_are_there_are_used_and_none_is_made() -> None:
    objects = render(CONFIGURATIONS["external"])
    assert not {kind for kind, _ in kinds(objects)} & {"Secret", "StatefulSet", "PersistentVolumeClaim"}
    spec = dict(pod_specs(objects))["rock"]
    named = {volume["secret"]["secretName"] for volume in spec["volumes"] if "secret" in volume}
    assert named == {"t", "c"}
    (password,) = [each for each in spec["containers"][0]["env"] if each["name"] == "PGPASSWORD"]
    assert password["valueFrom"]["secretKeyRef"] == {"name": "db", "key": "password"}


def test_the_databases_volume_stays_with_its_password_unless_told_otherwise() -> None:
    for kind in ("PersistentVolumeClaim", "Secret"):
        kept = only(render(), kind, "rock-postgresql")["metadata"]["annotations"]
        assert kept == {"helm.sh/resource-policy": "keep"}
        given_up = render({"postgresql": {"persistence": {"keep": False}}})
        assert "annotations" not in only(given_up, kind, "rock-postgresql")["metadata"]


def test_a_change_of_settings_replaces_the_pods() -> None:
    def annotations(values: dict[str, Any]) -> Any:
        return only(render(values), "Deployment")["spec"]["template"]["metadata"]["annotations"]

    assert annotations({}) == annotations({"service": {"grpcPort": 1}})
    for values in ({"server": {"quotas": "[default]"}}, {"tls": {"extraNames": ["x"]}}, EXTERNAL):
        assert annotations(values) != annotations({})


def test_newer_apis_are_used_where_they_are() -> None:
    def version(*options: str) -> str:
        return only(render(None, *options), "PodDisruptionBudget")["apiVersion"]

    assert version("--kube-version", "1.37.0") == "policy/v1"
    assert "PodDisruptionBudget" not in {kind for kind, _ in kinds(render({"server": {"replicas": 1}}))}


def test_every_object_has_the_labels_and_the_namespace_it_should() -> None:
    for each in render(OPTIONAL):
        labels = each["metadata"]["labels"]
        assert labels["app.kubernetes.io/instance"] == "rock"
        assert labels["helm.sh/chart"] == "rock-0.3.0"
        assert each["metadata"].get("namespace") in (None, SANDBOXES, RESEARCH, "abc")


@pytest.mark.parametrize("minor", range(25, 38))
def test_manifests_are_valid_offline(minor: int) -> None:
    validate = pytest.importorskip(
        "kubernetes_validate",
        reason="pip install kubernetes-validate, to check manifests against the API's schemas",
    )
    objects = render(OPTIONAL, "--kube-version", f"1.{minor}.0")
    assert len(objects) > 20
    for each in objects:
        if each["kind"] != "ServiceMonitor":  # of the Prometheus operator
            validate.validate(each, f"1.{minor}", strict=True)


ROOM = "snapshot_room=1073741824,snapshot_bytes=268435456"
"""Within the server's scratch volume."""


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ({}, ""),
        ({"sandboxes": {"podSecurity": "baseline"}}, ",profile=image"),
        ({"sandboxes": {"allow": [{"cidr": "10.1.0.0/16"}]}}, ",network=namespace"),
        ({"sandboxes": {"image": "debian:12"}}, ",image=debian:12"),
        (TENANTS, f",tenants=research:{RESEARCH};a.b_c:abc,others=refuse"),
        ({"server": {"backends": ["kubernetes:user=1000"]}}, ",user=1000"),
        ({"server": {"backends": ["kubernetes:snapshot_room=5"]}}, ",snapshot_room=5"),
    ],
)
def test_the_backend_of_pods_gets_what_the_chart_knows(values: dict[str, Any], expected: str) -> None:
    (wish,) = backends(values)
    guest = "registry.example.org/team/rock-guest:0.1.0"
    assert wish == f"kubernetes:namespace={SANDBOXES},guest={guest},port=8130,{ROOM}{expected}"
    (chosen,) = choose_backends([wish])
    assert isinstance(chosen.options, KubernetesOptions)
    assert (chosen.options.namespace, chosen.options.guest) == (SANDBOXES, guest)


def test_snapshots_are_in_a_volume_of_all_replicas_by_choice() -> None:
    objects = render(OPTIONAL)
    claim = only(objects, "PersistentVolumeClaim", "rock-snapshots")
    assert claim["spec"]["accessModes"] == ["ReadWriteMany"]
    assert "annotations" not in claim["metadata"], "it goes with the release"
    spec = dict(pod_specs(objects))["rock"]
    (container,) = spec["containers"]
    mounts = {each["mountPath"]: each for each in container["volumeMounts"]}
    (wish,) = backends(OPTIONAL)
    (chosen,) = choose_backends([wish])
    assert isinstance(chosen.options, KubernetesOptions)
    folder, room = chosen.options.snapshots, chosen.options.snapshot_room
    assert mounts[str(folder)]["subPath"] == f"{NAMESPACE}-rock", "two releases may have one claim"
    assert room == 18 << 30
    options, _ = parse(container["args"])
    assert chosen.options.snapshot_bytes < options.most_snapshot_bytes == room // 2
    own = render(merged(OPTIONAL, {"server": {"snapshots": {"existingClaim": "shelf"}}}))
    assert ("PersistentVolumeClaim", "rock-snapshots") not in kinds(own)
    claims = [
        each["persistentVolumeClaim"]["claimName"]
        for each in dict(pod_specs(own))["rock"]["volumes"]
        if "persistentVolumeClaim" in each
    ]
    assert claims == ["shelf"]


def test_other_backends_are_passed_on_as_they_are() -> None:
    assert backends({"server": {"backends": ["process", "docker"]}}) == ["process", "docker"]
    assert backends({"sandboxes": {"enabled": False}}) == ["kubernetes"]


def backends(values: dict[str, Any]) -> list[str]:
    (container,) = only(render(values), "Deployment")["spec"]["template"]["spec"]["containers"]
    return [each.removeprefix("--backend=") for each in container["args"] if each.startswith("--backend=")]


def test_a_new_version_of_the_chart_alone_leaves_the_database_running() -> None:
    database = only(render({"commonLabels": {"team": "a"}}), "StatefulSet", "rock-postgresql")
    labels = database["spec"]["template"]["metadata"]["labels"]
    assert not {"helm.sh/chart", "app.kubernetes.io/version"} & set(labels)
    assert labels["team"] == "a"
