"""The manifest of a training on a Ray cluster: what the API takes, and what the chart and the command line have."""

import re
import shlex
from importlib import metadata
from typing import Any

import pytest
import yaml
from chart import NAMESPACE, ROOT, only, render_as_is
from typer.testing import CliRunner

from ale.cli import app
from ale.rock.own_images.server import TRAINER

MANIFEST = ROOT / "examples" / "kuberay" / "train.yaml"
JOB = {
    "entrypoint",
    "submissionMode",
    "shutdownAfterJobFinishes",
    "ttlSecondsAfterFinished",
    "backoffLimit",
    "rayClusterSpec",
}
"""Fields of a RayJob's spec that the manifest has, as KubeRay 1.2 documents them."""
HEAD = {"rayStartParams", "template"}
WORKERS = HEAD | {"groupName", "replicas", "minReplicas", "maxReplicas"}


def loaded() -> dict[str, dict[str, Any]]:
    return {each["kind"]: each for each in yaml.safe_load_all(MANIFEST.read_text(encoding="utf-8"))}


def pods() -> list[dict[str, Any]]:
    cluster = loaded()["RayJob"]["spec"]["rayClusterSpec"]
    return [group["template"]["spec"] for group in (cluster["headGroupSpec"], *cluster["workerGroupSpecs"])]


def test_it_has_fields_that_rays_operator_knows() -> None:
    job = loaded()["RayJob"]
    assert (job["apiVersion"], set(job["spec"])) == ("ray.io/v1", JOB)
    cluster = job["spec"]["rayClusterSpec"]
    assert set(cluster) == {"rayVersion", "headGroupSpec", "workerGroupSpecs"}
    assert set(cluster["headGroupSpec"]) == HEAD
    assert all(set(group) == WORKERS for group in cluster["workerGroupSpecs"])
    assert metadata.version("ray") == cluster["rayVersion"], "KubeRay takes the image's"


@pytest.mark.parametrize("minor", range(25, 38))
def test_its_pods_and_its_claim_are_valid_offline(minor: int) -> None:
    validate = pytest.importorskip(
        "kubernetes_validate", reason="pip install kubernetes-validate, to check against the API's schemas"
    )
    validate.validate({**loaded()["PersistentVolumeClaim"]}, f"1.{minor}", strict=True)
    for spec in pods():
        pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "ray"}, "spec": spec}
        validate.validate(pod, f"1.{minor}", strict=True)


def test_its_pods_have_no_more_rights_than_the_charts() -> None:
    for spec in pods():
        assert spec["automountServiceAccountToken"] is False
        assert spec["securityContext"]["runAsNonRoot"] is True
        assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
        assert not [volume for volume in spec["volumes"] if "hostPath" in volume]
        (container,) = spec["containers"]
        rights = container["securityContext"]
        assert rights["capabilities"] == {"drop": ["ALL"]}
        assert (rights["readOnlyRootFilesystem"], rights["allowPrivilegeEscalation"]) == (True, False)


def test_it_trains_by_a_command_that_there_is() -> None:
    program, *words = shlex.split(loaded()["RayJob"]["spec"]["entrypoint"])
    assert program in TRAINER.programs
    done = CliRunner().invoke(app, [*words, "--dry-run"])
    assert done.exit_code == 0, done.output
    assert "/runs/swe" in shlex.join(words)


def test_it_finds_the_installation_by_what_the_chart_makes() -> None:
    objects = render_as_is()
    for spec in pods():
        (container,) = spec["containers"]
        assert re.fullmatch(rf".+/{TRAINER.title}:\S+", container["image"])
        (named,) = [each["valueFrom"]["secretKeyRef"] for each in container["env"] if "valueFrom" in each]
        assert named["key"] in only(objects, "Secret", named["name"])["data"]
        (tls,) = [each["secret"] for each in spec["volumes"] if "secret" in each]
        assert {item["key"] for item in tls["items"]} <= set(
            only(objects, "Secret", tls["secretName"])["data"]
        )
    words = shlex.split(loaded()["RayJob"]["spec"]["entrypoint"])
    host, port = words[words.index("--rock") + 1].removeprefix("grpcs://").split(":")
    service = only(objects, "Service")
    assert host == f"{service['metadata']['name']}.{NAMESPACE}.svc"
    assert int(port) in [each["port"] for each in service["spec"]["ports"]]
