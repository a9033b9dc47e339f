"""Images that are written as files: equal contents make equal digests, and the archive is one that `docker load` reads."""

import gzip
import hashlib
import io
import json
import tarfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from ale.rock.own_images.archive import BaseImage, ImageFile, read_base, write_image, write_layer
from rock_env.errors import InvalidArgument


def tar(entries: Mapping[str, bytes]) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as archive:
        for name, content in entries.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(content)
            archive.addfile(entry, io.BytesIO(content))
    return out.getvalue()


def saved(path: Path, layer: bytes, *, packed: bool = False, digest: str = "") -> Path:
    """Write an image of one layer as `docker save` does."""
    config = {
        "architecture": "amd64",
        "os": "linux",
        "config": {"Env": ["PATH=/bin", "LANG=C"], "Cmd": ["sh"]},
        "rootfs": {"type": "layers", "diff_ids": [f"sha256:{digest or hashlib.sha256(layer).hexdigest()}"]},
    }
    manifest = [{"Config": "c.json", "RepoTags": ["base:1"], "Layers": ["a/layer.tar"]}]
    entries = {
        "a/layer.tar": gzip.compress(layer) if packed else layer,
        "c.json": json.dumps(config).encode(),
        "manifest.json": json.dumps(manifest).encode(),
    }
    path.write_bytes(tar(entries))
    return path


FILES = [ImageFile("opt/lib/b.py", b"2"), ImageFile("opt/a", b"1", executable=True)]


def test_a_layer_depends_on_its_contents_alone(tmp_path: Path) -> None:
    one = write_layer(tmp_path / "one", FILES, comment="x")
    other = write_layer(tmp_path / "other", reversed(FILES), comment="y")
    assert one.digest == other.digest == hashlib.sha256((tmp_path / "one").read_bytes()).hexdigest()
    assert write_layer(tmp_path / "third", FILES[:1], comment="x").digest != one.digest
    with tarfile.open(tmp_path / "one") as archive:
        found = {entry.name: (entry.mode, entry.uid, entry.mtime, entry.isdir()) for entry in archive}
    assert found == {
        "opt": (0o755, 0, 0, True),
        "opt/a": (0o755, 0, 0, False),
        "opt/lib": (0o755, 0, 0, True),
        "opt/lib/b.py": (0o644, 0, 0, False),
    }


def written(folder: Path, base: BaseImage, name: str = "rock:1") -> tuple[str, dict[str, Any], list[bytes]]:
    layer = write_layer(folder / "own", FILES, comment="own")
    settings = {"User": "1000:1000", "Env": ["LANG=C.UTF-8", "A=b=c"]}
    image_id = write_image(folder / "image.tar", base, [layer], name=name, settings=settings)
    with tarfile.open(folder / "image.tar") as archive:
        read = lambda entry: archive.extractfile(entry).read()  # type: ignore[union-attr]  # noqa: E731
        (manifest,) = json.loads(read("manifest.json"))
        assert manifest["RepoTags"] == [name]
        config = read(manifest["Config"])
        assert image_id == f"sha256:{hashlib.sha256(config).hexdigest()}"
        return image_id, json.loads(config), [read(each) for each in manifest["Layers"]]


@pytest.mark.parametrize("packed", [False, True])
def test_an_image_is_its_base_and_our_layers(tmp_path: Path, packed: bool) -> None:
    below = tar({"etc/passwd": b"root:x:0:0::/:/bin/sh\n"})
    base = read_base(saved(tmp_path / "base.tar", below, packed=packed), tmp_path)
    image_id, config, layers = written(tmp_path, base)
    assert layers == [below, (tmp_path / "own").read_bytes()]
    assert [f"sha256:{hashlib.sha256(layer).hexdigest()}" for layer in layers] == config["rootfs"]["diff_ids"]
    assert config["config"] == {"User": "1000:1000", "Env": ["PATH=/bin", "LANG=C.UTF-8", "A=b=c"]}
    assert config["architecture"] == "amd64"
    again = tmp_path / "again"
    again.mkdir()
    assert written(again, base, "other:2")[0] == image_id  # its name is not part of it


def test_a_base_whose_layer_is_another_is_refused(tmp_path: Path) -> None:
    archive = saved(tmp_path / "base.tar", tar({"a": b""}), digest="0" * 64)
    with pytest.raises(InvalidArgument, match=r"the layer a/layer\.tar has the digest .*, expected 000"):
        read_base(archive, tmp_path)


def test_an_archive_that_is_no_image_is_refused(tmp_path: Path) -> None:
    (tmp_path / "base.tar").write_bytes(tar({"manifest.json": b"[]"}))
    with pytest.raises(InvalidArgument, match="not an image as `docker save` writes it"):
        read_base(tmp_path / "base.tar", tmp_path)
