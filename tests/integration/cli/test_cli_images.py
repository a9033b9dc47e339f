"""`ale rock image` against a real server and a real Docker engine."""

from __future__ import annotations

import json
import secrets
from collections.abc import Iterator
from pathlib import Path

import pytest
from command_line import ale, refused
from docker_engine import BUSYBOX, docker, engine  # noqa: F401  a fixture
from secure_servers import serving

SERVE = ["ale", "rock", "serve", "--listen", "127.0.0.1:0", "--insecure", "--workers", "1"]


@pytest.fixture
def address(engine: None, tmp_path: Path) -> Iterator[str]:  # noqa: F811
    with serving(SERVE, tmp_path) as (_, where):
        yield where


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "tools"
    made.mkdir()
    (made / "Dockerfile").write_text(f"FROM {BUSYBOX}\nCOPY . /data\n")
    (made / "mark").write_text(secrets.token_hex(8))
    (made / ".dockerignore").write_text("secret\n")
    (made / "secret").write_text("not sent")
    return made


def test_the_life_of_an_image(address: str, folder: Path, tmp_path: Path) -> None:
    def rock(*words: str) -> str:
        done = ale("rock", "image", *words, cwd=tmp_path, ROCK_ADDRESS=address)
        assert done.returncode == 0, done.stderr
        return done.stdout

    done = ale("rock", "image", "register", "tools", "--name", "tools:v1", cwd=tmp_path, ROCK_ADDRESS=address)
    assert done.returncode == 0, done.stderr
    image_id = done.stdout.strip()
    try:
        assert image_id.startswith("sha256:")
        assert "sending the folder" in done.stderr
        assert "COPY . /data" in done.stderr
        assert "tools:v1 is built" in done.stderr
        again = json.loads(rock("register", "tools", "--name", "tools:v1", "--json"))
        assert (again["image_id"], again["built_now"]) == (image_id, False)
        assert image_id in rock("show", "tools:v1")
        report = rock("validate", "tools:v1")
        assert "PASS  /bin/sh present" in report
        assert "FAIL" not in report
        assert rock("register", BUSYBOX, "--adopt", "--name", "box").strip() == docker(
            "image", "inspect", "--format", "{{.Id}}", BUSYBOX
        )
        assert [line.split()[:2] for line in rock("list").splitlines()[1:]][1] == ["tools:v1", image_id[7:19]]
    finally:
        rock("delete", "tools:v1")


def test_images_that_nothing_uses_are_collected(address: str, folder: Path, tmp_path: Path) -> None:
    def rock(*words: str) -> tuple[str, str]:
        done = ale("rock", "image", *words, cwd=tmp_path, ROCK_ADDRESS=address)
        assert done.returncode == 0, done.stderr
        return done.stdout, done.stderr

    everything = ("--free-gib", "1048576")
    image_id = rock("register", "tools", "--name", "tools:v1")[0].strip()
    try:
        rock("register", BUSYBOX, "--adopt", "--name", "box")
        asked = json.loads(rock("gc", "--dry-run", *everything, "--json")[0])
        assert [image["names"] for image in asked["removed"]] == [["tools:v1"]]
        assert [(image["names"], image["kept_because"]) for image in asked["kept"]] == [
            (["box"], "it was taken over by name, not built here")
        ]
        listed, told = rock("gc", "--dry-run", *everything)
        assert "would be removed" in listed
        assert told.startswith("1 would be removed, 1 kept; ")
        docker("image", "inspect", image_id)
        listed, told = rock("gc", *everything)
        assert listed.splitlines()[1].split()[:2] == ["tools:v1", image_id[7:19]]
        assert told.startswith("1 removed, 1 kept; ")
        assert docker("image", "ls", "--no-trunc", "--quiet").count(image_id) == 0
        assert "evicted to free the disk" in rock("show", "tools:v1")[0]
        assert rock("gc", *everything)[1].startswith("0 removed, 1 kept; ")
    finally:
        rock("delete", "tools:v1")


def test_what_is_wrong_is_said_in_one_line(address: str, folder: Path, tmp_path: Path) -> None:
    def fails(code: int, said: str, *words: str) -> None:
        refused(ale("rock", "image", *words, "--rock", address, cwd=tmp_path), code, said)

    fails(66, "no registered image 'none'; there are: none", "show", "none")
    fails(2, "has no Dockerfile", "register", ".", "--name", "x")
    fails(2, "bad image name 'UPPER'", "register", BUSYBOX, "--adopt", "--name", "UPPER")
    fails(2, "no image 'nowhere:1'", "register", "nowhere:1", "--adopt", "--name", "x")
    fails(2, "expected KEY=VALUE", "register", "tools", "--name", "x", "--build-arg", "nonsense")
