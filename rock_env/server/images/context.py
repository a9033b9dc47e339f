"""A build context as it arrives: a tar spooled to disk at flat memory, checked, and named by its content.

Used by the registry. It unpacks nothing: the engine does, inside its own fence, from a tar that is written anew
(`archive`). The digest covers what a build can see (paths, kinds, permissions, links, contents, which Dockerfile, the
arguments) and not what it cannot or should not (times, owners, order), so the same folder has one digest on every machine.
"""

from __future__ import annotations

import hashlib
import json
import tarfile
import tempfile
import threading
from collections import Counter
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import BinaryIO, Self, cast

from rock_env.arguments import shown
from rock_env.errors import InfraError, InvalidArgument, ResourceExhausted
from rock_env.foreign.archive import entry_path, members
from rock_env.server.images.archive import rewritten
from rock_env.server.images.dockerfile import MAX_DOCKERFILE_BYTES, Needs, needs_of
from rock_env.threads import for_callers

__all__ = ["MAX_CONTEXT_BYTES", "BuildContext"]

MAX_CONTEXT_BYTES = 4 << 30
"""Default limit of a context. A larger one is nearly always a forgotten .dockerignore."""
_TENANT_BYTES = 8 << 30
"""Of all contexts of a tenant that are on disk at once."""
_KINDS = {tarfile.REGTYPE: "file", tarfile.AREGTYPE: "file", tarfile.DIRTYPE: "folder"} | {
    tarfile.SYMTYPE: "symlink",
    tarfile.LNKTYPE: "link",
}

_RETRY_S = 30.0
_spooled: Counter[str] = Counter()
"""Bytes of contexts on disk, by tenant."""


class BuildContext:
    """One context on disk, in a file without a name: it is gone when it is closed, or when the server dies."""

    def __init__(self, file: BinaryIO, max_bytes: int, tenant: str) -> None:
        self._file = file
        self._max_bytes = max_bytes
        self._tenant = tenant
        self.bytes = 0
        self.digest = ""
        self.needs = Needs()
        """What its Dockerfile asks of the engine; set, as the digest, by `seal`."""

    @classmethod
    async def open(
        cls, folder: Path | None = None, *, max_bytes: int = MAX_CONTEXT_BYTES, tenant: str = ""
    ) -> Self:
        """Make room for a context. Raise `InfraError` where there is none."""
        try:
            return cls(await for_callers(tenant, tempfile.TemporaryFile, dir=folder), max_bytes, tenant)
        except OSError as error:
            raise InfraError(f"no place for a build context: {error.strerror}.") from error

    def close(self) -> None:
        """Let go of it. Safe to call twice."""
        _spooled[self._tenant] -= self.bytes
        self.bytes = 0
        self._file.close()

    async def write(self, data: bytes) -> None:
        """Append a piece of the tar. Raise `InvalidArgument` beyond the limit, `ResourceExhausted` beyond the tenant's."""
        self.bytes += len(data)
        _spooled[self._tenant] += len(data)
        if _spooled[self._tenant] > _TENANT_BYTES:
            raise ResourceExhausted(
                f"your build contexts take more than {_TENANT_BYTES} bytes at once. Send one after the other.",
                retry_after_s=_RETRY_S,
            )
        if self.bytes > self._max_bytes:
            raise InvalidArgument(
                f"the build context is larger than {self._max_bytes} bytes. List what the build does not need in "
                ".dockerignore, or have the server's limit raised."
            )
        try:
            await for_callers(self._tenant, self._file.write, data)
        except OSError as error:
            raise InfraError(
                f"no place for a build context of {self.bytes} bytes: {error.strerror}."
            ) from error

    async def seal(self, *, dockerfile: str, build_args: Mapping[str, str]) -> str:
        """Check what has arrived and return its digest. Raise `InvalidArgument` for what no build could use."""
        _check_arguments(build_args)
        stop = threading.Event()
        try:
            self.digest, self.needs = await for_callers(
                self._tenant, _read, self._file, dockerfile, dict(build_args), stop
            )
        finally:
            stop.set()  # a caller that hangs up, or a server that ends, waits for no archive
        return self.digest

    async def blocks(self) -> AsyncIterator[bytes]:
        """Yield the tar in blocks, as it was read and not as it was sent."""
        pieces = rewritten(self._file)
        while piece := await for_callers(self._tenant, next, pieces, b""):
            yield piece


def _check_arguments(build_args: Mapping[str, str]) -> None:
    for name, value in build_args.items():
        if not name.isprintable() or not name or " " in name or "=" in name or "\0" in value:
            raise InvalidArgument(
                f"build argument {shown(name)}: expected a name of printable characters without blanks and '=', and a value "
                "without NUL."
            )


class _Stoppable:
    """A file whose reader is told to give up when nobody waits for it any more."""

    def __init__(self, file: BinaryIO, stop: threading.Event) -> None:
        self._file = file
        self._stop = stop
        self.seek, self.tell = file.seek, file.tell

    def read(self, size: int = -1) -> bytes:
        if self._stop.is_set():
            raise InvalidArgument("the caller has gone")
        return self._file.read(size)


def _read(
    file: BinaryIO, dockerfile: str, build_args: dict[str, str], stop: threading.Event
) -> tuple[str, Needs]:
    """Return the context's digest and what its Dockerfile needs."""
    file.flush()
    wanted = entry_path(dockerfile, "Dockerfile path")
    try:
        entries, text = _entries(cast("BinaryIO", _Stoppable(file, stop)), wanted)
    except InvalidArgument:
        raise
    except (tarfile.TarError, ValueError, OverflowError, RecursionError) as error:
        raise InvalidArgument(f"the build context is not a complete, uncompressed tar: {error}.") from error
    _check_dockerfile(entries, wanted)
    _check_links(entries)
    try:
        needs = needs_of(text.decode(), build_args)
    except UnicodeDecodeError as error:
        raise InvalidArgument(f"the Dockerfile is not UTF-8: {error.reason}.") from error
    return f"sha256:{_digest([dockerfile, sorted(build_args.items())], entries)}", needs


def _entries(file: BinaryIO, dockerfile: str) -> tuple[dict[str, list[object]], bytes]:
    """Return what the digest says of each path, and the Dockerfile's text."""
    entries: dict[str, list[object]] = {}
    text = b""
    for tar, member in members(file):
        path = entry_path(member.name, "path")
        if path in entries and not (member.isdir() and entries[path][0] == "folder"):
            raise InvalidArgument(f"the build context holds {shown(path)} twice. Make the tar anew.")
        entries[path] = _entry(tar, member)
        if path == dockerfile and member.isreg():
            text = _text(tar, member)
    return entries, text


def _digest(asked: list[object], entries: Mapping[str, list[object]]) -> str:
    """Return the hash of the JSON of both, which is never in memory as a whole."""
    found = hashlib.sha256(f"{_json(asked)[:-1]},[".encode())
    for number, item in enumerate(sorted(entries.items())):
        found.update(f"{',' if number else ''}{_json(item)}".encode())
    found.update(b"]]")
    return found.hexdigest()


def _json(value: object) -> str:
    return json.dumps(value, separators=(",", ":"))


def _text(tar: tarfile.TarFile, member: tarfile.TarInfo) -> bytes:
    if member.size > MAX_DOCKERFILE_BYTES:
        raise InvalidArgument(
            f"the Dockerfile has {member.size} bytes, expected at most {MAX_DOCKERFILE_BYTES}."
        )
    source = tar.extractfile(member)
    assert source is not None  # it is a file
    return source.read()


def _check_links(entries: Mapping[str, list[object]]) -> None:
    """Refuse files that would be written through a link, such as over the Dockerfile that was read."""
    above = "." if entries.get(".", ["folder"])[0] != "folder" else ""
    for name in sorted(
        entries, key=lambda name: name.replace("/", "\0")
    ):  # what is beneath a path follows it
        if above and (above == "." or name.startswith(f"{above}/")):
            raise InvalidArgument(
                f"the build context holds {shown(name)} beneath {shown(above)}, which is no folder there. Make the tar anew."
            )
        if entries[name][0] != "folder":
            above = name


def _entry(tar: tarfile.TarFile, member: tarfile.TarInfo) -> list[object]:
    kind = _KINDS.get(member.type)
    if kind is None:
        raise InvalidArgument(
            f"the build context holds {shown(member.name)}, which is no file, folder or link. List it in .dockerignore."
        )
    if kind == "link":
        entry_path(member.linkname, "link target")
    content = ""
    if kind == "file":
        source = tar.extractfile(member)
        assert source is not None  # it is a file
        content = hashlib.file_digest(source, "sha256").hexdigest()  # type: ignore[arg-type]  # IO has readinto
    linked = member.linkname if kind in ("symlink", "link") else ""
    # Links have no permissions of their own; what a file system says of them differs between machines.
    return [kind, 0 if kind == "symlink" else member.mode & 0o777, linked, content]


def _check_dockerfile(entries: Mapping[str, list[object]], dockerfile: str) -> None:
    kind = entries.get(dockerfile, [""])[0]
    if kind in ("symlink", "link"):
        raise InvalidArgument(
            f"the Dockerfile {shown(dockerfile)} is a link in the build context. Put the file itself there."
        )
    if kind != "file":
        top = sorted(name for name in entries if "/" not in name and name != ".")[:20]
        raise InvalidArgument(
            f"the build context has no {dockerfile[:200]!r}; at its top it has: {', '.join(top)[:500] or 'nothing'}. Name "
            "the Dockerfile, by its path within the folder, or register the folder that holds it."
        )
