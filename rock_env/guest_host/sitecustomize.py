"""First code of each Python of a grade: its standard library comes before the work, in whatever folder that lies.

It is beside `rock_guard`, in a folder that is first on the search path. Where Python runs a verifier's file, a command or an
installed module, a name of the standard library is never looked for among the work's files: neither those an agent left nor
those that its code makes while it is graded. A program of the work that Python runs keeps its own neighbours, and so does
what the image itself shadows or the task speaks of (`ROCK_GUARD_OWN`). Runs in whatever Python the image has, from 3.6 on.
"""

import os
import sys

if False:  # typing of newer Pythons
    from typing import Any


def _judges(own: str) -> bool:
    """Return whether this process runs something else than a program of the work."""
    words = _words()
    while words and words[0].startswith("-") and words[0] != "-":
        option = words.pop(0)
        if option[:2] in ("-c", "-m") or option[-1:] in ("c", "m"):
            module = words[0] if option[-1:] == "m" and words else option[2:]
            return option[1:2] == "c" or option[-1:] == "c" or _is_installed(module.split(".")[0])
        if option in ("-W", "-X") and words:
            words.pop(0)
    if not words or words[0] == "-":
        return True
    folder = os.path.dirname(os.path.abspath(words[0]))  # noqa: PTH100, PTH120
    kept = [place for place in own.split(":") if place.startswith("/")]
    return folder.endswith("/bin") or any((folder + "/").startswith(place + "/") for place in kept)


def _runs_unittest() -> bool:
    """Return whether this is a run of `python -m unittest` that tests something."""
    words = _words()
    while words and words[0].startswith("-") and "m" not in words[0]:
        words.pop(0)
    started = words[:1] == ["-munittest"] or (
        (words[:1] or [""])[0].endswith("m") and words[1:2] == ["unittest"]
    )
    return started and not {"-h", "--help"} & set(words)


def _words() -> "list[str]":
    """Return the arguments of this process."""
    try:
        with open("/proc/self/cmdline", "rb") as file:  # noqa: PTH123
            return [os.fsdecode(word) for word in file.read().split(b"\0")[1:-1]]
    except OSError:
        return ["."]


def _is_installed(module: str) -> bool:
    from importlib.machinery import PathFinder

    return module in sys.builtin_module_names or PathFinder.find_spec(module, _LIBRARY + _SITE) is not None


def _install(own: str) -> None:
    from importlib.machinery import PathFinder

    known = getattr(sys, "stdlib_module_names", ())
    tools = set(os.environ.get("ROCK_GUARD_TOOLS", "").split(":"))
    free = set(own.split(":")) | {"test", "sitecustomize", "usercustomize"}

    class Library:
        """Finds the standard library's modules, and those of installed test tools, where they are installed."""

        @staticmethod
        def find_spec(name: str, path: "Any" = None, target: "Any" = None) -> "Any":
            if path is not None or name in free:
                return None
            if not known or name in known:
                return PathFinder.find_spec(name, _LIBRARY, target)
            return PathFinder.find_spec(name, _SITE, target) if name in tools else None

    sys.meta_path.insert(max(len(sys.meta_path) - 1, 0), Library)


def _image_s_own() -> None:
    """Run the sitecustomize that the image has, which this one stands before."""
    from importlib.machinery import PathFinder
    from importlib.util import module_from_spec

    here = os.path.dirname(os.path.abspath(__file__))  # noqa: PTH100, PTH120
    rest = [place for place in sys.path if place not in ("", here)]
    found = PathFinder.find_spec("sitecustomize", rest)
    if found is not None and found.loader is not None:
        found.loader.exec_module(module_from_spec(found))


_FOLDER = os.path.dirname(os.__file__)  # noqa: PTH120
_LIBRARY = [_FOLDER, os.path.join(_FOLDER, "lib-dynload")]  # noqa: PTH118
_SITE = [place for place in sys.path if place.endswith("-packages")]
_OWN = os.environ.get("ROCK_GUARD_OWN")
if _OWN is not None and _judges(_OWN):
    _install(_OWN)
    if _runs_unittest():
        import rock_unittest  # type: ignore[import-not-found]  # noqa: F401
_image_s_own()
