"""What of a box's files is no more as its image has it: packed for another box of the image, and unpacked there.

Used by `commands` where the server sees nothing of a box's layers, in a process forked for it. What was changed since the
box began shows by the time that the system itself gives each file (`st_ctime`), which nobody in the box can set. A folder
that was changed is told with all its names, so that what is not among them was removed. While it packs, nothing else of the
box runs. What is unpacked is another guest's word: every step goes from an open folder to an entry of it and follows no
link.
"""

# ruff: noqa: PTH101, PTH123, PTH208
from __future__ import annotations

import os
import stat

from .links import FOLDER, enter
from .places import Refused, coarse_now, mounts
from .protocol import INFRA, INVALID, PRECONDITION
from .trees import BLOCK, Input, Packer, make_file, safe_parts, told, write

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from tarfile import TarInfo
    from typing import Any

    from .places import BoxFolders

PLAN = "rock-changes.json"
"""First in the stream: for each changed folder the names that are as they were, and those that follow."""
_MOST_LOOKED_AT = 4_000_000
_MOST_CHANGED = 200_000
_MOST_DEEP = 400
"""Folders below one that is removed: each level is a call and an open file."""
_MOST_PLAN_BYTES = 64 << 20
_MOST_LEFT_OUT = 10_000
_MOST_BENEATH = 100_000
"""Entries looked at below a folder that was removed, before it counts as one that grades need."""
_LIBRARIES = ("lib", "lib64", "usr/lib", "usr/lib64", "usr/local/lib")
_OWNER = 0o700

Plan = dict[str, tuple[list[str], list[str]]]


def change_act(what: dict[str, Any], places: BoxFolders) -> Callable[[], int]:
    """Return what the forked process shall do. Raise `Refused` in a box that does not know how it began."""
    if places.began is None:
        raise Refused(PRECONDITION, "this box does not note what is changed in it")
    if what["changes"] == "unpack":
        steering = what["steering"]
        if steering is not None and steering["workdir"] in ("", "."):
            steering["workdir"] = places.absolute(".").removesuffix("/.").strip("/")
        return lambda: told(lambda: _unpack(steering))
    began, anchor = places.began
    now, running = coarse_now()
    began += min(0, (now - running) - (began - anchor))  # the machine's clock was set back meanwhile
    return lambda: told(lambda: _Changes(began, places.volumes).pack(what["most_bytes"]))


class _Changes:
    """The changes of the box this runs in."""

    def __init__(self, began: int, volumes: list[str]) -> None:
        self._began = began
        self._volumes = volumes
        self._mounts = mounts() - {"/"}
        self._plan: Plan = {}
        self._entries: list[str] = []
        self._lifted: dict[str, int] = {}
        """Modes of what its owner could not read, and can meanwhile."""
        self._bytes = self._looked_at = 0

    def pack(self, most_bytes: int) -> None:
        """Write the changes. Raise `Refused` where their files hold more than `most_bytes`."""
        import json

        try:
            self._look()
            if self._bytes > most_bytes:
                raise Refused(
                    INVALID,
                    f"its changed files hold {self._bytes} bytes, and a snapshot here at most {most_bytes}",
                )
            packer = Packer()
            packer.content(PLAN, json.dumps(self._plan).encode())
            for path in self._entries:
                self._lift(path)
                packer.add(path, path[1:], self._lifted.get(path))
            packer.end()
        finally:
            for path, mode in reversed(self._lifted.items()):
                os.chmod(path, mode)

    def _look(self) -> None:
        waiting = [("/", False)]
        while waiting:
            folder, whole = waiting.pop()
            if whole or os.lstat(folder).st_ctime_ns >= self._began:
                self._plan[folder] = ([], [])
            try:
                self._lift(folder)
                names = sorted(os.listdir(folder))
            except OSError:
                if folder in self._plan:
                    raise
                continue  # not this user's: nothing in it can have been changed
            waiting += [inner for name in names if (inner := self._entry(folder, name, whole))]

    def _entry(self, folder: str, name: str, whole: bool) -> tuple[str, bool] | None:
        """Note one entry; return it where it is a folder to look into."""
        self._looked_at += 1
        path = f"{folder.rstrip('/')}/{name}"
        if path in self._volumes and path in self._mounts:
            self._note(folder, name, kept=True)
            self._entries.append(path)
            return path, True
        try:
            status = None if path in self._mounts else os.lstat(path)
        except PermissionError:  # nor can any command of the box look at it
            status = None
        if status is None:
            self._note(folder, name, kept=True)
            return None
        is_folder = stat.S_ISDIR(status.st_mode)
        if not whole and status.st_ctime_ns < self._began:
            self._note(folder, name, kept=True)
        elif is_folder or stat.S_ISREG(status.st_mode) or stat.S_ISLNK(status.st_mode):
            self._note(folder, name, kept=False)
            self._entries.append(path)
            self._bytes += status.st_size if stat.S_ISREG(status.st_mode) else 0
        if self._looked_at > _MOST_LOOKED_AT or len(self._entries) > _MOST_CHANGED:
            raise Refused(
                INVALID,
                f"it has more than {_MOST_CHANGED} changed files, or {_MOST_LOOKED_AT} in all, which no snapshot takes",
            )
        return (path, whole) if is_folder else None

    def _note(self, folder: str, name: str, *, kept: bool) -> None:
        if folder in self._plan:
            self._plan[folder][0 if kept else 1].append(name)

    def _lift(self, path: str) -> None:
        """Let the owner of a file or folder read it for now."""
        status = os.lstat(path)
        needed = _OWNER if stat.S_ISDIR(status.st_mode) else stat.S_IRUSR
        readable = status.st_mode & needed == needed or stat.S_ISLNK(status.st_mode)
        if not readable and status.st_uid == os.geteuid():
            self._lifted[path] = stat.S_IMODE(status.st_mode)
            os.chmod(path, stat.S_IMODE(status.st_mode) | needed)


def _unpack(steering: dict[str, Any] | None) -> None:
    import json
    import tarfile

    target, source = (_Target() if steering is None else _CleanTarget(steering)), Input()
    try:
        with tarfile.TarFile(fileobj=source, mode="r", errorlevel=2) as tar:  # type: ignore[arg-type]
            first = tar.next()
            if first is None or first.name != PLAN or first.size > _MOST_PLAN_BYTES:
                raise Refused(INVALID, "the stream does not begin with the plan of a box's changes")
            plan: Plan = json.loads(source.read(first.size))
            source.seek(source.tell() + -first.size % BLOCK)
            if not isinstance(plan, dict):
                raise TypeError("their plan is no table")
            for folder in sorted(plan):
                target.prune(_parts(folder), *plan[folder])
            while (info := tar.next()) is not None:
                tar.members = []  # type: ignore[attr-defined]  # else it keeps every member it has seen
                target.make(info, source)
    except (tarfile.TarError, ValueError, TypeError, OverflowError, RecursionError) as error:
        raise Refused(INVALID, f"not the changes of a box: {error}") from error
    if source.cut:
        raise Refused(INVALID, "the changes of a box ended without their end mark")
    target.finish()
    if isinstance(target, _CleanTarget):
        write(json.dumps(sorted(target.left_out)[:_MOST_LEFT_OUT]).encode())
    else:
        write(b"%d %d" % (target.files, target.bytes))


def _parts(path: str) -> list[str]:
    parts = [part for part in path.split("/") if part]
    if ".." in parts or "." in parts:
        raise Refused(INVALID, f"{path!r} is no path of a changed folder")
    return parts


class _Target:
    """The box that takes the changes."""

    def __init__(self) -> None:
        self._root = os.open("/", FOLDER)
        self._mounts = mounts()
        self._folders: list[tuple[list[str], int, float]] = []
        self.files = self.bytes = 0

    def prune(self, names: list[str], kept: list[str], made: list[str]) -> None:
        """Remove from a changed folder what is not named. Raise `Refused` where something is missing that nobody brings."""
        try:
            folder = enter(self._root, names, "/".join(names), make=False)
        except (FileNotFoundError, Refused):  # it is made, or replaces something
            if kept:
                raise _moved(names, kept) from None
            return
        try:
            _lift_open(folder)
            there = set(os.listdir(folder))
            if missing := set(kept) - there:
                raise _moved(names, sorted(missing))
            for name in there - set(kept) - set(made):
                if self._spares(names, name):
                    continue
                self._remove(folder, name, "/" + "/".join([*names, name]))
        finally:
            os.close(folder)

    def _spares(self, names: list[str], name: str) -> bool:
        """Return whether an entry of a folder stays although the other box has none."""
        return False

    def make(self, info: TarInfo, source: Input) -> None:
        """Make one member, in place of whatever stands there but a folder in the place of one."""
        names = safe_parts(info)
        if not names:
            raise Refused(INVALID, "a member of a box's changes has no name")
        self._make(names, info, source)

    def _make(self, names: list[str], info: TarInfo, source: Input | _Held) -> None:
        try:
            folder = enter(self._root, names[:-1], info.name, make=False)
        except FileNotFoundError:
            raise Refused(INVALID, f"the member {info.name!r} comes before its folder") from None
        try:
            _lift_open(folder)
            if info.isdir():
                self._folder(folder, names, info)
                return
            self._remove(folder, names[-1], "/" + "/".join(names))
            if info.issym():
                os.symlink(info.linkname, names[-1], dir_fd=folder)
                os.utime(names[-1], (info.mtime, info.mtime), dir_fd=folder, follow_symlinks=False)
            elif info.islnk():
                self._link(folder, names, info)
            else:
                make_file(self._root, names, info, source)  # type: ignore[arg-type]
                source.seek(source.tell() + -info.size % BLOCK)
                self.files += 1
                self.bytes += info.size
        finally:
            os.close(folder)

    def _folder(self, above: int, names: list[str], info: TarInfo) -> None:
        path = "/" + "/".join(names)
        try:
            is_folder = stat.S_ISDIR(os.stat(names[-1], dir_fd=above, follow_symlinks=False).st_mode)
        except FileNotFoundError:
            is_folder = False
        if not is_folder:
            self._remove(above, names[-1], path)
            os.mkdir(names[-1], _OWNER, dir_fd=above)
        self._folders.append((names, info.mode & 0o7777, info.mtime))

    def _link(self, folder: int, names: list[str], info: TarInfo) -> None:
        theirs = _parts(info.linkname)
        source = enter(self._root, theirs[:-1], info.name, make=False)
        try:
            os.link(theirs[-1], names[-1], src_dir_fd=source, dst_dir_fd=folder, follow_symlinks=False)
        finally:
            os.close(source)

    def finish(self) -> None:
        """Give the folders their modes and times, the innermost first."""
        for names, mode, mtime in reversed(self._folders):
            folder = enter(self._root, names, "/".join(names), make=False)
            try:
                if stat.S_IMODE(os.fstat(folder).st_mode) != mode:
                    os.fchmod(folder, mode)
                os.utime(folder, (mtime, mtime))
            except PermissionError:  # anybody may write into it, and it is not this user's
                pass
            finally:
                os.close(folder)

    def _remove(self, folder: int, name: str, path: str, depth: int = 0) -> None:
        """Remove an entry with all in it; what is mounted stays."""
        if path in self._mounts:
            return
        try:
            is_folder = stat.S_ISDIR(os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode)
        except FileNotFoundError:
            return
        if not is_folder:
            os.unlink(name, dir_fd=folder)
            return
        if depth > _MOST_DEEP:
            raise Refused(
                INVALID, f"folders lie more than {_MOST_DEEP} deep in {path[:80]!r}, and are not removed"
            )
        inner = os.open(name, FOLDER, dir_fd=folder)
        try:
            _lift_open(inner)
            for each in os.listdir(inner):
                self._remove(inner, each, f"{path}/{each}", depth + 1)
        finally:
            os.close(inner)
        os.rmdir(name, dir_fd=folder)


class _Held:
    """Content that was read already, in the place of the input."""

    def __init__(self, content: bytes) -> None:
        self._content = content

    def copy(self, fd: int, _: int) -> None:
        view = memoryview(self._content)
        while view:
            view = view[os.write(fd, view) :]

    def tell(self) -> int:
        return 0

    def seek(self, _: int) -> None:
        """Do nothing: there is nothing behind it."""


class _CleanTarget(_Target):
    """A box in which nothing of an agent ran: it leaves out what could steer a grade (see `steering`)."""

    def __init__(self, asked: dict[str, Any]) -> None:
        super().__init__()
        from .steering import DEFAULT_FOLDERS, Steering

        search_path = os.environ.get("PATH", "").split(":")
        folders = {*DEFAULT_FOLDERS, *(each.strip("/") for each in search_path if each.startswith("/"))}
        libraries = set()
        for folder in _LIBRARIES:
            for name in _listed(folder):
                libraries |= {name} if ".so" in name else set()
                if "-linux-" in name:
                    libraries.update(_listed(f"{folder}/{name}"))
        own = {name: frozenset(said) for name, said in asked.items() if name != "workdir"}
        self._steering = Steering(
            **own,
            workdir=asked["workdir"],
            programs=frozenset(name for folder in folders for name in _listed(folder)),
            folders=frozenset(folders),
            libraries=frozenset(libraries),
        )
        self._refused: set[str] = set()
        self._own: set[str] = set()
        """Folders that the image has not."""
        self.left_out: set[str] = set()

    def _spares(self, names: list[str], name: str) -> bool:
        path = "/".join([*names, name])
        kind = _kind(path)
        if not self._refuses(path, kind, "nothing", _nothing) and not (
            kind == "folder" and self._needed(path)
        ):
            return False
        self.left_out.add(path)
        return True

    def _make(self, names: list[str], info: TarInfo, source: Input | _Held) -> None:
        from .steering import MOST_READ, REFUSED

        path, above = "/".join(names), "/".join(names[:-1])
        content = None
        if info.isreg() and info.size <= MOST_READ:
            content = source.read(info.size)  # type: ignore[union-attr]
            source.seek(source.tell() + -info.size % BLOCK)
        was, now = _kind(path), "folder" if info.isdir() else "other"
        fate: object = REFUSED
        if above not in self._refused and not (info.islnk() and info.linkname in self.left_out):
            read = (lambda: _content(info.linkname)) if info.islnk() else (lambda: content)
            fate = self._fate(path, was, now, read, info.linkname if info.issym() else None)
        if fate == REFUSED or (was == "folder" != now and self._needed(path)):
            if above not in self._refused:
                self.left_out.add(path)
            if now == "folder":
                self._refused.add(path)
            if info.isreg() and content is None:
                source.seek(source.tell() + info.size + -info.size % BLOCK)
            return
        if isinstance(fate, bytes):
            self.left_out.add(path)
            content, info.size, info.type = fate, len(fate), b"0"
        if now == "folder" and (was != "folder" or above in self._own):
            self._own.add(path)
        super()._make(names, info, source if content is None else _Held(content))

    def _refuses(self, path: str, was: str, now: str, read: Callable[[], bytes | None]) -> bool:
        return self._fate(path, was, now, read) is not None

    def _fate(
        self, path: str, was: str, now: str, read: Callable[[], bytes | None], leads: str | None = None
    ) -> object:
        from .steering import Change

        above = path.rpartition("/")[0]
        venv = above.endswith("/bin") and _kind(f"{above[: -len('/bin')]}/pyvenv.cfg") == "other"
        change = Change(path, was, now, above not in self._own, venv, leads)  # type: ignore[arg-type]
        return self._steering.judge(change, read, lambda: _content(path))

    def _needed(self, path: str) -> bool:
        """Return whether something below a folder of the image's runs grades."""
        left, waiting = _MOST_BENEATH, [path]
        while waiting:
            folder = waiting.pop()
            for name in _listed(folder):
                inner = f"{folder}/{name}"
                kind = _kind(inner)
                left -= 1
                if left <= 0 or self._refuses(inner, kind, "nothing", _nothing):
                    return True
                if kind == "folder":
                    waiting.append(inner)
        return False


def _nothing() -> None:
    return None


def _kind(path: str) -> str:
    """Return what stands at a path below the root, which has no link on its way."""
    try:
        status = os.lstat(f"/{path}")
    except (FileNotFoundError, NotADirectoryError):
        return "nothing"
    return "folder" if stat.S_ISDIR(status.st_mode) else "other"


def _listed(path: str) -> list[str]:
    """Return the entries of a folder; none where it is a link, or not there, or not this user's to look into."""
    try:
        folder = os.open(f"/{path}", FOLDER)
    except OSError:
        return []
    try:
        return os.listdir(folder)
    finally:
        os.close(folder)


def _content(path: str) -> bytes | None:
    """Return a small file's content; None where it is no file, or larger than what is judged by its content."""
    from .steering import MOST_READ

    try:
        fd = os.open(f"/{path}", os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        return None
    with open(fd, "rb") as file:
        status = os.fstat(fd)
        return file.read() if stat.S_ISREG(status.st_mode) and status.st_size <= MOST_READ else None


def _lift_open(folder: int) -> None:
    """Let the owner change a folder; what it is to be in the end, its own member says."""
    status = os.fstat(folder)
    if status.st_mode & _OWNER != _OWNER and status.st_uid == os.geteuid():
        os.fchmod(folder, stat.S_IMODE(status.st_mode) | _OWNER)


def _moved(names: list[str], missing: list[str]) -> Refused:
    return Refused(
        INFRA,
        f"/{'/'.join(names)} has {', '.join(missing[:5])} that the image has not: a folder of the image was moved as a "
        "whole, which the changes of a box do not tell",
    )
