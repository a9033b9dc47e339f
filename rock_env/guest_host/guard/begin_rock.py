"""First code of each Python of a grade: pytest gets the guard, the library comes before the work, graders are watched.

Begun by a `.pth` file in the site-packages of each Python of the grade's box, so that it runs whatever variables and options
a test script starts Python with, and by `sitecustomize` beside it for Pythons that a script makes anew. Where Python runs a
verifier's file, a command or an installed module, a name of the standard library is never looked for among the work's files:
neither those an agent left nor those that its code makes while it is graded. A program of the work that Python runs keeps
its own neighbours, and so does what the image itself shadows or the task speaks of (`ROCK_GUARD_OWN`). Runs in whatever
Python the image has, from 3.6 on.

What else Python runs (a program of the work, a text, a module that is no tool of the tests) can read of the verifier's
folders only what its start names, and so can all that it starts (`walls_rock`).
"""

import atexit
import os
import sys
from importlib.machinery import PathFinder

if False:  # typing of newer Pythons
    from typing import Any

_HERE = os.path.dirname(os.path.abspath(__file__))  # noqa: PTH100, PTH120  # as old Pythons have it
_MODULES = (
    "rock_guard",
    "rock_judges",
    "starts_rock",
    "signals_rock",
    "probes_rock",
    "forks_rock",
    "rock_unittest",
    "walls_rock",
    "main_rock",
    "watch_rock",
    "work_fence",
)
_FOLDER = os.path.dirname(os.__file__)  # noqa: PTH120
_LIBRARY = [_FOLDER, os.path.join(_FOLDER, "lib-dynload")]  # noqa: PTH118
_WITHIN_S = 0.5
_SITE = []  # type: list[str]
_BEGUN = []  # type: list[bool]


def begin(told: "dict[str, str] | None" = None) -> None:
    """Begin once; `told` are variables of the grade, which no script's environment takes away."""
    if _BEGUN:
        return
    _BEGUN.append(True)
    for name, value in (told or {}).items():
        if name != "ROCK_GUARD_REPORT" or name not in os.environ:  # a run within a run has none
            os.environ[name] = value
    sys.meta_path.insert(0, _Guard)
    atexit.register(take_in_children)
    _SITE.extend(place for place in [*_site(), *sys.path] if place.endswith("-packages"))
    own = os.environ.get("ROCK_GUARD_OWN")
    if own is None:
        return
    words = _words("self")
    kind, at = _program(words)
    places = [place for place in own.split(":") if place.startswith("/")]
    if _is_bounded(kind, words[at:], places):
        _keep_out(words)
    if not _judges(kind, words[at:], places):
        return
    _install(own)
    if kind == "module" and _runs_unittest(words[at:]):
        import rock_unittest  # type: ignore[import-not-found]  # noqa: F401
    elif sys.executable and _is_grader(kind, words[:at], words[at:], places):
        from watch_rock import go_on_as  # type: ignore[import-not-found]

        main = os.path.join(_HERE, "main_rock.py")  # noqa: PTH118
        go_on_as([sys.executable, *_options(words[:at]), main], [kind, *words[at:]])


def take_in_children() -> None:
    """Ask for the ends of children that nobody asked for, such as a shell that `os.popen` read: they outlive nobody."""
    try:
        for each in list(getattr(sys.modules.get("subprocess"), "_active", None) or ())[:1]:
            each.wait(_WITHIN_S)
    except Exception:  # noqa: BLE001  # it goes on: it is seen to
        pass
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            continue
    except OSError:  # there is none
        pass


class _Guard:
    """Finds the guard's own modules where they are, and gives each pytest the plugin."""

    @staticmethod
    def find_spec(name: str, path: "Any" = None, target: "Any" = None) -> "Any":
        if name in _MODULES:
            return PathFinder.find_spec(name, [_HERE], target)
        if name != "_pytest.config":
            return None
        found = PathFinder.find_spec(name, path, target)
        loader = found.loader if found is not None else None  # type: Any
        run = getattr(loader, "exec_module", None)
        if run is None:
            return found

        def exec_module(module: "Any") -> None:
            run(module)
            module.default_plugins = (*module.default_plugins, "rock_guard")

        loader.exec_module = exec_module
        return found


def _site() -> "list[str]":
    """Return the folders of installed packages, also those that are not on the search path yet."""
    import site

    own = [site.getusersitepackages()] if site.ENABLE_USER_SITE else []
    return [*own, *getattr(site, "getsitepackages", list)()]


def _words(process: str) -> "list[str]":
    """Return the arguments of a process, without its program."""
    try:
        with open("/proc/" + process + "/cmdline", "rb") as file:  # noqa: PTH123
            return [os.fsdecode(word) for word in file.read().split(b"\0")[1:-1]]
    except OSError:
        return ["."]


def _program(words: "list[str]") -> "tuple[str, int]":
    """Return what a Python of these arguments runs, and which of them is its program: a text, a module, a file."""
    at = 0
    while at < len(words) and words[at].startswith("-") and words[at] != "-":
        option = words[at]
        if option[:2] in ("-c", "-m") or (option[1:2] != "-" and option[-1] in "cm"):
            is_text = option[1] == "c" or (option[1] != "m" and option[-1] == "c")
            if option[:2] in ("-c", "-m") and len(option) > 2:
                words[at : at + 1] = [option[:2], option[2:]]
            return "text" if is_text else "module", at + 1
        at += 2 if option in ("-W", "-X") else 1
    return ("input", at) if at >= len(words) or words[at] == "-" else ("file", at)


def _options(words: "list[str]") -> "list[str]":
    """Return the options before a program, without the one that names it."""
    if words and words[-1][:1] == "-" and words[-1][1:2] != "-" and words[-1][-1] in "cm":
        last = words[-1][:-1]
        return [*words[:-1], *([last] if last != "-" else [])]
    return words


def _judges(kind: str, words: "list[str]", places: "list[str]") -> bool:
    """Return whether this process runs something else than a program of the work."""
    if kind in ("text", "input"):
        return True
    if kind == "module":
        return bool(words) and _is_installed(words[0].split(".")[0])
    folder = os.path.dirname(os.path.abspath(words[0]))  # noqa: PTH100, PTH120
    return folder.endswith("/bin") or folder == _HERE or _is_within(folder, places)


def _is_bounded(kind: str, words: "list[str]", places: "list[str]") -> bool:
    """Return whether what this process runs reads of the verifier's folders only what its start names.

    Tests, and what the verifier starts itself to read its own files, read more.
    """
    if kind == "input":
        return False
    if kind == "text":
        return not any(word in words[0] for word in ("stdin", "multiprocessing"))  # it is told what to run
    if kind == "module":
        first = words[0].split(".")[0] if words else ""
        return first != "unittest" and first not in os.environ.get("ROCK_GUARD_TOOLS", "").split(":")
    return not _judges(kind, words, places) or _is_new(words[0])


def _is_new(path: str) -> bool:
    """Return whether a file that is no test came with the work."""
    since, began = (float(os.environ.get("ROCK_GUARD_" + name, "") or 0) for name in ("SINCE", "BEGAN"))
    held = os.environ.get("ROCK_GUARD_HELD", "").split(":")
    if not since or _is_within(os.path.dirname(os.path.abspath(path)), held):  # noqa: PTH100, PTH120
        return False
    try:
        changed = os.stat(path).st_ctime  # noqa: PTH116
    except OSError:
        return True
    return changed >= since and not 0 < began < int(changed)


def _keep_out(words: "list[str]") -> None:
    """Close the verifier's folders, but for what the words name, by the library's own modules, and forget these again."""
    searched, known = sys.path[:], set(sys.modules)
    sys.path[:] = _LIBRARY
    try:
        from walls_rock import close_held, named  # type: ignore[import-not-found]

        names = named(words, os.getcwd(), dict(os.environ), {0})  # noqa: PTH109
        if names is not None:
            close_held(names)
    finally:
        sys.path[:] = searched
        for name in set(sys.modules) - known:
            del sys.modules[name]


def _is_within(folder: str, places: "list[str]") -> bool:
    return any((folder + "/").startswith(place + "/") for place in places)


def _is_installed(module: str) -> bool:
    return module in sys.builtin_module_names or PathFinder.find_spec(module, _LIBRARY + _SITE) is not None


def _runs_unittest(words: "list[str]") -> bool:
    """Return whether this is a run of `python -m unittest` that tests something."""
    return words[0] == "unittest" and not {"-h", "--help"} & set(words)


def _is_grader(kind: str, options: "list[str]", words: "list[str]", places: "list[str]") -> bool:
    """Return whether this process runs a program of the verifier's: a file of its folders, or a text in its script."""
    if "-i" in options:
        return False
    if kind == "file":
        place = os.path.abspath(words[0])  # noqa: PTH100
        return place.endswith(".py") and _is_within(os.path.dirname(place), places)  # noqa: PTH120
    above = _words(str(os.getppid()))
    by_script = any(_is_within(os.path.abspath(word), places) for word in above[:6])  # noqa: PTH100
    return by_script and (kind == "text" or (kind == "input" and not os.isatty(0)))


def _install(own: str) -> None:
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
