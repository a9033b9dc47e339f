"""What an environment declares of how its observations are drawn: data, checked where it is declared."""

from __future__ import annotations

from typing import Any

import pytest

from rock_env.errors import InvalidArgument
from rock_env.plugins import load_env, names
from rock_env.spec import Picture


@pytest.mark.parametrize(
    ("kind", "boards"),
    [
        ("html", {}),
        ("board", {"a": {"ab": "wall"}}),
        ("board", {"a": {"": "wall"}}),
        ("board", {"a": {"#": "wall onload"}}),
        ("board", {"a": {chr(64 + at): "sign" for at in range(200)}}),
        ("board", {str(at): {} for at in range(20)}),
    ],
)
def test_what_a_page_could_not_draw_is_refused(kind: Any, boards: Any) -> None:
    with pytest.raises(InvalidArgument, match=r"no (picture|board)"):
        Picture(kind, boards)


def test_the_environments_that_come_along_say_how_they_look() -> None:
    kinds = {name: load_env(name).picture.kind for name in names("ale.envs")}
    told = {"frozen_lake": "board", "sokoban": "board", "webshop": "page", "browser": "page"}
    told |= dict.fromkeys(("swe", "terminal", "code"), "diff") | dict.fromkeys(("fork_chain", "math"), "text")
    assert {name: kinds[name] for name in told} == told


def test_a_description_of_an_environment_can_be_hashed() -> None:
    assert hash(load_env("sokoban").picture) == hash(load_env("frozen_lake").picture)
