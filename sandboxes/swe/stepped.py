"""One run of hidden tests that were split: what goes into the box, and the verdict on what it said.

Used by `grade` for tasks of ours. Nothing that decides enters the box, so nothing there need be guarded: code of the
project that speaks in the place of a step has to know what is expected of it. A run that does not get as far as to load
the project is nobody's failure but ours: `InfraError`.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Mapping, Sequence
from itertools import islice

from rock_env.env import Verdict
from rock_env.errors import InfraError
from rock_env.sandbox import ExecResult
from sandboxes.swe.data import Files
from sandboxes.swe.run_in_box import MAX_SAID_CHARS
from sandboxes.swe.steps import Raised, Said, split
from sandboxes.swe.values import decoded

__all__ = ["SteppedRun", "last_words"]


_BEFORE = 3
"""Lines before the first outcome: ready, found, loaded."""


class SteppedRun:
    """Hidden test files (path, source) on packages in the folder of a project. Raise `Unsplittable`."""

    def __init__(self, hidden: Files, project: str, packages: Sequence[str], wanted: Sequence[str]) -> None:
        self._files = {path: split(source) for path, source in hidden}
        self._where = [(project, package) for package in packages]
        self._wanted = wanted
        self._token = secrets.token_hex(16)
        self._exit_code = 32 + secrets.randbelow(64)
        self.program = f"run-{secrets.token_hex(8)}/run.py"

    def script(self, runner: str) -> bytes:
        """Return the program, from the text of `run_in_box`. It removes itself before all else."""
        files = [(list(file.head), [list(steps) for steps in file.tests]) for file in self._files.values()]
        return f"{runner}\n\ncarry_out(*{(self._token, self._where, files, self._exit_code)!r})\n".encode()

    def verdict(self, result: ExecResult) -> Verdict:
        """Judge what the box said. Raise `InfraError` where the project had no part in how it ended."""
        if result.infra_error:
            raise InfraError(f"the sandbox failed while grading: {result.infra_error}")
        lines = result.stdout.decode(errors="replace").splitlines()
        told = [line.removeprefix(f"{self._token} ") for line in lines]
        if not told or told[0] != "ready":
            raise InfraError(f"cannot grade: Python does not start in this sandbox ({last_words(result)})")
        kind, _, what = told[1].partition(" ") if len(told) > 1 else ("", "", "")
        if kind == "elsewhere":  # of ours: the project has not run yet
            raise InfraError(
                f"cannot grade: this sandbox has another module {what!r}, which hides the project's"
            )
        if told[1:2] == ["found"] and told[-1].startswith("broken "):
            return _unlike(f"{told[-1].removeprefix('broken ')} cannot be imported")
        ended = told[-1] == "end" and result.exit_code == self._exit_code and not result.truncated
        if len(told) != _BEFORE + sum(file.count for file in self._files.values()) + 2 or not ended:
            return _unlike(f"they did not run to their end ({last_words(result)})")
        try:
            failed = self._failed(told[_BEFORE:-1])
        except (ValueError, TypeError, ArithmeticError, RecursionError):
            return _unlike("something else wrote into their report")
        details = f"{len(self._wanted) - len(failed)} of {len(self._wanted)} hidden tests passed"
        if failed:
            details += f"; not: {', '.join(failed)}"
        passed = bool(self._wanted) and not failed
        return Verdict(float(passed), passed=passed, details=details)

    def _failed(self, told: Sequence[str]) -> list[str]:
        """Return the wanted tests that did not pass. Raise `ValueError` and its like for lines of another form."""
        exceptions = _exceptions(told[-1])
        lines = map(_read, told)
        passed = set()
        for path, file in self._files.items():
            read = list(islice(lines, file.count))
            said = Said([outcome for outcome, _ in read], [identity for _, identity in read], exceptions)
            passed |= {f"{path}::{test}" for test in file.claims if file.passed(test, said)}
        return [test for test in self._wanted if test not in passed]


def _read(line: str) -> tuple[object, str]:
    """Return the outcome and the identity that a line says, in bounded time."""
    if len(line) > MAX_SAID_CHARS:
        raise ValueError(f"got a line of {len(line)} characters, expected at most {MAX_SAID_CHARS}")
    kind, _, rest = line.partition(" ")
    if kind == "value":
        identity, _, text = rest.partition(" ")
        return decoded(json.loads(text)), identity
    if kind != "raised":
        raise ValueError(f"got the line {line[:80]!r}, expected an outcome")
    kinds, text = json.loads(rest)
    return Raised(tuple(map(str, kinds)), str(text)), ""


def _exceptions(line: str) -> Mapping[str, str]:
    kind, _, text = line.partition(" ")
    found = json.loads(text)
    if kind != "exceptions" or not isinstance(found, dict):
        raise ValueError(f"got the line {line[:80]!r}, expected the project's exceptions")
    return {name: str(where) for name, where in found.items()}


def _unlike(oddity: str) -> Verdict:
    return Verdict(0.0, passed=False, details=f"the hidden tests did not run as they should: {oddity}")


def last_words(result: ExecResult) -> str:
    """Return how a program ended, with its last line."""
    if result.timed_out:
        return "it took too long"
    end = f"signal {result.signal}" if result.signal is not None else f"exit code {result.exit_code}"
    lines: Sequence[str] = result.stderr.decode(errors="replace").strip().splitlines()
    return f"{end}: {lines[-1]}" if lines else end
