"""A server offers what is registered where it runs, from the moment it is, and says where it looked for what is not."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from registering import register

from ale.env import check as env_check
from ale.env.check import check_command
from rock_env.client import Client
from rock_env.client.places import PlacesClient
from rock_env.errors import FailedPrecondition, InvalidArgument, UnknownName
from rock_env.grading.model import Build, Task, Verifier
from rock_env.local import start_embedded
from rock_env.tasksets import registered
from rock_env.tasksets.registered import Registration
from rock_env.vetting.vet import Vetted


async def test_a_running_server_finds_what_is_registered_and_what_replaces_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ALE_HOME", str(tmp_path / "here"))
    with start_embedded(["--workers=1"]) as server:
        async with Client(server.address) as client:
            for words in (("one",), ("one", "two")):
                record = register("mine", *words)
                env = await client.make("mine")
                assert env.version == record.version
                assert sum((await client.splits("mine")).values()) == 2
                assert "mine" in {described.name for described in await client.list_envs()}
                await env.close()


def test_what_is_checked_is_what_is_registered_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ALE_HOME", str(tmp_path / "there"))
    there = register("mine", "one")
    with start_embedded(["--workers=1"]) as server:
        monkeypatch.setenv("ALE_HOME", str(tmp_path / "here"))
        here = register("mine", "two")
        with pytest.raises(
            FailedPrecondition, match=rf"has mine@{there.version}, and here it is mine@{here.version}"
        ):
            check_command("mine", {}, tasks=1, rock=server.address, as_json=True)


async def test_a_server_elsewhere_says_where_it_looked_and_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ALE_HOME", str(tmp_path / "there"))
    with start_embedded(["--workers=1"]) as server:
        monkeypatch.setenv("ALE_HOME", str(tmp_path / "here"))
        register("mine", "one")
        async with Client(server.address) as client:
            with pytest.raises(UnknownName) as caught:
                await client.make("mine")
    assert str(tmp_path / "there") in str(caught.value)
    assert "ale env register" in str(caught.value)


def test_a_check_with_other_arguments_is_not_kept_as_the_environment_s(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def one_check(*_: object) -> AsyncIterator[Vetted]:
        yield Vetted("resets", "PASS", "", 0.0)

    monkeypatch.setattr(env_check, "vet", one_check)
    monkeypatch.setenv("ALE_HOME", str(tmp_path))
    record = register("mine", "one")
    with start_embedded(["--workers=1"]) as server:
        check_command("mine", {"max_turns": 1}, tasks=1, rock=server.address, as_json=True)
        assert registered.report_of(record) is None
        check_command("mine", {}, tasks=1, rock=server.address, as_json=True)
    assert registered.report_of(record) is not None


async def pushed(address: str, record: Registration, content: bytes | None = None) -> None:
    async with PlacesClient(address) as places:
        await places.push_env(
            record.name,
            registered.content_of(record) if content is None else content,
            digest=record.digest,
            source=record.source,
            registered_at=record.registered_at,
            tasks=record.tasks,
            images=record.images,
        )


async def test_what_is_pushed_is_offered_until_it_is_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ALE_HOME", str(tmp_path / "there"))
    with start_embedded(["--workers=1"]) as server:
        monkeypatch.setenv("ALE_HOME", str(tmp_path / "here"))
        async with Client(server.address) as client, PlacesClient(server.address) as places:
            for words in (("one",), ("one", "two")):
                record = register("mine", *words)
                await pushed(server.address, record)
                env = await client.make("mine")
                assert env.version == record.version
                await env.close()
            await places.remove_env("mine")
            with pytest.raises(UnknownName):
                await client.make("mine")
            with pytest.raises(UnknownName, match="pushed environment"):
                await places.remove_env("mine")


async def test_a_server_keeps_what_was_registered_where_it_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ALE_HOME", str(tmp_path / "there"))
    kept = register("mine", "one")
    with start_embedded(["--workers=1"]) as server:
        monkeypatch.setenv("ALE_HOME", str(tmp_path / "here"))
        mine = register("mine", "one", "two")
        with pytest.raises(FailedPrecondition, match="registered on the server's own machine"):
            await pushed(server.address, mine)
        async with Client(server.address) as client, PlacesClient(server.address) as places:
            with pytest.raises(UnknownName):
                await places.remove_env("mine")
            env = await client.make("mine")
            assert env.version == kept.version


BUILT_HERE = [
    Task("one", "Say one.", Build(context=Path("/etc")), Verifier(("true",), "exit_code")),
]


@pytest.mark.parametrize(
    ("change", "content", "message"),
    [
        ({"name": "../mine"}, None, "bad environment name"),
        ({"name": "swe"}, None, "is installed on the server"),
        ({"digest": "../../x" + "0" * 57}, None, "bad digest"),
        ({"tasks": 2}, None, "said to have 2 tasks, got 1"),
        ({"images": ("x" * 5000,)}, None, "expected at most 4096"),
        ({}, b"no tasks", "cannot be read"),
        ({}, b"\x91" * 5000, "cannot be read"),
        ({}, registered.encoded(BUILT_HERE), "names no image that is built"),
    ],
)
async def test_what_is_no_environment_is_refused_and_nothing_kept(
    change: dict[str, Any],
    content: bytes | None,
    message: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("ALE_HOME", str(tmp_path / "there"))
    with start_embedded(["--workers=1"]) as server:
        monkeypatch.setenv("ALE_HOME", str(tmp_path / "here"))
        record = register("mine", "one")
        content = registered.content_of(record) if content is None else content
        with pytest.raises(InvalidArgument, match=message):
            await pushed(server.address, msgspec.structs.replace(record, **change), content)
    assert not list((tmp_path / "there").rglob("env.json"))
