"""Rewards by rule: a pure function of the sample. Two are built in; another is named `package.module:function`.

A rule sees text and task, and must say the same about the same. One that is not ALE's own runs in a worker, `fenced_rule`.
"""

from __future__ import annotations

import asyncio
import hashlib
import importlib
import importlib.util
import json
import re
from collections.abc import Callable, Sequence
from fractions import Fraction
from pathlib import Path
from types import TracebackType
from typing import cast

from rock_env.errors import nearest
from trainer.errors import ConfigError
from trainer.reward.base import Answer, NoAnswer, RewardContext, RewardSpec, Sample, WorkerOptions
from trainer.reward.fenced_rule import FencedRule, failure

__all__ = ["WORKER", "Check", "Rule", "RuleOptions", "final_answer", "find_rule", "legal_turns"]

Check = Callable[[Sample], Answer | NoAnswer]

_NUMBER = re.compile(r"[-+]?[0-9]+(?:/[0-9]+|\.[0-9]+)?")
_THOUSANDS = re.compile(r"[-+]?[0-9]{1,3}(?:,[0-9]{3})+(?:\.[0-9]+)?")
_FRACTION = re.compile(r"(?<![0-9])\\[dt]?frac\{([^{}]*)\}\{([^{}]*)\}(?![0-9])")
"""Beside a digit it is not a number by itself: 2\\frac{1}{2} is not 21/2."""
_BOX = re.compile(r"\\boxed\{([^{}]*)\}")
_MAX_CHARS = 1000
"""An answer is short; digits without end would take Python's time, not the agent's."""


def final_answer(sample: Sample) -> Answer:
    r"""Give 1 if the last action's last \boxed{} (or its last line) is the numbers of the task's answer, else 0.

    They are compared as exact rationals, in order, between commas; `3/4`, `0.75`, `\frac{3}{4}` and `1,234` are numbers,
    `42 apples` is none. The answer is the field `answer` of the task's payload, a number or a list of them, as `math` has
    it. Raise `ConfigError` for a task without one.
    """
    try:
        answer = json.loads(sample.task.payload)["answer"]
        expected = [Fraction(str(value)) for value in (answer if isinstance(answer, list) else [answer])]
    except (ValueError, KeyError, TypeError, ZeroDivisionError) as error:
        raise ConfigError(
            f"task {sample.task.id} of {sample.trajectory.env} has no answer to compare with: expected a payload like "
            f'{{"answer": ["3/4"]}}, got {sample.task.payload[:80]!r}. Route it to another worker with reward.routes.'
        ) from error
    said = _FRACTION.sub(r"\1/\2", sample.trajectory.final_action[-_MAX_CHARS:].strip())
    boxes = _BOX.findall(said)
    text = (boxes[-1] if boxes else said.rpartition("\n")[2]).replace("−", "-").strip(" $.")
    got = _numbers(text, several=len(expected) > 1)
    return Answer(
        reward=float(got == expected), raw=f"expected {', '.join(map(str, expected))}; got {text!r}"
    )


def _numbers(text: str, *, several: bool) -> list[Fraction] | None:
    """Return the numbers of which the text consists, None where it holds anything else."""
    if not several and _THOUSANDS.fullmatch(text):
        text = text.replace(",", "")
    parts = [part.strip() for part in text.split(",")]
    if not all(map(_NUMBER.fullmatch, parts)):
        return None
    try:
        return list(map(Fraction, parts))
    except ZeroDivisionError:
        return None


def legal_turns(sample: Sample) -> Answer:
    """Give each turn that the environment found fault with (`Trajectory.turn_faults`) -1, the others 0."""
    t = sample.trajectory
    return Answer(turn_rewards=tuple(-1.0 if t.is_faulty(turn) else 0.0 for turn in range(len(t.turns))))


_CHECKS: dict[str, Check] = {"final_answer": final_answer, "legal_turns": legal_turns}


class RuleOptions(WorkerOptions):
    """Which rule."""

    check: str
    """`final_answer`, `legal_turns`, or `package.module:function` that takes a `Sample` and returns an `Answer`."""

    @property
    def gives_turn_rewards(self) -> bool:
        """Return whether the rule is one that rewards turns only; of a user's own it is seen when it answers."""
        return self.check == "legal_turns"

    @property
    def fingerprint(self) -> str:
        """Return the digest of the file that a user's own rule stands in: mended, it judges anew."""
        module, colon, _ = self.check.partition(":")
        found = _module_file(module) if colon else None
        return "" if found is None else hashlib.sha256(found.read_bytes()).hexdigest()


class Rule:
    """A `RewardWorker` around one function."""

    batch = 64
    alone = False

    def __init__(self, name: str, check: Check) -> None:
        self._name, self._check = name, check

    async def __aenter__(self) -> Rule:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        pass

    async def reward(self, samples: Sequence[Sample], attempt: int) -> list[Answer | NoAnswer]:
        """Apply the rule, off the event loop. Raise `ConfigError` for one that fails: it would fail again."""
        return await asyncio.to_thread(lambda: list(map(self._applied, samples)))

    def _applied(self, sample: Sample) -> Answer | NoAnswer:
        try:
            return self._check(sample)
        except ConfigError:
            raise
        except Exception as error:  # boundary: a user's function runs here
            raise ConfigError(failure(self._name, sample, f"{type(error).__name__}: {error}")) from error


def _module_file(module: str) -> Path | None:
    """Return the source of a module, None where there is none; what is wrong with its name is said where it is imported."""
    try:
        spec = importlib.util.find_spec(module)
    except (ImportError, AttributeError, ValueError):
        return None
    file = Path(spec.origin) if spec and spec.origin else None
    return file if file and file.is_file() else None


def find_rule(name: str) -> Check:
    """Return a rule by its name. Raise `UnknownName`, or `ConfigError` where it cannot be imported."""
    module, colon, function = name.partition(":")
    if not colon:
        if name not in _CHECKS:
            raise nearest("rule", name, _CHECKS)
        return _CHECKS[name]
    try:
        found = getattr(importlib.import_module(module), function)
    except (ImportError, AttributeError, ValueError) as error:
        raise ConfigError(
            f"cannot find the rule {name!r}: {error}. Name a function in an installed module, as package.module:function."
        ) from error
    return cast("Check", found)


def _build(options: RuleOptions, context: RewardContext) -> Rule | FencedRule:
    del context  # a rule asks nobody
    check = find_rule(options.check)
    return Rule(options.check, check) if options.check in _CHECKS else FencedRule(options.check)


def rule_spec(name: str, check: Callable[[Sample], Answer | float], version: str) -> RewardSpec:
    """Return the reward plugin around a function, which may answer with the bare reward of the outcome.

    Answers kept in a run folder are used again where `version` is the same.
    """

    def answer(sample: Sample) -> Answer:
        found = check(sample)
        return found if isinstance(found, Answer) else Answer(reward=float(found))

    def build(options: WorkerOptions, context: RewardContext) -> Rule:
        del options, context
        return Rule(name, answer)

    summary = (check.__doc__ or "a function of your own").partition("\n")[0]
    return RewardSpec(name=name, summary=summary, version=version, options=WorkerOptions, build=build)


WORKER = RewardSpec(
    name="rule",
    summary="a pure function of the rollout and its task",
    version="2",
    options=RuleOptions,
    build=_build,
)
