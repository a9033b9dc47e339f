"""What the page draws: boards by what an environment declares, and pictures by what their bytes are."""

from __future__ import annotations

import hashlib
import struct
import zlib
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from console_run import client, plain, write_run

from agent_runtime.types import OF_FIRST, RecordedArtifact
from ale.console.pictures import picture_of


def png(wide: int = 2, high: int = 2, extra: Mapping[bytes, bytes] = {}) -> bytes:
    """Return a PNG of one colour, with parts of other kinds."""
    parts = {
        b"IHDR": struct.pack(">IIBBBBB", wide, high, 8, 2, 0, 0, 0),
        **extra,
        b"IDAT": zlib.compress((b"\0" + b"\x20\x60\xc0" * min(wide, 4000)) * min(high, 4000)),
        b"IEND": b"",
    }
    return b"\x89PNG\r\n\x1a\n" + b"".join(_part(kind, content) for kind, content in parts.items())


def _part(kind: bytes, content: bytes) -> bytes:
    return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))


def jpeg(wide: int = 2, high: int = 2, frame: int = 0xC0) -> bytes:
    size = struct.pack(">BHHB", 8, high, wide, 1) + b"\x01\x11\x00"
    return (
        b"\xff\xd8\xff\xe0\x00\x04ab\xff"
        + bytes([frame])
        + struct.pack(">H", 2 + len(size))
        + size
        + b"\xff\xda\x00\x00"
    )


def asked(folder: Path, content: bytes, media_type: str = "image/png", sha256: str | None = None) -> Any:
    """Return the answer to who asks for a picture of this content."""
    digest = hashlib.sha256(content).hexdigest()
    attached = RecordedArtifact(
        OF_FIRST, "shot.png", media_type, digest if sha256 is None else sha256, len(content)
    )
    run = write_run(folder / "run", {1: [replace(plain(), id="one", artifacts=(attached,))]})
    (run / "trajectories" / "artifacts").mkdir()
    (run / "trajectories" / "artifacts" / digest).write_bytes(content)
    return client(run).get("/api/runs/run/image", params={"id": "one", "file": 0})


@pytest.mark.parametrize(("content", "kind"), [(png(), "image/png"), (jpeg(), "image/jpeg")])
def test_a_picture_is_served_as_what_its_bytes_are(tmp_path: Path, content: bytes, kind: str) -> None:
    answer = asked(tmp_path, content, media_type="text/html")
    assert (answer.status_code, answer.content) == (200, content)
    assert answer.headers["content-type"] == kind
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert "sandbox" in answer.headers["content-security-policy"]


def test_of_a_png_only_the_parts_of_the_picture_are_served(tmp_path: Path) -> None:
    more = {b"tEXt": b"a\0<script>", b"iCCP": b"x\0\0" + zlib.compress(bytes(1000)), b"acTL": bytes(8)}
    answer = asked(tmp_path, png(extra=more) + b"<script>alert(1)</script>")
    assert answer.content == png()


@pytest.mark.parametrize(
    "content",
    [
        b"<svg xmlns='http://www.w3.org/2000/svg' onload='alert(1)'/>",
        b"<!doctype html><script>alert(1)</script>",
        b"GIF89a",
        b"RIFF\x00\x00\x00\x00WEBPVP8 ",
        b"PK\x03\x04",
        b"%PDF-1.7",
        b" " + png(),
        b"",
        png()[:30],
        png()[:-4],
        png()[:8] + png()[33:],
        png(0, 4),
        png(60_000, 60_000),
        jpeg(60_000, 60_000),
        jpeg(frame=0xC4),
        b"\xff\xd8\xff" + jpeg(60_000, 60_000)[2:],  # a filling byte, which a decoder passes over
        b"\xff\xd8\xff\xd0" + jpeg()[2:],
        jpeg()[:9],
        b"\xff\xd8\xff\xe0\x00\x00",
    ],
)  # fmt: skip
def test_what_is_no_picture_is_not_served(tmp_path: Path, content: bytes) -> None:
    answer = asked(tmp_path, content)
    assert answer.status_code == 409
    assert answer.headers["content-type"] == "application/json"


@pytest.mark.parametrize("sha256", ["", "../../config.toml", "a" * 64, "A" * 64])
def test_a_digest_of_something_else_leads_nowhere(tmp_path: Path, sha256: str) -> None:
    assert asked(tmp_path, png(), sha256=sha256).status_code == 409


def test_a_file_of_another_content_than_its_name_is_not_served(tmp_path: Path) -> None:
    assert asked(tmp_path, png()).status_code == 200
    run = tmp_path / "run"
    [kept] = (run / "trajectories" / "artifacts").iterdir()
    kept.write_bytes(png(3, 3))
    answer = client(run).get("/api/runs/run/image", params={"id": "one", "file": 0})
    assert "damaged" in answer.json()["detail"]
    kept.unlink()
    kept.symlink_to("/dev/zero")
    assert client(run).get("/api/runs/run/image", params={"id": "one", "file": 0}).status_code == 409
    assert client(run).get("/api/runs/run/image", params={"id": "one", "file": 7}).status_code == 409


def test_a_rollout_says_which_of_its_files_are_pictures(tmp_path: Path) -> None:
    files = [("image/png", ""), ("text/html", ""), ("image/png", "too large"), ("image/svg+xml", "")]
    attached = tuple(RecordedArtifact(OF_FIRST, "x", kind, "a" * 64, 9, missing) for kind, missing in files)
    asks = client(write_run(tmp_path / "run", {1: [replace(plain(), id="one", artifacts=attached)]}))
    parts = asks.get("/api/runs/run/rollout", params={"id": "one"}).json()["parts"]
    assert [part["file"] for part in parts if part["kind"] == "artifact"] == [0, None, None, None]


def test_a_board_comes_with_the_characters_of_its_arguments_first() -> None:
    first = picture_of("sokoban@1", '{"symbols": "letters"}')["boards"]
    assert first[0]["W"] == "wall"
    assert len(first) == 3
    assert picture_of("frozen_lake", "{}")["boards"][0]["_"] == "ice"


@pytest.mark.parametrize(
    "params", ["", "[" * 100_000, '{"symbols": {}}', "[1]", '"x"', '{"symbols": "no such"}']
)
def test_arguments_that_say_nothing_leave_the_order(params: str) -> None:
    assert picture_of("frozen_lake@1", params) == picture_of("frozen_lake@1", "{}")


@pytest.mark.parametrize("env", ["", "no_such", "../frozen_lake", "gem:frozen_lake", "<script>", "a/b", "\0"])
def test_what_is_not_installed_here_is_text(env: str) -> None:
    assert picture_of(env, "{}") == {"kind": "text", "boards": []}
