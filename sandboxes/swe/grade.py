"""The grade: hidden pytest tests, run in the sandbox on the project as the agent left it.

Called by `SweEnv.evaluate`. The tests enter the box only now, in a folder of their own with their own configuration,
and leave it again. pytest reads nothing of the project's: no conftest.py, no settings, no plugins. The project's code does
run inside the test process, so code written to attack the grader can still do so; see README.md.

A result that cannot be read is the project's fault if a trivial test still passes in the same box, else ours.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from typing import Protocol, runtime_checkable
from xml.etree import ElementTree

from rock_env.env import Verdict
from rock_env.errors import InfraError, InvalidArgument, NotFound
from rock_env.sandbox import ExecResult, Sandbox
from sandboxes.swe.catalog import SweTask

__all__ = ["grade", "run_tests"]

_TIMEOUT_S = 120.0
_MAX_REPORT_BYTES = 1 << 20
_SETTINGS = b"[pytest]\n"
_CONFTEST = """\
import pathlib
import sys

# Last, so that no module of the project stands in for one of Python's or pytest's.
sys.path.append(str(pathlib.Path(__file__).resolve().parents[1] / {project!r}))
"""
_CANARY = (("test_canary.py", b"def test_canary():\n    assert True\n"),)
_ENV = {"PYTEST_ADDOPTS": "", "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PYTHONHASHSEED": "0"}


@runtime_checkable
class CanKillAll(Protocol):
    """A sandbox that can end everything that runs in it, so that nothing changes under the tests."""

    async def kill_all(self) -> None: ...


async def grade(sandbox: Sandbox, task: SweTask) -> Verdict:
    """Return 1.0 if every hidden test passes, else 0.0. Raise `InfraError` if that cannot be found out."""
    if isinstance(sandbox, CanKillAll):
        await sandbox.kill_all()
    result, outcomes = await run_tests(sandbox, task.name, task.hidden)
    if result.timed_out:
        return Verdict(0.0, passed=False, details=f"the hidden tests did not finish within {_TIMEOUT_S:g} s")
    if outcomes is None:
        await _check_grader(sandbox, task.name, result)
        return Verdict(0.0, passed=False, details=f"the project broke the test run ({_last_words(result)})")
    wanted = (*task.fail_to_pass, *task.pass_to_pass)
    failed = [test for test in wanted if outcomes.get(test) is not True]
    passed = not failed and result.exit_code == 0
    details = f"{len(wanted) - len(failed)} of {len(wanted)} hidden tests passed"
    if failed:
        details += f"; not: {', '.join(failed)}"
    return Verdict(1.0 if passed else 0.0, passed=passed, details=details)


async def run_tests(
    sandbox: Sandbox, project: str, tests: tuple[tuple[str, bytes], ...]
) -> tuple[ExecResult, Mapping[str, bool] | None]:
    """Run `tests` on the project; return how pytest ended and each `file.py::test`'s success, or None if unknown."""
    folder, report = f".verify-{secrets.token_hex(8)}", f"report-{secrets.token_hex(8)}.xml"
    try:
        await sandbox.write_file(f"{folder}/pytest.ini", _SETTINGS)
        await sandbox.write_file(f"{folder}/conftest.py", _CONFTEST.format(project=project).encode())
        for path, content in tests:
            await sandbox.write_file(f"{folder}/tests/{path}", content)
        command = [
            "python",
            "-I",
            "-B",
            "-m",
            "pytest",
            "-q",
            "--import-mode=importlib",
            "-p",
            "no:cacheprovider",
        ]
        command += ["-c", f"{folder}/pytest.ini", f"--rootdir={folder}", f"--confcutdir={folder}"]
        command += [f"--junitxml={folder}/{report}", f"{folder}/tests"]
        result = await sandbox.exec(command, env=_ENV, timeout_s=_TIMEOUT_S)
        if result.infra_error:
            raise InfraError(f"the sandbox failed while grading: {result.infra_error}")
        try:
            content = await sandbox.read_file(f"{folder}/{report}")
        except (NotFound, InvalidArgument):
            return result, None
        return result, _outcomes(content)
    except (InvalidArgument, NotFound) as error:
        raise InfraError(f"cannot put the hidden tests into the sandbox: {error}") from error
    finally:
        await sandbox.exec(["rm", "-rf", folder])


async def _check_grader(sandbox: Sandbox, project: str, unreadable: ExecResult) -> None:
    result, outcomes = await run_tests(sandbox, project, _CANARY)
    if outcomes is None or list(outcomes.values()) != [True]:
        raise InfraError(
            f"cannot grade: not even a trivial test runs in this sandbox ({_last_words(result)}; before: "
            f"{_last_words(unreadable)}). The Python that runs ROCK must have pytest: pip install pytest."
        )


def _outcomes(report: bytes) -> Mapping[str, bool] | None:
    # The project's code could have written the report: no entities, no giants.
    if len(report) > _MAX_REPORT_BYTES or b"<!" in report:
        return None
    try:
        cases = list(ElementTree.fromstring(report).iter("testcase"))
    except ElementTree.ParseError:
        return None
    outcomes: dict[str, bool] = {}
    for case in cases:
        test = f"{case.get('classname', '').rpartition('.')[2]}.py::{case.get('name', '')}"
        bad = any(case.find(tag) is not None for tag in ("failure", "error", "skipped"))
        outcomes[test] = outcomes.get(test, True) and not bad
    return outcomes


def _last_words(result: ExecResult) -> str:
    end = f"signal {result.signal}" if result.signal is not None else f"exit code {result.exit_code}"
    lines = (result.stdout + b"\n" + result.stderr).decode(errors="replace").strip().splitlines()
    return f"{end}: {lines[-1]}" if lines else end
