"""Who may talk to whom under the chart's NetworkPolicies, by evaluating the rendered objects."""

from typing import Any

import pytest
from chart import NAMESPACE, OPTIONAL, RESEARCH, SANDBOXES, merged, only, render
from network import Network, Peer

GRPC, REST, PEERS, METRICS, DATABASE, GUEST = 8120, 8121, 8123, 9120, 5432, 8130
METADATA = Peer("169.254.169.254")
API_SERVER = Peer("10.96.0.1")
PRIVATE = Peer("192.168.7.7")
PUBLIC = Peer("93.184.216.34")
METADATA_6 = Peer("fd00:ec2::254")
PUBLIC_6 = Peer("2606:2800:220:1::1")


class World:
    """The pods of an installation, and others in the cluster."""

    def __init__(self, values: dict[str, Any] | None = None) -> None:
        objects = render(values)
        server, database = only(objects, "Deployment"), only(objects, "StatefulSet", "rock-postgresql")
        self.network = Network(
            [each for each in objects if each["kind"] == "NetworkPolicy"],
            {
                name: {"kubernetes.io/metadata.name": name}
                for name in (NAMESPACE, SANDBOXES, RESEARCH, "abc", "other", "kube-system")
            },
        )
        self.server = self._pod(server, "10.244.0.2")
        self.replica = self._pod(server, "10.244.0.3")
        self.database = self._pod(database, "10.244.0.4")
        self.box = Peer("10.244.0.5", SANDBOXES, {"rock.network": "open"})
        self.closed = Peer("10.244.0.12", SANDBOXES, {"rock.network": "none"})
        self.neighbour = Peer("10.244.0.6", SANDBOXES, {"app": "box", "tenant": "other"})
        self.stranger = Peer("10.244.0.7", "other", {"app.kubernetes.io/component": "server"})
        self.impostor = Peer("10.244.0.8", SANDBOXES, self.server.labels)
        self.test = Peer("10.244.0.9", NAMESPACE, only(objects, "Pod", "rock-test")["metadata"]["labels"])
        self.roommate = Peer("10.244.0.10", NAMESPACE, {"app": "other"})
        self.dns = Peer("10.244.0.11", "kube-system", {"k8s-app": "kube-dns"})

    def _pod(self, owner: dict[str, Any], address: str) -> Peer:
        template = owner["spec"]["template"]
        ports = {
            port["name"]: port["containerPort"]
            for container in template["spec"]["containers"]
            for port in container["ports"]
        }
        return Peer(address, NAMESPACE, template["metadata"]["labels"], ports)

    def allows(self, source: Peer, target: Peer, port: int, protocol: str = "TCP") -> bool:
        return self.network.allows(source, target, port, protocol)


EVERYTHING = [GRPC, REST, PEERS, METRICS, DATABASE, GUEST, 22, 53, 80, 443]
INTERNET = {"sandboxes": {"internet": True}}


@pytest.mark.parametrize("values", [{}, INTERNET], ids=["closed", "internet"])
def test_a_sandbox_reaches_nothing_of_the_cluster(values: dict[str, Any]) -> None:
    world = World(values)
    inside = [
        world.server,
        world.database,
        world.neighbour,
        world.stranger,
        API_SERVER,
        PRIVATE,
        METADATA,
        METADATA_6,
    ]
    for target in inside:
        assert not [port for port in EVERYTHING if world.allows(world.box, target, port)], target


def test_a_sandbox_reaches_the_world_only_by_choice() -> None:
    for target in (PUBLIC, PUBLIC_6):
        assert not World().allows(World().box, target, 443)
        assert World(INTERNET).allows(World().box, target, 443)
    assert not World().allows(World().box, World().dns, 53, "UDP")
    assert World(INTERNET).allows(World().box, World().dns, 53, "UDP")
    assert not World(INTERNET).allows(World().box, World().dns, 443)


def test_a_sandbox_that_asked_for_no_network_has_none_beside_those_that_did() -> None:
    world = World({"sandboxes": {"internet": True, "allow": [{"cidr": "192.168.7.0/24"}]}})
    for target in (PUBLIC, PUBLIC_6, PRIVATE, METADATA, API_SERVER, world.dns, world.box, world.server):
        assert not [port for port in EVERYTHING if world.allows(world.closed, target, port)], target
        assert not world.allows(world.closed, target, 53, "UDP")
    assert world.allows(world.server, world.closed, GUEST)


def test_a_sandbox_reaches_a_range_that_is_allowed_on_its_ports() -> None:
    world = World(
        {"sandboxes": {"allow": [{"cidr": "192.168.7.0/24", "ports": [443]}, {"cidr": "203.0.113.0/24"}]}}
    )
    assert world.allows(world.box, PRIVATE, 443)
    assert not world.allows(world.box, PRIVATE, 80)
    assert world.allows(world.box, Peer("203.0.113.9"), 80)
    assert not world.allows(world.box, METADATA, 80)
    assert not world.allows(world.box, PUBLIC, 443)


def test_only_the_servers_pods_reach_the_guests_port() -> None:
    world = World()
    assert world.allows(world.server, world.box, GUEST)
    assert world.allows(world.replica, world.box, GUEST)
    assert not [port for port in EVERYTHING if port != GUEST and world.allows(world.server, world.box, port)]
    others = [
        world.database,
        world.neighbour,
        world.stranger,
        world.impostor,
        world.test,
        world.roommate,
        PUBLIC,
    ]
    for source in others:
        assert not world.allows(source, world.box, GUEST), source


def test_the_guests_port_is_a_value() -> None:
    world = World({"sandboxes": {"guestPort": 9000}})
    assert world.allows(world.server, world.box, 9000)
    assert not world.allows(world.server, world.box, GUEST)


def test_the_server_is_reachable_and_its_metrics_from_pods_alone() -> None:
    world = World()
    for source in (world.stranger, world.roommate, world.test, PUBLIC):
        assert world.allows(source, world.server, GRPC)
        assert world.allows(source, world.server, REST)
        assert not world.allows(source, world.server, 22)
    assert world.allows(world.stranger, world.server, METRICS)
    assert not world.allows(PUBLIC, world.server, METRICS)


def test_the_servers_clients_can_be_named() -> None:
    peers = [{"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "other"}}}]
    world = World({"networkPolicy": {"clients": peers, "scrapers": peers}})
    for port in (GRPC, REST):
        assert world.allows(world.stranger, world.server, port)
        assert world.allows(world.test, world.server, port)
        assert not world.allows(world.roommate, world.server, port)
    assert world.allows(world.stranger, world.server, METRICS)
    assert not world.allows(world.roommate, world.server, METRICS)


def test_only_servers_reach_each_other_at_the_peers_port() -> None:
    world = World()
    assert world.allows(world.server, world.replica, PEERS)
    for other in (
        world.box,
        world.stranger,
        world.impostor,
        world.roommate,
        world.test,
        world.database,
        PUBLIC,
    ):
        assert not world.allows(other, world.server, PEERS)


def test_only_the_server_reaches_the_database() -> None:
    world = World()
    assert world.allows(world.server, world.database, DATABASE)
    for source in (world.box, world.stranger, world.impostor, world.test, world.roommate, PUBLIC):
        assert not world.allows(source, world.database, DATABASE), source
    assert not [port for port in EVERYTHING if world.allows(world.database, PUBLIC, port)]


def test_the_server_reaches_anything_but_the_metadata_address() -> None:
    world = World()
    for target in (API_SERVER, PUBLIC, PUBLIC_6, PRIVATE, world.dns):
        assert world.allows(world.server, target, 443)
    assert not world.allows(world.server, METADATA, 80)
    assert not world.allows(world.server, METADATA_6, 80)


def test_another_label_of_the_servers_namespace_can_be_named() -> None:
    world = World(merged({}, {"networkPolicy": {"serverNamespaceLabels": {"name": "rock"}}}))
    assert not world.allows(world.server, world.box, GUEST)
    world.network.namespaces[NAMESPACE]["name"] = "rock"
    assert world.allows(world.server, world.box, GUEST)


def test_the_evaluator_lets_through_what_no_policy_selects() -> None:
    network = Network([], {NAMESPACE: {}})
    assert network.allows(Peer("10.0.0.1", NAMESPACE), Peer("10.0.0.2", NAMESPACE), 1)


@pytest.mark.parametrize("internet", [False, True])
def test_tenants_do_not_reach_each_other(internet: bool) -> None:
    world = World({"sandboxes": {"internet": internet, "tenants": OPTIONAL["sandboxes"]["tenants"]}})
    places = (SANDBOXES, RESEARCH, "abc")
    boxes = [Peer(f"10.244.1.{at}", name, {"rock.network": "open"}) for at, name in enumerate(places)]
    for one in boxes:
        for other in boxes:
            assert not [port for port in EVERYTHING if world.allows(one, other, port)], (one, other)
        for target in (world.server, world.database, API_SERVER, PRIVATE, METADATA, METADATA_6):
            assert not [port for port in EVERYTHING if world.allows(one, target, port)], target
        assert world.allows(one, PUBLIC, 443) is internet
        assert world.allows(world.server, one, GUEST)
        assert not world.allows(world.stranger, one, GUEST)
