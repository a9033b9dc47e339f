"""Container images as files: layers written from files, put upon a base, in the archive that `docker load` reads.

What is written depends on the contents alone: names are sorted, times are 0, owners are root, so equal contents have equal
digests. It starts nothing and talks to no engine.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import shutil
import tarfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from rock_env.errors import InvalidArgument

__all__ = ["BaseImage", "ImageFile", "ImageLayer", "read_base", "write_image", "write_layer"]

_CHUNK = 1 << 20
_GZIP = b"\x1f\x8b"


@dataclass(frozen=True, slots=True)
class ImageFile:
    """A regular file of a layer."""

    path: str
    """In the image, without the leading slash."""
    content: bytes
    executable: bool = False


@dataclass(frozen=True, slots=True)
class ImageLayer:
    """An uncompressed layer on the disk."""

    path: Path
    digest: str
    """SHA-256 of the file, in hexadecimal: the layer's `diff_id`."""
    comment: str = ""


@dataclass(frozen=True, slots=True)
class BaseImage:
    """The image that others are built upon."""

    config: Mapping[str, Any]
    """Its OCI configuration."""
    layers: Sequence[ImageLayer]


def write_layer(path: Path, files: Iterable[ImageFile], *, comment: str) -> ImageLayer:
    """Write a layer with these files and the folders above them. Of two with one path the later one counts."""
    by_path = {file.path: file for file in files}
    folders = {str(parent) for name in by_path for parent in Path(name).parents if str(parent) != "."}
    with path.open("wb") as out, tarfile.open(fileobj=out, mode="w", format=tarfile.GNU_FORMAT) as archive:
        for name in sorted({*by_path, *folders}):
            entry = tarfile.TarInfo(name)
            file = by_path.get(name)
            if file is None:
                entry.type, entry.mode = tarfile.DIRTYPE, 0o755
                archive.addfile(entry)
            else:
                entry.size, entry.mode = len(file.content), 0o755 if file.executable else 0o644
                archive.addfile(entry, io.BytesIO(file.content))
    with path.open("rb") as written:
        return ImageLayer(path, hashlib.file_digest(written, "sha256").hexdigest(), comment)


def read_base(archive: Path, folder: Path) -> BaseImage:
    """Unpack what `docker save` wrote into `folder`. Raise `InvalidArgument` where it is no image, or a broken one."""
    with tarfile.open(archive) as saved:
        try:
            manifest = json.load(_member(saved, "manifest.json"))[0]
            config = json.load(_member(saved, manifest["Config"]))
            digests = [each.removeprefix("sha256:") for each in config["rootfs"]["diff_ids"]]
            names = manifest["Layers"]
            if len(names) != len(digests):
                raise InvalidArgument(f"it lists {len(names)} layers and {len(digests)} digests")
            layers = [
                _unpack(saved, name, digest, folder) for name, digest in zip(names, digests, strict=True)
            ]
        except (KeyError, IndexError, TypeError, ValueError) as error:
            raise InvalidArgument(
                f"{archive.name} is not an image as `docker save` writes it: {error}. Save the base image again."
            ) from error
    return BaseImage(config, layers)


def _member(saved: tarfile.TarFile, name: str) -> IO[bytes]:
    found = saved.extractfile(name)
    if found is None:
        raise ValueError(f"{name} is not a file")
    return found


def _unpack(saved: tarfile.TarFile, name: str, digest: str, folder: Path) -> ImageLayer:
    path = folder / f"base-{digest}.tar"
    source = _member(saved, name)
    packed = source.read(len(_GZIP)) == _GZIP
    source.seek(0)
    with gzip.GzipFile(fileobj=source) if packed else source as content, path.open("wb") as out:
        shutil.copyfileobj(content, out, _CHUNK)
    with path.open("rb") as written:
        found = hashlib.file_digest(written, "sha256").hexdigest()
    if found != digest:
        raise ValueError(f"the layer {name} has the digest {found}, expected {digest}")
    return ImageLayer(path, digest)


def write_image(
    path: Path, base: BaseImage, layers: Sequence[ImageLayer], *, name: str, settings: Mapping[str, Any]
) -> str:
    """Write the image of these layers upon the base's, and return its id (`sha256:…`, the digest of its configuration).

    `settings` take the place of the base's own (`Env`, `User`, `Entrypoint`, …); of its variables those not named stay.
    """
    every = [*base.layers, *layers]
    own = dict(settings)
    variables = dict(
        each.split("=", 1) for each in [*base.config["config"].get("Env", []), *own.pop("Env", [])]
    )
    own["Env"] = [f"{key}={value}" for key, value in variables.items()]
    config = {
        "architecture": base.config["architecture"],
        "os": base.config["os"],
        "created": "1970-01-01T00:00:00Z",
        "config": own,
        "rootfs": {"type": "layers", "diff_ids": [f"sha256:{layer.digest}" for layer in every]},
        "history": [
            {"created": "1970-01-01T00:00:00Z", "created_by": layer.comment or "base"} for layer in every
        ],
    }
    written = json.dumps(config, sort_keys=True, separators=(",", ":")).encode()
    image_id = hashlib.sha256(written).hexdigest()
    manifest = [
        {
            "Config": f"{image_id}.json",
            "RepoTags": [name],
            "Layers": [f"{layer.digest}.tar" for layer in every],
        }
    ]
    with path.open("wb") as out, tarfile.open(fileobj=out, mode="w", format=tarfile.GNU_FORMAT) as archive:
        for entry, content in (
            ("manifest.json", json.dumps(manifest).encode()),
            (f"{image_id}.json", written),
        ):
            about = tarfile.TarInfo(entry)
            about.size, about.mode = len(content), 0o644
            archive.addfile(about, io.BytesIO(content))
        for digest, layer in {layer.digest: layer for layer in every}.items():
            about = tarfile.TarInfo(f"{digest}.tar")
            about.size, about.mode = layer.path.stat().st_size, 0o644
            with layer.path.open("rb") as content_of:
                archive.addfile(about, content_of)
    return f"sha256:{image_id}"
