"""Rollouts as ATIF documents, one each, and back.

What the format has a place for stands there: texts, token ids of prompts and completions, log-probabilities, calls of
sub-agents. What only we have (groups, starts, versions, hashes, times, faults) stands in `extra` under `ale`, so that a
rollout that was written and read again is equal. A document of somebody else becomes a rollout without a reward.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import msgspec
import numpy as np

from agent_runtime.policy import version_fault
from agent_runtime.types import (
    FloatArray,
    IntArray,
    PolicyVersion,
    Trajectory,
    Turn,
    TurnFault,
    TurnLabel,
)
from ale import __version__
from ale.errors import RecordError
from ale.replay.interchange.atif_model import (
    VERSIONS,
    AtifAgent,
    AtifMetrics,
    AtifObservation,
    AtifResult,
    AtifStep,
    AtifTrajectory,
    ContentPart,
    FinalMetrics,
    SubagentRef,
)
from ale.replay.interchange.foreign import imported
from rock_env.foreign import budget

__all__ = ["atif_of", "decode_atif", "encode_atif", "rollout_of"]

_OURS = "ale"
_OF_TURNS = {
    "turns",
    "actions",
    "observations",
    "observation_hashes",
    "turn_rewards",
    "turn_faults",
    "turn_labels",
    "first_observation",
}
"""Fields of a rollout that stand in its steps."""


# -- out


def encode_atif(trajectory: Trajectory) -> bytes:
    """Return a rollout's document as JSON."""
    return msgspec.json.format(msgspec.json.encode(atif_of(trajectory)), indent=1)


def atif_of(trajectory: Trajectory) -> AtifTrajectory:
    """Return a rollout as ATIF: the first observation is the user's, each turn an agent's step."""
    prompts = _prompts(trajectory.turns)
    main, apart = [], _sub_agents(trajectory)
    ours = {turn for turns in apart for turn in turns}
    main.append(AtifStep(step_id=1, source="user", message=trajectory.first_observation))
    for turn in trajectory.turns:
        if turn.index not in ours:
            main.append(_step(trajectory, turn, prompts[turn.index], step_id=len(main) + 1))
    nested = []
    for number, turns in enumerate(apart):
        name = f"{trajectory.id}/sub-{number}"
        steps = [
            _step(trajectory, trajectory.turns[turn], prompts[turn], step_id=place)
            for place, turn in enumerate(turns, 1)
        ]
        nested.append(
            AtifTrajectory(schema_version=VERSIONS[-1], agent=_agent(), trajectory_id=name, steps=steps)
        )
        before = [step for step in main if _index(step) < turns[0]][-1]
        results = before.observation.results if before.observation else []
        ref = AtifResult(subagent_trajectory_ref=[SubagentRef(trajectory_id=name)])
        before.observation = AtifObservation(results=[*results, ref])
    return AtifTrajectory(
        schema_version=VERSIONS[-1],
        session_id=trajectory.id,
        trajectory_id=trajectory.id,
        agent=_agent(),
        steps=main,
        subagent_trajectories=nested or None,
        final_metrics=FinalMetrics(
            total_prompt_tokens=sum(map(len, prompts.values())),
            total_completion_tokens=trajectory.sampled_tokens,
            total_steps=len(main),
            extra=None if math.isnan(trajectory.reward) else {"reward": trajectory.reward},
        ),
        extra={_OURS: _rollout_fields(trajectory)},
    )


def _agent() -> AtifAgent:
    return AtifAgent(name="ale", version=__version__)


def _rollout_fields(trajectory: Trajectory) -> dict[str, Any]:
    named = {name: getattr(trajectory, name) for name in _field_names() if name not in _OF_TURNS}
    found: dict[str, Any] = _without_nan(msgspec.to_builtins(named))
    return found


def _field_names() -> tuple[str, ...]:
    return tuple(Trajectory.__dataclass_fields__)


def _without_nan(value: Any) -> Any:
    """Return values as JSON can have them: NaN becomes null, which `_ours` reads back."""
    if isinstance(value, Mapping):
        return {name: _without_nan(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [_without_nan(each) for each in value]
    return None if isinstance(value, float) and math.isnan(value) else value


def _prompts(turns: Sequence[Turn]) -> dict[int, IntArray]:
    """Return the whole prompt of each turn: those of the turns it continues, and what came since."""
    found: dict[int, IntArray] = {}
    for turn in turns:
        before = [] if turn.parent is None else [found[turn.parent], turns[turn.parent].completion_ids]
        found[turn.index] = np.concatenate([*before, turn.context_ids]).astype(np.int32)
    return found


def _sub_agents(trajectory: Trajectory) -> list[list[int]]:
    """Return the turns of each sub-agent: those that continue one another."""
    owner: dict[int, list[int]] = {}
    found: list[list[int]] = []
    for turn in trajectory.turns:
        if trajectory.label(turn.index) is not TurnLabel.SUB_AGENT:
            continue
        mine = owner.get(turn.parent) if turn.parent is not None else None
        if mine is None:
            mine = []
            found.append(mine)
        mine.append(turn.index)
        owner[turn.index] = mine
    return found


def _step(trajectory: Trajectory, turn: Turn, prompt: IntArray, *, step_id: int) -> AtifStep:
    at = turn.index
    said = trajectory.observations[at] if at < len(trajectory.observations) else None
    known = bool(np.isfinite(turn.logprobs).all())
    ours: dict[str, Any] = {
        "index": at,
        "parent": turn.parent,
        "finish_reason": turn.finish_reason,
        "policy_version": turn.policy_version,
        "times_s": [turn.started_s, turn.sampled_s, turn.stepped_s],
        "entropy": _without_nan(turn.entropy),
    }
    if at < len(trajectory.observation_hashes):
        ours["observation_hash"] = trajectory.observation_hashes[at].hex()
    if at < len(trajectory.turn_rewards):
        ours["reward"] = _without_nan(trajectory.turn_rewards[at])
    if trajectory.turn_faults:
        ours["fault"] = str(trajectory.turn_faults[at])
    if trajectory.turn_labels:
        ours["label"] = str(trajectory.turn_labels[at])
    return AtifStep(
        step_id=step_id,
        source="agent",
        message=trajectory.actions[at] if at < len(trajectory.actions) else "",
        observation=None if said is None else AtifObservation(results=[AtifResult(content=said)]),
        metrics=AtifMetrics(
            prompt_tokens=len(prompt),
            completion_tokens=len(turn.completion_ids),
            prompt_token_ids=prompt.tolist(),
            completion_token_ids=turn.completion_ids.tolist(),
            logprobs=turn.logprobs.astype(float).tolist() if known else None,
        ),
        llm_call_count=1,
        extra={_OURS: ours},
    )


def _index(step: AtifStep) -> int:
    return int(step.extra[_OURS]["index"]) if step.extra else -1


# -- in


def decode_atif(content: bytes, place: str) -> AtifTrajectory:
    """Read a document. Raise `RecordError` naming the field that is not as the format has it, and `InvalidArgument` for a
    document beyond the budget.
    """
    budget.check_json(content, place)
    try:
        found = msgspec.json.decode(content, type=AtifTrajectory)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise RecordError(f"{place} is no ATIF document: {error}.") from error
    if found.schema_version not in VERSIONS:
        raise RecordError(
            f"{place} has the schema {found.schema_version[:40]!r}, expected {VERSIONS[0]} to {VERSIONS[-1]}."
        )
    if not found.steps:
        raise RecordError(f"{place} has no steps, expected at least one.")
    return found


def rollout_of(document: AtifTrajectory, place: str) -> Trajectory:
    """Return the rollout of a document. Raise `RecordError` for media, and for what contradicts itself."""
    ours = (document.extra or {}).get(_OURS)
    try:
        if isinstance(ours, Mapping):
            return _ours(document, ours)
        return _foreign(document, place)
    except (
        msgspec.MsgspecError,
        ArithmeticError,
        AttributeError,
        LookupError,
        TypeError,
        ValueError,
    ) as error:
        raise RecordError(f"{place} contradicts itself: {type(error).__name__}: {error}.") from error


def _ours(document: AtifTrajectory, ours: Mapping[str, Any]) -> Trajectory:
    nested = [step for each in document.subagent_trajectories or [] for step in each.steps]
    steps = sorted((step for step in (*document.steps, *nested) if step.source == "agent"), key=_index)
    told = [step.extra[_OURS] for step in steps if step.extra]
    prompts = [np.array(_metrics(step).prompt_token_ids, np.int32) for step in steps]
    turns: list[Turn] = []
    for step, own, prompt in zip(steps, told, prompts, strict=True):
        parent = own["parent"]
        if own["index"] != len(turns) or not (parent is None or 0 <= parent < len(turns)):
            raise ValueError(
                f"turn {own['index']} continues {parent}: turns are numbered, and continue earlier ones"
            )
        known = 0
        if parent is not None:
            known = len(prompts[parent]) + len(turns[parent].completion_ids)
        turns.append(_turn(step, own, prompt[known:]))
    said = [answer for step in steps if (answer := _answer(step)) is not None]
    named = {**ours, "reward": math.nan if ours["reward"] is None else ours["reward"]}
    if named["reward_source"] is not None:
        named["reward_source"] = {k: math.nan if v is None else v for k, v in named["reward_source"].items()}
    fields = {name: value for name, value in named.items() if name in _field_names()}
    plain = msgspec.convert({**fields, **_EMPTY}, Trajectory)
    return replace(
        plain,
        first_observation=_text(document.steps[0].message),
        turns=tuple(turns),
        actions=tuple(_text(step.message) for step in steps),
        observations=tuple(said),
        observation_hashes=tuple(
            bytes.fromhex(own["observation_hash"]) for own in told if "observation_hash" in own
        ),
        turn_rewards=tuple(
            math.nan if own["reward"] is None else float(own["reward"]) for own in told if "reward" in own
        ),
        turn_faults=tuple(TurnFault(own["fault"]) for own in told if "fault" in own),
        turn_labels=tuple(TurnLabel(own["label"]) for own in told if "label" in own),
    )


_EMPTY: dict[str, Any] = {
    "turns": [],
    "actions": [],
    "observations": [],
    "observation_hashes": [],
    "turn_rewards": [],
    "first_observation": "",
}


def _metrics(step: AtifStep) -> AtifMetrics:
    return step.metrics or AtifMetrics()


def _answer(step: AtifStep) -> str | None:
    """Return what the environment answered to one of our steps, if it did."""
    results = step.observation.results if step.observation else []
    return _text(results[0].content) if results and results[0].content is not None else None


def _turn(step: AtifStep, own: Mapping[str, Any], context: IntArray) -> Turn:
    metrics = _metrics(step)
    completion = np.array(metrics.completion_token_ids or [], np.int32)
    started, sampled, stepped = own["times_s"]
    version: PolicyVersion = msgspec.convert(own["policy_version"], PolicyVersion)
    if fault := version_fault(version, len(completion)):
        raise ValueError(fault)
    return Turn(
        index=int(own["index"]),
        parent=own["parent"],
        context_ids=context,
        completion_ids=completion,
        logprobs=_floats(metrics.logprobs, len(completion)),
        finish_reason=str(own["finish_reason"]),
        policy_version=version,
        started_s=float(started),
        sampled_s=float(sampled),
        stepped_s=float(stepped),
        entropy=math.nan if own.get("entropy") is None else float(own["entropy"]),
    )


def _text(content: str | Sequence[ContentPart] | None) -> str:
    """Return a text. Raise `RecordError` for images and sounds, which a rollout of text cannot hold."""
    if content is None or isinstance(content, str):
        return content or ""
    media = sorted({part.type for part in content if part.type != "text"})
    if media:
        raise RecordError(
            f"a message holds {' and '.join(media)}, expected text alone: a rollout holds no media."
        )
    return "\n".join(part.text or "" for part in content)


def _foreign(document: AtifTrajectory, place: str) -> Trajectory:
    """Read somebody else's: every agent's step that is no copied context is a turn, all else is what it was told."""
    turns: list[Turn] = []
    actions: list[str] = []
    observations: list[str] = []
    first: list[str] = []
    before: IntArray = np.zeros(0, np.int32)
    for step in document.steps:
        if step.source != "agent":
            if not actions:
                first.append(_text(step.message))
            elif not step.is_copied_context:
                observations[-1] = "\n".join(filter(None, (observations[-1], _text(step.message))))
            continue
        if step.is_copied_context:
            continue
        turn, before = _foreign_turn(step, len(turns), before)
        turns.append(turn)
        actions.append("\n".join(_said(step)))
        results = step.observation.results if step.observation else []
        observations.append(
            "\n".join(_text(result.content) for result in results if result.content is not None)
        )
    name = document.trajectory_id or document.session_id or place
    return imported(
        name,
        env=f"{document.agent.name}@{document.agent.version}",
        task="atif/0",
        group=document.session_id or name,
        first_observation="\n\n".join(first),
        actions=actions,
        observations=observations,
        turns=turns,
    )


def _said(step: AtifStep) -> Iterator[str]:
    """Yield what a step did: its message, then its calls of tools as JSON."""
    if message := _text(step.message):
        yield message
    for call in step.tool_calls or []:
        yield f"{call.function_name} {msgspec.json.encode(call.arguments).decode()}"


def _foreign_turn(step: AtifStep, index: int, before: IntArray) -> tuple[Turn, IntArray]:
    """Return a turn and all tokens up to its end; `before` are those up to the end of the turn before it."""
    metrics = _metrics(step)
    prompt = np.array(metrics.prompt_token_ids or [], np.int32)
    completion = np.array(metrics.completion_token_ids or [], np.int32)
    exact = metrics.logprobs is not None and len(metrics.logprobs) == len(completion)
    goes_on = 0 < len(before) <= len(prompt) and np.array_equal(prompt[: len(before)], before)
    turn = Turn(
        index=index,
        parent=index - 1 if goes_on else None,
        context_ids=prompt[len(before) :] if goes_on else prompt,
        completion_ids=completion,
        logprobs=_floats(metrics.logprobs if exact else None, len(completion)),
        finish_reason="stop",
        policy_version=0 if exact else -1,
    )
    return turn, np.concatenate([prompt, completion])


def _floats(values: Sequence[float] | None, count: int) -> FloatArray:
    """Return log-probabilities, NaN where there are none. Raise `FloatingPointError` for one that single precision lacks."""
    if values is None:
        return np.full(count, np.nan, np.float32)
    with np.errstate(over="raise"):
        return np.array(values, np.float64).astype(np.float32)
