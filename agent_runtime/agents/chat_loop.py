"""The loop of the agents of our own: show what is new, sample an answer, send it. The policy is the whole agent.

One `ChatLoop` plays one rollout. What is shown, and whether an answer is one for the environment, is the
conversation's to say. It never parses the answer (the environment does) and never re-tokenises it.
"""

from __future__ import annotations

from dataclasses import replace

from agent_runtime.agent import Move
from agent_runtime.agents.conversation import open_conversation
from agent_runtime.policy import ChatTemplate, Sampler, SampleRequest, check_completion, turn_seed
from agent_runtime.run import Rock, rollout
from agent_runtime.types import RolloutRequest, Trajectory, TurnLabel

__all__ = ["ChatLoop", "run_rollout"]


class ChatLoop:
    """An `Agent` that samples every answer from the policy."""

    def __init__(
        self, request: RolloutRequest, instruction: str, *, sampler: Sampler, template: ChatTemplate
    ) -> None:
        self._request = request
        self._sampler = sampler
        self._template = template
        self._chat = open_conversation(
            request.agent,
            request.start,
            template,
            instruction=instruction,
            max_tokens=request.sampling.max_tokens,
        )
        self._turn = 0

    async def act(self, observation: str) -> Move | None:
        """Sample the next answer; None when prompt and the answer's bound would exceed the model's context."""
        request = self._request
        prompt = self._chat.observe(observation)
        params = request.sampling
        if prompt.label is TurnLabel.SUMMARY:
            params = replace(params, max_tokens=request.agent.summary_tokens)
        if len(prompt.ids) + params.max_tokens > self._template.max_context:
            return None
        completion = await self._sampler.sample(
            SampleRequest(
                rollout_id=request.id,
                turn=self._turn,
                prompt_ids=prompt.ids,
                params=params,
                seed=turn_seed(request.seed, self._turn),
            )
        )
        check_completion(completion, request.id, self._turn)
        text = self._template.decode(completion.ids, prompt.ids)
        reply = self._chat.answer(completion.ids, closed=completion.finish_reason == "stop", text=text)
        self._turn += 1
        return Move(
            text,
            prompt.parent,
            prompt.context_ids,
            completion.ids,
            completion.logprobs,
            completion.finish_reason,
            completion.policy_version,
            reply,
            completion.entropy,
        )


async def run_rollout(
    request: RolloutRequest, *, rock: Rock, sampler: Sampler, template: ChatTemplate, policy_step: int = 0
) -> Trajectory:
    """Let the policy play one task from the request's start and return the record, failed or not."""

    def agent(instruction: str) -> ChatLoop:
        return ChatLoop(request, instruction, sampler=sampler, template=template)

    return await rollout(request, agent, rock=rock, policy_step=policy_step)
