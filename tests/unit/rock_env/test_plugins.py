"""Plugins are found by entry point or reference, and a wrong name or argument says what would be right."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rock_env.env_workers.catalog import Catalog, load_reference, parse_task_id
from rock_env.errors import InvalidArgument, UnknownName
from rock_env.plugins import env_params, load_env, names
from rock_env.spec import EnvSpec

TOY = f"{Path(__file__).parents[2] / 'contract' / 'toy_envs.py'}:TOY"


def test_every_installed_environment_loads_under_its_name() -> None:
    for name in names("ale.envs"):
        assert load_env(name).name == name


def test_an_unknown_environment_lists_the_known() -> None:
    with pytest.raises(UnknownName, match=r"Did you mean 'frozen_lake'\?.*sokoban"):
        load_env("frozenlake")


def test_a_wrong_argument_names_the_field_and_the_value() -> None:
    spec = load_reference(TOY)
    with pytest.raises(UnknownName, match="Did you mean 'prefix'"):
        env_params(spec, '{"prefx": "a"}')
    with pytest.raises(InvalidArgument, match=r"'prefix'.*got 3"):
        env_params(spec, '{"prefix": 3}')
    with pytest.raises(InvalidArgument, match="Invalid JSON"):
        env_params(spec, "{")
    assert env_params(spec, "").canonical() == '{"prefix":""}'


@pytest.mark.parametrize(
    ("reference", "message"),
    [
        ("toy", "expected module:OBJECT"),
        ("nowhere.at.all:ENV", "No module named"),
        ("/nowhere/env.py:ENV", "No such file"),
        ("json:nothing", "no attribute"),
        ("json:dumps", "is a function"),
    ],
)
def test_a_bad_reference_is_refused(reference: str, message: str) -> None:
    with pytest.raises(InvalidArgument, match=message):
        load_reference(reference)


def test_a_catalog_joins_installed_and_extra_environments() -> None:
    catalog = Catalog([TOY])
    assert {"toy", "frozen_lake"} <= set(catalog.names())
    assert isinstance(catalog.spec("toy"), EnvSpec)
    params = catalog.params("toy", '{"prefix": "x"}')
    assert catalog.task("toy", params, "test/4").index == 4
    with pytest.raises(UnknownName, match="Did you mean 'toy'"):
        catalog.spec("toyy")


@given(split=st.text(alphabet="abc_/", min_size=1), index=st.integers(0, 10**9))
def test_a_task_id_is_split_and_index(split: str, index: int) -> None:
    assert parse_task_id(f"{split}/{index}") == (split, index)


@pytest.mark.parametrize(
    "task_id",
    [
        "",
        "train",
        "train/",
        "/3",
        "train/-1",
        "train/x",
        "train/²",
        "train/00",
        "train/03",
        "train/0\n",
        f"train/{10**18}",
    ],
)
def test_any_other_task_id_is_refused(task_id: str) -> None:
    with pytest.raises(InvalidArgument, match="split/index"):
        parse_task_id(task_id)


def test_core_types_load_without_grpc() -> None:
    code = "import rock_env, rock_env.env, rock_env.plugins, sys; assert 'grpc' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)
