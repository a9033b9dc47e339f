"""The client's door over a network with delay, and over one that drops every packet; with TLS."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import secure_servers
from far_networks import SERVER, FarNetwork, far_network

CLIENT = Path(__file__).parents[1] / "far_client.py"


@dataclass
class Far:
    """A server with TLS at the other end of a network."""

    network: FarNetwork
    address: str
    folder: Path
    token: str

    def start(self, act: str) -> subprocess.Popen[str]:
        """Start a client at this end; it says each result on a line of its own, and goes on once it is told to."""
        words = [sys.executable, str(CLIENT), act, self.address, str(self.folder / "ca.pem"), self.token]
        return subprocess.Popen(
            self.network.within(self.network.near, *words),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def run(self, act: str) -> list[str]:
        with self.start(act) as client:
            out, _ = client.communicate()
        return [json.loads(line) for line in out.splitlines()]


@pytest.fixture(scope="module")
def far(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Far]:
    folder = secure_servers.make_certificates(tmp_path_factory.mktemp("far"), address=SERVER)
    token = secure_servers.token(folder / "tokens", "team", "env", "sandbox", "admin")
    with far_network() as network:
        command = [sys.executable, "-m", "rock_env.server", f"--listen={SERVER}:5443", "--isolation=none"]
        command += ["--log-level=ERROR", "--tokens=tokens", "--cert=server.pem", "--key=server.key"]
        with subprocess.Popen(
            network.within(network.far, *command), cwd=folder, stdout=subprocess.PIPE, text=True
        ) as server:
            try:
                assert server.stdout is not None
                yield Far(network, server.stdout.readline().strip(), folder, token)
            finally:
                server.terminate()


@pytest.fixture(autouse=True)
def whole_again(far: Far) -> Iterator[None]:
    yield
    far.network.cut, far.network.round_trip_s = False, 0.0


@pytest.mark.parametrize("round_trip_s", [0.04, 0.15, 0.3])
def test_a_far_server_is_reached_at_the_first_attempt(far: Far, round_trip_s: float) -> None:
    far.network.round_trip_s = round_trip_s
    assert far.run("health") == ["serving"] * 4
    assert far.run("create") == ["made"]


def test_a_first_call_into_a_partition_ends_by_its_deadline(far: Far) -> None:
    far.network.cut = True
    (said,) = far.run("deadline")
    assert said.startswith("DeadlineExceeded: ")
    assert "did not answer within the call's deadline" in said


def test_a_standing_connection_is_lost_in_a_partition_and_found_again_after_it(far: Far) -> None:
    with far.start("partition") as client:
        assert client.stdin is not None
        assert client.stdout is not None
        assert json.loads(client.stdout.readline()) == "made"
        far.network.cut = True
        client.stdin.write("\n")
        client.stdin.flush()
        assert json.loads(client.stdout.readline()).startswith("Unavailable: ")  # though it has no deadline
        far.network.cut = False
        assert json.loads(client.stdout.readline()) == "found again"


def test_a_clusters_api_that_nobody_reaches_is_said(far: Far) -> None:
    far.network.cut = True
    (said,) = far.run("kubernetes")
    assert said.startswith("Unavailable: the API of the Kubernetes cluster does not answer at https://")
    assert ":5443: ConnectTimeout" in said
