"""Which of an agent's changes to its box could steer the grade: what runs a grade, and the settings it reads.

Pure: whoever takes an agent's files over into a clean box asks it about each change, relative to the image: a backend that
sees both boxes' layers, or the clean box's own guest (`changes`). What is refused stays as the image has it. Everything else
is work and comes along: packages that were installed, modules that were rewritten, files anywhere. `docs/grading.md` has the
list in words.
"""

from __future__ import annotations

import itertools
import re
import sys
import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

__all__ = ["DEFAULT_FOLDERS", "MOST_READ", "REFUSED", "TOLD", "Change", "Kind", "Steering", "without_pytest"]

Kind = Literal["nothing", "folder", "other"]
MOST_READ = 1 << 20
"""Of a file that is judged by its content; a larger one is refused."""
REFUSED = "refused"
TOLD = ("runs", "asked", "modules", "places", "tools", "named", "held")
"""Fields of `Steering` that a grade says, beside the folder; the box itself finds the others."""

DEFAULT_FOLDERS = (
    *(f"{place}{kind}" for place in ("", "usr/", "usr/local/") for kind in ("bin", "sbin")),
    "etc/alternatives",
)
_HOME = r"(?:root/|home/[^/]+/)?"
_ROOTS = re.compile(r"(?:usr/|usr/local/)?(?:s?bin|lib(?:32|64|x32)?)|usr|usr/local|etc")
_OWN_PROGRAMS = re.compile(r"(?:^|.*/)\.local/bin/[^/]+")
_RUNNERS = re.compile(
    r"(?:python|pypy|pip)[\d.]*|pytest|py\.test|uvx?|tox|nox|coverage|env|sh|bash|dash|ash|zsh|ksh|busybox"
)
"""Programs that run grades. A new one is refused; that of the image stays in any case."""
_LIBRARY = re.compile(r"(?:usr/)?(?:local/)?lib(?:32|64|x32)?/(?:[^/]+-linux-[^/]+/)?[^/]*\.so(?:\.[\d.]+)?")
_ETC = re.compile(
    r"etc/(?:ld\.so\..*|ld-musl.*|nsswitch\.conf|profile(?:\.d/.*)?|bash\.bashrc|bashrc|environment|zsh.*|csh.*|inputrc"
    r"|apt/.*|pip\.conf|uv/.*|ssl/openssl\.cnf)"
    r"|usr/lib/ssl/openssl\.cnf|(?:.*/)?gconv/.*"
)
_STDLIB = re.compile(r"(?:^|.*/)lib(?:32|64)?/(?:python|pypy)[\d.]*/(?!(?:site|dist)-packages(?:/|$)).+")
_ZIPPED = re.compile(r"(?:^|.*/)lib(?:64)?/python\d+\.zip|(?:usr/|usr/local/)?(?:bin/)?pyvenv\.cfg")
_SITE = re.compile(r"(?:^|.*/)(?:site|dist)-packages/(.+)")
_TEST_PACKAGE = re.compile(
    r"(?:_?pytest|py|pluggy|iniconfig|exceptiongroup|xdist|unittest2|nose2?|pytest[-_][^/]*)"
    r"(?:/.*|\.py|\.pth|-[^/]*\.(?:dist|egg)-info(?:/.*)?)?",
    re.IGNORECASE,
)
_STARTS = re.compile(r"(?:^|.*/)(?:sitecustomize|usercustomize)(?:\.py|\.[^/]*\.so|\.so)?(?:/.*)?")
_COMPILED = re.compile(r"(?:^|.*/)__pycache__(?:/.*)?")
_SHELL = re.compile(
    rf"{_HOME}\.(?:bashrc|bash_profile|bash_login|bash_logout|bash_env|profile|zshenv|zshrc|zprofile|zlogin|kshrc|inputrc"
    r"|curlrc|wgetrc|netrc|npmrc|pypirc|pydistutils\.cfg)"
)
_DOWNLOADS = re.compile(
    rf"{_HOME}\.(?:config/pip|config/uv|config/pypoetry|pip|cache/uv|cache/pip|local/share/uv/tools)(?:/.*)?"
)
_PYTEST = re.compile(r"(?:^|.*/)(?:conftest\.py|\.?pytest\.(?:ini|toml)|tox\.ini)")
_MIXED = re.compile(r"(?:^|.*/)(?:pyproject\.toml|setup\.cfg)")
_ENTRY_POINTS = re.compile(r"(?:^|.*/)[^/]*\.(?:dist|egg)-info/entry_points\.txt")
_NODE = re.compile(
    r"(?:^|.*/)node_modules/(?:\.bin|jest|jest-[^/]*|@jest|vitest|@vitest|mocha|chai|expect)(?:/.*)?"
)
_PTH_CODE = re.compile(rb"^import[ \t]", re.MULTILINE)
_SECTION = re.compile(r"^\s*\[+\s*([^\]]*?)\s*\]+\s*(?:[#;].*)?$")
_PYTEST_SECTION = re.compile(r"tool\.pytest(?:\..*)?|tool:pytest|pytest")
_WITHOUT_PYTHON = frozenset(
    {*sys.stdlib_module_names, "pytest", "_pytest", "pluggy", "iniconfig", "packaging", "pygments"}
)
"""Modules that a run of tests may import, where nobody asked the image's own interpreter."""
_MODULE = re.compile(r"(?:(.*)/)?(?!__init__\.)([A-Za-z_]\w*)(?:/__init__)?(?:\.[\w-]+)?\.(?:py|pyc|so)")
_KERNEL = ("proc", "sys", "dev")
_DEVICES = re.compile(r"dev/(?:null|zero|full|u?random|tty|std(?:in|out|err)|fd|shm)(?:/.*)?")


class Change(NamedTuple):
    """One change of an agent's, relative to the image."""

    path: str
    """Without the first slash."""
    was: Kind
    now: Kind
    """`nothing`: it was removed."""
    inside: bool = True
    """The folder it lies in is the image's."""
    venv: bool = False
    """It lies in the program folder of a virtual environment of the image's."""
    leads: str | None = None
    """Where it leads, of a link."""
    special: bool = False
    """It is a pipe, a socket or a device."""


@dataclass(frozen=True, slots=True)
class Steering:
    """What is refused of the changes to a box, for one task."""

    runs: frozenset[str] = frozenset()
    """Programs that the verifier's scripts name: a new one of such a name is refused."""
    asked: frozenset[str] = frozenset()
    """Words and absolute paths of the task: a new file of such a name is the agent's work, and so is a known one whose
    path, or whose name with an ending, is among them, unless it runs grades. Of a program that the image has and the
    verifier names, a new one is the agent's only by its path."""
    workdir: str = ""
    """The agent's folder, without the first slash."""
    programs: frozenset[str] = frozenset()
    """Names in the image's program folders."""
    folders: frozenset[str] = frozenset(DEFAULT_FOLDERS)
    """The image's program folders, without the first slash."""
    libraries: frozenset[str] = frozenset()
    """Names of the image's shared libraries."""
    modules: frozenset[str] = _WITHOUT_PYTHON
    """Modules that the image's Python finds without the work: a new one of such a name, where tests look for modules, is
    refused."""
    places: frozenset[str] = frozenset()
    """Further folders in which tests look for modules, without the first slash."""
    tools: frozenset[str] = frozenset()
    """Entries of the image's site-packages that judge the work: test tools, what these need, and what the tests import."""
    named: frozenset[str] = frozenset()
    """Words of all the verifier's files: programs that it may start are among them."""
    held: frozenset[str] = frozenset()
    """Folders of the verifier's, without the first slash: no link may lead to them."""

    @classmethod
    def of(
        cls, runs: Sequence[str], asked: Sequence[str], workdir: str, image: Mapping[str, Sequence[str]]
    ) -> Steering:
        """Return what is refused for a task; `image`: by the names of fields here, what its image told of itself."""
        more: dict[str, Any] = {name: frozenset(image[name]) for name in TOLD if name in image}
        told = {"runs": frozenset(runs), "asked": frozenset(asked), **more}
        return cls(**told, workdir=workdir.strip("/"))

    def judge(
        self, change: Change, read: Callable[[], bytes | None], known: Callable[[], bytes | None]
    ) -> str | bytes | None:
        """Return None for work, `REFUSED`, or the content that a file is to have in place of its own.

        `read` and `known` return the content of the agent's file and of the image's; None where it is no file, or larger
        than `MOST_READ`.
        """
        path = change.path
        name = path.rpartition("/")[2]
        if change.special or (change.leads is not None and self._leads_out(change)):
            return REFUSED
        if self._asked(change, name):
            return None
        if self._runs_grades(change, name):
            return REFUSED
        if change.now == "nothing":
            return None
        if change.now == "folder":
            return None
        if _PYTEST.fullmatch(path) or self._in_the_way(change, name):
            return REFUSED
        if path.endswith(".pth"):
            content = read()
            return REFUSED if content is None or _PTH_CODE.search(content) else None
        if _ENTRY_POINTS.fullmatch(path):
            content = read()
            return REFUSED if content is None or b"pytest11" in content else None
        return _mixed(read(), known()) if _MIXED.fullmatch(path) else None

    def _asked(self, change: Change, name: str) -> bool:
        if _MIXED.fullmatch(change.path):
            return False
        if change.was == "nothing":
            if self._is_program(change) and name in self.programs and self._is_started(name):
                return f"/{change.path}" in self.asked and not _RUNNERS.fullmatch(name)
            return name in self.asked
        named = f"/{change.path}" in self.asked or ("." in name and name in self.asked)
        return named and not _RUNNERS.fullmatch(name)

    def _runs_grades(self, change: Change, name: str) -> bool:
        """Return whether it is a part of what runs grades, or stands in the place of one."""
        path, was, now, inside = change[:4]
        if _ROOTS.fullmatch(path):
            return was != "nothing" and not (was == now == "folder")
        if self._is_program(change):
            return was != "nothing" or self._stands_for(name)
        if _LIBRARY.fullmatch(path):
            return was != "nothing" or name in self.libraries
        if now == "folder" == was:
            return False
        found = _SITE.fullmatch(path)
        return bool(
            _ETC.fullmatch(path)
            or (inside and _STDLIB.fullmatch(path))
            or (inside and _ZIPPED.fullmatch(path))
            or (found and (_TEST_PACKAGE.fullmatch(found[1]) or self._is_tool(found[1])))
            or _STARTS.fullmatch(path)
            or _COMPILED.fullmatch(path)
            or _SHELL.fullmatch(path)
            or _DOWNLOADS.fullmatch(path)
            or (was != "nothing" and _NODE.fullmatch(path))
        )

    def _is_program(self, change: Change) -> bool:
        """Return whether it is in a folder in which programs are looked for."""
        path = change.path
        found = path.rpartition("/")[0] in self.folders or change.venv or _OWN_PROGRAMS.fullmatch(path)
        return change.now != "folder" and bool(found)

    def _is_started(self, name: str) -> bool:
        return name in self.runs or name in self.named or _RUNNERS.fullmatch(name) is not None

    def _stands_for(self, name: str) -> bool:
        return name in self.programs or name in self.runs or _RUNNERS.fullmatch(name) is not None

    def _is_tool(self, path: str) -> bool:
        """Return whether something in site-packages belongs to what judges the work."""
        first = path.partition("/")[0]
        return first in self.tools or first.partition(".")[0] in self.tools

    def _in_the_way(self, change: Change, name: str) -> bool:
        """Return whether it is a new module that would be imported in place of one that is not the work's.

        A folder alone is none: a module anywhere comes before a folder without `__init__.py`.
        """
        if change.was != "nothing" or change.now == "folder":
            return False
        folder, module = change.path.rpartition("/")[0], name
        if found := _MODULE.fullmatch(change.path):
            folder, module = found[1] or "", found[2]
        elif change.leads is None:
            return False
        return module in self.modules and module != "test" and self._is_searched(folder)

    def _is_searched(self, folder: str) -> bool:
        """Return whether tests look for modules in a folder."""
        own = f"{self.workdir}/" if self.workdir else ""
        return folder in ("", self.workdir, f"{own}src", f"{own}lib") or folder in self.places

    def _leads_out(self, change: Change) -> bool:
        """Return whether a link leads to what is not the work's: the verifier's folders, or the kernel's."""
        assert change.leads is not None
        parts = change.leads.split("/")
        inner = [part for part in parts if part not in ("", ".")]
        if ".." in itertools.dropwhile(lambda part: part == "..", inner):
            return True  # a name and then "..": where that leads depends on other links
        above = [] if change.leads.startswith("/") else change.path.split("/")[:-1]
        for part in inner:
            above = above[:-1] if part == ".." else [*above, part]
        end = "/".join(above)
        if end.split("/")[0] in _KERNEL:
            return _DEVICES.fullmatch(end) is None
        return not end or any(
            f"{place}/".startswith(f"{end}/") or end.startswith(f"{place}/") for place in self.held
        )


def _mixed(own: bytes | None, known: bytes | None) -> str | bytes | None:
    """Return what becomes of a file that has settings of pytest beside others: they are the image's, or none."""
    if own is None:
        return REFUSED
    rest, settings = without_pytest(own.decode(errors="replace"))
    before = without_pytest((known or b"").decode(errors="replace"))[1]
    if settings.split() == before.split() and not _hidden_settings(rest):
        return None
    return REFUSED if _hidden_settings(rest) else (rest + before).encode()


def _hidden_settings(rest: str) -> bool:
    """Return whether there are settings of pytest in another form than as sections, such as dotted keys."""
    try:
        tool = tomllib.loads(rest).get("tool", {})
    except (tomllib.TOMLDecodeError, RecursionError):
        return False  # no TOML: then they are sections
    return isinstance(tool, dict) and "pytest" in tool


def without_pytest(text: str) -> tuple[str, str]:
    """Return a settings file without its sections of pytest, and these sections."""
    rest: list[str] = []
    settings: list[str] = []
    ours = False
    for line in text.splitlines(keepends=True):
        found = _SECTION.match(line)
        if found:
            ours = _PYTEST_SECTION.fullmatch(found[1].replace('"', "").replace("'", "")) is not None
        (settings if ours else rest).append(line)
    return "".join(rest), "".join(settings)
