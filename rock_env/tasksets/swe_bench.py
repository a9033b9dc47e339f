"""Reads SWE-bench instances: rows of JSON, JSON lines or parquet; and SWE-smith's, whose patch is the bug.

Written from the data sets' public descriptions. The files come from a local copy of the repository (option `repos`) or
from an image that holds it (option `image`). The agent gets the project at `base_commit` without its history; the grade
is of the tests FAIL_TO_PASS and PASS_TO_PASS, in the files of `test_patch`. What differs from the published harness is in
docs/tasksets.md.
"""

from __future__ import annotations

import json
import posixpath
import re
import shlex
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from pydantic import Field

from rock_env.errors import InvalidArgument
from rock_env.grading.model import Build, GradeIn, Task, TaskFile, Unread, Verifier
from rock_env.grading.work import steers_tests
from rock_env.spec import Resources
from rock_env.tasksets.contexts import Recipe, default_contexts, lay_out, with_image
from rock_env.tasksets.edits import edits_between
from rock_env.tasksets.fields import Fields
from rock_env.tasksets.mirror import Mirror, Scratch, Tree, find_mirror
from rock_env.tasksets.options import ReadOptions
from rock_env.tasksets.rows import read_rows

__all__ = ["SweBenchOptions", "is_swe_bench", "read_swe_bench"]

_LABELS = ("repo", "version", "created_at", "difficulty", "environment_setup_commit", "image_name")
_DATA = {".json", ".png", ".csv", ".txt", ".md", ".jpg", ".jpeg", ".pkl", ".yml", ".yaml", ".toml"}
"""Kinds of files that a test patch brings along and that are no tests."""
_UNITTEST_ID = re.compile(r"\S+ \(([\w.]+)\)")
_ADDRESS_IN_ID = re.compile(r"\[.*\b(?:https?|ftp)://")
_PATH_IN_ID = re.compile(r"\[(?:.*[-=])?/(?:tmp|home|testbed|root|usr|opt|var|build)/")
_NO_TEST = re.compile(r"\[ *\d+%\]")
"""What pytest prints behind a test: two rows of SWE-bench Verified name it as one."""
_PATCHED = re.compile(r"^diff --git a/.* b/(.*)$", re.MULTILINE)
_RUNNERS = ("pytest", "_pytest", "pluggy", "iniconfig", "packaging", "exceptiongroup", "tomli")
_CARRIED_BYTES = 24 << 20
"""Of a project that is carried from box to box; its `.git` comes on top of that."""
_FILLED = ("files", "modules", "tests")
"""What stands in braces in `test_command`."""
_HIDDEN_PATCH = "/tmp/hidden-tests.patch"


class SweBenchOptions(ReadOptions):
    """How SWE-bench and SWE-smith instances are read."""

    repos: Path | None = Field(default=None)
    """Folder with copies of the repositories, named `owner__name` or `owner/name`, bare or not."""
    image: str = Field(default="")
    """With `repos`: the image that the project is put into. Without: the image that holds it already; `{instance_id}`,
    `{repo}` and `{version}` in it are the row's."""
    workdir: str = Field(default="/testbed")
    """Where the project lies in the box."""
    prepare: str = Field(default="")
    """With `repos`: shell command that readies the image, run in the tree of `environment_setup_commit` (if none, of
    `base_commit`)."""
    install: str = Field(default="")
    """Shell command run in the project's folder while the image is built."""
    test_command: str = Field(default="python -m pytest -rA -p no:cacheprovider {files}")
    """How the hidden tests are run: `{files}` are the test files, `{modules}` their dotted names, `{tests}` the tests."""
    parser: str = Field(default="pytest")
    """What reads the tests' output."""
    visible_test_command: str = Field(default="")
    """What the agent's `run_tests` runs; empty: it has no such tool."""
    test_timeout_s: float = Field(default=1800.0, gt=0)
    """Time for the hidden tests."""
    agent_timeout_s: float = Field(default=1800.0, gt=0)
    """Time for the agent."""
    hints: bool = Field(default=False)
    """Tell the agent `hints_text` as well; the benchmark does not."""
    grade_in: Literal["auto", "fork", "pristine"] = Field(default="auto")
    """`pristine`: the tests see the agent's source files and nothing else. `fork`: all its files. `auto`: pristine,
    but where the reference fix itself needs more (removes files, or changes what steers tests) or the project is large."""
    style: Literal["auto", "swe-bench", "swe-smith"] = Field(default="auto")
    """`swe-smith`: `patch` is the bug. `auto`: a row without a field `test_patch` is SWE-smith's."""
    contexts: Path | None = Field(default=None)
    """Where build contexts are laid out; None is the user's cache folder."""


def is_swe_bench(rows: list[dict[str, Any]]) -> bool:
    """Return whether there are instances among rows."""
    return any({"instance_id", "repo", "FAIL_TO_PASS"} <= set(row) for row in rows)


def read_swe_bench(file: Path, options: SweBenchOptions) -> list[Task | Unread]:
    """Read all instances of a file, each by itself. Raise `InvalidArgument` for what concerns them all."""
    if options.repos and not options.image:
        raise InvalidArgument(
            "reading instances with `repos` needs the option `image`: what the project is put into."
        )
    if options.prepare and not options.repos:
        raise InvalidArgument(
            f"the option `prepare` ({options.prepare!r}) runs in a tree of the option `repos`, which is not given: expected "
            "both. Give `repos`, or let `install` do it in the project's folder."
        )
    _filled(options.test_command, dict.fromkeys(_FILLED, ""), "test_command")
    mirrors: dict[str, Mirror] = {}
    return [_read(file, number, row, options, mirrors) for number, row in enumerate(read_rows(file), 1)]


def _read(
    file: Path,
    number: int,
    row: dict[str, Any] | Unread,
    options: SweBenchOptions,
    mirrors: dict[str, Mirror],
) -> Task | Unread:
    if isinstance(row, Unread):
        return row
    which = f"row {number} ({row.get('instance_id', 'no instance_id')})"
    place = f"{file} {which}"
    try:
        fields = Fields(row, file=place, leave_out=options.leave_out)
        return _Instance(fields, options, mirrors, smith=_is_smith(row, options)).task()
    except InvalidArgument as error:
        why = error.message if error.message.startswith(place) else f"{place}: {error.message}"
        return Unread(f"{file.name} {which}", why)


def _is_smith(row: Mapping[str, Any], options: SweBenchOptions) -> bool:
    return options.style == "swe-smith" or (options.style == "auto" and "test_patch" not in row)


@dataclass(frozen=True, slots=True)
class _Start:
    """Where an instance begins and ends."""

    build: Build
    solution: tuple[str, ...]
    files: tuple[TaskFile, ...]
    """For the verifier."""
    before: str
    """Shell commands before the tests."""
    paths: tuple[str, ...]
    """The test files."""
    plain: bool = False
    """The solution is nothing but source files that can be carried into another box."""


class _Instance:
    """One row while it is read."""

    def __init__(
        self, row: Fields, options: SweBenchOptions, mirrors: dict[str, Mirror], *, smith: bool
    ) -> None:
        self._options = options
        self._mirrors = mirrors
        self._smith = smith
        self._place = str(row.file)
        self.id = row.need_text("instance_id")
        self._repo = row.need_text("repo")
        row_labels = {"repo": self._repo} | row.labels(*_LABELS)
        self._row_image = row_labels.get("image_name", "")
        self._setup_commit = row_labels.get("environment_setup_commit", "")
        self._version = row_labels.get("version", "")
        self._commit = row.text("base_commit") or (self._repo.rpartition(".")[2] if smith else "")
        if not self._commit:
            row.lacks("base_commit", "it is missing or empty")
        self._patch = row.need_text("patch", whole=True) if smith else row.text("patch")
        self._test_patch = row.text("test_patch")
        hints = row.text("hints_text").strip()
        said = row.need_text("problem_statement")
        self._instruction = f"{said}\n\nHints:\n{hints}" if hints and options.hints else said
        published = _tests(row, "FAIL_TO_PASS"), _tests(row, "PASS_TO_PASS")
        self._fail, self._pass = (
            tuple(test for test in tests if not _NO_TEST.fullmatch(test)) for tests in published
        )
        if not self._fail:
            row.lacks("FAIL_TO_PASS", "it names no test", "Without one, nothing tells a fix from none.")
        row.end()
        told = _told_apart((*published[0], *published[1]))
        self._labels = tuple(sorted((row_labels | told).items()))

    def task(self) -> Task:
        options = self._options
        start = self._from_mirror() if options.repos else self._from_image()
        grade_in: GradeIn = "pristine" if start.plain else "fork"
        if options.grade_in != "auto":
            grade_in = options.grade_in
        modules = [path.removesuffix(".py").replace("/", ".") for path in start.paths]
        named = (test.partition("[")[0] if _is_cut(test) else test for test in (*self._fail, *self._pass))
        said = (start.paths, modules, tuple(dict.fromkeys(named)))
        words = dict(zip(_FILLED, map(shlex.join, said), strict=True))
        return Task(
            name=self.id,
            instruction=self._instruction,
            build=start.build,
            verifier=Verifier(
                command=("sh", "-c", start.before + _filled(options.test_command, words, "test_command")),
                parser=options.parser,
                files=start.files,
                workdir=options.workdir,
                must_pass=self._fail,
                keep_passing=self._pass,
                cut_at_space=options.parser == "pytest",
                timeout_s=options.test_timeout_s,
                grade_in=grade_in,
            ),
            solution=start.solution,
            workdir=options.workdir,
            test_command=options.visible_test_command,
            resources=Resources(memory_bytes=2 << 30, disk_bytes=4 << 30),
            agent_timeout_s=options.agent_timeout_s,
            labels=self._labels,
            source=f"{'SWE-smith' if self._smith else 'SWE-bench'} {self._place}",
        )

    def _from_mirror(self) -> _Start:
        options = self._options
        assert options.repos is not None  # asked only then
        name = self._repo
        if name not in self._mirrors:
            plain = name.rpartition(".")[0].removeprefix("swesmith/") if self._smith and "." in name else name
            self._mirrors[name] = find_mirror(options.repos, plain.replace("__", "/", 1))
        mirror = self._mirrors[name]
        commit = mirror.commit(self._commit)
        with mirror.scratch() as scratch:
            base = scratch.tree_id(commit)
            start, solved, tested = self._trees(scratch, base)
            trees = [scratch.files(tree) for tree in (start, solved, tested)]
            changed = [path for path in trees[2] if trees[2][path] != trees[0].get(path)]
            gone = [path for path in trees[0] if path not in trees[2]] if not self._smith else []
            held = test_paths((*self._fail, *self._pass), trees[2])
            new = changed if not self._smith else []
            setup = scratch.tree_id(mirror.commit(self._setup_commit)) if self._setup_commit else base
            build = lay_out(
                Recipe(options.image, options.workdir, options.prepare, options.install),
                scratch,
                name=re.sub(r"[^A-Za-z0-9_]+", "-", name),
                tree_id=start,
                prepare_tree_id=setup,
                contexts=options.contexts or default_contexts(),
            )
            return _Start(
                build=build,
                solution=_gold(scratch, trees[0], trees[1]),
                files=self._put(scratch, trees[2], sorted({*new, *held})),
                before=(f"rm -f -- {shlex.join(gone)}\n" if gone else "") + _unshadowed(_is_of(trees)),
                paths=tuple(held) or tuple(path for path in new if posixpath.splitext(path)[1] not in _DATA),
                plain=_is_plain(trees[0], trees[1]),
            )

    def _trees(self, scratch: Scratch, base: str) -> tuple[str, str, str]:
        """Return the trees that the agent begins with, that solve the task, and that hold the hidden tests."""
        if not self._smith:
            solved = scratch.patched(base, self._patch, what=f"{self._place}: patch")
            tested = scratch.patched(base, self._test_patch, what=f"{self._place}: test_patch")
            return base, solved, tested
        broken = scratch.patched(base, self._patch, what=f"{self._place}: patch")
        hidden = test_paths(self._fail, scratch.files(base))  # as the data set's own branches hide them
        return scratch.without(broken, hidden), scratch.without(base, hidden), base

    def _put(self, scratch: Scratch, tree: Tree, paths: list[str]) -> tuple[TaskFile, ...]:
        contents = scratch.contents([tree[path].object_id for path in paths])
        return tuple(
            TaskFile(
                f"{self._options.workdir}/{path}", content, 0o755 if tree[path].mode == "100755" else 0o644
            )
            for path, content in zip(paths, contents, strict=True)
        )

    def _from_image(self) -> _Start:
        """Take the project from an image that holds it, git included."""
        options = self._options
        if self._smith:
            raise InvalidArgument(f"{self._place}: reading SWE-smith instances needs the option `repos`.")
        words = {"instance_id": self.id, "repo": self._repo.replace("/", "__"), "version": self._version}
        image = _filled(options.image, words, "image") or self._row_image
        if not image:
            raise InvalidArgument(
                f"{self._place}: nothing says where the project's files are. Give `repos` (a folder with copies of the "
                "repositories) and `image` (what they are put into), or `image` alone (what holds them)."
            )
        recipe = Recipe(image, options.workdir, install=options.install)
        name = re.sub(r"[^A-Za-z0-9_]+", "-", self.id)
        contexts = options.contexts or default_contexts()
        paths = list(dict.fromkeys(_PATCHED.findall(self._test_patch)))
        listed = shlex.join(paths)
        patch = self._test_patch if self._test_patch.endswith("\n") else f"{self._test_patch}\n"
        before = "base=$(git rev-list --max-parents=0 HEAD | tail -n 1)\n"
        before += f'for file in {listed}; do git checkout -q "$base" -- "$file" 2>/dev/null || rm -f -- "$file"; done\n'
        before += (
            f"git apply --whitespace=nowarn {_HIDDEN_PATCH} || exit 99\n" if self._test_patch.strip() else ""
        )
        before += _unshadowed('git cat-file -e "$base:$path" 2>/dev/null')
        gold = self._patch if self._patch.endswith("\n") else f"{self._patch}\n"
        return _Start(
            build=with_image(recipe, name=name, commit=self._commit, contexts=contexts),
            solution=(f"bash git apply --whitespace=nowarn - <<'END_OF_PATCH'\n{gold}END_OF_PATCH",)
            if self._patch.strip()
            else (),
            files=(TaskFile(_HIDDEN_PATCH, patch.encode()),) if self._test_patch.strip() else (),
            before=before,
            paths=tuple(path for path in paths if posixpath.splitext(path)[1] not in _DATA),
        )


def _is_plain(start: Tree, solved: Tree) -> bool:
    """Return whether the way from one tree to the other can be carried into a box of its own."""
    changed = [path for path in {*start, *solved} if start.get(path) != solved.get(path)]
    kept = all(
        path in solved and solved[path].mode != "120000" and not steers_tests(path) for path in changed
    )
    return kept and sum(blob.size for blob in solved.values()) < _CARRIED_BYTES


def _is_of(trees: Iterable[Tree]) -> str:
    """Return the shell command that tells whether `$path` is at the top of one of the trees."""
    names = sorted({path.split("/")[0] for tree in trees for path in tree})
    return f"""case "$path" in {"|".join(map(shlex.quote, names))}) true ;; *) false ;; esac"""


def _unshadowed(own: str) -> str:
    """Return the shell line that removes what would stand in for a module of Python or of a test runner.

    Tests run in the project's folder, which Python searches first. `own` is a shell command that succeeds where `$path` is
    the project's own.
    """
    names = " ".join(sorted({*sys.stdlib_module_names, *_RUNNERS}))
    return f"""for path in *; do case ' {names} ' in *" ${{path%.py}} "*) {own} || rm -rf -- "$path" ;; esac; done\n"""


def _gold(scratch: Scratch, start: Tree, solved: Tree) -> tuple[str, ...]:
    before = {path: blob for path, blob in start.items() if solved.get(path) != blob}
    after = {path: blob for path, blob in solved.items() if start.get(path) != blob}
    modes = {path: 0o755 if blob.mode == "100755" else 0o644 for path, blob in after.items()}
    told = [
        dict(zip(blobs, scratch.contents([blob.object_id for blob in blobs.values()]), strict=True))
        for blobs in (before, after)
    ]
    return edits_between(told[0], told[1], modes)


def test_paths(tests: Iterable[str], tree: Tree) -> list[str]:
    """Return the files of a tree that tests are in, by their names as pytest and unittest write them."""
    found: dict[str, None] = {}
    for test in tests:
        match = _UNITTEST_ID.match(test)
        if match is None and (path := test.split("::")[0]) in tree:
            found[path] = None
            continue
        parts = (match[1] if match else test).split(".")
        for length in range(len(parts), 0, -1):
            path = "/".join(parts[:length]) + ".py"
            if path in tree:
                found[path] = None
                break
    return list(found)


def _tests(row: Fields, name: str) -> tuple[str, ...]:
    """Take a list of tests, which the published rows hold as JSON in a string."""
    said = row.raw(name)
    if isinstance(said, str):
        try:
            said = json.loads(said) if said.strip() else []
        except (ValueError, RecursionError):
            said = said[:60]
    if not isinstance(said, list | None) or not all(isinstance(test, str) for test in said or ()):
        row.wrong(name, f"got {said!r}, expected a list of tests, or JSON of one", "Correct it.")
        return ()
    return tuple(said or ())


def _is_cut(test: str) -> bool:
    """Return whether a published name ends at the first space of its parameters: `test_x[a` for `test_x[a b]`."""
    return "::" in test and "[" in test.rpartition("::")[2] and not test.endswith("]")


def _told_apart(tests: tuple[str, ...]) -> dict[str, str]:
    """Return, as labels, how many names are not a test's alone: cut, or with a path or an address of one machine."""
    kinds = {
        "tests_cut_at_space": [test for test in tests if _is_cut(test)],
        "tests_named_by_path": [test for test in tests if _PATH_IN_ID.search(test)],
        "tests_that_are_none": [test for test in tests if _NO_TEST.fullmatch(test)],
        "tests_named_by_address": [test for test in tests if _ADDRESS_IN_ID.search(test)],
    }
    return {kind: str(len(found)) for kind, found in kinds.items() if found}


def _filled(template: str, words: Mapping[str, str], option: str) -> str:
    def one(match: re.Match[str]) -> str:
        if match[1] not in words:
            known = ", ".join(f"{{{word}}}" for word in words)
            raise InvalidArgument(f"the option {option} holds {match[0]!r}; known are {known}.")
        return words[match[1]]

    return re.sub(r"\{(\w+)\}", one, template)
