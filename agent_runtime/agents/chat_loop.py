"""The loop of the agents of our own: show what is new, sample an answer, send it. The policy is the whole agent.

One `ChatLoop` plays one rollout. What is shown, and whether an answer is one for the environment, is the
conversation's to say. It never parses the answer (the environment does) and never re-tokenises it.

`SamplingParams.thinking_tokens` bounds the thought of an answer (budget forcing, arXiv 2501.19393, section 3.1): one that
has used them up is closed by tokens that nobody sampled. It is a turn of its own, they are context of the turn after it.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from agent_runtime.agent import Move, Reply
from agent_runtime.agents.conversation import Prompt, open_conversation
from agent_runtime.policy import (
    ChatTemplate,
    Completion,
    Sampler,
    SampleRequest,
    check_completion,
    thought_of,
    turn_seed,
)
from agent_runtime.run import Rock, rollout
from agent_runtime.types import IntArray, RolloutRequest, Trajectory, TurnLabel

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
        self._calls = 0
        self._turns: list[int] = []
        """Of each turn of the conversation, which of the rollout's it is: a thought that was cut off is one before it."""
        self._turn = 0
        self._cut: tuple[Prompt, Completion] | None = None
        """The thought that was cut off just now, and what it was asked with."""
        bounded = request.sampling.thinking_tokens
        self._thought = thought_of(template, f"sampling.thinking_tokens={bounded}") if bounded else None

    async def act(self, observation: str) -> Move | None:
        """Sample the next answer; None when prompt and the answer's bound would exceed the model's context."""
        if self._cut is not None:
            return await self._after_thought(*self._cut)
        request = self._request
        prompt = self._chat.observe(observation)
        params = request.sampling
        if prompt.label is TurnLabel.SUMMARY:
            params = replace(params, max_tokens=request.agent.summary_tokens)
        closing = 0 if self._thought is None else len(self._thought.closing)
        if len(prompt.ids) + params.max_tokens + closing > self._template.max_context:
            return None
        if self._thought is None:
            return self._told(prompt, await self._sample(prompt.ids, params.max_tokens))
        completion = await self._sample(prompt.ids, params.thinking_tokens)
        if completion.finish_reason == "length":
            if self._thought.is_open(completion.ids):
                return self._cut_off(prompt, completion)
            ids = np.concatenate((prompt.ids, completion.ids))
            completion = completion.then(await self._sample(ids, params.max_tokens - len(completion.ids)))
        return self._told(prompt, completion)

    async def _sample(self, prompt_ids: IntArray, max_tokens: int) -> Completion:
        request = self._request
        completion = await self._sampler.sample(
            SampleRequest(
                rollout_id=request.id,
                turn=self._calls,
                prompt_ids=prompt_ids,
                params=replace(request.sampling, max_tokens=max_tokens),
                seed=turn_seed(request.seed, self._calls),
            )
        )
        check_completion(completion, request.id, self._turn)
        self._calls += 1
        return completion

    def _cut_off(self, prompt: Prompt, thought: Completion) -> Move:
        """Return a thought that used up its tokens, as a turn that the environment does not hear of."""
        self._cut = prompt, thought
        self._turn += 1
        reply = Reply("", label=TurnLabel.THOUGHT)
        text = self._template.decode(thought.ids, prompt.ids)
        return _move(text, self._parent(prompt), prompt.context_ids, thought, reply)

    async def _after_thought(self, prompt: Prompt, thought: Completion) -> Move:
        """Return the answer after a thought that was cut off: the tokens that close it are context, which nobody sampled."""
        assert self._thought is not None
        self._cut, closing = None, self._thought.closing
        before = np.concatenate((thought.ids, closing))
        most = self._request.sampling.max_tokens - len(thought.ids)
        completion = await self._sample(np.concatenate((prompt.ids, before)), most)
        return self._told(prompt._replace(context_ids=closing), completion, before)

    def _told(self, prompt: Prompt, completion: Completion, before: IntArray | None = None) -> Move:
        """Return an answer as a move; `before`: what stands before its tokens, from the thought in the turn before on."""
        ids = completion.ids if before is None else np.concatenate((before, completion.ids))
        text = self._template.decode(ids, prompt.ids)
        reply = self._chat.answer(ids, closed=completion.finish_reason == "stop", text=text)
        parent = self._parent(prompt) if before is None else self._turn - 1
        self._turns.append(self._turn)
        self._turn += 1
        return _move(text, parent, prompt.context_ids, completion, reply)

    def _parent(self, prompt: Prompt) -> int | None:
        return None if prompt.parent is None else self._turns[prompt.parent]


def _move(
    text: str, parent: int | None, context_ids: IntArray, completion: Completion, reply: Reply | None
) -> Move:
    return Move(
        text,
        parent,
        context_ids,
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
