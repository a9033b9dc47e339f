"""`ale replay show`: one trajectory, turn by turn, as a person reads it.

Reads only. Token ids and log-probabilities are those of the record, never re-tokenised.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from agent_runtime.store import read_at
from agent_runtime.types import OF_FIRST, OF_GRADE, PolicyVersion, Trajectory, Turn, TurnLabel
from ale.errors import RecordError
from ale.replay.records import find, why_contexts_begin_anew
from ale.replay.rows import Outcomes, rows
from ale.terminal import stdout

__all__ = ["Part", "lines_of", "parts", "said_version", "show_command", "transcript"]

_SHOWN_NOTHING = (TurnLabel.SUMMARY, TurnLabel.THOUGHT)
"""Turns that no observation follows."""


def show_command(where: str, identity: str | None, *, tokens: bool, next_one: Outcomes | None = None) -> None:
    """Print a trajectory, or the first after it that came out as `next_one` says. Raise `RecordError` or `StoreError`."""
    out = stdout()
    chosen = _next(where, identity, next_one) if next_one else find(where, identity)
    for line in transcript(chosen, tokens=tokens, why_anew=why_contexts_begin_anew(where)):
        out.print(line)


def _next(where: str, identity: str | None, outcomes: Outcomes) -> Trajectory:
    if identity is not None:
        find(where, identity)  # says which ids there are
    behind = identity is None
    for path, row in rows(where):
        if behind and outcomes.fits(row):
            return read_at(path, row.offset)
        behind = behind or row.id == identity
    after = f" after {identity!r}" if identity else ""
    raise RecordError(f"no rollout of {where!r}{after} is {outcomes}: there is none to show.")


class Part(NamedTuple):
    """One piece of what is told of a rollout."""

    kind: str
    """A text of several lines: `seen` of the environment, `done` of the policy, `graded` of the grader, `told` of a hint.
    All others are a line of ours: `about`, `start`, `turn`, `tokens`, `artifact`, `title`, `end`, `hosting` and `blank`."""
    text: str = ""
    turn: int | None = None
    """Of the rollout's own turns; None before the first and after the last."""
    file: int | None = None
    """Of an artifact: its place in the record."""


_MARKS = {"seen": "", "done": "> ", "graded": "", "told": ""}
"""What stands before each line of a text."""


def transcript(trajectory: Trajectory, *, tokens: bool, why_anew: str = "") -> Iterator[str]:
    """Yield the lines: what it was, each turn with action, observation and reward, and how it ended.

    `why_anew`: the sentence that says by which setting every turn begins a context, told once and not of each turn.
    """
    for part in parts(trajectory, tokens=tokens, why_anew=why_anew):
        yield from lines_of(part.kind, part.text)


def lines_of(kind: str, text: str) -> list[str]:
    """Return the lines that a part is printed as."""
    if kind not in _MARKS:
        return [text]
    return [f"   {_MARKS[kind]}{line}" for line in text.splitlines() or [""]]


def parts(trajectory: Trajectory, *, tokens: bool, why_anew: str = "") -> Iterator[Part]:
    """Yield what `transcript` prints, piece by piece, for whoever shows it otherwise."""
    yield Part(
        "about",
        f"{trajectory.id}  {trajectory.env} {trajectory.params_json}  task {trajectory.task_id}",
    )
    yield Part(
        "about",
        f"env seed {trajectory.start.env_seed}, sampling seed {trajectory.seed}, step {trajectory.policy_step}",
    )
    if why_anew:
        yield Part("about", why_anew)
    yield from _beginning(trajectory)
    for number in range(len(trajectory.turns)):
        yield from _of_turn(trajectory, number, tokens=tokens, is_explained=bool(why_anew))
    if trajectory.grader_output:
        yield Part("blank")
        yield Part("title", "the grader said:")
        yield Part("graded", trajectory.grader_output)
    yield from _artifacts(trajectory, OF_GRADE)
    yield Part("blank")
    yield Part("end", _ending(trajectory))
    if hosting := trajectory.hosting:
        where = [f"in {hosting.sandbox_id}"] if hosting.sandbox_id else []
        where += [f"of {hosting.image}"] if hosting.image else []
        times = f"made in {hosting.made_s:.3f} s, reset in {hosting.reset_s:.3f} s, graded in {hosting.graded_s:.3f} s"
        yield Part("hosting", " ".join([*where, times]))


def _beginning(trajectory: Trajectory) -> Iterator[Part]:
    start = trajectory.start
    if start.anchor:
        yield Part("start", f"starts after {start.anchor} recorded turns of {start.source_id}:")
        yield Part("seen", start.first_observation)
        for number, recorded in enumerate(start.prefix):
            yield Part("start", f"-- prefix turn {number}")
            yield Part("done", recorded.action)
            yield Part("seen", recorded.observation)
    if start.hint:
        yield Part("start", "was told below the first observation of every context:")
        yield Part("told", start.hint)
    yield Part("blank")
    yield Part("seen", trajectory.first_observation)
    yield from _artifacts(trajectory, OF_FIRST)


def _of_turn(trajectory: Trajectory, number: int, *, tokens: bool, is_explained: bool) -> Iterator[Part]:
    turn = trajectory.turns[number]
    reward = trajectory.turn_rewards[number] if number < len(trajectory.turn_rewards) else None
    fault = trajectory.turn_faults[number] if trajectory.turn_faults else ""
    yield Part("turn", _head(turn, reward, fault, _kind(trajectory, number), is_explained), number)
    if tokens:
        yield from (Part("tokens", line, number) for line in _tokens(turn))
    yield Part("done", trajectory.actions[number], number)
    if number < len(trajectory.observations) and trajectory.label(number) not in _SHOWN_NOTHING:
        yield Part("seen", trajectory.observations[number], number)
    yield from _artifacts(trajectory, number)


def _artifacts(trajectory: Trajectory, turn: int) -> Iterator[Part]:
    """Yield a line for each file that came with a turn, the first observation or the grade."""
    for place, each in enumerate(trajectory.artifacts):
        if each.turn == turn:
            kept = f"not kept: {each.missing}" if each.missing else f"{each.size} bytes, {each.sha256}"
            said = f"   artifact {each.name} ({each.media_type}): {kept}"
            yield Part("artifact", said, turn if turn >= 0 else None, place)


def _kind(trajectory: Trajectory, turn: int) -> str:
    """Return what a turn was for, where that is not an action in the environment."""
    if (label := trajectory.label(turn)) is not TurnLabel.MAIN:
        return f", {label.replace('_', ' ')}"
    return ", memory" if turn in trajectory.internal_turns else ""


def said_version(given: PolicyVersion) -> str:
    """Return which weights sampled a turn, with the tokens of each where there were several."""
    if not isinstance(given, tuple):
        return str(given)
    return " then ".join(f"{version} ({tokens} token{'s' * (tokens != 1)})" for version, tokens in given)


def _head(turn: Turn, reward: float | None, fault: str, kind: str, is_explained: bool) -> str:
    is_expert = turn.oldest_version < 0
    who = "expert" if is_expert else f"policy version {said_version(turn.policy_version)}"
    logprob = "" if is_expert else f", log-probability {np.sum(turn.logprobs):.3f}"
    earned = "" if reward is None else f", reward {reward:g}"
    wrong = f", {fault.replace('_', ' ')}" if fault else ""
    anew = ", context begun anew" if turn.parent is None and turn.index and not is_explained else ""
    return (
        f"-- turn {turn.index}: {who}, {len(turn.completion_ids)} tokens{logprob}{earned}{wrong}{kind}{anew}"
    )


def _tokens(turn: Turn) -> Iterator[str]:
    yield f"   context    {turn.context_ids.tolist()}"
    yield f"   completion {turn.completion_ids.tolist()}"
    if turn.oldest_version >= 0:
        yield f"   logprobs   {[round(float(value), 4) for value in turn.logprobs]}"


def _ending(trajectory: Trajectory) -> str:
    if failure := trajectory.failure:
        return f"failed at turn {failure.turn} ({failure.code}): {failure.message}"
    verdict = "passed" if trajectory.passed else "not passed"
    source = trajectory.reward_source
    giver = (
        f" (of {source.worker} {source.version}; the environment's {source.env_reward:g})" if source else ""
    )
    return (
        f"{trajectory.stop_reason} after {len(trajectory.turns)} turns: {verdict}, reward {trajectory.reward:g}{giver}, "
        f"{trajectory.illegal_actions} illegal actions, {trajectory.duration_s:.2f} s"
    )
