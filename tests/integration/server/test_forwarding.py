"""A context that reaches an installation through its cluster's API: real connections, and pods that go."""

from __future__ import annotations

import asyncio
import json
import logging
import socket
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack, asynccontextmanager, contextmanager, suppress
from pathlib import Path

import pytest
from cluster_api import TOKEN, ClusterApi, cluster_api, pod
from secure_servers import OFFER, SERVER, make_certificates, serving, token
from typer.testing import CliRunner, Result

import rock_env
from ale.rock.cli import rock_app
from rock_env.client import forwarding, installations
from rock_env.client.forwarding import InCluster, forwarded_port
from rock_env.client.installations import Installation
from rock_env.errors import FailedPrecondition, InvalidArgument, RockError, Unauthenticated, Unavailable


@pytest.fixture(autouse=True)
def own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    for name in ("ROCK_TOKEN", "ROCK_CA", "ROCK_CERT", "ROCK_KEY", "ROCK_ADDRESS", "KUBECONFIG"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def cluster() -> Iterator[ClusterApi]:
    with cluster_api() as made:
        yield made


@pytest.fixture
def where(cluster: ClusterApi, tmp_path: Path) -> InCluster:
    return installations.in_cluster(
        cluster.kubeconfig(tmp_path), "", namespace="rock", service="rock", port=8120
    )


@pytest.fixture
async def echo() -> AsyncIterator[dict[str, int]]:
    """Serve two ports that send back what they get, each behind its name."""

    async def serve(name: str) -> asyncio.Server:
        async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            if task := asyncio.current_task():
                answering.add(task)
            try:
                writer.write(name.encode())
                while block := await reader.read(65536):
                    writer.write(block)
                    await writer.drain()
            finally:
                writer.close()
                with suppress(OSError):
                    await writer.wait_closed()

        return await asyncio.start_server(answer, "127.0.0.1", 0)

    answering: set[asyncio.Task[None]] = set()
    servers = {name: await serve(name) for name in ("a", "b")}
    yield {name: server.sockets[0].getsockname()[1] for name, server in servers.items()}
    for server in servers.values():
        server.close()
    async with asyncio.timeout(60):  # a connection ends a moment after the way that led to it
        await asyncio.gather(*answering, return_exceptions=True)


@asynccontextmanager
async def opened(where: InCluster) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    port = await asyncio.to_thread(forwarded_port, where)
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        yield reader, writer
    finally:
        writer.close()
        with suppress(OSError):
            await writer.wait_closed()


async def test_bytes_go_both_ways_and_many_connections_at_once(
    cluster: ClusterApi, where: InCluster, echo: dict[str, int]
) -> None:
    cluster.pods["one"] = echo["a"]
    content = bytes(range(256)) * 8192

    async def there_and_back() -> None:
        async with opened(where) as (reader, writer):
            assert await reader.readexactly(1) == b"a"
            writer.write(content)
            assert await reader.readexactly(len(content)) == content

    async with asyncio.timeout(60), asyncio.TaskGroup() as group:
        for _ in range(8):
            group.create_task(there_and_back())


async def test_a_connection_ends_with_its_pod_and_the_next_goes_to_another(
    cluster: ClusterApi, where: InCluster, echo: dict[str, int]
) -> None:
    cluster.pods["one"] = echo["a"]
    ports = [{"name": "grpc", "containerPort": echo["a"]}]
    cluster.others = [
        pod("starting", ready="False", ports=ports),
        pod("going", ready="True", ports=ports, deletionTimestamp="now"),
        pod("of another kind", ready="True", ports=[]),
    ]
    async with asyncio.timeout(60):
        async with opened(where) as (reader, _):
            assert await reader.readexactly(1) == b"a"
            cluster.pods["two"] = echo["b"]
            cluster.delete("one")
            assert await reader.read() == b"", "its end is told at once"
        async with opened(where) as (reader, _):
            assert await reader.readexactly(1) == b"b"
    assert cluster.reached == ["one", "two"]


async def test_a_pod_that_is_ready_and_refuses_is_passed_over_or_said(
    cluster: ClusterApi, where: InCluster, caplog: pytest.LogCaptureFixture
) -> None:
    async with asyncio.timeout(60):
        with caplog.at_level(logging.INFO):
            async with opened(where) as (reader, _):  # before any pod is there
                assert await reader.read() == b""
            cluster.pods["closed"] = 1
            async with opened(where) as (reader, _):
                assert await reader.read() == b""
    assert "no pod of the Service rock/rock in here is ready now" in caplog.text
    assert "the pod cannot be reached: cannot reach 1" in caplog.text
    assert TOKEN not in caplog.text


@pytest.mark.parametrize(
    ("refusal", "kind", "said"),
    [
        ((403, "services is forbidden"), FailedPrecondition, "create on pods/portforward"),
        ((404, "services rock not found"), FailedPrecondition, "services rock not found"),
        ((401, "Unauthorized"), FailedPrecondition, "status 401"),
        ((503, "busy"), Unavailable, "status 503"),
    ],
)
def test_what_keeps_it_from_the_cluster_is_said_at_once(
    cluster: ClusterApi, where: InCluster, refusal: tuple[int, str], kind: type[RockError], said: str
) -> None:
    cluster.refusal = refusal
    with pytest.raises(kind, match=said):
        forwarded_port(where)
    cluster.refusal = None
    assert forwarded_port(where) == forwarded_port(where), "it is tried anew, and opened once"


def test_a_port_that_the_service_has_not_is_refused(cluster: ClusterApi, tmp_path: Path) -> None:
    other = installations.in_cluster(
        cluster.kubeconfig(tmp_path), "here", namespace="rock", service="rock", port=9
    )
    with pytest.raises(FailedPrecondition, match="no pods at port 9; it has 8120, 8121"):
        forwarded_port(other)


def test_an_api_that_is_gone_is_unavailable(tmp_path: Path) -> None:
    gone = ClusterApi("http://127.0.0.1:1")
    with pytest.raises(Unavailable, match=r"does not answer at http://127\.0\.0\.1:1"):
        forwarded_port(
            installations.in_cluster(
                gone.kubeconfig(tmp_path), "", namespace="rock", service="rock", port=8120
            )
        )


@pytest.mark.parametrize(
    "odd",
    [
        b"",
        b"no JSON",
        b"[]",
        b"null",
        b"{}",
        b'{"spec": {"ports": [{"port": 8120}]}}',
        b"[" * 100_000,
        b"\xff",
    ],
)
def test_what_is_no_answer_of_an_api_is_said_of_it(cluster: ClusterApi, where: InCluster, odd: bytes) -> None:
    cluster.odd = odd
    with pytest.raises(Unavailable, match=r"says of rock/rock in here what is no Service"):
        forwarded_port(where)


def test_a_pod_of_another_path_is_none(cluster: ClusterApi, where: InCluster) -> None:
    ports = [{"name": "grpc", "containerPort": 1}]
    cluster.others = [pod("../../kube-system/pods/x", ready="True", ports=ports)]
    with pytest.raises(Unavailable, match="no pod"):
        forwarded_port(where)


def test_an_answer_larger_than_any_list_of_pods_is_not_kept(
    cluster: ClusterApi, where: InCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(forwarding, "_MOST_ANSWER_BYTES", 1000)
    cluster.odd = b" " * 1001
    with pytest.raises(Unavailable, match="more than 1000 bytes"):
        forwarded_port(where)


async def test_whoever_opens_connections_leaves_this_process_descriptors(
    cluster: ClusterApi, where: InCluster, echo: dict[str, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(forwarding, "_MOST_CARRIED", 2)
    cluster.pods["one"] = echo["a"]
    async with asyncio.timeout(60):
        async with opened(where) as (first, _), opened(where) as (second, _):
            assert await first.readexactly(1) == await second.readexactly(1) == b"a"
            async with opened(where) as (third, _):
                assert await third.read() == b""
        got = b""
        while not got:  # once those that ended are counted no more
            async with opened(where) as (reader, _):
                got = await reader.read(1)
    assert len(cluster.reached) == 3


@contextmanager
def answers_without_an_end(folder: Path) -> Iterator[tuple[InCluster, threading.Event]]:
    """Serve an API that says a byte now and then; the event is set once it is asked."""
    asked, over = threading.Event(), threading.Event()

    def serve() -> None:
        connection = listener.accept()[0]
        with connection, suppress(OSError):
            connection.recv(65536)
            asked.set()
            connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n")
            while not over.wait(0.05):
                connection.sendall(b" ")

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=serve)
        thread.start()
        folder.mkdir()
        path = ClusterApi(f"http://127.0.0.1:{listener.getsockname()[1]}").kubeconfig(folder)
        try:
            yield installations.in_cluster(path, "", namespace="rock", service="rock", port=8120), asked
        finally:
            over.set()
            thread.join()


def test_an_answer_without_an_end_is_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(forwarding, "_CALL_S", 1.0)
    with (
        answers_without_an_end(tmp_path / "slow") as (where, _),
        pytest.raises(Unavailable, match="does not answer"),
    ):
        forwarded_port(where)


def test_a_cluster_that_does_not_answer_keeps_nobody_from_another(
    cluster: ClusterApi, where: InCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(forwarding, "_CALL_S", 3600.0)
    cluster.pods["one"] = 1
    found: list[int] = []
    other = threading.Thread(target=lambda: found.append(forwarded_port(where)), daemon=True)
    with answers_without_an_end(tmp_path / "slow") as (slow, asked):

        def wait_for_it() -> None:
            with suppress(Unavailable):
                forwarded_port(slow)

        waiting = threading.Thread(target=wait_for_it)
        waiting.start()
        assert asked.wait(60)
        other.start()
        other.join(60)
        assert found, "it waits for a cluster that is not its own"
    waiting.join()


def program(folder: Path, script: str) -> dict[str, object]:
    (folder / "sign-in").write_text(f"#!{sys.executable}\n{script}")
    (folder / "sign-in").chmod(0o700)
    env = [{"name": "WORD", "value": TOKEN}]
    return {
        "command": "./sign-in",
        "args": ["x"],
        "apiVersion": "client.authentication.k8s.io/v1",
        "env": env,
    }


def test_an_account_that_a_program_signs_in_is_used_as_kubectl_does(
    cluster: ClusterApi, tmp_path: Path
) -> None:
    script = """
import json, os, sys
assert sys.argv[1:] == ["x"] and json.loads(os.environ["KUBERNETES_EXEC_INFO"])["kind"] == "ExecCredential"
open(sys.path[0] + "/ran", "a").write("x")
status = {"token": os.environ["WORD"], "expirationTimestamp": "2100-01-01T00:00:00Z"}
print(json.dumps({"status": status}))
"""
    path = cluster.kubeconfig(tmp_path, exec=program(tmp_path, script))
    where = installations.in_cluster(path, "", namespace="rock", service="rock", port=8120)
    assert not (tmp_path / "ran").exists(), "naming a context runs nothing"
    assert forwarded_port(where)
    assert (tmp_path / "ran").read_text() == "x", "its token holds"
    path.chmod(0o602)
    with pytest.raises(FailedPrecondition, match="others may write the kubeconfig"):
        installations.in_cluster(path, "", namespace="rock", service="rock", port=8120)
    (tmp_path / "other").mkdir()
    broken = cluster.kubeconfig(tmp_path / "other", exec=program(tmp_path / "other", "print('no token')"))
    with pytest.raises(Unauthenticated, match="sign-in' gave no token"):
        forwarded_port(installations.in_cluster(broken, "", namespace="rock", service="rock", port=8120))


# -- as a context


def context(*words: str) -> Result:
    return CliRunner().invoke(rock_app, ["context", *words])


def test_the_command_keeps_which_cluster_is_meant_now(
    cluster: ClusterApi, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KUBECONFIG", str(cluster.kubeconfig(tmp_path)))
    added = context("add", "prod", "--kubernetes", "--namespace", "rock", "--service", "rock")
    assert added.exit_code == 0, added.exception
    kept = json.loads(installations.installations_file().read_text())["contexts"]["prod"]
    assert kept["kubernetes"] == {
        "kubeconfig": str(tmp_path / "kubeconfig"),
        "context": "here",
        "namespace": "rock",
        "service": "rock",
        "port": 8120,
    }
    assert TOKEN not in installations.installations_file().read_text()
    assert "kubernetes: rock/rock in here" in context("list", "--json").stdout


@pytest.mark.parametrize(
    "words",
    [
        (),
        ("10.0.0.1:8120", "--kubernetes"),
        ("10.0.0.1:8120", "--context", "here"),
        ("--kubernetes", "--namespace", "../kube-system"),
        ("--kubernetes", "--namespace", "a/b"),
        ("--kubernetes", "--service", "rock?x"),
        ("--kubernetes", "--service", ""),
        ("--kubernetes", "--service", "x" * 64),
    ],
)
def test_what_cannot_be_a_way_to_a_service_is_not_added(
    words: tuple[str, ...], cluster: ClusterApi, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KUBECONFIG", str(cluster.kubeconfig(tmp_path)))
    assert isinstance(context("add", "prod", *words).exception, InvalidArgument)
    assert not installations.installations_file().exists()


@pytest.mark.parametrize(
    "entry",
    [
        {
            "address": "a:1",
            "kubernetes": {"kubeconfig": "/k", "context": "c", "namespace": "n", "service": "s"},
        },
        {"kubernetes": {"kubeconfig": "/k", "context": "c", "namespace": "../n", "service": "s"}},
        {"kubernetes": {"kubeconfig": "/k", "context": "c", "namespace": "n", "service": "s", "port": 0}},
        {"kubernetes": {"kubeconfig": "", "context": "c", "namespace": "n", "service": "s"}},
        {},
    ],
)
def test_a_file_with_what_no_command_writes_is_damaged(entry: dict[str, object]) -> None:
    path = installations.installations_file()
    path.parent.mkdir(parents=True)
    path.write_text(json.dumps({"version": 1, "contexts": {"prod": entry}}))
    path.chmod(0o600)
    with pytest.raises(FailedPrecondition, match="damaged"):
        installations.resolved("prod")


def test_a_client_by_name_plays_through_the_cluster_and_goes_on_after_its_pod(
    cluster: ClusterApi, where: InCluster, tmp_path: Path
) -> None:
    pki = make_certificates(tmp_path)
    (tmp_path / "token").write_text(token(tmp_path / "tokens.json", "blue", "env"))
    words = [
        *SERVER,
        f"--tokens={tmp_path}/tokens.json",
        f"--cert={pki}/server.pem",
        f"--key={pki}/server.key",
        *OFFER,
    ]
    made = Installation(kubernetes=where, token_file=str(tmp_path / "token"), ca=str(pki / "ca.pem"))
    installations.add("prod", made)
    with ExitStack() as first, ExitStack() as both:
        for name, life in (("one", first), ("two", both)):
            folder = tmp_path / name
            folder.mkdir()
            _, address = life.enter_context(serving(words, folder))
            if name == "one":
                cluster.pods[name] = int(address.rpartition(":")[2])
        with rock_env.connect("prod") as connection:
            assert "index" in connection.make("toy").reset(1)[1]
            cluster.pods["two"] = int(address.rpartition(":")[2])
            cluster.delete("one")
            first.close()
            assert "index" in connection.make("toy").reset(1)[1]
        assert set(cluster.reached) == {"one", "two"}
        command = [sys.executable, "-m", "ale", "env", "play", "frozen_lake", "--rock", "prod"]
        played = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
        assert played.returncode == 0, played.stderr
        installations.add(
            "stranger",
            Installation(kubernetes=where, token_file=made.token_file, ca=str(pki / "other-ca.pem")),
        )
        with (
            rock_env.connect("stranger") as connection,
            pytest.raises(Unavailable, match="CERTIFICATE_VERIFY"),
        ):
            connection.make("toy")
