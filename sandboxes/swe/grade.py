"""The grade: hidden tests, run in a new box on the original project with the agent's changed files over it.

Built-in tasks are graded by values (see `stepped`): the box carries out calls, and what is expected of them stays here.
Nothing that the agent leaves can then stand in for a test's verdict, so all of the project's files are taken but its
tests. For other sources one process of Python runs the hidden tests and, mixed among them, canaries (see `canaries`); a
run that is not complete and consistent in every point fails. There only Python files are taken, and none that steers
tests. The project's code does run inside the test process; docs/security.md says what that leaves possible.

A run that does not get as far as to load the project is nobody's failure but ours: `InfraError`.
"""

from __future__ import annotations

import asyncio
import io
import secrets
import stat
import tarfile
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from random import SystemRandom
from typing import Protocol

from rock_env.env import FreshBoxes, Verdict
from rock_env.errors import InfraError, InvalidArgument, NotFound
from rock_env.grading import need_box, steers_tests
from rock_env.sandbox import ExecResult, Sandbox
from sandboxes.swe.canaries import Canaries, make_canaries
from sandboxes.swe.stepped import SteppedRun, last_words
from sandboxes.swe.values import Claims, judge, taken_out

__all__ = ["MAX_BYTES", "MAX_FILES", "Graded", "changed_files", "grade", "packages_of"]

_TIMEOUT_S = 120.0
"""For what waits instead of working; what works is ended by `run_in_box.CPU_S`."""
MAX_FILES = 1000
MAX_BYTES = 16 << 20
"""Of all files of a project that count, also those that are as they were."""
_MAX_OUTPUT_BYTES = 16 << 20
_PROGRAM = "run.py"
_RUNNER = (Path(__file__).parent / "run_in_box.py").read_text()
_SOME_TESTS_FAILED = 1
"""pytest's exit status of a complete run with failures, which the canaries are."""
_ENV = {"PYTEST_ADDOPTS": "", "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PYTHONHASHSEED": "0"}
_RANDOM = SystemRandom()

Files = tuple[tuple[str, bytes], ...]


class Graded(Protocol):
    """What is needed of a task. Files are (path relative to the project or to the hidden tests, content)."""

    @property
    def name(self) -> str:
        """The project's folder."""
        ...

    @property
    def repo(self) -> Files: ...

    @property
    def hidden(self) -> Files: ...

    @property
    def fail_to_pass(self) -> tuple[str, ...]:
        """Tests as `file.py::test`, without a parameter all cases of it."""
        ...

    @property
    def pass_to_pass(self) -> tuple[str, ...]: ...

    @property
    def by_values(self) -> bool:
        """Whether the hidden tests are split and judged here, which evaluates their plain expressions: ours only."""
        ...


class _Refused(Exception):
    """What the agent left cannot be graded at all; the message says why."""


async def grade(box: Sandbox, fresh: FreshBoxes, task: Graded) -> Verdict:
    """Return 1.0 if every hidden test passes, else 0.0. Raise `InfraError` if that cannot be found out."""
    try:
        changed = await changed_files(box, task)
    except _Refused as refused:
        return Verdict(0.0, passed=False, details=str(refused))
    if not changed:
        return Verdict(0.0, passed=False, details="no source file of the package was changed")
    packages = packages_of(task)
    run: SteppedRun | _Run
    if task.by_values:
        run = SteppedRun(task.hidden, task.name, packages, (*task.fail_to_pass, *task.pass_to_pass))
    else:
        run = _Run(task, make_canaries(task.hidden, packages[0], _RANDOM))
    async with fresh.pristine() as other:
        try:
            await other.upload(".", _once(_project(task, run.program, run.script(_RUNNER))))
            try:
                await other.upload(task.name, _once(_tar(changed)))
            except InvalidArgument as error:
                return Verdict(
                    0.0, passed=False, details=f"the changed files cannot be put back: {error.message}"
                )
            result = await other.exec(
                ["rock-python", run.program],
                env=_ENV,
                timeout_s=_TIMEOUT_S,
                max_output_bytes=_MAX_OUTPUT_BYTES,
            )
        except (InvalidArgument, NotFound) as error:
            raise InfraError(f"cannot put the hidden tests into the sandbox: {error}") from error
    return run.verdict(result)


def packages_of(task: Graded) -> tuple[str, ...]:
    """Return the project's packages: its folders that Python can import, without those of tests."""
    folders = {path.partition("/")[0] for path, _ in task.repo if path.endswith("/__init__.py")}
    return tuple(sorted(folder for folder in folders if not steers_tests(folder)))


async def changed_files(box: Sandbox, task: Graded) -> Mapping[str, bytes]:
    """Return the project's files that differ from the original or are new and count, by their path in the project."""
    original = dict(task.repo)
    counts = _is_work if task.by_values else _is_source
    found: dict[str, int] = {}
    for folder in ("", *(f"{package}/" for package in packages_of(task))):  # these also where they are links
        try:
            entries = await box.list_files(f"{task.name}/{folder}".rstrip("/"), recursive=True)
        except NotFound:
            await need_box(box)
            continue  # deleted: the original is graded
        except InvalidArgument as error:
            raise _Refused(f"the project cannot be read: {error.message}") from error
        files = {f"{folder}{entry.path}": entry for entry in entries if stat.S_ISREG(entry.mode)}
        found |= {path: entry.size for path, entry in files.items() if counts(path)}
    if len(found) > MAX_FILES or sum(found.values()) > MAX_BYTES:
        raise _Refused(
            f"the project grew too large: {len(found)} files with {sum(found.values())} bytes that count, "
            f"of at most {MAX_FILES} with {MAX_BYTES}"
        )
    reads = (_read(box, f"{task.name}/{path}", size) for path, size in found.items())
    contents = await asyncio.gather(*reads)
    return {
        path: content for path, content in zip(found, contents, strict=True) if content != original.get(path)
    }


def _is_work(path: str) -> bool:
    """Return whether a file counts that no test's verdict can depend on: not a visible test, nothing hidden, no cache."""
    folders = path.split("/")
    return folders[0] != "tests" and not any(
        name.startswith(".") or name == "__pycache__" for name in folders
    )


def _is_source(path: str) -> bool:
    return path.endswith(".py") and not steers_tests(path)


async def _read(box: Sandbox, path: str, size: int) -> bytes:
    try:
        return await box.read_range(path, offset=0, length=size)
    except (InvalidArgument, NotFound) as error:
        await need_box(box)
        raise _Refused(f"a source file cannot be read: {error.message}") from error


def _project(task: Graded, program: str, script: bytes) -> bytes:
    """Return as a tar what lies in the box before the agent's files come: the project, and no tests."""
    files = {f"{task.name}/{path}": content for path, content in task.repo}
    return _tar(files | {f"{program.rpartition('/')[0]}/pytest.ini": b"[pytest]\n", program: script})


async def _once(content: bytes) -> AsyncIterator[bytes]:
    yield content


@dataclass(frozen=True, slots=True)
class _Outcome:
    """What the lines of a run say."""

    ready: bool
    tests: Mapping[str, str]
    oddity: str
    """Why the run cannot be believed; empty if it can."""


class _Run:
    """One run of the hidden tests: what goes in, and what came out of it."""

    def __init__(self, task: Graded, canaries: Canaries) -> None:
        self._task = task
        self._canaries = canaries
        self._token = secrets.token_hex(16)
        self._folder = f"run-{secrets.token_hex(8)}"
        self._values = f"values_{secrets.token_hex(8)}"
        self._claims = Claims()
        self._exit_code = 32 + secrets.randbelow(64)
        """Of no shell, signal or `sys.exit` by habit: a process that ended elsewhere shows itself."""

    @property
    def _wanted(self) -> tuple[str, ...]:
        return (*self._task.fail_to_pass, *self._task.pass_to_pass)

    @property
    def program(self) -> str:
        """Return the path of the program that runs the tests. It holds them, and removes itself before all else."""
        return f"{self._folder}/{_PROGRAM}"

    def script(self, runner: str) -> bytes:
        """Return the program, from the text of `run_in_box`."""
        packages = [(self._task.name, package) for package in packages_of(self._task)]
        own = {path for path, _ in self._task.hidden}
        tests = [file for file in self._canaries.files if file[0] in own]
        self._claims = Claims()
        inside = dict(self._canaries.files) | dict(taken_out(tests, self._values, self._claims, self._wanted))
        files = [(path, inside[path]) for path, _ in self._canaries.files]
        arguments = (self._token, self._folder, packages, files, self._exit_code, self._values)
        return f"{runner}\n\nrun(*{arguments!r})\n".encode()

    def verdict(self, result: ExecResult) -> Verdict:
        """Judge how the program ended. Raise `InfraError` where the project had no part in it."""
        if result.infra_error:
            raise InfraError(f"the sandbox failed while grading: {result.infra_error}")
        outcome = self._heard(result)
        if not outcome.ready:
            raise InfraError(
                f"cannot grade: pytest does not start in this sandbox ({last_words(result)}). The Python that runs ROCK "
                "must have pytest: pip install pytest."
            )
        wanted = self._wanted
        failed = [test for test in wanted if not _passed(outcome.tests, test)]
        oddity = outcome.oddity
        if result.timed_out:
            oddity = f"they did not finish within {_TIMEOUT_S:g} s"
        elif not oddity:
            oddity = self._lies(outcome.tests)
        if oddity:
            return Verdict(
                0.0, passed=False, details=f"the hidden tests did not run as they should: {oddity}"
            )
        details = f"{len(wanted) - len(failed)} of {len(wanted)} hidden tests passed"
        if failed:
            details += f"; not: {', '.join(failed)}"
        passed = bool(wanted) and not failed
        return Verdict(float(passed), passed=passed, details=details)

    def _heard(self, result: ExecResult) -> _Outcome:
        """Read the lines; each must be ours, in order, and tell something new."""
        lines = result.stdout.decode(errors="replace").splitlines()
        told = [line.removeprefix(f"{self._token} ") for line in lines]
        if not told or told[0] != "ready":
            return _Outcome(ready=False, tests={}, oddity="")
        oddity = ""
        tests: dict[str, str] = {}
        values: list[str] = []
        for line, words in zip(lines[1:], told[1:], strict=True):
            kind, _, what = words.partition(" ")
            if not line.startswith(self._token):
                oddity = "something else wrote into their report"
            elif kind == "elsewhere" and "found" not in told:
                raise InfraError(
                    f"cannot grade: this sandbox has another module {what!r}, which hides the project's"
                )
            elif kind == "broken":
                oddity = oddity or f"{what} cannot be imported"
            elif kind == "changed":
                oddity = oddity or f"the project changed {what}"
            elif kind == "value":
                values.append(what)
            elif kind not in ("found", "loaded", "end"):
                oddity = "a test was reported twice" if what in tests else oddity
                tests[what] = kind if kind != "passed" or judge(self._claims, what, values) else "failed"
                values = []
        end = f"end {_SOME_TESTS_FAILED}"
        if not oddity and (result.truncated or told[-1] != end or result.exit_code != self._exit_code):
            oddity = f"they did not run to their end ({last_words(result)})"
        return _Outcome(ready=True, tests=tests, oddity=oddity)

    def _lies(self, tests: Mapping[str, str]) -> str:
        """Return what is wrong with the canaries; empty if nothing is."""
        if any(not _all_of(tests, test, "failed") for test in self._canaries.must_fail):
            return "a test that cannot pass did not fail"
        if any(not _all_of(tests, test, "passed") for test in self._canaries.must_pass):
            return "a test that cannot fail did not pass"
        return ""


def _tar(files: Mapping[str, bytes]) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        for path, content in files.items():
            member = tarfile.TarInfo(path)
            member.size = len(content)
            tar.addfile(member, io.BytesIO(content))
    return buffer.getvalue()


def _passed(tests: Mapping[str, str], test: str) -> bool:
    return _all_of(tests, test, "passed")


def _all_of(tests: Mapping[str, str], test: str, outcome: str) -> bool:
    """Return whether a test, or all its cases if it has any, ended so."""
    if test in tests:
        return tests[test] == outcome
    cases = [each for name, each in tests.items() if name.startswith(f"{test}[")]
    return bool(cases) and all(each == outcome for each in cases)
