"""Which of a snapshot's changes a clean container does not get: found by walking the snapshot's layers beside its files.

Used by the `docker` backend for grades. Like `graft` it goes from an open folder to an entry of it and follows no link. What
a layer holds is an agent's; the container's files are the image's, since nothing of the agent ever ran there.
"""

from __future__ import annotations

import math
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path

from rock_env.backends.docker.engine import Engine
from rock_env.backends.docker.graft import (
    FOLDER,
    MOST_DEEP,
    Refusals,
    graft,
    is_opaque,
    is_removal,
    merged_folder,
)
from rock_env.backends.docker.layers import DockerLayers
from rock_env.errors import InfraError, UnfitFiles, Unimplemented
from rock_env.guest.steering import DEFAULT_FOLDERS, MOST_READ, REFUSED, Change, Kind, Steering
from rock_env.threads import for_callers

__all__ = ["refusals", "take_over"]

_MOST_BENEATH = 100_000
"""Entries looked at below a folder that was removed, before it counts as one that grades need."""
_LIBRARIES = ("lib", "lib64", "usr/lib", "usr/lib64", "usr/local/lib")


async def take_over(
    engine: Engine, layers: DockerLayers, container: str, snapshot: str, steering: Steering
) -> list[str]:
    """Give a container the files of a snapshot but those that `steering` refuses; see `TakesOver.take_over`."""
    described = await engine.inspect(container)
    if described is None:
        raise InfraError("the sandbox is gone: its container was removed")
    above = await layers.above(snapshot, described["Image"], most_bytes=math.inf)
    target = merged_folder(described)
    if above is None or target is None:
        raise Unimplemented(
            "the files of this engine's containers cannot be reached from the server: that takes root, overlay2 and an "
            "engine on this machine"
        )
    if steering.workdir in ("", "."):
        steering = replace(steering, workdir=(described["Config"].get("WorkingDir") or "").strip("/"))
    variables = dict(each.partition("=")[::2] for each in described["Config"]["Env"] or ())
    return await for_callers(container, _taken_over, above, target, steering, variables.get("PATH", ""))


def _taken_over(layers: list[Path], target: Path, steering: Steering, search_path: str) -> list[str]:
    without = refusals(layers, target, steering, search_path)
    graft(layers, target, without)
    return sorted({path for each in without for path in (*each.refused, *each.contents)})


def refusals(layers: list[Path], target: Path, steering: Steering, search_path: str) -> list[Refusals]:
    """Return for each layer what it must not change in `target`. Raise `UnfitFiles` for what is nested too deep."""
    try:
        with _opened(str(target)) as root:
            full = _with_image(steering, root, search_path)
            found = []
            for layer in layers:
                walk = _Walk(full)
                with _opened(str(layer)) as source:
                    walk.folder(source, root, "", deep=0)
                found.append(walk.found)
            return found
    except OSError as error:
        raise InfraError(f"a sandbox's changes could not be looked at: {error}") from error


@contextmanager
def _opened(name: str, within: int | None = None) -> Iterator[int]:
    fd = os.open(name, FOLDER, dir_fd=within)
    try:
        yield fd
    finally:
        os.close(fd)


def _with_image(steering: Steering, root: int, search_path: str) -> Steering:
    """Return what is refused, with the programs and libraries of the image."""
    own = [folder.strip("/") for folder in search_path.split(":") if folder.startswith("/")]
    folders = frozenset((*DEFAULT_FOLDERS, *own))
    programs = {name for folder in folders for name in _names(root, folder)}
    libraries = set[str]()
    for folder in _LIBRARIES:
        for name in _names(root, folder):
            libraries |= {name} if ".so" in name else set()
            if "-linux-" in name:
                libraries.update(_names(root, f"{folder}/{name}"))
    return replace(steering, folders=folders, programs=frozenset(programs), libraries=frozenset(libraries))


def _names(root: int, path: str) -> list[str]:
    """Return the entries of a folder of the image's; none where it is a link, or not there."""
    try:
        fd = os.dup(root)
        for part in path.split("/"):
            try:
                inner = os.open(part, FOLDER, dir_fd=fd)
            finally:
                os.close(fd)
            fd = inner
    except OSError:
        return []
    try:
        return os.listdir(fd)  # noqa: PTH208  # an open folder
    finally:
        os.close(fd)


class _Walk:
    """One layer beside the container's files."""

    def __init__(self, steering: Steering) -> None:
        self.found = Refusals()
        self._steering = steering

    def folder(self, source: int, known: int | None, path: str, *, deep: int, venv: bool = False) -> None:
        """Look at each entry of a folder; `venv`: it is the image's virtual environment."""
        if deep > MOST_DEEP:
            raise UnfitFiles(f"a folder is nested deeper than {MOST_DEEP} folders")
        in_venv = venv and path.endswith("/bin/")
        venv = known is not None and _kind(known, "pyvenv.cfg") == "other"
        for name in os.listdir(source):
            info = os.stat(name, dir_fd=source, follow_symlinks=False)
            now = _now(info)
            was = _kind(known, name) if known is not None else "nothing"
            plain = stat.S_ISREG(info.st_mode) or stat.S_ISLNK(info.st_mode)
            leads = os.readlink(name, dir_fd=source) if stat.S_ISLNK(info.st_mode) else None
            special = now == "other" and not plain
            change = Change(f"{path}{name}", was, now, known is not None, in_venv, leads, special)
            fate = self._steering.judge(change, partial(_read, source, name), partial(_read, known, name))
            if fate == REFUSED or (was == "folder" != now and self._needed(known, name, change)):
                self.found.refused.add(change.path)
            elif isinstance(fate, bytes):
                self.found.contents[change.path] = fate
            elif now == "folder":
                self._descend(source, known if was == "folder" else None, name, change, deep, venv)

    def _descend(
        self, source: int, known: int | None, name: str, change: Change, deep: int, venv: bool
    ) -> None:
        with _opened(name, source) as inner:
            if known is None:
                self.folder(inner, None, f"{change.path}/", deep=deep + 1)
                return
            if is_opaque(inner) and self._needed(known, name, change):
                self.found.kept.add(change.path)
            with _opened(name, known) as beside:
                self.folder(inner, beside, f"{change.path}/", deep=deep + 1, venv=venv)

    def _needed(self, known: int | None, name: str, change: Change) -> bool:
        """Return whether something below a folder of the image's runs grades."""
        assert known is not None
        left = _MOST_BENEATH
        stack = [(os.dup(known), name, change.path, False)]
        try:
            while stack:
                above, name, path, venv = stack.pop()
                try:
                    fd = os.open(name, FOLDER, dir_fd=above)
                finally:
                    os.close(above)
                try:
                    has_venv = _kind(fd, "pyvenv.cfg") == "other"
                    for entry in os.listdir(fd):  # noqa: PTH208  # an open folder
                        left -= 1
                        kind = _kind(fd, entry)
                        gone = Change(
                            f"{path}/{entry}", kind, "nothing", True, venv and path.endswith("/bin")
                        )
                        if left <= 0 or self._steering.judge(gone, _nothing, _nothing) is not None:
                            return True
                        if kind == "folder":
                            stack.append((os.dup(fd), entry, gone.path, has_venv))
                finally:
                    os.close(fd)
        finally:
            for above, *_ in stack:
                os.close(above)
        return False


def _now(info: os.stat_result) -> Kind:
    return "nothing" if is_removal(info) else "folder" if stat.S_ISDIR(info.st_mode) else "other"


def _kind(folder: int, name: str) -> Kind:
    try:
        info = os.stat(name, dir_fd=folder, follow_symlinks=False)
    except FileNotFoundError:
        return "nothing"
    return "folder" if stat.S_ISDIR(info.st_mode) else "other"


def _nothing() -> bytes | None:
    return None


def _read(folder: int | None, name: str) -> bytes | None:
    if folder is None:
        return None
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    try:
        fd = os.open(name, flags, dir_fd=folder)
    except OSError:  # a link, or not there
        return None
    with os.fdopen(fd, "rb") as file:
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            return None
        content = file.read(MOST_READ + 1)
    return content if len(content) <= MOST_READ else None
