"""Backends come in by entry point: what an operator asked for is made in that order, and a wrong wish says what is right."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from memory_backend import MemoryBackend, Node

from rock_env import plugins
from rock_env.backends import plugin
from rock_env.backends.base import Backend
from rock_env.backends.plugin import BackendOptions, BackendPlace, BackendSpec, choose_backends
from rock_env.errors import InvalidArgument, UnknownName
from rock_env.server.options import OFFERED
from rock_env.spec import SandboxSpec


class Options(BackendOptions):
    rooms: int = 1


def build(place: BackendPlace, options: Options) -> Backend:
    return MemoryBackend(Node(), f"memory{options.rooms}" if options.rooms > 9 else "memory")


MEMORY = BackendSpec("memory", "dicts", build, Options)


@pytest.fixture(autouse=True)
def installed(monkeypatch: pytest.MonkeyPatch) -> None:
    found = {"memory": MEMORY, "Memory": MEMORY, "odd": "no spec"}

    def load(group: str, name: str) -> object:
        return found[name] if name in found else plugins.load(group, name)

    monkeypatch.setattr(plugin, "load", load)


def test_the_built_in_backends_come_in_by_the_same_door(tmp_path: Path) -> None:
    assert set(OFFERED) <= set(plugins.names("ale.backends"))
    process, docker = (one.build(BackendPlace(root=tmp_path)) for one in choose_backends(OFFERED))
    assert (process.name, docker.name) == ("process", "docker")
    image = SandboxSpec(image="debian")
    assert (process.hosts(SandboxSpec()), process.hosts(image)) == (True, False)
    assert (docker.hosts(SandboxSpec()), docker.hosts(image)) == (False, True)


def test_options_are_the_backends_own() -> None:
    (process, memory) = choose_backends(["process", "memory:rooms=3"])
    assert (process.spec.name, memory.options) == ("process", Options(rooms=3))


@pytest.mark.parametrize(
    ("wish", "error", "said"),
    [
        (
            "proces",
            UnknownName,
            "unknown backend 'proces'. Did you mean 'process'? Known: docker, kubernetes, process",
        ),
        ("memory:rooms", InvalidArgument, "--backend expects NAME or NAME:KEY=VALUE,KEY=VALUE, got 'rooms'"),
        ("memory:rooms=many", InvalidArgument, "bad option 'rooms' of the backend 'memory'"),
        ("memory:room=1", UnknownName, "Did you mean 'rooms'?"),
        ("odd", InvalidArgument, "is not a BackendSpec: got str"),
        ("Memory", InvalidArgument, "calls itself 'memory'"),
    ],
)
def test_a_wrong_wish_says_what_is_right(wish: str, error: type[Exception], said: str) -> None:
    with pytest.raises(error, match=re.escape(said)):
        choose_backends([wish])


def test_a_backend_is_asked_for_once_and_bears_its_own_name() -> None:
    with pytest.raises(InvalidArgument, match="asked for once"):
        choose_backends(["process", "memory", "process"])
    (memory,) = choose_backends(["memory:rooms=10"])
    with pytest.raises(InvalidArgument, match="the name 'memory10', expected its own"):
        memory.build(BackendPlace())
