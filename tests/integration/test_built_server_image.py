"""The server's own image, built from what is installed here: equal twice, small, run without root, and pushed."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from docker_engine import docker, skip_without, why_no_engine
from image_registry import running_registry
from typer.testing import CliRunner

from ale.rock.cli import rock_app

BASE = "python:3.11-slim"
_MIB = 1 << 20


def ale(*words: str) -> str:
    done = CliRunner().invoke(rock_app, ["image", *words], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return done.stdout.strip()


@pytest.fixture(scope="module", autouse=True)
def base() -> None:
    if problem := why_no_engine():
        pytest.skip(f"no Docker here: {problem}")
    skip_without(BASE)


@pytest.fixture(scope="module")
def image() -> Iterator[str]:
    image_id = ale("build", "--tag", "test")
    try:
        yield image_id
    finally:
        docker("rmi", "rock-server:test")


def inspected(name: str) -> dict[str, Any]:
    (found,) = json.loads(docker("image", "inspect", name))
    return found


def test_two_builds_are_equal_and_what_docker_has_is_what_was_written(image: str, tmp_path: Path) -> None:
    again = ale("build", "--tag", "other", "--output", str(tmp_path / "image.tar"))
    assert again == image == inspected("rock-server:test")["Id"]
    assert docker("load", "--input", str(tmp_path / "image.tar")).endswith("rock-server:other")
    assert inspected("rock-server:other")["Id"] == image
    docker("rmi", "rock-server:other")


def test_it_adds_little_to_its_base_and_is_not_root(image: str) -> None:
    found, base = inspected(image), inspected(BASE)
    assert found["Size"] - base["Size"] < 220 * _MIB
    assert found["Config"]["User"] == "1000:1000"


def test_the_server_starts_in_it_without_root_or_a_writable_disk(image: str) -> None:
    fence = ("--rm", "--read-only", "--tmpfs", "/tmp", "--cap-drop", "ALL", "--network", "none")
    said = docker("run", *fence, image, "--help")
    assert "--listen" in said
    script = (
        "import rock_env; env = rock_env.make('frozen_lake', slippery=False); env.reset(seed=7); "
        "print(env.step('down')[0]); env.close()"
    )
    assert "_" in docker("run", *fence, "--entrypoint", "python", image, "-c", script)
    postgres = docker(
        "run", *fence, "--entrypoint", "python", image, "-c", "import asyncpg, os; print(os.getuid())"
    )
    assert postgres == "1000"


@pytest.fixture
def registry(tmp_path: Path) -> Iterator[str]:
    with running_registry(tmp_path) as address:
        yield f"{address}/team"


def test_a_push_is_what_a_cluster_pulls(image: str, registry: str) -> None:
    names = ale("push", registry, "--tag", "test").splitlines()[-3:]
    assert names == [f"{registry}/rock-{kind}:test" for kind in ("server", "guest", "tasks")]
    pushed = []
    for name in names:
        docker("rmi", name)
        docker("pull", name)
        pushed.append(inspected(name)["Id"])
        docker("rmi", name)
    assert pushed[0] == image


def test_the_guests_image_is_equal_twice_and_holds_nothing_else(tmp_path: Path) -> None:
    first, again = (
        ale("build", "--guest", "--tag", "test", "--output", str(tmp_path / name)) for name in "ab"
    )
    assert first == again
    docker("load", "--input", str(tmp_path / "a"))
    found = inspected("rock-guest:test")
    assert found["Id"] == first
    assert found["Size"] < 60 * _MIB
    assert found["Config"]["User"] == "65532:65532"
    assert docker("run", "--rm", "rock-guest:test", "/opt/rock/ld.so", "--version").startswith("ld.so")
    docker("rmi", "rock-guest:test")
