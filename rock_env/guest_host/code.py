"""The guest's code, laid out so that a bare interpreter can start it in a box.

It copies and compiles; it starts nothing.
"""

from __future__ import annotations

import py_compile
from pathlib import Path

import rock_env.guest

__all__ = ["GUARD_SOURCES", "START_SOURCE", "lay_out_guest"]

GUARD_SOURCES = tuple(
    Path(__file__).parent / "guard" / f"{name}.py"
    for name in (
        "rock_guard",
        "begin_rock",
        "rock_judges",
        "main_rock",
        "rock_unittest",
        "walls_rock",
        "starts_rock",
        "signals_rock",
        "probes_rock",
        "forks_rock",
        "watch_rock",
        "work_fence",
        "sitecustomize",
    )
)
"""What guards the Pythons of a grade, a plugin of pytest first; laid out as they are, for any Python."""

START_SOURCE = Path(__file__).with_name("start.py")
"""The script that a guest is started by, in the folder it is laid out in."""

_MODULES = (
    "__init__",
    "changes",
    "command",
    "commands",
    "dial",
    "door",
    "files",
    "init",
    "libc",
    "links",
    "loop",
    "places",
    "processes",
    "protocol",
    "sessions",
    "spawn",
    "steering",
    "trees",
    "watch",
)


def lay_out_guest(folder: Path) -> Path:
    """Compile the guest into `folder` (made if absent) and return the file to start: `python -I -S start.pyc …`.

    Only for interpreters of this one's version; compiled, because a script is compiled anew at each start. In the
    folder, the package is `guest`, so that a process may also import it from there and call `guest.init.serve`.
    """
    package = folder / "guest"
    package.mkdir(parents=True, exist_ok=True)
    source = Path(rock_env.guest.__file__).parent
    for name in _MODULES:
        py_compile.compile(str(source / f"{name}.py"), cfile=str(package / f"{name}.pyc"), doraise=True)
    start = folder / "start.pyc"
    py_compile.compile(str(START_SOURCE), cfile=str(start), doraise=True)
    return start
