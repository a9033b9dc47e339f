"""Environments that a user registered: kept in a folder, found by name like installed ones, by every process there is.

Read by `plugins` (so by the command line, trainers and servers), written by `ale env register`. A registered environment
is a list of tasks whose images are built already; the folder it was made from is not needed any more. It builds and
runs nothing.

    ALE_HOME/envs/NAME/env.json               what it is, and which tasks file belongs to it; replaced as a whole
    ALE_HOME/envs/NAME/tasks-DIGEST.msgpack   the tasks; written before env.json names it
    ALE_HOME/envs/NAME/report.json            what `ale env check` found last
    ALE_HOME/envs/NAME/shared                 there if `ale env push` brought it to this server, or its store did
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import re
import shutil
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import msgspec

from rock_env.errors import FailedPrecondition, InvalidArgument, nearest
from rock_env.grading.model import Build, Task
from rock_env.store.whole_file import replace_file

__all__ = [
    "CheckEntry",
    "EnvReport",
    "Registration",
    "check_name",
    "check_shared",
    "content_of",
    "digest_of",
    "encoded",
    "find",
    "forget_shared",
    "home",
    "keep_shared",
    "known",
    "names",
    "remove",
    "report_of",
    "shared_names",
    "store",
    "store_report",
    "tasks_of",
]

_NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,63}", re.ASCII)
_DIGEST = re.compile(r"[0-9a-f]{64}", re.ASCII)
_SHORT = 12
"""Digits of a digest that make a version: enough among the environments of one user."""


class CheckEntry(msgspec.Struct, frozen=True):
    """One check of a report: `result` is PASS, FAIL, SKIP or WARN."""

    name: str
    result: str
    evidence: str
    duration_s: float


class EnvReport(msgspec.Struct, frozen=True, kw_only=True):
    """What a check of an environment found."""

    digest: str
    """Of the environment that was checked; another one's report says nothing about this one."""
    checked_at: float
    """Seconds since the epoch."""
    checks: tuple[CheckEntry, ...]

    @property
    def passed(self) -> bool:
        """Return whether no check failed."""
        return all(check.result != "FAIL" for check in self.checks)


class Registration(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of a registered environment without its tasks."""

    name: str
    digest: str
    """sha256 of the tasks, and of what their images are built from."""
    source: str
    """The folder or file it was registered from."""
    registered_at: float
    """Seconds since the epoch."""
    tasks: int
    images: tuple[str, ...]
    """The images its tasks need, by the ids that the Docker engine of this machine knows them by."""
    format: int = 1

    @property
    def version(self) -> str:
        """Return the version that is written into records."""
        return self.digest[:_SHORT]


def home() -> Path:
    """Return the folder of this user's registered environments and nothing else: `ALE_HOME`, or by the platform."""
    if chosen := os.environ.get("ALE_HOME"):
        return Path(chosen).expanduser().absolute()
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Application Support" / "ale"
    data = os.environ.get("XDG_DATA_HOME", "")
    return (Path(data) if Path(data).is_absolute() else Path.home() / ".local" / "share") / "ale"


def check_name(name: str) -> str:
    """Return a name that may be registered. Raise `InvalidArgument` for any other."""
    if not _NAME.fullmatch(name):
        raise InvalidArgument(
            f"bad environment name {name!r}: expected up to 64 of a-z, 0-9, '_' and '-', a letter or digit first. "
            "Choose one with --name."
        )
    return name


def digest_of(tasks: Sequence[Task], contexts: Sequence[str]) -> str:
    """Return the digest of tasks whose images are built from contexts (or are images) of these digests, in order."""
    bare = [replace(task, build=Build(image=context)) for task, context in zip(tasks, contexts, strict=True)]
    # The place it was read from is no part of what it is.
    return hashlib.sha256(encoded([replace(task, source="") for task in bare])).hexdigest()


# -- reading


def names() -> tuple[str, ...]:
    """Return the sorted names of all registered environments."""
    return tuple(sorted(path.parent.name for path in _envs().glob("*/env.json")))


def known(name: str) -> bool:
    """Return whether an environment of this name is registered; cheap enough to be asked at every Make."""
    return bool(_NAME.fullmatch(name)) and (_envs() / name / "env.json").exists()


def find(name: str) -> Registration:
    """Return what is known of `name`. Raise `UnknownName`, or `FailedPrecondition` for a damaged record."""
    if not known(name):
        raise nearest("registered environment", name, names())
    path = _envs() / name / "env.json"
    state = path.stat()
    return _record(path, state.st_mtime_ns, state.st_ino)


def tasks_of(record: Registration) -> tuple[Task, ...]:
    """Return the tasks, each with its image. Raise `FailedPrecondition` for a damaged or a missing file."""
    return _tasks(_tasks_path(record), record.source)


def content_of(record: Registration) -> bytes:
    """Return the tasks as they are kept. Raise `FailedPrecondition` for a missing file."""
    try:
        return _tasks_path(record).read_bytes()
    except OSError as error:
        raise _damaged(_tasks_path(record), error, record.source) from error


def shared_names() -> tuple[str, ...]:
    """Return the sorted names of the environments that were pushed to this server, or to another one of its store."""
    return tuple(sorted(path.parent.name for path in _envs().glob("*/shared")))


def report_of(record: Registration) -> EnvReport | None:
    """Return the last report on this very content, if there is one that can be read."""
    try:
        content = (_envs() / record.name / "report.json").read_bytes()
        report = msgspec.json.decode(content, type=EnvReport)
    except (OSError, msgspec.DecodeError):  # it is made again by `ale env check`
        return None
    return report if report.digest == record.digest else None


@lru_cache(maxsize=256)
def _record(path: Path, modified_ns: int, inode: int) -> Registration:
    """Read a record; the stamps make the cache forget one that was replaced, here or by another process."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=Registration)
    except (OSError, msgspec.DecodeError) as error:
        raise _damaged(path, error, "") from error


@lru_cache(maxsize=16)
def _tasks(path: Path, source: str) -> tuple[Task, ...]:
    try:
        content = path.read_bytes()
        tasks: tuple[Task, ...] = msgspec.msgpack.decode(content, type=tuple[Task, ...], dec_hook=_path)
    except (OSError, msgspec.DecodeError) as error:
        raise _damaged(path, error, source) from error
    return tasks


def _damaged(path: Path, error: Exception, source: str) -> FailedPrecondition:
    again = f"`ale env register {source or 'PATH'}`"
    return FailedPrecondition(
        f"the registered environment in {path.parent} cannot be read ({path.name}: {error}). Register it again with "
        f"{again}, or remove it with `ale env remove {path.parent.name}`."
    )


# -- writing


def store(record: Registration, tasks: Sequence[Task]) -> None:
    """Keep an environment, in place of one of the same name. Raise `InfraError` if the folder cannot be written.

    Readers see the former or the new one, whole.
    """
    check_name(record.name)
    with _changing(record.name) as folder:
        (folder / "shared").unlink(missing_ok=True)
        _keep(folder, record, encoded(tasks))


def check_shared(record: Registration, content: bytes) -> None:
    """Check an environment that came from elsewhere, `content` being its tasks as `content_of` returns them.

    Raise `InvalidArgument` for what is none, or would have this machine build an image, and `FailedPrecondition` where
    one of this name was registered on this machine.
    """
    check_name(record.name)
    if not _DIGEST.fullmatch(record.digest):
        raise InvalidArgument(
            f"bad digest {record.digest[:80]!r} of {record.name}: expected 64 digits of a-f and 0-9"
        )
    try:
        tasks = msgspec.msgpack.decode(content, type=tuple[Task, ...], dec_hook=_path)
    except (msgspec.DecodeError, RecursionError) as error:
        raise InvalidArgument(
            f"what was sent as the tasks of {record.name} cannot be read: {error}"
        ) from error
    if len(tasks) != record.tasks or not tasks:
        raise InvalidArgument(f"{record.name} is said to have {record.tasks} tasks, got {len(tasks)}")
    if bare := [task.name for task in tasks if task.build.context is not None or not task.build.image]:
        raise InvalidArgument(f"task {bare[0][:80]!r} of {record.name} names no image that is built")
    if known(record.name) and record.name not in shared_names():
        raise FailedPrecondition(
            f"{record.name!r} was registered on the server's own machine, and stays as it is. Register yours under another "
            f"name and push that, or remove the one there (`ale env remove {record.name}`)."
        )


def keep_shared(record: Registration, content: bytes) -> None:
    """Keep an environment that came from elsewhere. Raise as `check_shared`, and `InfraError` if it cannot be written."""
    check_shared(record, content)
    with _changing(record.name) as folder:
        folder.mkdir(mode=0o700, exist_ok=True)
        replace_file(folder / "shared", b"", "an environment")
        _keep(folder, record, content)


def forget_shared(name: str) -> bool:
    """Forget an environment that came from elsewhere; False where there is none of this name."""
    if name not in shared_names():
        return False
    with _changing(name) as folder:
        (folder / "env.json").unlink(missing_ok=True)
        shutil.rmtree(folder, ignore_errors=True)
    return True


def _keep(folder: Path, record: Registration, content: bytes) -> None:
    folder.mkdir(mode=0o700, exist_ok=True)
    replace_file(_tasks_path(record), content, "an environment")
    replace_file(folder / "env.json", msgspec.json.format(msgspec.json.encode(record)), "an environment")
    for path in folder.glob("tasks-*.msgpack"):
        if path != _tasks_path(record):
            path.unlink(missing_ok=True)


def store_report(record: Registration, report: EnvReport) -> None:
    """Keep a report beside its environment, which may have been removed meanwhile."""
    with _changing(record.name) as folder:
        if (folder / "env.json").exists():
            replace_file(folder / "report.json", msgspec.json.format(msgspec.json.encode(report)), "a report")


def remove(name: str) -> None:
    """Forget an environment; its images stay with the engine. Raise `UnknownName`."""
    if not known(name):
        raise nearest("registered environment", name, names())
    with _changing(name) as folder:
        (folder / "env.json").unlink(missing_ok=True)  # from here on there is none
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def _changing(name: str) -> Iterator[Path]:
    """Yield the folder of an environment, which nobody else changes meanwhile."""
    folder = _envs() / name
    try:
        _envs().mkdir(mode=0o700, parents=True, exist_ok=True)
        lock = os.open(_envs(), os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError as error:
        raise InvalidArgument(
            f"cannot keep environments in {_envs()}: {error.strerror}. Name a folder that can be written with ALE_HOME."
        ) from error
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield folder
    finally:
        os.close(lock)


def _envs() -> Path:
    return home() / "envs"


def _tasks_path(record: Registration) -> Path:
    return _envs() / record.name / f"tasks-{record.digest[:_SHORT]}.msgpack"


def encoded(tasks: Sequence[Task]) -> bytes:
    """Return tasks as they are kept and sent."""
    return msgspec.msgpack.encode(tuple(tasks), enc_hook=os.fspath)


def _path(kind: type, value: Any) -> Any:
    return kind(value)
