"""The loop of the agents of our own: show what is new, sample an answer, send it. The policy is the whole agent.

Built by `run.run_rollout`, one per rollout. What is shown, and whether an answer is one for the environment, is the
conversation's to say. It never parses the answer (the environment does) and never re-tokenises it.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from agent_runtime.agents.base import Move
from agent_runtime.agents.conversation import open_conversation
from agent_runtime.errors import InvalidTrajectory
from agent_runtime.policy import ChatTemplate, Completion, Sampler, SampleRequest
from agent_runtime.types import RolloutRequest, TurnLabel

__all__ = ["ChatLoop", "check_completion", "turn_seed"]

_MASK = (1 << 64) - 1
_INT32 = np.dtype(np.int32)
_FLOAT32 = np.dtype(np.float32)


def turn_seed(seed: int, turn: int) -> int:
    """Return the 63-bit sampling seed of one turn: SplitMix64 of the rollout's seed and the turn's index."""
    mixed = (seed + (turn + 1) * 0x9E3779B97F4A7C15) & _MASK
    mixed = ((mixed ^ (mixed >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    mixed = ((mixed ^ (mixed >> 27)) * 0x94D049BB133111EB) & _MASK
    return (mixed ^ (mixed >> 31)) >> 1


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
        )


def check_completion(completion: Completion, rollout_id: str, turn: int) -> None:
    """Refuse a completion that would break the record: an engine's bug, so a crash, not a failed rollout."""
    ids, logprobs = completion.ids, completion.logprobs
    if len(ids) != len(logprobs) or ids.dtype != _INT32 or logprobs.dtype != _FLOAT32:
        raise InvalidTrajectory(
            f"the sampler's completion for rollout {rollout_id!r}, turn {turn} is malformed: got {len(ids)} ids "
            f"of {ids.dtype} and {len(logprobs)} logprobs of {logprobs.dtype}, expected as many float32 as "
            "int32. Fix the engine's Sampler.sample."
        )
    if not np.isfinite(logprobs).all():
        raise InvalidTrajectory(
            f"the sampler's completion for rollout {rollout_id!r}, turn {turn} is malformed: got the log-probabilities "
            f"{logprobs.tolist()!r}, expected finite ones. Look at the engine's weights and numerics."
        )
