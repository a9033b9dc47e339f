"""Expert trajectories: a reference solution plays through the same turn loop as the policy.

Called by the trainer's expert source and by `ale rollout`. Nothing is sampled: log-probabilities are NaN, the
policy version is -1, and the tokens are the template's encoding of the actions. What was recorded before is retold in
another template's tokens by the same code.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace

import numpy as np

from agent_runtime.agents.base import Move
from agent_runtime.agents.conversation import open_conversation
from agent_runtime.policy import ChatTemplate
from agent_runtime.run import Rock, rollout
from agent_runtime.types import AgentConfig, RolloutRequest, SamplingParams, Trajectory, Turn
from rock_env.env import Oracle

__all__ = ["OracleAgent", "record_expert", "retell"]


EXPERT_VERSION = -1
"""The policy version of a turn that no policy sampled."""


class OracleAgent:
    """An `Agent` that does what an oracle says."""

    def __init__(
        self, request: RolloutRequest, instruction: str, *, oracle: Oracle, template: ChatTemplate
    ) -> None:
        self._oracle = oracle
        self._template = template
        self._chat = open_conversation(request.agent, request.start, template, instruction=instruction)

    async def act(self, observation: str) -> Move | None:
        """Ask the oracle; None when its answer would exceed the model's context."""
        prompt = self._chat.observe(observation)
        action = await asyncio.to_thread(self._oracle, observation)  # a search may take long
        completion_ids = self._template.encode_completion(action, prompt.ids)
        if len(prompt.ids) + len(completion_ids) > self._template.max_context:
            return None
        self._chat.answer(completion_ids, closed=True)
        return Move(
            action,
            prompt.parent,
            prompt.context_ids,
            completion_ids,
            np.full(len(completion_ids), np.nan, np.float32),
            "expert",
            EXPERT_VERSION,
        )


async def record_expert(
    request: RolloutRequest, *, rock: Rock, oracle: Oracle, template: ChatTemplate, policy_step: int = 0
) -> Trajectory:
    """Run `oracle` where `run_rollout` runs the policy. `request.sampling` and `request.seed` have no effect."""

    def agent(instruction: str) -> OracleAgent:
        return OracleAgent(request, instruction, oracle=oracle, template=template)

    return await rollout(request, agent, rock=rock, policy_step=policy_step)


async def retell(
    trajectory: Trajectory, name: str, *, template: ChatTemplate, agent: AgentConfig, instruction: str
) -> Trajectory | None:
    """Return what somebody did as an expert's trajectory in the tokens of `template`, under the id `name`.

    Actions, observations and grade stay. None where a turn would exceed the model's context.
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
        sampling=SamplingParams(),
        start=trajectory.start,
    )
    actions = iter(trajectory.actions)
    teller = OracleAgent(request, instruction, oracle=lambda observation: next(actions), template=template)
    turns: list[Turn] = []
    shown = (trajectory.first_observation, *trajectory.observations[:-1])
    for turn, observation in zip(trajectory.turns, shown, strict=True):
        move = await teller.act(observation)
        if move is None:
            return None
        _, parent, context_ids, completion_ids, logprobs, finish_reason, policy_version = move
        turns.append(
            replace(
                turn,
                parent=parent,
                context_ids=context_ids,
                completion_ids=completion_ids,
                logprobs=logprobs,
                finish_reason=finish_reason,
                policy_version=policy_version,
            )
        )
    return replace(trajectory, id=name, group_id=name, index=0, turns=tuple(turns), policy_step=0)
