"""`ale replay show`: one trajectory, turn by turn, as a person reads it.

Reads only. Token ids and log-probabilities are those of the record, never re-tokenised.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from agent_runtime.store import read_at
from agent_runtime.types import OF_FIRST, OF_GRADE, PolicyVersion, Trajectory, Turn, TurnLabel
from ale.errors import RecordError
from ale.replay.records import find, why_contexts_begin_anew
from ale.replay.rows import Outcomes, rows
from ale.terminal import stdout

__all__ = ["said_version", "show_command", "transcript"]

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


def transcript(trajectory: Trajectory, *, tokens: bool, why_anew: str = "") -> Iterator[str]:
    """Yield the lines: what it was, each turn with action, observation and reward, and how it ended.

    `why_anew`: the sentence that says by which setting every turn begins a context, told once and not of each turn.
    """
    yield f"{trajectory.id}  {trajectory.env} {trajectory.params_json}  task {trajectory.task_id}"
    yield f"env seed {trajectory.start.env_seed}, sampling seed {trajectory.seed}, step {trajectory.policy_step}"
    if why_anew:
        yield why_anew
    if trajectory.start.anchor:
        yield f"starts after {trajectory.start.anchor} recorded turns of {trajectory.start.source_id}:"
        yield from _indented(trajectory.start.first_observation)
        for number, recorded in enumerate(trajectory.start.prefix):
            yield f"-- prefix turn {number}"
            yield from _indented(recorded.action, mark="> ")
            yield from _indented(recorded.observation)
    if trajectory.start.hint:
        yield "was told below the first observation of every context:"
        yield from _indented(trajectory.start.hint)
    yield ""
    yield from _indented(trajectory.first_observation)
    yield from _artifacts(trajectory, OF_FIRST)
    for number, turn in enumerate(trajectory.turns):
        reward = trajectory.turn_rewards[number] if number < len(trajectory.turn_rewards) else None
        fault = trajectory.turn_faults[number] if trajectory.turn_faults else ""
        yield _head(turn, reward, fault, _kind(trajectory, number), bool(why_anew))
        if tokens:
            yield from _tokens(turn)
        yield from _indented(trajectory.actions[number], mark="> ")
        if number < len(trajectory.observations) and trajectory.label(number) not in _SHOWN_NOTHING:
            yield from _indented(trajectory.observations[number])
        yield from _artifacts(trajectory, number)
    if trajectory.grader_output:
        yield ""
        yield "the grader said:"
        yield from _indented(trajectory.grader_output)
    yield from _artifacts(trajectory, OF_GRADE)
    yield ""
    yield _ending(trajectory)
    if hosting := trajectory.hosting:
        where = [f"in {hosting.sandbox_id}"] if hosting.sandbox_id else []
        where += [f"of {hosting.image}"] if hosting.image else []
        times = f"made in {hosting.made_s:.3f} s, reset in {hosting.reset_s:.3f} s, graded in {hosting.graded_s:.3f} s"
        yield " ".join([*where, times])


def _artifacts(trajectory: Trajectory, turn: int) -> Iterator[str]:
    """Yield a line for each file that came with a turn, the first observation or the grade."""
    for each in trajectory.artifacts:
        if each.turn == turn:
            kept = f"not kept: {each.missing}" if each.missing else f"{each.size} bytes, {each.sha256}"
            yield f"   artifact {each.name} ({each.media_type}): {kept}"


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


def _indented(text: str, *, mark: str = "") -> Iterator[str]:
    for line in text.splitlines() or [""]:
        yield f"   {mark}{line}"


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
