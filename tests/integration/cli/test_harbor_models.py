"""What we write as ATIF is read by Harbor's own models, out of its unpacked wheel."""

from __future__ import annotations

import importlib
import subprocess
import sys
import types
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from agent_runtime.store import read_segment
from ale.replay.interchange.atif import encode_atif

KEPT = Path(__file__).parents[2] / "unit" / "kept" / "every_field.traj"
WHEEL = "harbor==0.26.0"


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """Harbor's model of a trajectory. The wheel wants Python 3.12; its models do not."""
    folder = tmp_path_factory.mktemp("harbor")
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary=:all:"]
    wanted = ["--python-version", "3.12", "--dest", str(folder), WHEEL]
    got = subprocess.run([*command, *wanted], capture_output=True, text=True, check=False, timeout=120)
    wheels = list(folder.glob("*.whl"))
    if not wheels:
        pytest.skip(
            f"no {WHEEL} to hold ATIF against, for want of a package index: {got.stderr.strip()[-200:]}"
        )
    zipfile.ZipFile(wheels[0]).extractall(folder)
    names = {"harbor": folder / "harbor", "harbor.models": folder / "harbor" / "models"}
    for name, path in names.items():  # without their own imports, which need all of Harbor's dependencies
        package = types.ModuleType(name)
        package.__path__ = [str(path)]
        sys.modules[name] = package
    yield importlib.import_module("harbor.models.trajectories.trajectory").Trajectory
    for name in [name for name in sys.modules if name.partition(".")[0] == "harbor"]:
        del sys.modules[name]


def test_every_field_is_one_of_harbors(model: Any) -> None:
    for trajectory in read_segment(KEPT):
        read = model.model_validate_json(encode_atif(trajectory))
        assert read.schema_version == "ATIF-v1.8"
        assert len(read.steps) == len(trajectory.turns) + 1


def test_sub_agents_are_nested_as_harbor_resolves_them(model: Any) -> None:
    sys.path.insert(0, str(Path(__file__).parents[2] / "unit" / "ale"))
    try:
        from test_interchange import with_sub_agents
    finally:
        sys.path.pop(0)
    read = model.model_validate_json(encode_atif(with_sub_agents()))
    assert [len(each.steps) for each in read.subagent_trajectories] == [2, 1]
