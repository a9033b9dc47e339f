"""What the console shows of a ROCK server: what the server says, without its token, and why where it says nothing."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import grpc
import httpx
import pytest
from console_run import HERE, beside_rock, client, plain, write_run
from starlette.testclient import TestClient
from typer.testing import CliRunner

from agent_runtime.types import Hosting
from ale.cli import app as ale
from ale.console import cli
from ale.console import rock as console_rock
from ale.console.answers import changes
from ale.console.app import application
from ale.console.catalog import Catalog
from ale.console.guard import Door
from ale.console.rock import Rock
from ale.console.rock_routes import _Shared, _stamps
from rock_env.backends.process.backend import ProcessBackend
from rock_env.client import Client
from rock_env.errors import InvalidArgument, Unavailable, UnknownName
from rock_env.proto.v1 import admin_pb2_grpc
from rock_env.server.node import Node
from rock_env.server.options import ServerOptions
from rock_env.server.sandboxes.core import SandboxCore
from rock_env.server.services.places import PlaceCalls
from rock_env.server.services.sandboxes import add_sandbox_service
from rock_env.store.sqlite.records import SqliteStore

TOKEN = f"rock_0123456789ab_{'c0ffee' * 8}"


class Admin(PlaceCalls, admin_pb2_grpc.AdminServiceServicer):  # type: ignore[misc]
    """The AdminService, as far as it is about places."""


@dataclass(frozen=True)
class Served:
    """A server of this process, and a console that shows it."""

    rock: Client
    page: httpx.AsyncClient
    stop: Any

    async def get(self, path: str, **asked: str) -> Any:
        answer = await self.page.get(f"/api/rock{path}", params=asked)
        assert answer.status_code == 200, answer.text
        assert "c0ffee" not in answer.text
        return answer.json()


@asynccontextmanager
async def serving(folder: Path) -> AsyncIterator[tuple[str, Any]]:
    """Serve sandboxes and places on a socket; yield the address and what stops the server."""
    (folder / "quotas.toml").write_text("[capacity]\nboxes = 3\n")
    (folder / "boxes").mkdir()
    boxes = ProcessBackend(root=folder / "boxes", isolation="none")
    server = grpc.aio.server()
    options = ServerOptions(quotas=str(folder / "quotas.toml"))
    async with Node.open(options) as node, await SqliteStore.open() as store:
        router = node.pooled(boxes)
        async with SandboxCore(router, store, admission=node.admission, pin=node.pin) as core:
            add_sandbox_service(server, core)
            admin = Admin()
            admin.places = node.open_for(server, core)
            admin_pb2_grpc.add_AdminServiceServicer_to_server(admin, server)
            server.add_insecure_port(f"unix://{folder}/s")
            await server.start()
            yield f"unix://{folder}/s", lambda: server.stop(None)
            core.stop()
            await server.stop(None)
        await router.close()


@pytest.fixture
async def served(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Served]:
    monkeypatch.setenv("ROCK_TOKEN", TOKEN)
    monkeypatch.setattr(console_rock, "ASK_S", 100.0)  # the machine may be busy
    (tmp_path / "rock").mkdir()
    write_run(tmp_path / "runs" / "one")
    async with (
        serving(tmp_path / "rock") as (address, stop),
        Client(address) as rock,
        beside_rock(tmp_path / "runs", address) as page,
    ):
        yield Served(rock, page, stop)


async def test_a_sandbox_its_history_and_what_it_wrote_are_told(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert await served.get("/sandboxes") == {"rows": [], "more": False}
    box = await served.rock.sandboxes.create(
        labels={"run": "lake\u202e", "a": ""}, environment="toy", lease_s=None
    )
    (row,) = (await served.get("/sandboxes", everything="1"))["rows"]
    shown = {name: row[name] for name in ("id", "state", "backend", "environment", "labels")}
    assert shown == {
        "id": box.id,
        "state": "RUNNING",
        "backend": "process",
        "environment": "toy",
        "labels": {"a": "", "run": "lake\\u202e"},
    }
    assert list(row["labels"]) == ["a", "run"]  # a message holds them in any order
    assert row["ends"] == box.info.expires_at
    whole = await served.get("/sandbox", id=box.id)
    assert [change[:2] for change in whole["history"]] == [["STARTING", "asked for"], ["RUNNING", "started"]]
    assert whole["resources"]["cpus"] == 1.0
    monkeypatch.setattr(console_rock, "MOST_LOG", 1000)
    script = f"printf 'x%.0s' $(seq 4000); echo; echo {TOKEN}; echo '<img src=x>' >&2"
    process = await box.start_process(["sh", "-c", script])
    await process.wait()
    (told,) = await served.get("/processes", id=box.id)
    assert (f"{box.id}/{told['name']}", told["state"]) == (process.id, "exit 0")
    log = await served.get("/log", id=box.id, process=told["name"])
    assert log["stderr"] == {"text": "<img src=x>\n", "before": 0}
    assert log["stdout"]["text"].endswith("x\n***\n")
    assert 2000 < log["stdout"]["before"] < 4000
    assert len(log["stdout"]["text"]) < 2000
    await box.delete()
    assert (await served.get("/sandboxes"))["rows"] in ([], [row])  # a second old at most
    (gone,) = (await served.get("/sandboxes", everything="1"))["rows"]
    assert gone["state"] == "DELETED"


async def test_places_pools_and_who_waits_are_told(served: Served) -> None:
    box = await served.rock.sandboxes.create(lease_s=None)
    told = await served.get("/places")
    whole, *tenants = told["quotas"]["told"]
    assert (whole["server"], whole["used"]["boxes"], whole["limits"]["boxes"]) == (True, 1, 3)
    assert [(each["tenant"], each["used"]["boxes"], each["waiting"]) for each in tenants] == [("", 1, 0)]
    assert told["pools"] == {"told": [], "problem": ""}
    assert told["load"]["told"] is None  # this server does not offer the call
    assert "UNIMPLEMENTED" in told["load"]["problem"]
    images = await served.get("/images")
    assert [part["told"] for part in images.values()] == [[], None]
    await box.delete()


async def test_a_server_that_ends_meanwhile_is_named_and_runs_are_shown_on(served: Served) -> None:
    await served.get("/sandboxes")
    await served.stop()
    for path in ("/sandboxes?everything=1", f"/sandbox?id=sb-{'0' * 16}"):
        answer = await served.page.get(f"/api/rock{path}")
        assert answer.status_code == 502
        assert "is not available" in answer.json()["detail"]
        assert "c0ffee" not in answer.text
    (run,) = (await served.page.get("/api/runs")).json()["runs"]
    assert run["name"] == "one"


async def test_a_way_to_the_server_that_does_not_open_is_given_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened = threading.Event()
    async with beside_rock(tmp_path, f"unix://{tmp_path}/none") as page:
        monkeypatch.setattr(console_rock, "ASK_S", 0.2)
        monkeypatch.setattr(console_rock, "_reached", lambda _: opened.wait(60))
        answer = await page.get("/api/rock/sandboxes")
        opened.set()
    assert "did not answer within 0.2 s" in answer.json()["detail"]


@pytest.mark.parametrize("identity", ["", "sb-1", f"sb-{'0' * 16}/x", "../etc", "x" * 101, f"sb-{'G' * 16}"])
async def test_what_is_no_id_is_asked_of_nobody(tmp_path: Path, identity: str) -> None:
    async with beside_rock(tmp_path, f"unix://{tmp_path}/none") as page:
        for path in ("sandbox", "processes", "log"):
            answer = await page.get(f"/api/rock/{path}", params={"id": identity, "process": "p"})
            assert answer.status_code == 422


async def test_pages_share_an_answer_and_an_error_and_hear_of_changes() -> None:
    asked, answers = [0], ["one", "one", Unavailable("gone"), Unavailable("gone"), "two"]

    async def ask() -> Any:
        asked[0] += 1
        said = answers.pop(0)
        if isinstance(said, Unavailable):
            raise said
        return said

    shared = _Shared(ask)
    assert await asyncio.gather(*(shared.get() for _ in range(20))) == ["one"] * 20
    assert asked == [1]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("ale.console.rock_routes.FRESH_S", 0.0)
        shared = _Shared(ask)
        watchers = asyncio.Semaphore(1)
        async with aclosing(changes(lambda: _stamps((shared,)), watchers, 0.0)) as events:
            assert [await anext(events) for _ in range(3)] == ["data: changed\n\n"] * 3
        assert asked == [5]  # one, as before; gone, as before; two
        assert not watchers.locked()


def test_no_server_is_told_and_strangers_are_kept_out(tmp_path: Path) -> None:
    assert client(tmp_path).get("/api/rock").json() == {"place": None}
    assert client(tmp_path).get("/api/rock/sandboxes").status_code == 404
    door = Door(application(Catalog([str(tmp_path)]), Rock("127.0.0.1:1")), "127.0.0.1", "token")
    asks = TestClient(door, base_url=HERE)
    for path in ("", "/sandboxes", "/places", "/events", "/log?id=x&process=y"):
        assert asks.get(f"/api/rock{path}").status_code == 401
        assert asks.get(f"/api/rock{path}", headers={"host": "evil.example"}).status_code == 403
        assert asks.post(f"/api/rock{path}").status_code == 405


def test_a_rollout_names_its_sandbox_and_is_found_by_it(tmp_path: Path) -> None:
    box = f"sb-{'a' * 16}"
    played = [replace(plain(), id="there", hosting=Hosting(sandbox_id=box)), replace(plain(), id="elsewhere")]
    asks = client(write_run(tmp_path / "run", {1: played}))
    assert asks.get("/api/runs/run/rollout", params={"id": "there"}).json()["sandbox"] == box
    (found,) = asks.get("/api/runs/run/rollouts", params={"text": box}).json()["rows"]
    assert found["id"] == "there"


@pytest.mark.parametrize(
    ("place", "error", "says"),
    [
        ("http://127.0.0.1:1", InvalidArgument, "asks over gRPC"),
        ("nowhere/else", InvalidArgument, "bad ROCK address"),
        ("no-such-context", UnknownName, "neither an address nor a context"),
        ("rock.example.org:8120", InvalidArgument, "in clear text"),
    ],
)
def test_a_place_that_is_none_is_refused_before_anything_is_served(
    place: str, error: type[Exception], says: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    monkeypatch.setenv("ROCK_TOKEN", TOKEN)
    with pytest.raises(error, match=says) as caught:
        Rock(place)
    assert "c0ffee" not in str(caught.value)


def test_a_console_of_a_server_always_wants_a_token(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    doors = []

    async def serve(door: Door, _: str) -> None:
        doors.append(door)

    monkeypatch.setattr(cli, "_serve", serve)
    monkeypatch.chdir(tmp_path)
    for words in (["--rock", f"unix://{tmp_path}/s"], []):
        assert CliRunner().invoke(ale, ["console", *words]).exit_code == 0
    assert [bool(door.token) for door in doors] == [True, False]
