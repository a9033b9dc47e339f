"""Bring the guest into a pod: the program of its init container, in our own image.

Run by the bundle's bare interpreter (`ld.so … bin/python -I -S carry.pyc`). It copies the bundle it lies in to the folder
that the box mounts, and writes the box's token, which the guest takes away when it has read it.
"""

# ruff: noqa: PTH100, PTH101, PTH102, PTH103, PTH118, PTH120, PTH123  starts sooner without pathlib
from __future__ import annotations

import os
import sys

_CHUNK = 1 << 30


def carry(source: str, target: str, token: bytes) -> None:
    """Copy `source` into the folder `target`, and make `run` there for the token's mount; then write the token.

    It lies in a folder that anyone may write, without the sticky bit that the mount has: the box's user, unknown here, must
    be able to take it away.
    """
    for folder, _, names in os.walk(source):
        inner = os.path.join(target, os.path.relpath(folder, source))
        os.makedirs(inner, exist_ok=True)
        for name in names:
            _copy(os.path.join(folder, name), os.path.join(inner, name))
    os.makedirs(os.path.join(target, "run"), exist_ok=True)
    door = os.path.join(target, "..", "run", "door")
    os.mkdir(door)
    os.chmod(door, 0o777)
    with open(os.path.join(door, "token"), "wb") as file:
        file.write(token)
    os.chmod(os.path.join(door, "token"), 0o444)


def _copy(source: str, target: str) -> None:
    reading = os.open(source, os.O_RDONLY)
    try:
        about = os.fstat(reading)
        writing = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, about.st_mode & 0o777)
        try:
            left = about.st_size
            while left:
                left -= os.sendfile(writing, reading, None, min(left, _CHUNK))
        finally:
            os.close(writing)
    finally:
        os.close(reading)


if __name__ == "__main__":
    carry(os.path.dirname(os.path.abspath(sys.argv[0])), sys.argv[1], bytes.fromhex(os.environ["ROCK_TOKEN"]))
