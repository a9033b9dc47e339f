"""Expert trajectories: a reference solution plays through the same turn loop as the policy.

Nothing is sampled: log-probabilities are NaN, the policy version is -1, and the tokens are the template's encoding of
the actions. What was recorded before is retold in another template's tokens by the same code.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from typing import TypeVar

import numpy as np

from agent_runtime.agent import Move
from agent_runtime.agents.conversation import Prompt, open_conversation
from agent_runtime.policy import ChatTemplate
from agent_runtime.run import Rock, rollout
from agent_runtime.types import (
    AgentConfig,
    IntArray,
    RolloutRequest,
    SamplingParams,
    Trajectory,
    Turn,
    TurnFault,
    TurnLabel,
)
from rock_env.env import Oracle, observation_hash

__all__ = ["OracleAgent", "record_expert", "retell"]

_Value = TypeVar("_Value")

EXPERT_VERSION = -1
"""The policy version of a turn that no policy sampled."""


class OracleAgent:
    """An `Agent` that does what an oracle says."""

    def __init__(
        self, request: RolloutRequest, instruction: str, *, oracle: Oracle, template: ChatTemplate
    ) -> None:
        self._oracle = oracle
        self._template = template
        self._chat = open_conversation(
            request.agent,
            request.start,
            template,
            instruction=instruction,
            max_tokens=request.sampling.max_tokens,
        )
        self._summary_tokens = request.agent.summary_tokens
        self._waiting: str | None = None
        """What the oracle has yet to answer, where a summary came between."""
        self._done: list[str] = []

    async def act(self, observation: str) -> Move | None:
        """Ask the oracle; None when its answer would exceed the model's context.

        Where a summary is due, it says what was done so far: no oracle has words for it.
        """
        prompt = self._chat.observe(observation)
        if prompt.label is TurnLabel.SUMMARY:
            self._waiting = observation
            action, completion_ids = self._summary(prompt)
        else:
            shown = observation if self._waiting is None else self._waiting
            self._waiting = None
            action = await asyncio.to_thread(self._oracle, shown)  # a search may take long
            completion_ids = self._template.encode_completion(action, prompt.ids)
            self._done.append(action)
        if len(prompt.ids) + len(completion_ids) > self._template.max_context:
            return None
        reply = self._chat.answer(completion_ids, closed=True, text=action)
        return Move(
            action,
            prompt.parent,
            prompt.context_ids,
            completion_ids,
            np.full(len(completion_ids), np.nan, np.float32),
            "expert",
            EXPERT_VERSION,
            reply,
        )

    def _summary(self, prompt: Prompt) -> tuple[str, IntArray]:
        """Return text and tokens of a summary: the actions done, their older half left out until it fits."""
        told = self._done
        while True:
            text = f"Done so far: {' | '.join(told)}"
            ids = self._template.encode_completion(text, prompt.ids)
            if len(ids) <= self._summary_tokens or not told:
                return text, ids
            told = told[(len(told) + 1) // 2 :]


async def record_expert(
    request: RolloutRequest, *, rock: Rock, oracle: Oracle, template: ChatTemplate, policy_step: int = 0
) -> Trajectory:
    """Run `oracle` where `run_rollout` runs the policy. Nothing is sampled; `request.seed` has no effect."""

    def agent(instruction: str) -> OracleAgent:
        return OracleAgent(request, instruction, oracle=oracle, template=template)

    return await rollout(request, agent, rock=rock, policy_step=policy_step)


async def retell(
    trajectory: Trajectory,
    name: str,
    *,
    template: ChatTemplate,
    agent: AgentConfig,
    instruction: str,
    max_tokens: int,
) -> Trajectory | None:
    """Return what somebody did as an expert's trajectory in the tokens of `template`, under the id `name`.

    Actions, observations and grade stay. Notes and summaries belong to the contexts of then: they are left out, and an
    agent that needs summaries gets an oracle's. None where a turn would exceed the model's context.
    """
    request = RolloutRequest(
        id=name,
        env=trajectory.env,
        params_json=trajectory.params_json,
        task_id=trajectory.task_id,
        group_id=name,
        index=0,
        seed=trajectory.seed,
        agent=agent,
        sampling=SamplingParams(max_tokens=max_tokens),
        start=trajectory.start,
    )
    kept = trajectory.env_turns
    actions = iter([trajectory.actions[turn] for turn in kept])
    teller = OracleAgent(request, instruction, oracle=lambda observation: next(actions), template=template)
    told: list[tuple[Move, int | None]] = []
    shown = trajectory.first_observation
    for source in kept:
        while True:
            move = await teller.act(shown)
            if move is None:
                return None
            told.append((move, source if move.reply is None else None))
            if move.reply is None:
                break
            if move.reply.label is not TurnLabel.SUMMARY:
                return None  # an action that this agent would take for a call of its memory
            shown = move.reply.text
        shown = trajectory.observations[source]
    return _retold(trajectory, name, told)


def _retold(trajectory: Trajectory, name: str, told: list[tuple[Move, int | None]]) -> Trajectory:
    """Return the trajectory with the turns `told`: moves, each with the turn it tells, or None for a summary."""
    turns: list[Turn] = []
    for index, (move, source) in enumerate(told):
        turn = move.turn(index)
        if source is not None:
            was = trajectory.turns[source]
            turn = replace(turn, started_s=was.started_s, sampled_s=was.sampled_s, stepped_s=was.stepped_s)
        turns.append(turn)
    sources = [source for _, source in told]
    internal = tuple(index for index, source in enumerate(sources) if source is None)

    def of(values: Sequence[_Value], otherwise: _Value) -> tuple[_Value, ...]:
        return tuple(otherwise if source is None else values[source] for source in sources)

    faults = trajectory.turn_faults and of(trajectory.turn_faults, TurnFault.NONE)
    lost = [trajectory.turn_faults[turn] for turn in trajectory.internal_turns if trajectory.turn_faults]
    judged = trajectory.reward_source
    return replace(
        trajectory,
        id=name,
        group_id=name,
        index=0,
        turns=tuple(turns),
        actions=tuple(move.action for move, _ in told),
        observations=of(trajectory.observations, ""),
        observation_hashes=of(trajectory.observation_hashes, observation_hash("")),
        turn_rewards=of(trajectory.turn_rewards, 0.0),
        illegal_actions=trajectory.illegal_actions - lost.count(TurnFault.ILLEGAL),
        turn_faults=faults if any(faults) else (),
        turn_labels=tuple(move.reply.label if move.reply else TurnLabel.MAIN for move, _ in told)
        if internal
        else (),
        internal_turns=internal,
        reward_source=judged and replace(judged, env_turn_rewards=of(judged.env_turn_rewards, 0.0)),
        policy_step=0,
    )
