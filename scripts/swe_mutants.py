"""Run the test suites of a package with a bug in it: which tests notice, and what they say.

Used by `swe_tasks.py`. Each run is a forked process of its own, with a limit on processor time and memory, so that a bug
that never ends is found out and costs little. `run` calls the test functions itself, which takes milliseconds; `confirm` is
pytest, as the environment and its grader use it.
"""

from __future__ import annotations

import json
import os
import resource
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import CodeType, TracebackType
from typing import Any

import pytest
from swe_reports import instrumented, report_of

__all__ = ["Run", "Workshop", "workshop"]

_CPU_LIMIT_S = 1
"""A bug with which calling all tests takes so much processor time does not count as one that ends."""
_PYTEST_LIMIT_S = 3
_MEMORY_BYTES = 2 << 30
_SUITES = ("tests", "hidden")


@dataclass(frozen=True, slots=True)
class Run:
    """What one run of all tests of a package showed. Tests are named `test_file.py::test`."""

    ended: bool
    """The package could be imported and both suites ended in time."""
    visible: Mapping[str, bool] = field(default_factory=dict)
    hidden: Mapping[str, bool] = field(default_factory=dict)
    reports: Mapping[str, str] = field(default_factory=dict)
    """What each failing hidden test says in words, where it can."""


class _Notes:
    """A pytest plugin that keeps the outcomes."""

    def __init__(self) -> None:
        self.outcomes: dict[str, bool] = {}

    @pytest.hookimpl
    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Count a test as passed if its set-up, call and tear-down are."""
        self.outcomes[report.nodeid] = self.outcomes.get(report.nodeid, True) and report.passed


class Workshop:
    """A copy of one package in which a file is replaced, run and put back."""

    def __init__(self, package: Path, folder: Path) -> None:
        self.folder = folder
        self._tests: dict[str, tuple[str, CodeType]] = {}
        for path in sorted(package.rglob("*.py")):
            target = folder / path.relative_to(package)
            target.parent.mkdir(parents=True, exist_ok=True)
            text = path.read_text()
            target.write_text(text)
            if path.parent.name in _SUITES and path.name.startswith("test_"):
                code = compile(instrumented(text), str(target), "exec", dont_inherit=True)
                self._tests[f"{path.parent.name}/{path.name}"] = text, code

    def run(self, file: str = "", text: str = "") -> Run:
        """Run all tests with `file` (a path in the package) replaced by `text`."""
        return self._in_a_child(self._call_tests, file, text)

    def confirm(self, file: str = "", text: str = "") -> Run:
        """Do the same with pytest; there are no reports."""
        return self._in_a_child(self._call_pytest, file, text)

    def _in_a_child(
        self, work: Callable[[], tuple[dict[str, bool], dict[str, str]]], file: str, text: str
    ) -> Run:
        target = self.folder / file
        before = target.read_text() if file else ""
        if file:
            target.write_text(text)
        reader, writer = os.pipe()
        child = os.fork()
        if child == 0:
            os.close(reader)
            self._tell(work, writer)
        os.close(writer)
        with os.fdopen(reader, "rb") as stream:
            answer = stream.read()
        _, status = os.waitpid(child, 0)
        if file:
            target.write_text(before)
        if status != 0 or not answer:
            return Run(ended=False)
        outcomes, reports = json.loads(answer)
        parts = [
            {
                key.removeprefix(f"{suite}/"): passed
                for key, passed in outcomes.items()
                if key.startswith(suite)
            }
            for suite in _SUITES
        ]
        return Run(ended=True, visible=parts[0], hidden=parts[1], reports=reports)

    def _tell(self, work: Callable[[], tuple[dict[str, bool], dict[str, str]]], writer: int) -> None:
        """Do the work in this process, write what came of it, and end the process."""
        code = 1
        try:
            limit_s = _CPU_LIMIT_S if work == self._call_tests else _PYTEST_LIMIT_S
            resource.setrlimit(resource.RLIMIT_CPU, (limit_s, limit_s + 1))
            resource.setrlimit(resource.RLIMIT_AS, (_MEMORY_BYTES, _MEMORY_BYTES))
            null = os.open(os.devnull, os.O_RDWR)
            for number in (0, 1, 2):
                os.dup2(null, number)
            os.chdir(self.folder)
            sys.path.insert(0, str(self.folder))
            sys.dont_write_bytecode = True
            answer = json.dumps(work())
            with os.fdopen(writer, "w") as stream:
                stream.write(answer)
            code = 0
        finally:
            os._exit(code)  # a forked process must not go on with its parent's work

    def _call_tests(self) -> tuple[dict[str, bool], dict[str, str]]:
        outcomes: dict[str, bool] = {}
        reports: dict[str, str] = {}
        for key, (text, code) in self._tests.items():
            names: dict[str, Any] = {"__name__": Path(key).stem}
            exec(code, names)
            for name, test in [*names.items()]:
                if not name.startswith("test") or not callable(test):
                    continue
                try:
                    test()
                except (Exception, pytest.fail.Exception) as error:  # noqa: BLE001 - whatever it is, it is the outcome
                    outcomes[f"{key}::{name}"] = False
                    if key.startswith("hidden/"):
                        values = {**names, **_locals_of(error.__traceback__, code.co_filename)}
                        reports[f"{Path(key).name}::{name}"] = report_of(text, name, error, values)
                else:
                    outcomes[f"{key}::{name}"] = True
        return outcomes, reports

    def _call_pytest(self) -> tuple[dict[str, bool], dict[str, str]]:
        notes = _Notes()
        options = ["-q", "-p", "no:cacheprovider", "--import-mode=importlib", f"--rootdir={self.folder}"]
        code = pytest.main([*options, "-c", os.devnull, *_SUITES], plugins=[notes])
        if code not in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED):
            raise RuntimeError(f"pytest ended with {code}")
        return notes.outcomes, {}


def _locals_of(traceback: TracebackType | None, file: str) -> dict[str, Any]:
    """Return the variables of the last frame that is in `file`."""
    found: dict[str, Any] = {}
    while traceback is not None:
        if traceback.tb_frame.f_code.co_filename == file:
            found = dict(traceback.tb_frame.f_locals)
        traceback = traceback.tb_next
    return found


@contextmanager
def workshop(package: Path) -> Iterator[Workshop]:
    """Yield a workshop for one package."""
    with tempfile.TemporaryDirectory() as folder:
        yield Workshop(package, Path(folder).resolve())
