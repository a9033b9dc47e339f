"""Where a box's paths lead, and the refusal of those that lead out of it; its mounts, and what only the image says.

Used by every part of the guest that takes a path from the server, and by `init` where the server cannot read the image.
"""

# ruff: noqa: PTH103, PTH109, PTH110, PTH112, PTH118, PTH120, PTH123
from __future__ import annotations

import os
from time import clock_gettime_ns, monotonic_ns

from .protocol import INVALID

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


_MOST_BYTES = 4096
_REALTIME_COARSE = 5  # linux/time.h; the clock of a file's times, which may be some milliseconds behind
_ESCAPED = ((b"\\040", b" "), (b"\\011", b"\t"), (b"\\012", b"\n"), (b"\\134", b"\\"))
"""How the kernel writes these in a list of mounts."""


class Refused(Exception):
    """A request that cannot be served; `kind` tells the server which error to raise."""

    def __init__(self, kind: bytes, message: str) -> None:
        super().__init__(message)
        self.kind = kind
        self.message = message


class BoxFolders:
    """The box's own folders."""

    def __init__(self, config: dict[str, Any]) -> None:
        self._workdir: str = config["workdir"]
        self._public: str = config["public_workdir"]
        self.roots: list[str] = config["roots"]
        self.began: tuple[int, int] | None = config.get("began")
        """When the box was as its image has it, by `coarse_now`; None where nobody asks."""
        self.volumes: list[str] = config.get("volumes", [])
        """Folders that lay empty over the image's then."""

    def absolute(self, path: str) -> str:
        """Return `path` as this process sees it: relative to the working folder, whose public name may differ.

        Raise `Refused` for what is no path: to the system's own calls a NUL in one is a mistake of their caller.
        """
        if "\0" in path:
            raise Refused(INVALID, f"{path!r} is not a path")
        public, workdir = self._public, self._workdir
        if path == public or path.startswith(public + "/"):
            return str(workdir + path[len(public) :])
        return os.path.join(workdir, path)

    def inside(self, path: str) -> str:
        """Return the real path behind `path`, which must lie in a folder of the box that belongs to its user."""
        if not path:
            raise Refused(INVALID, f"{path!r} is not a path")
        real = os.path.realpath(self.absolute(path))
        if len(os.fsencode(real)) >= _MOST_BYTES:
            raise Refused(INVALID, f"path {path[:80]!r}… is longer than {_MOST_BYTES - 1} bytes")
        if not any(real == root or real.startswith(root.rstrip("/") + "/") for root in self.roots):
            raise Refused(INVALID, f"path {path!r} leads to {real!r}, outside the box's own folders")
        return real


def coarse_now() -> tuple[int, int]:
    """Return the time that a file changed now would bear, and how long the machine runs, in nanoseconds."""
    return clock_gettime_ns(_REALTIME_COARSE), monotonic_ns()


def mounts() -> set[str]:
    """Return where other file systems are: not the image's, and not the box's to change."""
    found = set()
    with open("/proc/self/mountinfo", "rb") as file:
        for line in file:
            place = line.split()[4]
            for code, meant in _ESCAPED:
                place = place.replace(code, meant)
            found.add(os.fsdecode(place))
    return found


def make_folders(path: str) -> None:
    """Make a folder and its parents where they are absent. `os.makedirs` would call itself once for each of them."""
    missing = []
    while not os.path.isdir(path):
        missing.append(path)
        path = os.path.dirname(path)
    for folder in reversed(missing):
        try:
            os.mkdir(folder, 0o755)  # noqa: PTH102
        except FileExistsError:
            if not os.path.isdir(folder):
                raise


def take_from_image(config: dict[str, Any]) -> None:
    """Complete a configuration in place, by its part `image`.

    `env` there lies below the image's variables, these below the box's own; those that begin with a word of `hidden` are
    left out. A box that asks for `default_workdir` alone gets the image's folder where that is not `/`. `oom` lists the
    files that may count what was killed for memory. Raise `Refused` where the folder cannot be made.
    """
    about = config["image"]
    config["began"] = coarse_now()
    hidden = tuple(about["hidden"])
    own = {name: value for name, value in os.environ.items() if not name.startswith(hidden)}
    config["env"] = {**about["env"], **own, **config["env"]}
    if config["workdir"] == about["default_workdir"] and os.getcwd() != "/":
        config["workdir"] = config["public_workdir"] = os.getcwd()
    try:
        os.makedirs(config["workdir"], exist_ok=True)
    except OSError as error:
        raise Refused(
            INVALID,
            f"the image has no folder {config['workdir']!r}, and its user {os.getuid()} cannot make it: {error.strerror}. "
            "Name another workdir, or give the image one.",
        ) from error
    config["oom"] = next((path for path in about["oom"] if os.path.exists(path)), None)
