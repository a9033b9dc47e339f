"""Code of an environment on a server with tokens: a plugin opens every text it is given and finds nothing of the host."""

from __future__ import annotations

import json
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import grpc
import pytest
from fences import why_not_isolated
from rest_servers import RestServer, guarded_rest

from rock_env import plugins
from rock_env.proto.v1 import env_pb2 as pb
from rock_env.proto.v1.env_pb2_grpc import EnvServiceStub
from rock_env.wire.channel import CLIENT_OPTIONS, target

NOSY = Path(__file__).with_name("nosy_env.py")
NOTHING = "nothing"
SECRET = "a secret of the server"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("view")
    (made / "data.txt").write_text("data of the operator")
    (made / "secret.pem").write_text(SECRET)
    return made


@pytest.fixture(scope="module")
def server(folder: Path) -> Iterator[RestServer]:
    if why_not_isolated():
        pytest.skip(f"no namespaces here: {why_not_isolated()}")
    more = [f"--env={NOSY}:NOSY", f"--data=data={folder}/data.txt", "--isolation=namespaces"]
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SERVERS_SECRET", SECRET)
        with guarded_rest(folder, more) as running:
            yield running


@asynccontextmanager
async def stubbed(server: RestServer) -> AsyncIterator[tuple[Any, Any]]:
    async with grpc.aio.insecure_channel(target(server.grpc), options=CLIENT_OPTIONS) as channel:
        yield EnvServiceStub(channel), (("authorization", f"Bearer {server.key}"),)


class Player:
    """An episode of the nosy environment; `ask` returns what it found behind a text."""

    def __init__(self, stub: Any, who: Any, env_id: str) -> None:
        self._stub, self._who, self._env_id, self._turn = stub, who, env_id, 1

    @classmethod
    async def of(cls, stub: Any, who: Any, env: str, **params: Any) -> tuple[Player, str]:
        made = await stub.Make(pb.MakeRequest(env=env, params_json=json.dumps(params)), metadata=who)
        reset = pb.ResetRequest(env_id=made.env_id, sequence=1, idempotency_key="r", task_id="train/0")
        first = await stub.Reset(reset, metadata=who)
        return cls(stub, who, made.env_id), first.observation

    async def ask(self, text: str) -> str:
        self._turn += 1
        step = pb.StepRequest(
            env_id=self._env_id, sequence=self._turn, idempotency_key=f"{self._turn}", action=text
        )
        return str((await self._stub.Step(step, metadata=self._who)).observation)


def of_the_host(server: RestServer, folder: Path) -> list[str]:
    """Return files that the server's user may read, and that are no business of an environment."""
    log = folder / "log"
    places = [
        *("/etc/passwd", "/etc/shadow", "/etc/hostname", "/etc/resolv.conf", "/etc/hosts"),
        *(
            "/proc/self/environ",
            f"/proc/{server.pid}/environ",
            f"/proc/{server.pid}/cmdline",
            "/proc/1/cmdline",
        ),
        *(f"/proc/{server.pid}/root/etc/passwd", "/proc/self/root/etc/passwd", "/sys/kernel/uevent_seqnum"),
        *(str(server.tokens), str(folder / "secret.pem"), str(log), f"{folder}/../{folder.name}/secret.pem"),
        *(str(Path(__file__)), str(Path(__file__).parents[2] / "Makefile"), "secret.pem", "tokens.json"),
        *(str(Path.home() / name) for name in (".bashrc", ".profile", ".ssh/known_hosts")),
    ]
    assert sum(Path(place).exists() for place in places) > 12, "the host has what is looked for"
    return places


async def test_a_plugin_that_opens_every_text_finds_nothing(server: RestServer, folder: Path) -> None:
    places = of_the_host(server, folder)
    async with stubbed(server) as (stub, who):
        player, _ = await Player.of(stub, who, "nosy")
        for place in places:
            assert await player.ask(place) == NOTHING, place
            params = json.dumps({"text": place})
            told = await stub.ListSplits(pb.ListSplitsRequest(env="nosy", params_json=params), metadata=who)
            assert [split.count for split in told.splits] == [1], place
            assert (await Player.of(stub, who, "nosy", text=place))[1] == NOTHING, place


async def test_what_there_is_is_python_and_what_the_operator_named(server: RestServer, folder: Path) -> None:
    async with stubbed(server) as (stub, who):
        player, _ = await Player.of(stub, who, "nosy")
        assert await player.ask(f"{folder}/data.txt") == "data of the operator"
        files = json.loads(await player.ask("every file"))
        strange = [
            file
            for file in files
            if not file.startswith(("/etc/ld.so", "/etc/alternatives", "/etc/localtime"))
        ]
        python = [str(Path(prefix)) for prefix in (sys.prefix, sys.base_prefix)]
        strange = [file for file in strange if not file.startswith((*python, f"{folder}/data.txt"))]
        strange = [file for file in strange if file != "/tmp/left"]  # which the test below writes
        packages = ("rock_env", "sandboxes", "agent_runtime", "trainer", "ale", "benchmarks")
        root = Path(__file__).parents[2]
        strange = [
            file for file in strange if not file.startswith(tuple(f"{root}/{name}/" for name in packages))
        ]
        assert not strange
        variables = await player.ask("every variable")
        assert SECRET not in variables
        assert "HOME" in json.loads(variables)


def exists(file: str) -> bool:
    return Path(file).exists()


async def test_a_plugin_writes_nowhere_but_into_a_folder_of_its_own(server: RestServer, folder: Path) -> None:
    async with stubbed(server) as (stub, who):
        player, _ = await Player.of(stub, who, "nosy")
        package = Path(plugins.__file__).parent
        for place in (package, Path("/"), Path("/usr"), Path("/dev"), Path("/etc"), Path.home()):
            assert await player.ask(f"write {place}/left") == NOTHING, place
        assert await player.ask("write /tmp/left") == "written"  # in a /tmp of its own
        assert not exists("/tmp/left")
        for place in (folder / "left", folder / "data.txt"):
            assert await player.ask(f"write {place}") == NOTHING, place


@pytest.mark.parametrize("env", ["frozen_lake", "sokoban", "math", "fork_chain"])
async def test_installed_environments_are_played_all_the_same(server: RestServer, env: str) -> None:
    async with stubbed(server) as (stub, who):
        assert (await Player.of(stub, who, env))[1]


@pytest.mark.parametrize("env", ["swe", "terminal", "code"])
async def test_tasks_of_environments_with_a_sandbox_are_counted(server: RestServer, env: str) -> None:
    async with stubbed(server) as (stub, who):
        told = await stub.ListSplits(pb.ListSplitsRequest(env=env, params_json="{}"), metadata=who)
        assert sum(split.count for split in told.splits) > 10
