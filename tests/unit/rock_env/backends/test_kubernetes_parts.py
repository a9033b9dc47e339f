"""The kubernetes backend without a cluster: what a pod is asked to be, what its state says, who the server is."""

from __future__ import annotations

import json
import os
import ssl
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest

from rock_env.backends.base import site_of
from rock_env.backends.kubernetes import access as where
from rock_env.backends.kubernetes import carry
from rock_env.backends.kubernetes.access import Access, find_access
from rock_env.backends.kubernetes.api import Api, ApiRefusal
from rock_env.backends.kubernetes.backend import KubernetesBackend
from rock_env.backends.kubernetes.manifest import PodOrder, own_fields, pod, pod_name
from rock_env.backends.kubernetes.options import KubernetesOptions
from rock_env.backends.kubernetes.pods import Pods
from rock_env.backends.kubernetes.reasons import end_of, late, trouble_of
from rock_env.backends.kubernetes.secret import kept_secret
from rock_env.backends.plugin import choose_backends
from rock_env.errors import (
    FailedPrecondition,
    InfraError,
    InvalidArgument,
    ResourceExhausted,
    RockError,
    Unavailable,
)
from rock_env.guest.places import Refused, take_from_image
from rock_env.security.kubeconfig import TokenSource, read_kubeconfig
from rock_env.spec import NetworkPolicy, Resources, SandboxSpec

ORDER = PodOrder(
    guest_image="registry.example.org/rock-guest:1",
    port=8130,
    profile="restricted",
    user=None,
    read_only_root=False,
    gpu="nvidia.com/gpu",
    slot="",
    reserved=1.0,
    template={},
)


def made(spec: SandboxSpec, order: PodOrder = ORDER) -> dict[str, Any]:
    return pod(
        spec,
        order,
        name="rock-1-a",
        sandbox_id="a",
        token=b"t" * 32,
        labels={"rock.server": "1"},
        made_by="m",
    )


# -- what a pod is asked to be


def test_a_pod_has_no_rights_and_says_whose_it_is() -> None:
    body = made(SandboxSpec(image="debian"))
    spec = body["spec"]
    assert spec["automountServiceAccountToken"] is False
    assert spec["securityContext"] == {"seccompProfile": {"type": "RuntimeDefault"}}
    for container in (*spec["initContainers"], *spec["containers"]):
        rights = container["securityContext"]
        assert rights["capabilities"] == {"drop": ["ALL"]}
        assert rights["runAsNonRoot"] is True
        assert (rights["allowPrivilegeEscalation"], rights["privileged"]) == (False, False)
        assert container["resources"]["limits"]["memory"]
    assert not {"hostNetwork", "hostPID", "hostIPC"} & spec.keys()

    assert all("emptyDir" in each for each in spec["volumes"])
    assert body["metadata"]["labels"]["rock.server"] == "1"
    assert body["metadata"]["labels"]["rock.network"] == "none"


def test_the_boxs_own_container_never_holds_the_token() -> None:
    (box,) = made(SandboxSpec(image="debian"))["spec"]["containers"]
    assert (b"t" * 32).hex() not in json.dumps(box)
    tools, token = box["volumeMounts"][:2]
    assert (tools["mountPath"], tools["readOnly"]) == ("/opt/rock", True)
    assert token == {"name": "rock-run", "mountPath": "/opt/rock/run"}


def test_the_working_folder_of_an_image_is_not_hidden() -> None:
    own = made(SandboxSpec(image="swe", workdir="/testbed"))["spec"]
    assert "workspace" not in [each["name"] for each in own["volumes"]]
    plain = made(SandboxSpec(image="swe"))["spec"]
    assert {"name": "workspace", "mountPath": "/workspace"} in plain["containers"][0]["volumeMounts"]


def test_resources_runtime_and_the_operators_fields() -> None:
    from dataclasses import replace

    toleration = [{"key": "gpu", "operator": "Exists"}]
    spec = SandboxSpec(
        image="debian",
        runtime="gvisor",
        lifetime_s=10,
        network=NetworkPolicy(enabled=True),
        resources=Resources(cpus=1.5, memory_bytes=1 << 30, disk_bytes=1 << 30, gpus=2),
    )
    body = made(spec, replace(ORDER, template={"tolerations": toleration}, profile="image"))
    most = body["spec"]["containers"][0]["resources"]["limits"]
    assert (most["cpu"], most["nvidia.com/gpu"], int(most["memory"])) == (
        "1500m",
        "2",
        (1 << 30) + (16 << 20),
    )
    assert (body["spec"]["tolerations"], body["spec"]["runtimeClassName"]) == (toleration, "gvisor")
    assert body["spec"]["activeDeadlineSeconds"] > 10
    assert body["metadata"]["labels"]["rock.network"] == "open"
    assert "runAsNonRoot" not in body["spec"]["containers"][0]["securityContext"]


@pytest.mark.parametrize("version", ["1.25.0", "1.37.0"])
def test_pods_are_what_newer_clusters_take(version: str) -> None:
    validate = pytest.importorskip("kubernetes_validate", reason="the API's schemas: pip install '.[dev]'")
    validate.validate(made(SandboxSpec(image="debian", runtime="gvisor")), version, strict=True)


@pytest.mark.parametrize(
    ("text", "said"), [("{", "not JSON"), ("[]", "got list"), ('{"hostNetwork": true}', "got hostNetwork")]
)
def test_a_template_sets_what_is_the_operators_and_no_more(text: str, said: str) -> None:
    with pytest.raises(InvalidArgument, match=said):
        own_fields(text, "file")


@pytest.mark.parametrize("sandbox_id", ["a", "Upper-Case", "x" * 200, "-odd-", "ends-"])
def test_every_id_gives_a_name_that_a_cluster_takes(sandbox_id: str) -> None:
    import re

    name = pod_name("0123456789ab", sandbox_id)
    assert re.fullmatch(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?", name)
    assert name == pod_name("0123456789ab", sandbox_id) != pod_name("0123456789ab", sandbox_id + "0")


# -- what its state says


def state(phase: str = "Pending", *, metadata: Any = None, **status: Any) -> dict[str, Any]:
    return {
        "metadata": {"name": "p", "uid": "1", **(metadata or {})},
        "spec": {"nodeName": "node-7"},
        "status": {"phase": phase, **status},
    }


def box(**kind: Any) -> dict[str, Any]:
    return {"containerStatuses": [{"name": "box", "state": kind}]}


@pytest.mark.parametrize(
    ("pod", "kind", "said"),
    [
        (state(**box(waiting={"reason": "InvalidImageName"})), InvalidArgument, "InvalidImageName"),
        (
            state(**box(waiting={"reason": "ErrImagePull", "message": "not found"})),
            InvalidArgument,
            "Push it",
        ),
        (
            state(**box(waiting={"reason": "ImagePullBackOff", "message": "timeout"})),
            InfraError,
            "cannot pull",
        ),
        (state(**box(waiting={"reason": "CreateContainerConfigError"})), InvalidArgument, "profile=image"),
        (state(**box(waiting={"reason": "RunContainerError", "message": "m"})), InfraError, "cannot start"),
        (
            state("Failed", reason="Evicted", message="low"),
            InfraError,
            "evicted the sandbox from node node-7: low",
        ),
        (
            state(initContainerStatuses=[{"name": "guest", "state": {"terminated": {"exitCode": 1}}}]),
            InfraError,
            "the guest did not get into",
        ),
    ],
)
def test_what_keeps_a_pod_from_coming_up_is_told_apart(pod: Any, kind: type[RockError], said: str) -> None:
    trouble = trouble_of(pod)
    assert trouble is not None
    assert type(trouble) is kind
    assert said in str(trouble)


def test_a_first_failed_pull_and_a_slow_one_are_waited_for() -> None:
    assert trouble_of(state(**box(waiting={"reason": "ErrImagePull", "message": "timeout"}))) is None
    assert trouble_of(state(**box(waiting={"reason": "ContainerCreating"}))) is None


def test_a_pod_may_use_more_cpus_than_it_has_for_itself() -> None:
    spec = SandboxSpec(image="i", resources=Resources(cpus=2, memory_bytes=1 << 30))
    whole, shared = (
        made(spec, replace(ORDER, reserved=share))["spec"]["containers"][0]["resources"]
        for share in (1.0, 0.1)
    )
    assert whole["requests"] == whole["limits"] == shared["limits"]
    assert shared["requests"] == {**whole["requests"], "cpu": "200m"}
    assert whole["limits"]["cpu"] == "2000m"


def test_each_pod_takes_one_slot_of_its_node() -> None:
    pods = (
        made(SandboxSpec(image="i")),
        made(SandboxSpec(image="i"), replace(ORDER, slot="rock.dev/sandboxes")),
    )
    asked = [pod["spec"]["containers"][0]["resources"]["limits"].get("rock.dev/sandboxes") for pod in pods]
    assert asked == [None, "1"]
    for bad in ("sandboxes", "Rock.dev/x", "rock.dev/", "rock.dev/a/b"):
        with pytest.raises(ValueError, match="slot"):
            KubernetesOptions(slot=bad)


def test_what_came_too_late_says_what_it_waited_for() -> None:
    full = [{"type": "PodScheduled", "status": "False", "message": "0/1 nodes"}]
    assert isinstance(late(state(conditions=full), 5), ResourceExhausted)
    assert "ContainerCreating" in str(late(state(**box(waiting={"reason": "ContainerCreating"})), 5))
    assert "did not answer" in str(late(state("Running"), 5))


@pytest.mark.parametrize(
    ("pod", "said"),
    [
        (state("Failed", reason="DeadlineExceeded"), "lifetime"),
        (state("Failed", reason="NodeLost"), "lost with its node node-7"),
        (
            state(
                "Running", conditions=[{"type": "Ready", "status": "False", "reason": "NodeStatusUnknown"}]
            ),
            "lost with its node",
        ),
        (
            state(
                conditions=[{"type": "DisruptionTarget", "status": "True", "reason": "EvictionByEvictionAPI"}]
            ),
            "EvictionByEvictionAPI",
        ),
        (state("Failed", **box(terminated={"exitCode": 137, "reason": "OOMKilled"})), "ran out of memory"),
        (state("Failed", **box(terminated={"exitCode": 137, "reason": "Error"})), "killed from outside"),
        (state("Succeeded", **box(terminated={"exitCode": 0})), "ended by itself"),
        (state("Failed", **box(terminated={"exitCode": 3, "reason": "Error"})), "status 3"),
        (state("Running", metadata={"deletionTimestamp": "now"}), "deleted by somebody else"),
        (None, "is gone"),
    ],
)
def test_why_a_pod_ended_is_told_apart(pod: Any, said: str) -> None:
    assert said in end_of(pod)


def test_a_pod_that_runs_has_no_end() -> None:
    assert end_of(state("Running", **box(running={}))) == ""


# -- the API


def api(answer: Any) -> Api:
    made = Api(Access("https://cluster.example", ssl.create_default_context(), TokenSource("word"), "boxes"))
    made._client = httpx.AsyncClient(
        transport=httpx.MockTransport(answer), base_url="https://cluster.example"
    )
    return made


@pytest.mark.parametrize(
    ("status", "message", "kind"),
    [
        (403, "exceeded quota: rock", ResourceExhausted),
        (403, 'pod violates PodSecurity "restricted"', InvalidArgument),
        (403, "maximum cpu usage per Container is 1", InvalidArgument),
        (403, "cannot create resource pods", FailedPrecondition),
        (422, "spec.containers: Invalid", InvalidArgument),
        (409, "already exists", ApiRefusal),
        (500, "etcd", ApiRefusal),
    ],
)
async def test_the_apis_refusals_are_told_apart(status: int, message: str, kind: type[RockError]) -> None:
    called = []

    def answer(request: httpx.Request) -> httpx.Response:
        called.append(request.headers["Authorization"])
        return httpx.Response(status, json={"message": message, "reason": "R"})

    with pytest.raises(kind) as raised:
        await api(answer).call("POST", "/pods", body={})
    assert type(raised.value) is kind
    assert called == ["Bearer word"], "no retry of what is refused"


async def test_a_busy_api_is_asked_again_and_one_that_is_gone_is_unavailable() -> None:
    answers = [httpx.Response(429, headers={"Retry-After": "0"}), httpx.Response(200, json={"kind": "Pod"})]
    assert await api(lambda _: answers.pop(0)).call("GET", "/pods") == {"kind": "Pod"}

    def gone(request: httpx.Request) -> httpx.Response:
        raise httpx.ConnectError("refused")

    with pytest.raises(Unavailable, match="does not answer"):
        await api(gone).call("GET", "/pods")


async def test_an_old_pods_end_is_not_that_of_the_next_one_of_its_name() -> None:
    pods = Pods(api(lambda _: httpx.Response(200)), "boxes", "")
    old, new = state("Running"), state(metadata={"uid": "2"})
    pods.expect(old)
    pods.forget("p")
    pods.expect(new)
    pods._take("DELETED", old)
    assert pods.get("p") == new
    pods._take("DELETED", new)
    assert "deleted by somebody else" in await pods.explain("p")


# -- who the server is


def kubeconfig(tmp_path: Path, **user: Any) -> Path:
    config = {
        "current-context": "here",
        "contexts": [{"name": "here", "context": {"cluster": "c", "user": "u", "namespace": "boxes"}}],
        "clusters": [
            {"name": "c", "cluster": {"server": "https://10.0.0.1:6443/", "insecure-skip-tls-verify": True}}
        ],
        "users": [{"name": "u", "user": user}],
    }
    path = tmp_path / "config"
    path.write_text(json.dumps(config))
    return path


def test_a_kubeconfig_says_where_the_cluster_is(tmp_path: Path) -> None:
    found = read_kubeconfig(kubeconfig(tmp_path, token="word"))
    assert (found.url, found.token(), found.namespace) == ("https://10.0.0.1:6443", "word", "boxes")


@pytest.mark.parametrize("user", [{"exec": {}}, {"auth-provider": {}}, {"username": "x"}])
def test_an_account_that_a_program_signs_in_is_refused_with_the_remedy(tmp_path: Path, user: Any) -> None:
    with pytest.raises(FailedPrecondition, match="kubectl create token"):
        read_kubeconfig(kubeconfig(tmp_path, **user))


@pytest.mark.parametrize(
    "text", ["", "[]", "{", '{"contexts": []}', "[" * 50_000, "x" * (5 << 20), "a: &a [*a]", "\0"]
)
def test_a_damaged_kubeconfig_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "config").write_text(text)
    with pytest.raises(FailedPrecondition, match="cannot be used"):
        read_kubeconfig(tmp_path / "config")


def test_without_a_cluster_it_is_said_how_to_get_one(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "none"))
    with pytest.raises(Unavailable, match="Set KUBECONFIG"):
        find_access()


def test_a_pods_own_account_is_used_and_its_token_read_again(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    subprocess.run(
        [
            *(
                "openssl",
                "req",
                "-x509",
                "-newkey",
                "ec",
                "-pkeyopt",
                "ec_paramgen_curve:prime256v1",
                "-nodes",
            ),
            *("-subj", "/CN=x", "-keyout", os.devnull, "-out", str(tmp_path / "ca.crt")),
        ],
        check=True,
        capture_output=True,
    )
    (tmp_path / "token").write_text("first\n")
    (tmp_path / "namespace").write_text("home")
    monkeypatch.setattr(where, "ACCOUNT", tmp_path)
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "fd00::1")
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", "443")
    found = find_access()
    assert (found.url, found.namespace, found.token()) == ("https://[fd00::1]:443", "home", "first")
    (tmp_path / "token").write_text("second")
    assert found.token() == "first"
    monkeypatch.setattr(found.token, "_until", float("-inf"))
    assert found.token() == "second"


def test_the_secret_of_a_folder_stays_and_a_damaged_one_is_refused(tmp_path: Path) -> None:
    secret = kept_secret(tmp_path / "state")
    assert len(secret) == 32
    assert kept_secret(tmp_path / "state") == secret
    assert [each.name for each in (tmp_path / "state").iterdir()] == ["guest-secret"]
    assert (tmp_path / "state" / "guest-secret").stat().st_mode & 0o777 == 0o600
    (tmp_path / "state" / "guest-secret").write_bytes(b"short")
    with pytest.raises(FailedPrecondition, match="damaged"):
        kept_secret(tmp_path / "state")


# -- the guest's side


def image_config(workdir: str, folder: str) -> dict[str, Any]:
    return {
        "image": {
            "env": {"PATH": "/bin", "A": "below"},
            "hidden": ["KUBERNETES_"],
            "default_workdir": folder,
            "oom": [],
        },
        "workdir": workdir,
        "public_workdir": workdir,
        "env": {"B": "own"},
        "oom": None,
    }


def test_a_guest_takes_from_its_image_what_the_server_cannot_know(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(os, "environ", {"A": "image", "B": "image", "KUBERNETES_PORT": "x"})
    monkeypatch.chdir(tmp_path)
    config = image_config("/default", "/default")
    take_from_image(config)
    assert config["env"] == {"PATH": "/bin", "A": "image", "B": "own"}
    assert config["workdir"] == config["public_workdir"] == str(tmp_path)
    other = image_config(str(tmp_path / "made" / "here"), "/default")
    take_from_image(other)
    assert (tmp_path / "made" / "here").is_dir()
    (tmp_path / "file").touch()
    with pytest.raises(Refused) as refused:
        take_from_image(image_config(str(tmp_path / "file" / "in"), "/default"))
    assert "cannot make it" in refused.value.message


def test_the_guest_is_carried_whole_and_its_token_lies_beside_it(tmp_path: Path) -> None:
    (tmp_path / "bundle" / "bin").mkdir(parents=True)
    (tmp_path / "bundle" / "bin" / "python").write_bytes(os.urandom(100_000))
    (tmp_path / "bundle" / "bin" / "python").chmod(0o755)
    (tmp_path / "bundle" / "empty").touch()
    (tmp_path / "run").mkdir()
    carry.carry(str(tmp_path / "bundle"), str(tmp_path / "tools"), b"t" * 32)
    carried = tmp_path / "tools" / "bin" / "python"
    assert carried.read_bytes() == (tmp_path / "bundle" / "bin" / "python").read_bytes()
    assert carried.stat().st_mode & 0o111
    assert (tmp_path / "tools" / "empty").read_bytes() == b""
    assert (tmp_path / "tools" / "run").is_dir()
    assert (tmp_path / "run" / "door").stat().st_mode & 0o7777 == 0o777, "the box's user takes the token away"
    assert (tmp_path / "run" / "door" / "token").read_bytes() == b"t" * 32


# -- the plugin


async def test_it_comes_in_by_name_and_says_that_it_needs_the_guests_image() -> None:
    (chosen,) = choose_backends(["kubernetes:namespace=boxes,port=9000"])
    assert isinstance(chosen.options, KubernetesOptions)
    assert (chosen.options.namespace, chosen.options.port) == ("boxes", 9000)
    backend = KubernetesBackend(KubernetesOptions())
    assert not backend.hosts(SandboxSpec())
    assert KubernetesBackend(KubernetesOptions(image="debian")).hosts(SandboxSpec())
    with pytest.raises(InvalidArgument, match="ale rock image push"):
        await backend.create(SandboxSpec(image="debian"), sandbox_id="a")
    await backend.close()


def test_servers_of_one_store_reach_the_same_site_only_where_both_name_it() -> None:
    async def secret() -> bytes:
        return b"s" * 32

    def site(*, shared: bool = True, **options: str) -> str:
        made = KubernetesBackend(KubernetesOptions(**options), secret=secret if shared else None)  # type: ignore[arg-type]
        return site_of(made)

    assert site(namespace="boxes") == "@kubernetes//boxes"
    assert site(namespace="boxes", cluster="east") == "@kubernetes/east/boxes"
    assert site() == "", "two kubeconfigs may mean different namespaces"
    assert site(namespace="boxes", shared=False) == ""
    with pytest.raises(InvalidArgument, match="cluster"):
        choose_backends(["kubernetes:cluster=east/west"])
