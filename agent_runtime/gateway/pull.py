"""A CLI agent as an environment: each of its requests is an observation, each answer an action ("anti-call").

    env = PulledAgent(gateway, request, run=start_the_agent, grade=grade_its_work)
    observation, info, instruction = await env.reset(task_id, seed)
    result = await env.step("the answer's text")

It has the methods of `run.RockEnv`, so whatever plays environments plays an agent: `run.rollout`, an oracle, a person. The
agent runs as ever, against the gateway; the policy is whoever calls `step`. An observation is the request as text, each
message under its role; where it goes on from the last one and its answer, only what is new. An answer is text, with tool
calls in the form that the request itself shows (`templates.textual`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from agent_runtime.gateway.server import Gateway
from agent_runtime.gateway.session import Budget, Session, SessionEnd
from agent_runtime.policy import Completion, SampleRequest
from agent_runtime.templates.plain import ASSISTANT, END, FIRST_BYTE, SYSTEM, USER, PlainTemplate
from agent_runtime.types import IntArray, RolloutRequest, SamplingParams
from rock_env.env import Info, StepResult, Verdict, observation_hash
from rock_env.errors import FailedPrecondition, ResetDivergence

__all__ = ["INSTRUCTION", "PulledAgent", "prompt_text"]

INSTRUCTION = (
    "You are the model behind a coding agent. Each message is a request of the agent to you; answer as its model would, "
    "with tool calls in the form that the request shows."
)
_ROLES = {SYSTEM: "system", USER: "user", ASSISTANT: "assistant", END: ""}
_NOTHING: IntArray = np.empty(0, np.int32)
_TRUNCATED = (SessionEnd.TURNS, SessionEnd.TOKENS, SessionEnd.TIME)


class _Question(NamedTuple):
    prompt_ids: IntArray
    answer: asyncio.Future[IntArray]


class _Asking:
    """A `Sampler` that asks whoever steps the environment. Requests side by side are asked one after the other."""

    stops = False

    def __init__(self) -> None:
        self.questions: asyncio.Queue[_Question | None] = asyncio.Queue()
        """None: the agent has ended."""

    async def sample(self, request: SampleRequest) -> Completion:
        answer: asyncio.Future[IntArray] = asyncio.get_running_loop().create_future()
        self.questions.put_nowait(_Question(request.prompt_ids, answer))
        ids = await answer
        most = request.params.max_tokens
        cut = len(ids) > most
        ids = ids[:most]
        return Completion(ids, np.zeros(len(ids), np.float32), "length" if cut else "stop", 0)


class PulledAgent:
    """A `run.RockEnv`. One instance plays one agent after the other; `reset` ends the one before."""

    version = "1"
    sandbox_id = ""
    image = ""

    def __init__(
        self,
        gateway: Gateway,
        request: RolloutRequest,
        *,
        run: Callable[[Session], Awaitable[None]],
        grade: Callable[[], Awaitable[Verdict]],
        max_context: int = 1 << 22,
        max_answer: int = 1 << 16,
        budget: Budget | None = None,
    ) -> None:
        """`run` starts the agent with a session's key and returns when it has exited; `grade` judges what it left.

        `max_context` and `max_answer` bound a request with its answer, and an answer, in bytes.
        """
        self._gateway = gateway
        self._request = request
        self._run = run
        self._grade = grade
        self._template = PlainTemplate(max_context)
        self._budget = budget
        self._sampling = SamplingParams(max_tokens=max_answer)
        self._session: Session | None = None
        self._asking = _Asking()
        self._running: asyncio.Task[None] | None = None
        self._question: _Question | None = None
        self._told: IntArray = _NOTHING

    @property
    def session(self) -> Session | None:
        """Return the present agent's session."""
        return self._session

    async def reset(
        self,
        task_id: str,
        seed: int,
        prefix: Sequence[tuple[str, bytes]] = (),
        resume_seed: int | None = None,
        initial_hash: bytes = b"",
    ) -> tuple[str, Info, str]:
        """Start the agent, answer its first requests with `prefix`, and return (observation, info, instruction).

        The agent's start does not depend on `resume_seed`. Raise `ResetDivergence` where it does not ask what it asked
        before, and what `run` raises.
        """
        await self.close()
        self._asking, self._told = _Asking(), _NOTHING
        request = replace(self._request, task_id=task_id, seed=seed, sampling=self._sampling)
        self._session = self._gateway.open(
            request, sampler=self._asking, template=self._template, budget=self._budget
        )
        self._running = asyncio.get_running_loop().create_task(self._play(self._session, self._asking))
        observation = await self._next()
        if initial_hash and observation_hash(observation) != initial_hash:
            raise ResetDivergence(
                "the agent's first request is not the recorded one. Use the same agent and task."
            )
        for number, (action, digest) in enumerate(prefix):
            observation = (await self.step(action)).observation
            if observation_hash(observation) != digest:
                raise ResetDivergence(
                    f"after {number + 1} answers the agent's request is not the recorded one. Its own state (clock, folder) "
                    "may differ from then."
                )
        return observation, {}, INSTRUCTION

    async def step(self, action: str) -> StepResult:
        """Answer the agent's present request and return its next one, or that it has ended.

        Raise `FailedPrecondition` where nothing was asked, and what `run` raises.
        """
        question, session = self._question, self._session
        if question is None or session is None:
            raise FailedPrecondition(
                "no request waits for an answer: the agent has ended, or reset() was not called."
            )
        ids = self._template.encode_answer(action)
        self._told = np.concatenate((question.prompt_ids, ids))
        calls = len(session.tree.calls)
        if not question.answer.done():
            question.answer.set_result(ids)
        observation = await self._next()
        answered = session.tree.calls[calls] if len(session.tree.calls) > calls else None
        ended = self._question is None
        cut = ended and session.end in _TRUNCATED
        return StepResult(
            observation,
            terminated=ended and not cut,
            truncated=cut,
            info={"illegal": answered is not None and bool(answered.parsed.malformed)},
        )

    async def evaluate(self) -> Verdict:
        """Grade what the agent left."""
        return await self._grade()

    async def close(self) -> None:
        """End the agent and its session. Idempotent."""
        if self._running is not None:
            self._running.cancel()
            await asyncio.wait((self._running,))
        if self._session is not None:
            await self._gateway.close(self._session)
        self._running, self._session, self._question = None, None, None

    async def _play(self, session: Session, asking: _Asking) -> None:
        try:
            await self._run(session)
        finally:
            await self._gateway.close(session)
            asking.questions.put_nowait(None)

    async def _next(self) -> str:
        """Wait for the agent's next request and return its text; that of its end if there is none."""
        question = self._question = await self._asking.questions.get()
        while question is not None and question.answer.done():  # its session stopped waiting
            question = self._question = await self._asking.questions.get()
        if question is None:
            assert self._running is not None
            assert self._session is not None
            await self._running
            return f"[the agent has ended: {self._session.end}]"
        known = len(self._told)
        if 0 < known <= len(question.prompt_ids) and np.array_equal(question.prompt_ids[:known], self._told):
            return prompt_text(question.prompt_ids[known:])
        return prompt_text(question.prompt_ids)


def prompt_text(ids: IntArray) -> str:
    """Return a prompt of the plain template as text: each message below its role in angle brackets, the last one open."""
    marks = np.flatnonzero(ids < FIRST_BYTE)
    starts, ends = [0, *(marks + 1).tolist()], [*marks.tolist(), len(ids)]
    pieces = []
    for start, end in zip(starts, ends, strict=True):
        role = _ROLES.get(int(ids[start - 1]), "") if start else ""
        said = (ids[start:end] - FIRST_BYTE).astype(np.uint8).tobytes().decode(errors="replace")
        if role or said:
            pieces.append(f"<{role}>\n{said}" if role else said)
    return "\n".join(pieces)
