"""Arguments of environments as callers give them: which types there may be, and what may name files of the host."""

from __future__ import annotations

import json
from enum import Enum
from pathlib import Path
from typing import Any, Literal

import pytest
from pydantic import Field

from rock_env import plugins
from rock_env.arguments import MOST_BYTES, Data, host_paths, open_types, shown
from rock_env.errors import InvalidArgument
from rock_env.spec import EnvParams, HostPath


class Colour(Enum):
    RED = "red"


class Plain(EnvParams):
    size: int = Field(default=4, ge=2, le=32)
    share: float | None = None
    look: Literal["a", "b"] = "a"
    colour: Colour = Colour.RED
    words: tuple[str, ...] = ()


class WithFile(EnvParams):
    file: HostPath | None = None
    more: tuple[HostPath, ...] = ()


class Leaky(EnvParams):
    path: Path = Path()
    anything: Any = None
    table: dict[str, str] | None = None
    hidden: HostPath = Field(default="", alias="other")


GUARDED = Data({"levels": "/srv/levels.txt"}, any_path=False)


def test_plain_arguments_name_nothing_of_the_host() -> None:
    assert (host_paths(Plain), open_types(Plain)) == (frozenset(), ())
    assert GUARDED.resolve("e", Plain, '{"size": 5}') == '{"size": 5}'


def test_types_that_could_lead_to_a_file_are_found() -> None:
    assert open_types(Leaky) == ("path", "anything", "table", "hidden")
    with pytest.raises(InvalidArgument, match=r"argument 'path' could name files.*HostPath"):
        GUARDED.resolve("e", Leaky, "{}")
    assert Data().resolve("e", Leaky, "{}") == "{}"


@pytest.mark.parametrize("name", plugins.env_names())
def test_every_installed_environment_can_be_served(name: str) -> None:
    assert open_types(plugins.load_env(name).params) == ()


def test_a_name_of_data_becomes_its_path() -> None:
    assert host_paths(WithFile) == {"file", "more"}
    resolved = GUARDED.resolve("e", WithFile, '{"file": "levels", "more": ["levels"]}')
    assert json.loads(resolved) == {"file": "/srv/levels.txt", "more": ["/srv/levels.txt"]}


@pytest.mark.parametrize(
    "params_json",
    [
        '{"file": "/etc/shadow"}',
        '{"file": "levels/../../etc/shadow"}',
        '{"file": "/srv/levels.txt"}',
        '{"more": ["levels", "/etc/shadow"]}',
        '{"f\\u0069le": "/etc/shadow"}',
    ],
)
def test_no_path_is_taken_where_others_call(params_json: str) -> None:
    with pytest.raises(InvalidArgument, match=r"takes no path on this server.*named are: levels"):
        GUARDED.resolve("e", WithFile, params_json)


def test_the_only_user_of_a_server_names_paths() -> None:
    assert Data().resolve("e", WithFile, '{"file": "mine.txt"}') == '{"file": "mine.txt"}'
    both = Data({"levels": "/srv/levels.txt"})
    assert json.loads(both.resolve("e", WithFile, '{"file": "levels"}')) == {"file": "/srv/levels.txt"}
    assert json.loads(both.resolve("e", WithFile, '{"file": "mine.txt"}')) == {"file": "mine.txt"}


@pytest.mark.parametrize("params_json", ["{", '{"a":' * 1_000, '{"file": ' + "9" * 9999 + "}", "\ud800"])
def test_what_is_no_json_is_said_shortly(params_json: str) -> None:
    with pytest.raises(InvalidArgument) as raised:
        GUARDED.resolve("e", WithFile, params_json)
    assert len(str(raised.value)) < 400


def test_arguments_are_bounded() -> None:
    with pytest.raises(InvalidArgument, match=f"expected at most {MOST_BYTES}"):
        Data().resolve("e", Plain, " " * (MOST_BYTES + 1))
    assert len(shown("x" * 10_000)) < 100


@pytest.mark.parametrize(
    "params_json",
    [
        '{"file": null, "file": "levels"}',
        '{"file": "/etc/shadow", "file": null}',
        '{"more": [{"a": 1, "a": 2}]}',
    ],
)
def test_no_argument_is_taken_twice(params_json: str) -> None:
    with pytest.raises(InvalidArgument, match="is given twice, expected once"):
        Data().resolve("e", EnvParams, params_json)
