"""What the page draws: how an environment's observations look, by what it declares, and the pictures that came with them.

A picture is a stranger's file. It is served only if it is PNG or JPEG by its own bytes, whatever it is called, and of a
size that a browser can decode; of a PNG only the parts that make the picture.
"""

from __future__ import annotations

import hashlib
import json
import struct
from functools import lru_cache
from pathlib import Path
from typing import Any

from agent_runtime.artifacts import artifact_path
from agent_runtime.store import read_at
from agent_runtime.types import Trajectory
from ale.errors import RecordError
from ale.replay.rows import Row
from rock_env.errors import RockError
from rock_env.foreign.files import open_regular
from rock_env.plugins import load_env, names
from rock_env.spec import TEXT, Picture
from rock_env.tasksets import registered

__all__ = ["can_be_shown", "image_of", "picture_of"]

MOST_BYTES = 16 << 20
MOST_PIXELS = 1 << 24
"""A browser keeps four bytes of each."""
_PNG = b"\x89PNG\r\n\x1a\n"
_CHUNKS = (b"IHDR", b"PLTE", b"tRNS", b"IDAT", b"IEND")
"""The parts of a PNG that are passed on: texts, profiles, animations and whatever follows the end are not."""
_MEDIA_TYPES = ("image/png", "image/jpeg")
_ALONE = (*range(0xD0, 0xDA), 0xFF)
"""Markers of a JPEG that no length follows, and what fills: another size could hide behind one, so none is taken."""
_FRAMES = (0xC0, 0xC1, 0xC2)
"""The markers of a JPEG that hold its size; of the kinds that browsers read."""


def picture_of(env: str, params_json: str) -> dict[str, Any]:
    """Return what kind of picture a rollout's observations are, and its boards in the order in which they are tried."""
    picture = _declared(env.partition("@")[0])
    try:
        params = json.loads(params_json)
    except (ValueError, RecursionError):
        params = {}
    values = (
        [value for value in params.values() if isinstance(value, str)] if isinstance(params, dict) else []
    )
    boards = sorted(picture.boards.items(), key=lambda board: board[0] not in values)
    return {"kind": picture.kind, "boards": [dict(board) for _, board in boards]}


def _declared(name: str) -> Picture:
    """Return what an environment declares; text of one that is not installed here. A registered one is not read for it."""
    if name in names("ale.envs"):
        return _installed(name)
    return Picture("diff") if registered.known(name) else TEXT


@lru_cache(maxsize=256)
def _installed(name: str) -> Picture:
    try:
        return load_env(name).picture
    except RockError:
        return TEXT


def can_be_shown(rollout: Trajectory, file: int | None) -> bool:
    """Return whether an artifact says that it is a picture and was kept."""
    if file is None:
        return False
    artifact = rollout.artifacts[file]
    return artifact.media_type in _MEDIA_TYPES and not artifact.missing and artifact.size <= MOST_BYTES


def image_of(path: Path, row: Row, file: int) -> tuple[bytes, str]:
    """Return a picture that came with a rollout, by its place in the record, and what it is.

    Raise `RecordError` for what is none, and as `read_at` does.
    """
    artifacts = read_at(path, row.offset).artifacts
    if file >= len(artifacts):
        raise RecordError(f"the rollout has {len(artifacts)} artifacts: got number {file}.")
    try:
        place = artifact_path(path.parent / "artifacts", artifacts[file].sha256)
    except ValueError as error:
        raise RecordError(f"the picture was not kept: {error}.") from error
    with open_regular(place) as opened:
        content = opened.read(MOST_BYTES + 1)
    if len(content) > MOST_BYTES:
        raise RecordError(
            f"the picture has more than {MOST_BYTES} bytes: it is written to a file by `ale replay artifact`."
        )
    if hashlib.sha256(content).hexdigest() != place.name:
        raise RecordError("the picture is damaged: its content has another digest than its name.")
    try:
        if content.startswith(_PNG):
            return _png(content), "image/png"
        if content.startswith(b"\xff\xd8\xff"):
            return _jpeg(content), "image/jpeg"
    except (struct.error, IndexError) as error:
        raise RecordError("the picture ends in the middle.") from error
    raise RecordError("the file is no picture: expected PNG or JPEG, by its first bytes.")


def _png(content: bytes) -> bytes:
    """Return a PNG of the parts that are passed on."""
    kept, at, kind = [_PNG], len(_PNG), b""
    while kind != b"IEND":
        length, kind = struct.unpack_from(">I4s", content, at)
        part = content[at : at + 12 + length]
        if len(part) < 12 + length or (kind != b"IHDR" and len(kept) == 1):
            raise RecordError("the PNG has no beginning or ends in the middle.")
        if kind == b"IHDR":
            _check_size(*struct.unpack_from(">II", part, 8))
        if kind in _CHUNKS:
            kept.append(part)
        at += 12 + length
    return b"".join(kept)


def _jpeg(content: bytes) -> bytes:
    """Return a JPEG whose size is known before the picture itself begins."""
    at, is_sized = 2, False
    while (marker := content[at + 1]) != 0xDA:
        (length,) = struct.unpack_from(">H", content, at + 2)
        if content[at] != 0xFF or length < 2 or marker < 0xC0 or marker in _ALONE:
            raise RecordError("the JPEG is malformed.")
        if marker in _FRAMES:
            _check_size(*struct.unpack_from(">HH", content, at + 5))
            is_sized = True
        at += 2 + length
    if not is_sized:
        raise RecordError("the JPEG does not say how large it is.")
    return content


def _check_size(one: int, other: int) -> None:
    if not 0 < one * other <= MOST_PIXELS:
        raise RecordError(f"the picture has {one} × {other} pixels, expected at most {MOST_PIXELS}.")
