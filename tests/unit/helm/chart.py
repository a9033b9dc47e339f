"""The chart as tests read it: rendered by the installed Helm."""

import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parents[3]
CHART = ROOT / "helm" / "rock"
NAMESPACE = "rock"
SANDBOXES = "rock-rock-sandboxes"
RESEARCH = "rock-rock-sandboxes-research-66f62d18"
"""Of the tenant of that name, without a namespace of the operator's choice."""
REGISTRY = {"image": {"registry": "registry.example.org/team"}}
OPTIONAL = {
    "ingress": {
        "enabled": True,
        "className": "nginx",
        "grpcHost": "rock.example.org",
        "httpHost": "rest.example.org",
        "tlsSecret": "hosts",
    },
    "metrics": {"serviceMonitor": {"enabled": True}},
    "server": {"quotas": "[default]\nboxes = 10\n", "snapshots": {"enabled": True}},
    "sandboxes": {
        "internet": True,
        "allow": [{"cidr": "10.1.0.0/16", "ports": [443]}],
        "tenants": [{"name": "research"}, {"name": "a.b_c", "namespace": "abc", "quota": {"pods": 5}}],
    },
}
"""Values that turn on what is off by default."""
GENERATED = ("tls.crt", "tls.key", "ca.crt", "token", "tokens.json", "password")


class Refused(Exception):
    """Helm would not render the values; the message is Helm's."""


def helm() -> str:
    """Return the path of Helm, `ROCK_HELM` or `helm` on the path; skip the test where there is none."""
    found = shutil.which(os.environ.get("ROCK_HELM", "helm"))
    if found is None:
        pytest.skip(
            "the chart's tests need Helm 3 or 4: install it (helm.sh/docs/intro/install), or name it in ROCK_HELM"
        )
    return found


def merged(one: dict[str, Any], other: dict[str, Any]) -> dict[str, Any]:
    """Return `one` with what `other` says, as Helm merges values."""
    out = dict(one)
    for key, value in other.items():
        both = isinstance(value, dict) and isinstance(out.get(key), dict)
        out[key] = merged(out[key], value) if both else value
    return out


def render(
    values: dict[str, Any] | None = None, *options: str, registry: bool = True
) -> list[dict[str, Any]]:
    """Return the objects of the chart, hooks among them, without what Helm makes at random. Raise `Refused`."""
    given = merged(REGISTRY if registry else {}, values or {})
    return [_without_random(each) for each in _rendered(json.dumps(given, sort_keys=True), options)]


def render_as_is(values: dict[str, Any] | None = None, *options: str) -> list[dict[str, Any]]:
    """Return the objects with the Secrets' contents."""
    return _rendered(json.dumps(merged(REGISTRY, values or {}), sort_keys=True), options)


@cache
def _rendered(values: str, options: tuple[str, ...]) -> list[dict[str, Any]]:
    command = [helm(), "template", "rock", str(CHART), "--namespace", NAMESPACE, "--values", "-", *options]
    done = subprocess.run(command, input=values, capture_output=True, text=True, check=False)
    if done.returncode:
        raise Refused(done.stderr)
    return [each for each in yaml.load_all(done.stdout, Loader=yaml.CSafeLoader) if each]


def _without_random(given: dict[str, Any]) -> dict[str, Any]:
    if given["kind"] != "Secret":
        return given
    return {**given, "data": {key: "" if key in GENERATED else value for key, value in given["data"].items()}}


def only(objects: list[dict[str, Any]], kind: str, name: str = "rock") -> dict[str, Any]:
    """Return the one object of this kind and name."""
    (found,) = [each for each in objects if each["kind"] == kind and each["metadata"]["name"] == name]
    return found


def kinds(objects: list[dict[str, Any]]) -> set[tuple[str, str]]:
    return {(each["kind"], each["metadata"]["name"]) for each in objects}


def schema() -> dict[str, Any]:
    return json.loads((CHART / "values.schema.json").read_text(encoding="utf-8"))


def leaves(properties: dict[str, Any], path: str = "") -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield each value that is set by itself, with its dotted name and its schema."""
    for name, value in properties.items():
        if "properties" in value:
            yield from leaves(value["properties"], f"{path}{name}.")
        else:
            yield path + name, value


def nested(path: str, value: Any) -> dict[str, Any]:
    """Return the values that `--set PATH=VALUE` would give."""
    for name in reversed(path.split(".")):
        value = {name: value}
    return value


def pod_specs(objects: list[dict[str, Any]]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the pods that the chart runs: name, spec."""
    for each in objects:
        if each["kind"] == "Pod":
            yield each["metadata"]["name"], each["spec"]
        elif each["kind"] in ("Deployment", "StatefulSet"):
            yield each["metadata"]["name"], each["spec"]["template"]["spec"]
