"""The parts of the docker backend that need no engine: its words for one, its errors, its bundle, its rules."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from rock_env.backends.docker.backend import DockerBackend
from rock_env.backends.docker.bundle import Bundle
from rock_env.backends.docker.container import ImageFacts, container
from rock_env.backends.docker.deaths import Deaths
from rock_env.backends.docker.engine import Engine, EngineRefusal, engine_socket
from rock_env.backends.docker.graft import graft
from rock_env.backends.docker.network import resolve
from rock_env.backends.docker.state import DockerStateFolder
from rock_env.errors import (
    DiskFull,
    FailedPrecondition,
    InfraError,
    InvalidArgument,
    ResourceExhausted,
    Unavailable,
)
from rock_env.spec import NetworkPolicy, Resources, SandboxSpec

SPEC = SandboxSpec(image="some:image")
Answer = tuple[int, str]


@pytest.fixture
async def engine(tmp_path: Path) -> AsyncIterator[Callable[[dict[str, Answer]], Engine]]:
    """Make a client of a stand-in engine, which answers paths with a status and a text."""
    answers: dict[str, Answer] = {}

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        path = head.split()[1].partition("?")[0].removeprefix("/v1.41")
        status, text = answers.get(path, (404, '{"message": "page not found"}'))
        body = text.encode()
        writer.write(
            f"HTTP/1.1 {status} X\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n".encode() + body
        )
        await writer.drain()
        writer.close()

    path = tmp_path / "engine.sock"
    server = await asyncio.start_unix_server(serve, path)
    client = Engine(path)

    def answering(wanted: dict[str, Answer]) -> Engine:
        answers.update(wanted)
        return client

    yield answering
    await client.close()
    server.close()
    await server.wait_closed()


@pytest.mark.parametrize(
    ("status", "text", "kind", "message"),
    [
        (500, '{"message": "write /x: no space left on device"}', DiskFull, "the server's disk is full"),
        (
            500,
            '{"message": "could not find an available, non-overlapping IPv4 address pool"}',
            ResourceExhausted,
            "network",
        ),
        (409, '{"message": "name in use"}', EngineRefusal, "status 409: name in use"),
        (500, "a proxy's page", EngineRefusal, "a proxy's page"),
        (500, "", EngineRefusal, "no reason"),
    ],
)
async def test_the_engines_errors_become_ours(
    engine: Callable[[dict[str, Answer]], Engine], status: int, text: str, kind: type[Exception], message: str
) -> None:
    with pytest.raises(kind, match=message):
        await engine({"/info": (status, text)}).call("GET", "/info")


async def test_a_missing_image_is_named_with_the_way_to_get_it(
    engine: Callable[[dict[str, Answer]], Engine],
) -> None:
    with pytest.raises(InvalidArgument, match="docker pull org/app:1"):
        await engine({}).image("org/app:1")


@pytest.mark.parametrize(
    "name", ["", "../containers/x", "a//b", "a?all=1", "a b", "a\n", "-x", "\u00e9", "x" * 600, "%2e%2e/info"]
)
async def test_a_name_that_would_change_the_url_is_none(
    engine: Callable[[dict[str, Answer]], Engine], name: str
) -> None:
    with pytest.raises(InvalidArgument, match="no name of an image"):
        await engine({}).image(name)


async def test_no_engine_is_unavailable_with_a_remedy(tmp_path: Path) -> None:
    backend = DockerBackend(socket=tmp_path / "none.sock")
    with pytest.raises(Unavailable, match="systemctl start docker") as raised:
        await backend.create(SPEC, sandbox_id="no")
    assert raised.value.retry_after_s
    await backend.close()
    await backend.close()


def test_only_an_engine_of_this_machine_will_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DOCKER_HOST", "unix:///run/user/1000/docker.sock")
    assert engine_socket() == Path("/run/user/1000/docker.sock")
    monkeypatch.setenv("DOCKER_HOST", "tcp://10.0.0.1:2375")
    with pytest.raises(InvalidArgument, match="on this machine"):
        engine_socket()


def asked(spec: SandboxSpec, *, image: dict[str, object] | None = None, cpus: int = 2) -> dict[str, object]:
    facts = ImageFacts.of({"Id": "sha256:x", "Config": image or {}})
    body = container(
        spec, facts, bundle=Bundle(Path("/b")), run=Path("/r"), labels={}, network=None, host_cpus=cpus
    )
    return {**body.pop("HostConfig"), **body}


def test_every_container_is_closed_by_default() -> None:
    body = asked(SPEC)
    assert body["CapDrop"] == ["ALL"]
    assert body["SecurityOpt"] == ["no-new-privileges=true"]
    assert body["NetworkDisabled"] is True
    assert body["MemorySwap"] == body["Memory"]
    assert body["PidsLimit"] == 256 + 4
    for never in ("Privileged", "CapAdd", "Devices", "PidMode", "UsernsMode", "RestartPolicy"):
        assert never not in body
    writable = [bind for bind in body["Binds"] if not bind.endswith(":ro")]  # type: ignore[attr-defined]
    assert writable == ["/r:/opt/rock/run"]


def test_zero_means_the_default_and_a_small_machine_gives_what_it_has() -> None:
    zero, plain = asked(SandboxSpec(image="i", resources=Resources(0, 0, 0, 0))), asked(SPEC)
    for limit in ("NanoCpus", "Memory", "PidsLimit", "Ulimits"):
        assert zero[limit] == plain[limit]
    assert asked(SandboxSpec(image="i", resources=Resources(cpus=64)), cpus=2)["NanoCpus"] == 2_000_000_000


def test_a_library_the_image_preloads_does_not_reach_the_guest() -> None:
    body = asked(SPEC, image={"Env": ["LD_PRELOAD=/x.so", "COLOUR=teal"]})
    assert body["Env"] == ["LD_PRELOAD"], "a name without a value is taken away"


def test_the_bundle_starts_a_guest_on_its_own(tmp_path: Path) -> None:
    bundle = Bundle.build(tmp_path)
    assert Bundle.build(tmp_path) == bundle, "found again"
    here = [word.replace("/opt/rock", str(bundle.folder)) for word in bundle.argv]
    started = subprocess.run(
        [*here, "--nonsense"], env={}, capture_output=True, text=True, check=False, cwd="/"
    )
    assert "expected --listen-fd N, --listen-path P or --listen-tcp HOST:PORT" in started.stderr
    shown = subprocess.run(
        [*here[:-1], "-c", "import sys; print(sys.path)"], env={}, capture_output=True, text=True
    )
    assert sys.base_prefix not in shown.stdout, "nothing of this machine but the bundle"
    assert not list(bundle.folder.rglob("site-packages"))


async def test_an_allow_list_opens_what_it_says_and_closes_the_rest() -> None:
    listed = await resolve(NetworkPolicy(True, ("203.0.113.0/24", "10.1.2.3", "0.0.0.0/0")))
    rules = listed.rules("C", "NO")
    place = {rule: index for index, rule in enumerate(rules)}
    assert place["-A C -d 10.1.2.3/32 -j RETURN"] < place["-A C -d 10.0.0.0/8 -g NO"]
    assert place["-A C -d 169.254.0.0/16 -g NO"] < place["-A C -d 0.0.0.0/0 -j RETURN"]
    assert place["-A C -m addrtype --dst-type LOCAL -g NO"] < place["-A C -d 203.0.113.0/24 -j RETURN"]
    assert rules[-1] == "-A C -g NO"


async def test_a_listed_port_is_opened_for_tcp_before_this_machine_is_closed() -> None:
    listed = await resolve(NetworkPolicy(True, ("172.17.0.1:8125",)))
    rules = listed.rules("C", "NO")
    assert rules[0] == "-A C -p tcp -d 172.17.0.1 --dport 8125 -j RETURN"
    assert [rule for rule in rules if rule.endswith("RETURN")] == rules[:1]
    for bad in (
        "172.17.0.1:0",
        "172.17.0.1:65536",
        "172.17.0.0/16:80",
        "name:80",
        "rock:packages",
        ":80",
        "[::1]:80",
    ):
        with pytest.raises(InvalidArgument, match="ADDRESS:PORT"):
            await resolve(NetworkPolicy(True, (bad,)))


async def test_deaths_are_told_in_words(tmp_path: Path) -> None:
    deaths = Deaths(Engine(tmp_path / "none.sock"), "label")
    cases = {
        "a": (0, False, "lease"),
        "b": (137, False, "outside"),
        "c": (137, True, "memory"),
        "d": (3, False, "3"),
    }
    for name, (code, oom, words) in cases.items():
        deaths.watch(name)
        if oom:
            deaths._take({"Action": "oom", "Actor": {"ID": name}})
        deaths._take({"Action": "die", "Actor": {"ID": name, "Attributes": {"exitCode": str(code)}}})
        assert words in await deaths.explain(name)
    deaths.watch("e")
    deaths.blame("e", "because")
    deaths._take({"Action": "die", "Actor": {"ID": "e", "Attributes": {"exitCode": "137"}}})
    assert await deaths.explain("e") == "because"
    assert await deaths.explain("never heard of") == ""


def test_a_state_folder_has_one_server_and_one_id(tmp_path: Path) -> None:
    first = DockerStateFolder.open(tmp_path / "state")
    with pytest.raises(FailedPrecondition, match="another server"):
        DockerStateFolder.open(tmp_path / "state")
    first.close()
    second = DockerStateFolder.open(tmp_path / "state")
    assert second.id == first.id
    (tmp_path / "link").symlink_to(tmp_path / "state")
    with pytest.raises(OSError, match="link"):
        DockerStateFolder.open(tmp_path / "link")
    second.close()


def test_a_graft_follows_no_link(tmp_path: Path) -> None:
    layer, box, outside = (tmp_path / name for name in ("layer", "box", "outside"))
    (layer / "etc").mkdir(parents=True)
    (layer / "etc" / "passwd").write_text("the snapshot's")
    (layer / "file").write_text("new")
    box.mkdir()
    outside.mkdir()
    (box / "etc").symlink_to(outside)
    (box / "file").symlink_to(outside / "file")
    graft([layer], box)
    assert list(outside.iterdir()) == []
    assert (box / "etc" / "passwd").read_text() == "the snapshot's"
    assert (box / "file").read_text() == "new"
    (layer / "file").chmod(0o755)
    (tmp_path / "no-folder").touch()
    with pytest.raises(InfraError, match="could not be copied"):
        graft([layer], tmp_path / "no-folder")


def test_bundles_hold_what_the_guest_imports_late(tmp_path: Path) -> None:
    """Modules that only sessions or terminals need must load from the bundle, too."""
    bundle = Bundle.build(tmp_path)
    modules = sorted(path.stem for path in (bundle.folder / "guest").glob("*.pyc"))
    program = "import sys, importlib, json; sys.path.insert(0, sys.argv[1])\n"
    program += "for name in json.loads(sys.argv[2]): importlib.import_module('guest.' + name)\n"
    program += "import termios, fcntl"
    here = [word.replace("/opt/rock", str(bundle.folder)) for word in bundle.argv[:-1]]
    argv = [
        *here,
        "-c",
        program,
        str(bundle.folder),
        json.dumps([name for name in modules if name != "__init__"]),
    ]
    done = subprocess.run(argv, env={}, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
