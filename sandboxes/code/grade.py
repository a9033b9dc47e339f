"""The grade: the answer's function, called in a new box; what it returns is compared out here.

The box gets arguments only: no expected result ever enters it, so nothing in it is worth finding. Canaries among the
calls, with numbers nobody can know before, must come back as foretold; a run that is not complete and consistent in
every point fails. A run that does not get as far as to load the answer is nobody's failure but ours: `InfraError`.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from random import SystemRandom

from rock_env.env import FreshBoxes, Verdict
from rock_env.errors import InfraError, InvalidArgument, NotFound
from rock_env.grading import need_box
from rock_env.sandbox import ExecResult, Sandbox
from sandboxes.code.problem import CodeProblem

__all__ = ["ANSWER", "MAX_SOURCE_BYTES", "grade"]

ANSWER = "answer.py"
"""Where the answer lies in the agent's box, in its working folder."""
MAX_SOURCE_BYTES = 64 << 10
_TIMEOUT_S = 60.0
"""For what waits instead of working; what works is ended by `run_in_box.CPU_S`."""
_MAX_OUTPUT_BYTES = 2 << 20
_RUNNER = (Path(__file__).parent / "run_in_box.py").read_text()
_CANARIES = 4
_CANARY = "canary"
_HIDDEN = "hidden"
_RANDOM = SystemRandom()


async def grade(box: Sandbox, fresh: FreshBoxes, problem: CodeProblem) -> Verdict:
    """Return 1.0 if every hidden call returns what it should, else 0.0. Raise `InfraError` if that cannot be found out."""
    try:
        source = await box.read_range(ANSWER, offset=0, length=MAX_SOURCE_BYTES)
    except (InvalidArgument, NotFound):
        await need_box(box)
        return Verdict(0.0, passed=False, details="not answered")
    run = _Run(problem, source.decode(errors="replace"))
    async with fresh.pristine() as other:
        try:
            await other.write_file(run.program, run.script)
        except (InvalidArgument, NotFound) as error:
            raise InfraError(f"cannot put the calls into the sandbox: {error}") from error
        result = await other.exec(
            ["rock-python", run.program], timeout_s=_TIMEOUT_S, max_output_bytes=_MAX_OUTPUT_BYTES
        )
    return run.verdict(result)


@dataclass(frozen=True, slots=True)
class _Told:
    """What the lines of a run say."""

    results: Mapping[str, str]
    """The JSON of each call that returned, by its label."""
    errors: Mapping[str, str]
    oddity: str
    """Why the run cannot be believed; empty if it can."""


class _Run:
    """One run of the hidden calls: what goes in, and what came out of it."""

    def __init__(self, problem: CodeProblem, source: str) -> None:
        self._problem = problem
        self._source = source
        self._token = secrets.token_hex(16)
        self._exit_code = 32 + secrets.randbelow(64)
        """Of no shell, signal or `sys.exit` by habit: a process that ended elsewhere shows itself."""
        self.program = f"run-{secrets.token_hex(8)}/run.py"
        self._hidden = {secrets.token_hex(4): call for call in problem.hidden()}
        self._canaries = {
            secrets.token_hex(4): [_RANDOM.randrange(10**6) for _ in range(3)] for _ in range(_CANARIES)
        }

    @property
    def script(self) -> bytes:
        """Return the program. It removes itself before all else."""
        calls = [(label, _HIDDEN, json.dumps(call.arguments)) for label, call in self._hidden.items()]
        calls += [(label, _CANARY, json.dumps([numbers])) for label, numbers in self._canaries.items()]
        _RANDOM.shuffle(calls)
        arguments = (self._token, self._source, self._problem.name, calls, self._exit_code)
        return f"{_RUNNER}\n\nrun(*{arguments!r})\n".encode(errors="backslashreplace")

    def verdict(self, result: ExecResult) -> Verdict:
        """Judge how the program ended. Raise `InfraError` where the answer had no part in it."""
        if result.infra_error:
            raise InfraError(f"the sandbox failed while grading: {result.infra_error}")
        told = self._heard(result)
        if told.oddity:
            return Verdict(0.0, passed=False, details=f"the function did not run as it should: {told.oddity}")
        wrong = [label for label, call in self._hidden.items() if told.results.get(label) != call.expected]
        details = f"{len(self._hidden) - len(wrong)} of {len(self._hidden)} hidden calls right"
        if raised := sorted({told.errors[label] for label in wrong if label in told.errors}):
            details += f"; raised {', '.join(raised)}"
        return Verdict(0.0 if wrong else 1.0, passed=not wrong, details=details)

    def _heard(self, result: ExecResult) -> _Told:
        """Read the lines; each must be ours and tell something new."""
        lines = result.stdout.decode(errors="replace").splitlines()
        told = [line.removeprefix(f"{self._token} ") for line in lines]
        if not told or told[0] != "ready":
            raise InfraError(f"cannot grade: Python does not start in this sandbox ({_last_words(result)})")
        results: dict[str, str] = {}
        errors: dict[str, str] = {}
        oddity = f"it took longer than {_TIMEOUT_S:g} s" if result.timed_out else ""
        for line, words in zip(lines[1:], told[1:], strict=True):
            kind, _, what = words.partition(" ")
            label, _, value = what.partition(" ")
            if not line.startswith(f"{self._token} "):
                oddity = oddity or "something else wrote into its report"
            elif kind == "broken":
                oddity = oddity or f"the answer does not load ({what})"
            elif kind != "end":
                if label in results or label in errors:
                    oddity = oddity or "a call was reported twice"
                (results if kind == "returned" else errors)[label] = value
        ended = told[-1] == "end" and result.exit_code == self._exit_code and not result.truncated
        if not oddity and not ended:
            oddity = f"it did not come to its end ({_last_words(result)})"
        return _Told(results, errors, oddity or self._lies(results))

    def _lies(self, results: Mapping[str, str]) -> str:
        """Return what is wrong with the canaries; empty if nothing is."""
        for label, numbers in self._canaries.items():
            if results.get(label) != json.dumps([number + 1 for number in reversed(numbers)]):
                return "a call whose result is certain returned another"
        return ""


def _last_words(result: ExecResult) -> str:
    end = f"signal {result.signal}" if result.signal is not None else f"exit code {result.exit_code}"
    lines = result.stderr.decode(errors="replace").strip().splitlines()
    return f"{end}: {lines[-1]}" if lines else end
