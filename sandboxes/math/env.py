"""One question, one answer, one grade. Made by the env host through `ENV.factory`; one episode at a time."""

from __future__ import annotations

import json

from rock_env.env import Env, Info, StepResult, Verdict
from rock_env.errors import FailedPrecondition, InvalidArgument
from rock_env.spec import EnvParams, TaskSpec
from sandboxes.math.params import MathParams, narrow
from sandboxes.math.problem import MathProblem, parse
from sandboxes.math.verify import MAX_CHARS, NotAnAnswer, read_answer, render

__all__ = ["MathEnv", "make"]


class MathEnv:
    """The first action is the answer and ends the episode. Implements `rock_env.env.Env`."""

    def __init__(self, params: MathParams) -> None:
        self._style = params.style
        self._problem: MathProblem | None = None
        self._answer: str | None = None
        self._said = ""
        self._passed = False
        self._readable = True

    def reset(self, task: TaskSpec, seed: int) -> tuple[str, Info]:
        """Ask the task's question; `seed` changes nothing. Raise `InvalidArgument` if its payload is none."""
        problem = self._ask(task.payload)
        return problem.question(self._style), {"family": problem.family}

    def step(self, action: str) -> StepResult:
        """Take the answer and say whether it is right; what comes later changes nothing."""
        problem = self._asked()
        if self._answer is not None:
            return StepResult(self._said, terminated=True)
        self._judge(problem, action)
        info: Info = {} if self._readable else {"wrong_format": True}
        return StepResult(self._said, 1.0 if self._passed else 0.0, terminated=True, info=info)

    def evaluate(self) -> Verdict:
        """Grade the answer: 1.0 if it is right, else 0.0."""
        self._asked()
        return Verdict(1.0 if self._passed else 0.0, self._passed, self._said or "not answered")

    def snapshot(self) -> bytes:
        """Return the question and the answer, if there is one, as JSON."""
        return json.dumps({"math": self._asked().payload(), "answer": self._answer}).encode()

    def restore(self, state: bytes) -> str:
        """Continue from a snapshot. Raise `InvalidArgument` if it is none."""
        try:
            values = json.loads(state)
            payload, answer = str(values["math"]), values["answer"]
        except (ValueError, KeyError, TypeError) as error:
            raise InvalidArgument(
                f"not a math snapshot: got {state[:40]!r}. Pass the bytes that snapshot() returned."
            ) from error
        problem = self._ask(payload)
        if answer is None:
            return problem.question(self._style)
        self._judge(problem, str(answer))
        return self._said

    def reseed(self, seed: int) -> None:
        """Do nothing: there is no chance here."""

    def close(self) -> None:
        """Forget the episode."""
        self._problem = None

    def _ask(self, payload: str) -> MathProblem:
        self._problem = parse(payload)
        self._answer, self._said, self._passed, self._readable = None, "", False, True
        return self._problem

    def _asked(self) -> MathProblem:
        if self._problem is None:
            raise FailedPrecondition("math has no episode: call reset or restore first.")
        return self._problem

    def _judge(self, problem: MathProblem, action: str) -> None:
        self._answer = action[-MAX_CHARS:]
        expected = render(problem.answer, problem.names)
        try:
            got = read_answer(self._answer, problem.names)
        except NotAnAnswer as error:
            self._readable = False
            self._said = str(error)
            return
        self._passed = got == problem.answer
        self._said = (
            "Right." if self._passed else f"Wrong: expected {expected}, got {render(got, problem.names)}."
        )


def make(params: EnvParams) -> Env:
    """Build one environment."""
    return MathEnv(narrow(params))
