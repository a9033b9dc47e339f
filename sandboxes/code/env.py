"""The rules: a signature and a docstring in, one function out, graded by hidden calls.

Acts only through the sandbox it is handed: the answer is a file there. It keeps the task and whether it was answered.
"""

from __future__ import annotations

import re

from rock_env.env import FreshBoxes, Info, StepResult, Verdict
from rock_env.errors import FailedPrecondition, Unimplemented
from rock_env.sandbox import Sandbox
from rock_env.spec import EnvParams, TaskSpec
from sandboxes.code.catalog import find
from sandboxes.code.grade import ANSWER, MAX_SOURCE_BYTES, grade
from sandboxes.code.params import CodeParams, narrow
from sandboxes.code.problem import CodeProblem

__all__ = ["CodeEnv", "make", "source_of"]

_BLOCK = re.compile(
    r"^[ \t]*```(?:python3?|py)?[ \t]*\n(.*?)^[ \t]*```[ \t]*$", re.DOTALL | re.MULTILINE | re.IGNORECASE
)
_ANSWERED = "\nanswered"


class CodeEnv:
    """The first action is the answer and ends the episode; satisfies `RestorableSandboxEnv` and `FreshGraded`."""

    def __init__(self, params: CodeParams) -> None:
        self._problem: CodeProblem | None = None
        self._answered = False

    async def reset(self, sandbox: Sandbox, task: TaskSpec, seed: int) -> tuple[str, Info]:
        """Ask for the task's function; `seed` changes nothing."""
        self._problem, self._answered = find(task.payload), False
        return self._problem.question(), {"task": self._problem.name, "family": self._problem.family}

    async def step(self, sandbox: Sandbox, action: str) -> StepResult:
        """Take the answer; what comes later changes nothing."""
        problem = self._asked()
        if self._answered:
            return StepResult("Answered already.", terminated=True)
        self._answered = True
        source = source_of(action)
        content = source.encode(errors="replace")
        if len(content) > MAX_SOURCE_BYTES:
            return _no_answer(f"expected at most {MAX_SOURCE_BYTES} bytes, got {len(content)}")
        await sandbox.write_file(ANSWER, content)
        if re.search(rf"^def[ \t]+{problem.name}[ \t]*\(", source, re.MULTILINE) is None:
            return _no_answer(
                f"expected a function that begins with `def {problem.name}(`, got {source[:60]!r}"
            )
        return StepResult(
            f"Taken: {len(source.splitlines())} lines. Hidden calls will grade it.", terminated=True
        )

    async def evaluate(self, sandbox: Sandbox) -> Verdict:
        """Raise `Unimplemented`: this needs a second sandbox."""
        raise Unimplemented("code is graded in a sandbox the agent never touched: call `grade`")

    async def grade(self, box: Sandbox, fresh: FreshBoxes) -> Verdict:
        """Call the function in a new sandbox and compare what it returns, out here, with what it should."""
        return await grade(box, fresh, self._asked())

    def snapshot(self) -> bytes:
        """Return the task and whether it was answered; the answer is in the sandbox."""
        return (self._asked().name + (_ANSWERED if self._answered else "")).encode()

    def restore(self, state: bytes) -> None:
        """Go on from `snapshot()`'s bytes. Raise `UnknownName` if they name no task."""
        text = state.decode(errors="replace")
        self._problem, self._answered = find(text.removesuffix(_ANSWERED)), text.endswith(_ANSWERED)

    def _asked(self) -> CodeProblem:
        if self._problem is None:
            raise FailedPrecondition("code has no episode: reset the environment first")
        return self._problem


def source_of(action: str) -> str:
    """Return the last ``` block of an answer, or the whole of one that has none."""
    blocks = _BLOCK.findall(action)
    return str(blocks[-1]) if blocks else action


def _no_answer(why: str) -> StepResult:
    return StepResult(f"No answer: {why}.", terminated=True, info={"wrong_format": True})


def make(params: EnvParams) -> CodeEnv:
    """Build one environment. Raise `InvalidArgument` for another environment's arguments."""
    return CodeEnv(narrow(params))
