"""What goes into the server's image, and what its commands refuse before they begin."""

import zipfile
from importlib import metadata
from pathlib import Path

import pytest
from typer.testing import CliRunner

from ale.rock.cli import rock_app
from ale.rock.server_image import PROJECT, _own, pinned, unpacked
from rock_env.errors import InvalidArgument


def test_the_versions_are_those_that_are_installed_here() -> None:
    versions = pinned(PROJECT, ("postgres",), "x86_64")
    assert {"grpcio", "pydantic-core", "asyncpg", "uvicorn"} <= set(versions)
    assert not {"torch", "ray", "mypy", "hypothesis", PROJECT} & set(versions)
    assert all(metadata.version(name) == version for name, version in versions.items())
    assert "asyncpg" not in pinned(PROJECT, (), "x86_64")


def test_a_package_that_is_missing_is_named_with_the_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    known = metadata.distribution

    def without(name: str) -> metadata.Distribution:
        if name == "asyncpg":
            raise metadata.PackageNotFoundError(name)
        return known(name)

    monkeypatch.setattr(metadata, "distribution", without)
    with pytest.raises(InvalidArgument, match=r"needs the package asyncpg.*pip install 'ale-rl\[postgres\]'"):
        pinned(PROJECT, ("postgres",), "x86_64")


def test_the_server_its_environments_and_its_plugins_are_in() -> None:
    files = {file.path.removeprefix("opt/rock/lib/"): file for file in _own()}
    assert {"rock_env/server/__main__.py", "sandboxes/frozen_lake/__init__.py"} <= set(files)
    (points,) = [file for path, file in files.items() if path.endswith(".dist-info/entry_points.txt")]
    assert b"sandboxes.sokoban:ENV" in points.content
    assert {path.partition("/")[0] for path in files} == {
        "rock_env",
        "sandboxes",
        f"ale_rl-{metadata.version(PROJECT)}.dist-info",
    }
    assert not [path for path in files if "__pycache__" in path or path.endswith(".pyc")]


def test_of_a_wheel_libraries_alone_are_taken(tmp_path: Path) -> None:
    wheel = tmp_path / "a.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        for name in (
            "a/b.py",
            "a.data/purelib/c.py",
            "a.data/platlib/d.so",
            "a.data/scripts/run",
            "a.data/data/x",
        ):
            archive.writestr(name, "")
    assert [file.path for file in unpacked([wheel], "some/lib")] == [
        f"some/lib/{name}" for name in ("a/b.py", "c.py", "d.so")
    ]


@pytest.mark.parametrize(
    "registry", ["https://registry.example.org", "host/Team", "host/a:1", "-x", "host:port/a"]
)
def test_a_bad_registry_is_refused(registry: str) -> None:
    done = CliRunner().invoke(rock_app, ["image", "push", "--", registry])
    assert isinstance(done.exception, InvalidArgument)
    assert "expected HOST[:PORT][/FOLDER]" in str(done.exception)


def test_a_bad_tag_is_refused() -> None:
    done = CliRunner().invoke(rock_app, ["image", "build", "--tag", "a b"])
    assert "bad --tag 'a b'" in str(done.exception)


def test_an_image_is_of_the_guest_or_of_the_tasks() -> None:
    done = CliRunner().invoke(rock_app, ["image", "build", "--guest", "--tasks"])
    assert "--guest and --tasks name two images" in str(done.exception)
