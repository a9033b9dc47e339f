"""Every value of the chart does something, and what cannot be is refused with a clear message."""

import re
import tomllib
from typing import Any

import pytest
import yaml
from chart import CHART, OPTIONAL, ROOT, Refused, leaves, merged, nested, render, schema

WHEN: dict[str, dict[str, Any]] = {
    "postgresql.externalUrl": {
        "postgresql": {"enabled": False, "externalUrl": "postgresql://other@db.example.org/rock"}
    },
    "service.sourceRanges": {"service": {"type": "LoadBalancer"}},
}
"""What else a value needs to show."""
OTHER: dict[str, Any] = {
    "image.pullPolicy": "Always",
    "image.digest": f"sha256:{'a' * 64}",
    "server.isolation": "auto",
    "server.logLevel": "DEBUG",
    "server.logFormat": "text",
    "server.affinity": {"nodeAffinity": {}},
    "postgresql.affinity": {"nodeAffinity": {}},
    "postgresql.pullPolicy": "Always",
    "postgresql.externalUrl": "postgresql://rock@db.example.org:5432/rock?sslmode=require",
    "postgresql.enabled": {
        "postgresql": {"enabled": False, "externalUrl": "postgresql://rock@db.example.org/rock"}
    },
    "sandboxes.podSecurity": "baseline",
    "service.type": "NodePort",
    "metrics.enabled": {"metrics": {"enabled": False, "serviceMonitor": {"enabled": False}}},
    "metrics.serviceMonitor.interval": "10s",
    "networkPolicy.clients": [{"namespaceSelector": {}}],
    "networkPolicy.scrapers": [{"namespaceSelector": {"matchLabels": {"team": "a"}}}],
    "extraObjects": [
        {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "{{ .Release.Name }}-more"}}
    ],
    "server.topologySpreadConstraints": [
        {"maxSkew": 2, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule"}
    ],
    "server.extraEnv": [{"name": "HTTPS_PROXY", "value": "http://proxy.example.org"}],
    "sandboxes.allow": [{"cidr": "203.0.113.0/24"}],
    "sandboxes.tenants": [{"name": "ops"}],
    "sandboxes.otherTenants": "namespace",
}
"""Another value than the default, where the schema does not say enough to make one: the value, or all values."""
SILENT = {"global"}
"""What a parent chart hands on and nothing reads."""
VALUES = dict(leaves(schema()["properties"]))


def another(path: str, value: dict[str, Any], before: Any) -> Any:
    """Return a value that differs from the one `before` and that the schema takes."""
    if path in OTHER:
        return OTHER[path]
    if isinstance(before, bool):
        return not before
    if isinstance(before, int):
        return before + 1
    ref = value.get("$ref", "").rpartition("/")[2]
    if ref in ("strings", "objects", "names"):
        return {"strings": {"a.b/c": "d"}, "objects": [{"key": "a"}], "names": ["x"]}[ref]
    if ref == "resources":
        return {"limits": {"cpu": "3"}}
    if ref == "amounts":
        return {"cpu": "3"}
    return "7Gi" if ref == "quantity" else "another"


def now(path: str, values: dict[str, Any]) -> Any:
    """Return what a value is where these are given."""
    found: Any = values
    for name in path.split("."):
        if not isinstance(found, dict) or name not in found:
            return VALUES[path]["default"]
        found = found[name]
    return found


@pytest.mark.parametrize("path", sorted(set(VALUES) - SILENT))
def test_every_value_changes_the_output(path: str) -> None:
    before = merged(OPTIONAL, WHEN.get(path, {}))
    given = another(path, VALUES[path], now(path, before))
    whole = isinstance(given, dict) and path.partition(".")[0] in given
    values = merged(before, given if whole else nested(path, given))
    assert render(values) != render(before)


def test_every_silent_value_is_one() -> None:
    assert set(VALUES) >= SILENT


def test_bad_types_are_refused_by_their_names() -> None:
    values: dict[str, Any] = {}
    for path, value in VALUES.items():
        values = merged(values, nested(path, "seven" if value.get("type") in ("integer", "array") else 7))
    with pytest.raises(Refused) as refused:
        render(values, registry=False)
    message = str(refused.value)
    assert not [path for path in VALUES if path.replace(".", "/") not in message and path not in message]


def test_an_unknown_name_is_refused_in_every_group() -> None:
    groups = ["", *sorted({path[: path.rindex(".") + 1] for path in VALUES if "." in path})]
    assert len(groups) > 12
    values: dict[str, Any] = {}
    for number, group in enumerate(groups):
        values = merged(values, nested(f"{group}unknown{number}", 1))
    with pytest.raises(Refused) as refused:
        render(values)
    assert not [number for number in range(len(groups)) if f"unknown{number}" not in str(refused.value)]


def test_the_schema_is_closed() -> None:
    """Free are only parts of Kubernetes' own objects."""
    free = []

    def walk(part: Any, path: str) -> None:
        if isinstance(part, dict):
            if (
                part.get("type") == "object"
                and "properties" in part
                and part.get("additionalProperties") is not False
            ):
                free.append(path)
            for key, value in part.items():
                walk(value, f"{path}/{key}")

    walk(schema(), "")
    assert not free


def test_without_a_registry_it_says_how_to_push() -> None:
    with pytest.raises(Refused) as refused:
        render(registry=False)
    assert "image.registry is not set" in str(refused.value)
    assert "ale rock image push REGISTRY" in str(refused.value)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"postgresql": {"enabled": False}}, "externalUrl=postgresql://USER@HOST:PORT/DATABASE"),
        ({"postgresql": {"externalUrl": "postgresql://a@b/c"}}, "Set postgresql.enabled=false"),
        ({"postgresql": {"enabled": False, "externalUrl": "postgresql://a:secret@b/c"}}, "externalUrl"),
        ({"sandboxes": {"namespace": "rock"}}, "can read its Secrets"),
        ({"ingress": {"enabled": True}}, "ingress.grpcHost and ingress.tlsSecret"),
        ({"metrics": {"enabled": False, "serviceMonitor": {"enabled": True}}}, "nothing to scrape"),
        ({"sandboxes": {"tenants": [{"name": "a"}, {"name": "a"}]}}, "the tenant a twice"),
        (
            {"sandboxes": {"tenants": [{"name": "a", "namespace": "rock"}]}},
            "of the release and of the tenant a",
        ),
        (
            {"sandboxes": {"tenants": [{"name": "a", "namespace": "x"}, {"name": "b", "namespace": "x"}]}},
            "of the tenant a and of the tenant b",
        ),
        (
            {"sandboxes": {"namespace": "x", "tenants": [{"name": "a", "namespace": "x"}]}},
            "of no tenant's own and of the tenant a",
        ),
        ({"sandboxes": {"tenants": [{"name": "a,user=1"}]}}, "name"),
        ({"sandboxes": {"tenants": [{"name": "a;b"}]}}, "name"),
        ({"sandboxes": {"tenants": [{"name": "A"}]}}, "name"),
        ({"sandboxes": {"tenants": [{"name": "a", "namespace": "x\ny: z"}]}}, "namespace"),
        ({"sandboxes": {"tenants": [{"namespace": "x"}]}}, "name"),
        ({"sandboxes": {"allow": [{"cidr": "169.254.169.254/32"}]}}, "cidr"),
        ({"sandboxes": {"allow": [{"cidr": "169.254.0.0/16"}]}}, "cidr"),
        ({"sandboxes": {"allow": [{"cidr": "0.0.0.0/0"}]}}, "cidr"),
        ({"sandboxes": {"allow": [{"cidr": "168.0.0.0/7"}]}}, "cidr"),
        ({"sandboxes": {"allow": [{"cidr": "fd00:ec2::/32"}]}}, "cidr"),
        ({"sandboxes": {"allow": [{"cidr": "::/0"}]}}, "cidr"),
    ],
)
def test_what_cannot_be_is_refused(values: dict[str, Any], message: str) -> None:
    with pytest.raises(Refused) as refused:
        render(values)
    assert message in str(refused.value)


def test_its_versions() -> None:
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text(encoding="utf-8"))
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert chart["appVersion"] == project["version"]
    assert re.fullmatch(r">=1\.20\.0-0", chart["kubeVersion"])
    for version in ("1.20.2", "1.37.0"):
        assert render(None, "--kube-version", version)
    with pytest.raises(Refused, match=r"1\.19"):
        render(None, "--kube-version", "1.19.0")


def test_the_defaults_are_what_values_yaml_says() -> None:
    values = yaml.safe_load((CHART / "values.yaml").read_text(encoding="utf-8"))
    for path, value in VALUES.items():
        found = values
        for name in path.split("."):
            found = found[name]
        assert found == value["default"], path
