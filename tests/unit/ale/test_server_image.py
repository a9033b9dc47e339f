"""What goes into the server's image, and what its commands refuse before they begin."""

import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path

import pytest
from typer.testing import CliRunner

from ale.rock.cli import rock_app
from ale.rock.own_images import command
from ale.rock.own_images.server import PROJECT, SERVER, TRAINER, _own, pinned, unpacked
from rock_env.errors import InvalidArgument, Unavailable


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
    files = {file.path.removeprefix("opt/rock/lib/"): file for file in _own(SERVER)}
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


def test_one_image_is_built_at_a_time() -> None:
    done = CliRunner().invoke(rock_app, ["image", "build", "--guest", "--trainer"])
    assert "rock-guest and rock-trainer are two images" in str(done.exception)


def test_the_trainers_image_has_all_packages_and_the_programs_that_a_ray_cluster_runs() -> None:
    files = {file.path: file for file in _own(TRAINER)}
    inner = {
        path.removeprefix("opt/rock/lib/").partition("/")[0] for path in files if path.startswith("opt/")
    }
    assert {"ale", "agent_runtime", "trainer", "rock_env", "sandboxes"} < inner
    for program in ("ale", "ray"):
        file = files[f"usr/local/bin/{program}"]
        assert file.executable
        module = file.content.decode().split()[-2]
        assert find_spec(module) is not None
    assert {"torch", "ray", "transformers"} <= set(pinned(PROJECT, ("train",), "x86_64"))


# -- into a cluster of this machine


@pytest.fixture
def tools(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Have tools on the path that write what they were asked, and images that are built at once."""

    @contextmanager
    def built(base: str, name: str) -> Iterator[tuple[str, Path]]:
        (tmp_path / "image.tar").write_text(name)
        yield "sha256:0", tmp_path / "image.tar"

    for tool in ("kind", "k3d", "minikube"):
        program = tmp_path / "bin" / tool
        program.parent.mkdir(exist_ok=True)
        program.write_text(f'#!/bin/sh\necho "{tool} $* $(cat {tmp_path}/image.tar)" >> {tmp_path}/asked\n')
        program.chmod(0o700)
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:/usr/bin:/bin")
    monkeypatch.setattr(command, "_built", built)
    return tmp_path


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["kind"], "kind load image-archive FILE"),
        (["kind", "--cluster", "own"], "kind load image-archive FILE --name own"),
        (["k3d", "--cluster", "own"], "k3d image import FILE --cluster own"),
        (["minikube", "--cluster", "own"], "minikube image load FILE --profile own"),
    ],
)
def test_a_cluster_of_this_machine_takes_the_images(tools: Path, words: list[str], expected: str) -> None:
    done = CliRunner().invoke(rock_app, ["image", "push", "--tag", "1", "--load", *words])
    assert done.exit_code == 0, done.exception
    asked = (tools / "asked").read_text().replace(str(tools / "image.tar"), "FILE").splitlines()
    assert asked == [f"{expected} {name}:1" for name in ("rock-server", "rock-guest", "rock-tasks")]
    assert "--set image.registry=docker.io/library --set image.tag=1" in done.stderr


def test_a_tool_that_fails_or_is_absent_is_named(tools: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tools / "bin" / "kind").write_text("#!/bin/sh\nexit 3\n")
    done = CliRunner().invoke(rock_app, ["image", "push", "--load", "kind"])
    assert "ended with status 3" in str(done.exception)
    (tools / "bin" / "kind").unlink()
    done = CliRunner().invoke(rock_app, ["image", "push", "--load", "kind"])
    assert isinstance(done.exception, Unavailable)
    assert "no program kind" in str(done.exception)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "push to a REGISTRY, or --load"),
        (["host/a", "--load", "kind"], "one of both"),
        (["host/a", "--cluster", "x"], "one of both"),
        (["--load", "docker"], "expected one of kind, k3d, minikube"),
        (["--load", "kind", "--cluster=--config=x"], "bad --cluster"),
    ],
)
def test_where_images_go_is_said_once(words: list[str], said: str) -> None:
    done = CliRunner().invoke(rock_app, ["image", "push", *words])
    assert isinstance(done.exception, InvalidArgument)
    assert said in str(done.exception)
