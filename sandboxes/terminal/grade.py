"""The grade: a probe tells what is there, in a copy of the files the agent left, and the host judges what it told.

Nothing of what is expected ever enters a box. The probe runs as `python3 -I -c`, so it lies nowhere in the box and
imports nothing from it.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

from rock_env.env import Verdict
from rock_env.errors import InfraError
from rock_env.sandbox import ExecResult, Sandbox
from sandboxes.terminal.checks import Check

__all__ = ["grade", "judge"]

_TIMEOUT_S = 120.0
_MAX_ANSWER_BYTES = 16 << 20
_MOST_TOLD = 4


@cache
def _probe() -> str:
    return (Path(__file__).parent / "probe.py").read_text(encoding="utf-8")


async def grade(
    box: Sandbox,
    checks: Sequence[Check],
    *,
    folder: str,
    partial: bool,
    processes: Sequence[tuple[Check, str]] = (),
) -> Verdict:
    """Look at the task's folder in `box` and judge, with what became of its processes beforehand.

    Raise `InfraError` if it cannot be looked at at all.
    """
    looks = [dict(check.look) for check in checks]
    result = await _look(box, folder, looks)
    seen = _answer(result, len(looks))
    if seen is None:  # what the agent left may hang or overwhelm the probe: then a look at nothing works
        empty = await _look(box, "/", [])
        if _answer(empty, 0) is None:
            raise InfraError(f"cannot grade: not even an empty look works in this box ({_last_words(empty)})")
        return Verdict(
            0.0, passed=False, details=f"what is there cannot be looked at ({_last_words(result)})"
        )
    known = [check for check, _ in processes], [problem for _, problem in processes]
    return judge([*checks, *known[0]], [*seen, *known[1]], partial=partial)


def judge(checks: Sequence[Check], seen: Sequence[Any], *, partial: bool) -> Verdict:
    """Judge what was seen, one value for each check.

    All must hold for 1.0; with `partial` the reward is the share of those that are no guards, if all guards hold.
    """
    problems = [(check, check.judge(value)) for check, value in zip(checks, seen, strict=True)]
    wrong = [(check, problem) for check, problem in problems if problem]
    passed = not wrong
    reward = 1.0 if passed else 0.0
    if partial and not passed and not any(check.guard for check, _ in wrong):
        goals = sum(not check.guard for check in checks)
        reward = (goals - len(wrong)) / goals
    details = f"{len(checks) - len(wrong)} of {len(checks)} checks passed"
    if wrong:
        details += "; not: " + "; ".join(f"{check.name}: {problem}" for check, problem in wrong[:_MOST_TOLD])
    return Verdict(reward, passed=passed, details=details)


async def _look(box: Sandbox, folder: str, looks: list[dict[str, Any]]) -> ExecResult:
    result = await box.exec(
        ["python3", "-I", "-c", _probe()],
        stdin=json.dumps({"folder": folder, "looks": looks}).encode(),
        timeout_s=_TIMEOUT_S,
        max_output_bytes=_MAX_ANSWER_BYTES,
    )
    if result.infra_error:
        raise InfraError(f"the sandbox failed while grading: {result.infra_error}")
    return result


def _answer(result: ExecResult, count: int) -> list[Any] | None:
    if not result.ok or result.truncated:
        return None
    try:
        seen = json.loads(result.stdout)
    except ValueError:
        return None
    return seen if isinstance(seen, list) and len(seen) == count else None


def _last_words(result: ExecResult) -> str:
    if result.timed_out:
        return "timed out"
    end = f"signal {result.signal}" if result.signal is not None else f"exit code {result.exit_code}"
    lines = result.stderr.decode(errors="replace").strip().splitlines()
    return f"{end}: {lines[-1]}" if lines else end
