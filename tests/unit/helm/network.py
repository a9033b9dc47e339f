"""Which connection the chart's NetworkPolicies let through, as the API documents it: an evaluator for tests.

A pod that a policy of a direction selects may only what some policy of that direction allows; others may all.
"""

import ipaddress
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Peer:
    """A pod, or an address outside the cluster (no namespace)."""

    address: str
    namespace: str = ""
    labels: dict[str, str] = field(default_factory=dict)
    ports: dict[str, int] = field(default_factory=dict)
    """Its named ports."""


@dataclass(frozen=True)
class Network:
    """The policies of a cluster, and its namespaces' labels."""

    policies: list[dict[str, Any]]
    namespaces: dict[str, dict[str, str]]

    def allows(self, source: Peer, target: Peer, port: int, protocol: str = "TCP") -> bool:
        """Return whether `source` may connect to `target`: its egress and the target's ingress both must say so."""
        return self._says("Egress", source, target, target, port, protocol) and self._says(
            "Ingress", target, source, target, port, protocol
        )

    def _says(
        self, direction: str, subject: Peer, other: Peer, target: Peer, port: int, protocol: str
    ) -> bool:
        selecting = [
            policy
            for policy in self.policies
            if subject.namespace
            and policy["metadata"].get("namespace", "rock") == subject.namespace
            and direction in policy["spec"]["policyTypes"]
            and _selects(policy["spec"]["podSelector"], subject.labels)
        ]
        if not selecting:
            return True
        key = "to" if direction == "Egress" else "from"
        return any(
            self._matches_peer(rule.get(key) or [], other, policy["metadata"].get("namespace", "rock"))
            and _matches_port(rule.get("ports") or [], target, port, protocol)
            for policy in selecting
            for rule in policy["spec"].get(direction.lower()) or []
        )

    def _matches_peer(self, peers: list[dict[str, Any]], other: Peer, home: str) -> bool:
        return not peers or any(self._is(peer, other, home) for peer in peers)

    def _is(self, peer: dict[str, Any], other: Peer, home: str) -> bool:
        if "ipBlock" in peer:
            return _within(other.address, peer["ipBlock"])
        if not other.namespace:
            return False
        if "namespaceSelector" in peer:
            if not _selects(peer["namespaceSelector"], self.namespaces[other.namespace]):
                return False
        elif other.namespace != home:
            return False
        return _selects(peer.get("podSelector", {}), other.labels)


def _selects(selector: dict[str, Any], labels: dict[str, str]) -> bool:
    assert set(selector) <= {"matchLabels"}, f"the evaluator knows matchLabels only, got {selector}"
    return all(labels.get(key) == value for key, value in selector.get("matchLabels", {}).items())


def _within(address: str, block: dict[str, Any]) -> bool:
    ip = ipaddress.ip_address(address)
    inside = [ipaddress.ip_network(text) for text in (block["cidr"], *block.get("except", ()))]
    return ip in inside[0] and not any(ip in part for part in inside[1:])


def _matches_port(ports: list[dict[str, Any]], target: Peer, port: int, protocol: str) -> bool:
    return not ports or any(
        each.get("protocol", "TCP") == protocol
        and port == (target.ports.get(each["port"]) if isinstance(each["port"], str) else each["port"])
        for each in ports
    )
