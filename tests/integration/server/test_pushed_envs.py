"""Environments that are pushed to one server of a store: all offer them, each from its own folder."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest
from integration.replica_fleet import Fleet, running_fleet
from registering import register

from ale.env.pushing import push_command, remove_pushed_command
from rock_env.client import Client
from rock_env.errors import UnknownName
from rock_env.tasksets import registered


@pytest.fixture
async def fleet(new_database: Callable[[], str]) -> AsyncIterator[Fleet]:
    async with running_fleet(new_database()) as made:
        yield made


async def offered(address: str, version: str, name: str = "mine") -> None:
    """Wait until a server offers an environment in this version; an empty version: until it does not."""
    async with Client(address) as client, asyncio.timeout(30):
        while True:
            try:
                env = await client.make(name)
            except UnknownName:
                found = ""
            else:
                found = env.version
                await env.close()
            if found == version:
                return
            await asyncio.sleep(0.05)


async def test_a_pushed_environment_is_offered_by_every_replica(
    fleet: Fleet, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def start(home: str) -> str:
        monkeypatch.setenv("ALE_HOME", str(tmp_path / home))
        server = await fleet.start()
        monkeypatch.setenv("ALE_HOME", str(tmp_path / "user"))
        return server.address

    first, second = await start("first"), await start("second")
    record = register("mine", "one")
    await asyncio.to_thread(push_command, "mine", first)
    for address in (first, second):
        await offered(address, record.version)
    later = register("mine", "one", "two")
    await asyncio.to_thread(push_command, "mine", second)
    third = await start("third")  # it was not there when anything was pushed
    for address in (first, second, third):
        await offered(address, later.version)
    await asyncio.to_thread(remove_pushed_command, "mine", third)
    for address in (first, second, third):
        await offered(address, "")
    assert registered.find("mine") == later, "the user's own stays"


async def test_a_replica_keeps_what_was_registered_on_its_own_machine(
    fleet: Fleet, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ALE_HOME", str(tmp_path / "first"))
    kept = register("mine", "own")
    first = await fleet.start()
    monkeypatch.setenv("ALE_HOME", str(tmp_path / "second"))
    second = await fleet.start()
    monkeypatch.setenv("ALE_HOME", str(tmp_path / "user"))
    record, other = register("mine", "one"), register("other", "one")
    for name in ("mine", "other"):
        await asyncio.to_thread(push_command, name, second.address)
    await offered(first.address, other.version, "other")  # it heard of both
    await offered(first.address, kept.version)
    await offered(second.address, record.version)
    assert "'mine' of the store is not offered here" in fleet.log(0)
