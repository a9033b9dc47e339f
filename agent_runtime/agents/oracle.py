"""Expert trajectories: a reference solution plays through the same turn loop as the policy.

Called by the trainer's expert source and by `ale rollout`. Nothing is sampled: log-probabilities are NaN, the
policy version is -1, and the tokens are the template's encoding of the actions.
"""

from __future__ import annotations

import asyncio

import numpy as np

from agent_runtime.agents.base import Move
from agent_runtime.agents.conversation import open_conversation
from agent_runtime.policy import ChatTemplate
from agent_runtime.run import Rock, rollout
from agent_runtime.types import RolloutRequest, Trajectory
from rock_env.env import Oracle

__all__ = ["OracleAgent", "record_expert"]


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
        completion_ids = self._template.encode_completion(action)
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
