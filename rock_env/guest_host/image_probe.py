"""Run by each Python of a clean box, before anything of an agent is in it: what that Python can import, and what judges.

It prints one line of JSON: `modules`, all names it imports without the work; `tools`, the entries of its site-packages that
belong to what the verifier starts or imports, to what these need, and to what a start imports; `own`, modules of the work's
folders as the image has them; `places`, folders it searches beside its own; `sites`, the folder in which a `.pth` file
is its first code. The project under test is none of its tools. Runs in whatever Python the image has, from 3.6 on.
"""

import json
import os
import re
import sys

if False:  # typing of newer Pythons
    from typing import Any

_ENDING = re.compile(r"([A-Za-z_]\w*)(?:\.[\w-]+)?\.(?:py|pyc|so)$")
_LIBRARY = os.path.dirname(os.__file__)  # noqa: PTH120
_STARTED = re.compile(r"(?:\bimport\s+|__import__\(\s*['\"])([A-Za-z_]\w*)")
_REQUIRED = re.compile(r"\s*([\w.-]+)")


def _names(folder: str) -> "set[str]":
    """Return the modules in a folder."""
    found = set()  # type: set[str]
    try:
        entries = os.listdir(folder or ".")  # noqa: PTH208  # as old Pythons have it
    except OSError:
        return found
    for entry in entries:
        match = _ENDING.match(entry)
        if match:
            found.add(match.group(1))
        elif entry.isidentifier() and os.path.isfile(os.path.join(folder, entry, "__init__.py")):  # noqa: PTH113, PTH118
            found.add(entry)
    return found


def _library() -> "set[str]":
    found = set(sys.builtin_module_names) | set(getattr(sys, "stdlib_module_names", ()))
    return found | _names(_LIBRARY) | _names(os.path.join(_LIBRARY, "lib-dynload"))  # noqa: PTH118


def _canonical(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def _entries(distribution: "Any") -> "set[str]":
    """Return what a distribution has at the top of site-packages: modules by their names, its metadata by folder."""
    own = getattr(distribution, "_path", None)
    found = {own.name} if own is not None else set()
    said = distribution.read_text("top_level.txt")
    if said:
        return found | set(said.split())
    for file in distribution.files or ():
        first = str(file).replace("\\", "/").split("/")[0]
        if first not in ("..", "__pycache__"):
            match = _ENDING.match(first)
            found.add(match.group(1) if match else first)
    return found


def _tools(imports: "set[str]", starts: "set[str]", own: "set[str]", asked: "set[str]") -> "set[str]":
    """Return the entries of what the verifier starts or imports, with what these need."""
    try:
        from importlib.metadata import distributions
    except ImportError:  # before 3.8
        return (imports | starts) - own - asked
    known = {}  # type: dict[str, Any]
    for each in distributions():
        known.setdefault(_canonical(each.metadata["Name"] or ""), each)
    entries = {name: _entries(each) for name, each in known.items()}
    waiting = []
    for name, each in known.items():
        points = [(point.group, point.name) for point in each.entry_points]
        runs = any(
            group == "pytest11" or (group == "console_scripts" and command in starts)
            for group, command in points
        )
        spoken_of = name in asked or entries[name] & asked
        if runs or (entries[name] & imports and not spoken_of):
            waiting.append(name)
    found, seen = set(), set()
    while waiting:
        name = waiting.pop()
        if name in seen or name not in known or entries[name] & own:
            continue
        seen.add(name)
        found |= entries[name]
        for line in known[name].requires or ():
            match = _REQUIRED.match(line)
            if match and "extra ==" not in line:
                waiting.append(_canonical(match.group(1)))
    return found


def _first_code(folder: str) -> "set[str]":
    """Return the modules that `.pth` files of a folder import at each start."""
    found = set()  # type: set[str]
    for name in os.listdir(folder):  # noqa: PTH208
        try:
            with open(os.path.join(folder, name), encoding="utf-8", errors="replace") as file:  # noqa: PTH118, PTH123
                text = file.read() if name.endswith(".pth") else ""
        except OSError:
            continue
        for line in text.splitlines():
            if line.startswith(("import ", "import\t")):
                found.update(_STARTED.findall(line))
    return found


def _main() -> None:
    told = {name: set(said) for name, said in json.loads(sys.argv[1]).items()}
    searched = [place for place in os.environ.get("PYTHONPATH", "").split(":") if place]
    own = set().union(*map(_names, told["folders"] | set(searched)))
    site = set().union(*map(_names, sys.path))
    folders = [place for place in sys.path if place.endswith("-packages") and os.path.isdir(place)]  # noqa: PTH112
    tools = _tools(told["imports"], told["starts"], own, told["asked"])
    tools = tools.union(*map(_first_code, folders)) - _library()
    said = {
        "modules": sorted(_library() | site),
        "tools": sorted(tools),
        "own": sorted(own),
        "places": searched,
        "sites": [folder for folder in folders if os.access(folder, os.W_OK)][:1],
        "paths": [_LIBRARY, *(os.path.join(place, name) for place in sys.path for name in tools)],  # noqa: PTH118
    }
    sys.stdout.write(json.dumps(said) + "\n")


_main()
