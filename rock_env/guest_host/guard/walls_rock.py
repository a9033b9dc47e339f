"""What the kernel keeps from what a grade's processes start: memory, and files in the verifier's folders.

A process that is not dumpable shows its memory, descriptors and variables to nobody without a capability; a box has none.
Landlock (Linux 5.13) holds for a thread and what it starts, for good. Needs `ctypes`; runs in whatever Python the image has,
from 3.6 on.
"""

import os
import re

if False:  # typing of newer Pythons
    from typing import Any

_SET_DUMPABLE, _GET_NO_NEW_PRIVILEGES = 4, 39
_CREATE, _ADD, _RESTRICT = 444, 445, 446
_READ_FILE = 1 << 2
_PATH_BENEATH = 1
_AT_THE_TOP = re.compile(r"""["'](/[\w.+-]+)["']""")
_FILE_AT_THE_TOP = re.compile(r"""(?:["'=]|(?<!\S))(/[\w+-]+\.\w+)(?:["';)]|(?!\S))""")
_HELD = os.environ.get("ROCK_GUARD_HELD", "").split(":")
_RESULTS = "/logs/verifier"
"""Holds nothing that the verifier brought."""


def _kernel() -> "Any":
    try:
        import ctypes
    except ImportError:
        return None
    kernel = ctypes.CDLL(None)
    return kernel if kernel.prctl(_GET_NO_NEW_PRIVILEGES, 0, 0, 0, 0) == 1 else None


def hide_memory() -> None:
    """Keep other processes from this one's memory. Its own view of itself changes if it is not root: then it stays."""
    if os.geteuid() != 0:
        return
    try:
        import ctypes
    except ImportError:
        return
    ctypes.CDLL(None).prctl(_SET_DUMPABLE, 0, 0, 0, 0)


def close_files(paths: "list[str]", held: "tuple[str, ...]") -> None:
    """Let this thread, and all that it starts, read none of the files, which lie beneath the folders `held`.

    What is made later directly beside them, or directly in `/`, could not be read either: where tests speak of such files,
    they stay open.
    """
    closed = {os.path.realpath(path) for path in paths if os.path.realpath(path).startswith(held)}
    if closed and os.getcwd() != "/" and not _speak_of_new(closed):  # noqa: PTH109
        _close(closed, set())


def held_folders() -> "list[str]":
    """Return the folders of the verifier's that there are and whose files are its own."""
    return [each for each in _HELD if each and each != _RESULTS and os.path.isdir(each)]  # noqa: PTH112


def close_held(names: "set[str]") -> None:
    """Let this thread, and all that it starts, read nothing in the verifier's folders but what is in `names`.

    What is made later directly in `/` it could not read either: where the verifier speaks of such a file, all stays open.
    """
    closed = set(held_folders())
    entries = [entry for folder in closed for entry in os.scandir(folder)]
    scripts = {entry.path for entry in entries if entry.name.endswith((".py", ".sh"))}
    own = {"/" + entry.name for entry in entries}
    if closed and os.getcwd() != "/" and not _speak_of_new(scripts, _FILE_AT_THE_TOP, own):  # noqa: PTH109
        _close(closed, names)


def _close(closed: "set[str]", names: "set[str]") -> None:
    kernel = _kernel()
    if kernel is None:
        return
    import ctypes

    rights = ctypes.c_uint64(_READ_FILE)
    rules = kernel.syscall(_CREATE, ctypes.byref(rights), 8, 0)
    if rules < 0:
        return
    above = {parent for path in closed for parent in _parents(path)}
    for folder in above:
        for entry in os.scandir(folder):
            if entry.path not in closed and entry.path not in above and not entry.is_symlink():
                _open_up(kernel, rules, entry.path)
    for path in names:
        _open_up(kernel, rules, path)
    kernel.syscall(_RESTRICT, rules, 0)
    os.close(rules)


def _speak_of_new(paths: "set[str]", form: "Any" = _AT_THE_TOP, known: "set[str]" = frozenset()) -> bool:  # type: ignore[assignment]
    for path in paths:
        try:
            with open(path, encoding="utf-8", errors="replace") as file:  # noqa: PTH123
                found = set(form.findall(file.read())) - known
        except OSError:  # it is closed already
            continue
        if not all(os.path.exists(each) for each in found):  # noqa: PTH110
            return True
    return False


def _parents(path: str) -> "list[str]":
    folder = os.path.dirname(path)  # noqa: PTH120
    return [folder] if folder == "/" else [folder, *_parents(folder)]


def _open_up(kernel: "Any", rules: int, path: str) -> None:
    import ctypes

    class Beneath(ctypes.Structure):
        _pack_ = 1
        _fields_ = [("rights", ctypes.c_uint64), ("descriptor", ctypes.c_int32)]

    try:
        descriptor = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except OSError:
        return
    kernel.syscall(_ADD, rules, _PATH_BENEATH, ctypes.byref(Beneath(_READ_FILE, descriptor)), 0)
    os.close(descriptor)


# -- what a start names


def named(
    words: "list[str]", folder: str, variables: "dict[str, str]", descriptors: "set[int]"
) -> "set[str] | None":
    """Return the paths in the verifier's folders that a start of a program names; None where it is to read all.

    It names them by its arguments, its variables and the files open as its `descriptors`. It is to read all where it starts
    in such a folder, and where it is given a program there.
    """
    held = held_folders()
    if any((folder + "/").startswith(each + "/") for each in held):
        return None
    found = set()
    for word in words:
        paths = _paths(word, held)
        if ".." in word:
            paths |= _paths(os.path.normpath(os.path.join(folder, word)), held)  # noqa: PTH118
        if any(path.endswith((".py", ".sh")) or _is_program(path) for path in paths):
            return None
        found |= paths
    for name, value in variables.items():
        if not name.startswith("ROCK_GUARD"):
            spoken_of = any(re.search(r"\b" + re.escape(name) + r"\b", word) for word in words)
            found |= _paths(value, held) - (set() if spoken_of else set(held))
    for descriptor in descriptors:
        try:
            path = os.readlink("/proc/self/fd/%d" % descriptor)  # noqa: PTH115, UP031
        except OSError:
            continue
        if path.startswith(tuple(each + "/" for each in held)):
            found.add(path)
    return found


def _paths(text: str, held: "list[str]") -> "set[str]":
    """Return the paths in a text that lie in these folders; of one that there is not, the folder that there is."""
    found = set()
    for folder in held:
        for path in re.findall(r"(?<![\w./-])" + re.escape(folder) + r"(?![\w.-])(?:/[\w.+@%=~-]*)*", text):
            while not os.path.exists(path):  # noqa: PTH110
                path = os.path.dirname(path)  # noqa: PTH120
            found.add(os.path.realpath(path))
    return found


def _is_program(path: str) -> bool:
    """Return whether the kernel could start a file, which takes more than its mode: data may be executable by mistake."""
    if not os.path.isfile(path) or not os.access(path, os.X_OK):  # noqa: PTH113
        return False
    try:
        with open(path, "rb") as file:  # noqa: PTH123
            return file.read(4).startswith((b"#!", b"\x7fELF"))
    except OSError:
        return True
