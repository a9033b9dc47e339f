"""A server offers what is registered where it runs, from the moment it is, and says where it looked for what is not."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from ale.env import check as env_check
from ale.env.check import check_command
from rock_env import registered
from rock_env.client import Client
from rock_env.errors import FailedPrecondition, UnknownName
from rock_env.grading.model import Build, Task, Verifier
from rock_env.local import start_embedded
from rock_env.registered import Registration
from rock_env.vetting.vet import Vetted


def register(name: str, *words: str) -> Registration:
    tasks = [
        Task(word, f"Say {word}.", Build(image="busybox"), Verifier(("true",), "exit_code")) for word in words
    ]
    record = Registration(
        name=name,
        digest=registered.digest_of(tasks, ["busybox"] * len(tasks)),
        source="/somewhere",
        registered_at=0.0,
        tasks=len(tasks),
        images=("busybox",),
    )
    registered.store(record, tasks)
    return record


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
