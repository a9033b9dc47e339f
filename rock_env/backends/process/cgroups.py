"""Control groups of boxes: where they go, their limits, and what is left of them.

The process backend finds the place once and lists and removes groups; the process that becomes a box makes its own and
joins it. Both layouts are served: version 1 with a hierarchy per controller, version 2 with one for all. Never moves
a process but the one that calls and its children. Standard library alone: it runs in every box.
"""

# pathlib would cost more than a box's groups.
# ruff: noqa: PTH103, PTH106, PTH112, PTH123, PTH204
from __future__ import annotations

import contextlib
import os
import time

TYPE_CHECKING = False  # importing `typing` costs 5 ms
if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = [
    "Places",
    "find",
    "groups",
    "join",
    "killed_for_memory",
    "make_group",
    "processes",
    "remove",
    "sweep",
    "thaw",
]

Places = dict[str, str]
"""Controller to the folder that holds the boxes' groups; version 2 has the one key "unified"."""
CONTROLLERS = ("memory", "pids", "cpu")
FOLDER = "rock"
ASIDE = "rock-server"
_PERIOD_US = 100_000
_LEAST_QUOTA_US = 1_000
_UNIFIED = (
    ("memory", "memory.max", False),
    ("memory", "memory.swap.max", True),  # absent in a kernel without swap accounting
    ("pids", "pids.max", False),
    ("cpu", "cpu.max", True),  # often not delegated to users
)
_SEPARATE = (
    ("memory", "memory.limit_in_bytes", False),
    ("memory", "memory.memsw.limit_in_bytes", True),
    ("pids", "pids.max", False),
    ("cpu", "cpu.cfs_quota_us", False),  # its period is 100 ms unless somebody changed it
)
_FROZEN = (["FROZEN"], ["FREEZING"])
_SWAP = {"memory.swap.max": 0}
_MAKES = 100
"""How often a group is tried to be made where the folder above it vanishes; each needs a sweep in that very moment."""


def find(*, mountinfo: str = "/proc/self/mountinfo", own: str = "/proc/self/cgroup") -> Places:
    """Make the folder for all boxes' groups below our own groups and return where. Raise `OSError` if that cannot be."""
    mounts, paths = _mounts(mountinfo), _own(own)
    if "unified" in mounts:
        ours = _below(mounts["unified"], paths.get("", "/"))
        if "memory" in _words(f"{ours}/cgroup.controllers"):
            return {"unified": _find_unified(ours.removesuffix(f"/{ASIDE}"))}
    places = {}
    for controller in CONTROLLERS:
        if controller not in mounts:
            raise OSError(f"no cgroup controller {controller!r} is mounted")
        places[controller] = f"{_below(mounts[controller], paths.get(controller, '/'))}/{FOLDER}"
    for folder in places.values():
        _make(folder)
    return places


def join(places: Places, group: str, limits: dict[str, float]) -> int:
    """Make a box's groups with `limits` (memory_bytes, pids, cpus; 0 for none) and enter them.

    Return a file whose line `oom_kill N` counts the processes of the box that were killed for memory.
    """
    folders = {controller: f"{folder}/{group}" for controller, folder in places.items()}
    for folder in folders.values():
        make_group(folder)
    files = _UNIFIED if "unified" in places else _SEPARATE
    quota = max(_LEAST_QUOTA_US, round(limits["cpus"] * _PERIOD_US)) if limits["cpus"] else 0
    values = {"memory": limits["memory_bytes"], "pids": limits["pids"], "cpu": quota}
    for controller, name, optional in files:
        if values[controller]:
            try:
                text = f"{quota} {_PERIOD_US}" if name == "cpu.max" else values[controller]
                _write(f"{folders.get('unified') or folders[controller]}/{name}", _SWAP.get(name, text))
            except OSError:
                if not optional:
                    raise
    # A box has one thread as yet. Version 1 moves a single thread, but not a process, without waiting for all others.
    members = "cgroup.procs" if "unified" in places else "tasks"
    for folder in folders.values():
        _write(f"{folder}/{members}", 0)
    counter = "memory.events" if "unified" in places else "memory.oom_control"
    return os.open(f"{folders.get('unified') or folders['memory']}/{counter}", os.O_RDONLY | os.O_CLOEXEC)


def killed_for_memory(places: Places, group: str) -> int:
    """Return how many processes of a box's group were killed for memory; 0 also where there is no such group."""
    counter = "memory.events" if "unified" in places else "memory.oom_control"
    words = _words(f"{places.get('unified') or places.get('memory', '')}/{group}/{counter}")
    return int(words[words.index("oom_kill") + 1]) if "oom_kill" in words else 0


def make_group(folder: str) -> None:
    """Make a box's group, and the folder above it, which another server may find empty and remove at any moment."""
    for left in reversed(range(_MAKES)):
        try:
            os.makedirs(folder)
        except FileNotFoundError:  # removed between the two
            if not left:
                raise
        else:
            return


def groups(places: Places) -> set[str]:
    """Return all groups of boxes, of whatever server."""
    found: set[str] = set()
    for folder in places.values():
        with contextlib.suppress(FileNotFoundError):
            found.update(entry.name for entry in os.scandir(folder) if entry.is_dir(follow_symlinks=False))
    return found


def processes(places: Places, group: str) -> set[int]:
    """Return the processes in a box's groups."""
    found: set[int] = set()
    for folder in places.values():
        found.update(int(word) for word in _words(f"{folder}/{group}/cgroup.procs"))
    return found


def thaw(pids: Iterable[int]) -> None:
    """Take processes that somebody's freezer of version 1 holds into this process's group: frozen, none dies of a kill."""
    point = _mounts("/proc/self/mountinfo").get("freezer")
    if point is None:
        return
    ours = _own("/proc/self/cgroup").get("freezer", "/")
    for pid in pids:
        with contextlib.suppress(OSError):  # it ended, or its group is not to be seen from here
            theirs = _own(f"/proc/{pid}/cgroup").get("freezer", ours)
            if theirs != ours and _words(f"{point}{theirs}/freezer.state") in _FROZEN:
                _write(f"{_below(point, ours)}/cgroup.procs", pid)


def remove(places: Places, group: str) -> None:
    """Remove a box's groups. Raise `OSError` (EBUSY) while a process lives in one."""
    for folder in places.values():
        with contextlib.suppress(FileNotFoundError):
            os.rmdir(f"{folder}/{group}")


def sweep(places: Places, *, older_than_s: float) -> None:
    """Remove the groups in which nothing lives any more, whoever made them, and then the folders of all if empty.

    A younger group may be one that its box is about to enter.
    """
    for folder in places.values():
        for group in groups({"": folder}):
            path = f"{folder}/{group}"
            with contextlib.suppress(OSError):  # one with processes cannot be removed
                if time.time() - os.path.getmtime(path) > older_than_s:
                    os.rmdir(path)
        if "unified" not in places:  # there the folder was set up to pass controllers on
            with contextlib.suppress(OSError):
                os.rmdir(folder)


def _find_unified(own: str) -> str:
    """Return the folder for boxes, with the controllers passed down to it.

    A group that passes controllers down may hold no processes, so ours move aside, into a group of their own.
    """
    top = f"{own}/{FOLDER}"
    _make(top)
    wanted = " ".join(f"+{one}" for one in CONTROLLERS if one in _words(f"{own}/cgroup.controllers"))
    try:
        _write(f"{own}/cgroup.subtree_control", wanted)
    except OSError:
        aside = f"{own}/{ASIDE}"
        os.makedirs(aside, exist_ok=True)
        for pid in _family(map(int, _words(f"{own}/cgroup.procs"))):
            _write(f"{aside}/cgroup.procs", pid)
        _write(f"{own}/cgroup.subtree_control", wanted)
    _write(f"{top}/cgroup.subtree_control", wanted)
    return top


def _make(folder: str) -> None:
    """Make a folder for groups; one that another user made is of no use."""
    os.makedirs(folder, exist_ok=True)
    if not os.access(folder, os.W_OK):
        raise PermissionError(f"{folder!r} belongs to another user")


def _family(pids: Iterable[int]) -> list[int]:
    """Return those of `pids` that are this process or descend from it, such as workers."""
    parents = {}
    for pid in pids:
        with contextlib.suppress(OSError), open(f"/proc/{pid}/stat", "rb") as file:
            parents[pid] = int(file.read().rpartition(b")")[2].split()[1])
    ours = {os.getpid()}
    while more := {pid for pid, parent in parents.items() if parent in ours} - ours:
        ours |= more
    return sorted(ours)


def _mounts(mountinfo: str) -> dict[str, str]:
    """Return where each controller of version 1, the freezer, and version 2 as "unified", are mounted."""
    found = {}
    for line in _lines(mountinfo):
        left, _, right = line.partition(" - ")
        kind, _, options = right.split()[:3]
        point = left.split()[4].encode().decode("unicode_escape")
        if kind == "cgroup2":
            found["unified"] = point
        elif kind == "cgroup":
            found.update({word: point for word in options.split(",") if word in (*CONTROLLERS, "freezer")})
    return found


def _own(cgroup: str) -> dict[str, str]:
    """Return this process's path per controller; "" is version 2."""
    paths = {}
    for line in _lines(cgroup):
        _, controllers, path = line.split(":", 2)
        for controller in controllers.split(","):
            paths[controller] = path
    return paths


def _below(point: str, path: str) -> str:
    """Return our group's folder; in a container the path may be the host's, and the mount is ours as it is."""
    folder = (point + path).rstrip("/")
    return folder if os.path.isdir(folder) else point


def _lines(path: str) -> list[str]:
    with open(path) as file:
        return file.read().splitlines()


def _words(path: str) -> list[str]:
    try:
        with open(path) as file:
            return file.read().split()
    except FileNotFoundError:
        return []


def _write(path: str, value: object) -> None:
    with open(path, "w") as file:
        file.write(str(value))
