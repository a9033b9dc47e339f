"""One agent's life behind the gateway: who asks, how often, for how long, and what was sampled for it.

Opened and closed by rollout code, asked by `gateway` (or by anybody who holds a `ChatRequest`). A session knows no
socket and no wire format. Every request ends as an answer or a `Refusal`; every sampled token ends in the record.

The same request again is the same call: while it is sampled both wait for one sample; one whose answer arrived gets that
answer; one whose answer broke off on its way gets a new sample, and the first is dead (`SUPERSEDED`); so is one that the
agent could not use (`ERROR`).
"""

from __future__ import annotations

import asyncio
import contextvars
import hashlib
import logging
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

from opentelemetry.trace import Span

from agent_runtime.calls.canonical import Canonical
from agent_runtime.calls.record import trajectory
from agent_runtime.calls.tree import CallPrompt, CallTree, Match
from agent_runtime.chat import ChatReply, ChatRequest, Refusal, RefusalKind, ToolTemplate
from agent_runtime.faults import blame_of_refusal
from agent_runtime.gateway.answers import read_answer, reply_to
from agent_runtime.gateway.pending import PendingReply
from agent_runtime.gateway.rendering import PromptRenderer
from agent_runtime.gateway.turn_spans import TurnSpans
from agent_runtime.policy import Completion, PolicyError, Sampler, SampleRequest, check_completion, turn_seed
from agent_runtime.types import RolloutFailure, RolloutRequest, SamplingParams, StopReason, Trajectory
from rock_env.env import Verdict
from rock_env.faults import Blame
from rock_env.telemetry import tracing

__all__ = ["Budget", "Session", "SessionEnd"]

logger = logging.getLogger(__name__)

IN_FLIGHT = 64
"""Most calls of one session being sampled at once: more than any agent's sub-agents, fewer than a loop gone wild."""
RETRY_S = 1.0
"""When to come back after the engine failed or too many calls were under way."""
READING = 2
"""Most large bodies of one session that are held and read at once."""


@dataclass(frozen=True, slots=True)
class Budget:
    """What one session may use. An agent that compacts in a loop, or never stops, ends here."""

    turns: int = 200
    """Samples, side calls and repetitions included."""
    tokens: int = 1_000_000
    """Sampled tokens; the last answer is cut to what is left."""
    time_s: float = 3600.0
    """From the session's opening to the refusal of all further requests."""


class SessionEnd(StrEnum):
    """Why a session ended, told from what happened last."""

    EXITED = "exited"
    """The agent took its last answer and asked no more."""
    NEVER_SPOKE = "never_spoke"
    """No request ever came: the agent did not start, or cannot reach the gateway."""
    REFUSED = "refused"
    """Its last request was one that no model could have answered (an image, a malformed body); a failure where all were."""
    TURNS = "turns"
    TOKENS = "tokens"
    TIME = "time"
    CONTEXT_FULL = "context_full"
    """It was told that its context is full, and gave up."""
    CLIENT_GONE = "client_gone"
    """It hung up before its last answer was there, and did not come back."""
    ENGINE_FAILED = "engine_failed"
    """Its last request was refused through no fault of its own, and it gave up."""


_STOPS = {
    SessionEnd.EXITED: StopReason.TERMINATED,
    SessionEnd.REFUSED: StopReason.TERMINATED,
    SessionEnd.TURNS: StopReason.MAX_TURNS,
    SessionEnd.TOKENS: StopReason.TRUNCATED,
    SessionEnd.TIME: StopReason.TRUNCATED,
    SessionEnd.CONTEXT_FULL: StopReason.CONTEXT_FULL,
}
"""What can be graded; any other end is a failure, and so is `REFUSED` where nothing was answered."""
_FAILURES = {
    SessionEnd.NEVER_SPOKE: (
        "agent_never_spoke",
        "the agent asked nothing: it did not start, or cannot reach the gateway",
    ),
    SessionEnd.REFUSED: (
        "agent_refused",
        "not one request of the agent could be answered, so the policy had no part in what it did; its output says why",
    ),
    SessionEnd.CLIENT_GONE: (
        "agent_gone",
        "the agent hung up before its last answer was there, and did not come back",
    ),
    SessionEnd.ENGINE_FAILED: (
        "policy",
        "the policy failed the agent's last request, and answered none after it",
    ),
}
"""Codes and messages of the ends that are failures."""
_STUCK = frozenset({SessionEnd.NEVER_SPOKE, SessionEnd.REFUSED, SessionEnd.ENGINE_FAILED})
"""Where time runs out on an agent in such a state, it is this that says whether the policy had a part in it."""


class Session:
    """The life of one agent. Of one event loop; nothing here is thread-safe."""

    def __init__(
        self, key: str, request: RolloutRequest, *, sampler: Sampler, template: ToolTemplate, budget: Budget
    ) -> None:
        self.key = key
        """The agent's secret."""
        self.id = hashlib.blake2b(key.encode(), digest_size=8).hexdigest()
        """For logs and traces."""
        self.request = request
        self.budget = budget
        self.spent = asyncio.Event()
        """Set once more was asked for than the budget has and nothing is being answered: its agent can be ended."""
        self.tree = CallTree(template)
        self._template = template
        self._sampler = sampler
        self._context = contextvars.copy_context()  # the span and the log ids of the rollout that opened it
        self._opened_s = time.perf_counter()
        self._asked: dict[bytes, PendingReply] = {}
        self._tasks: dict[asyncio.Task[None], PendingReply] = {}
        self._begun = self._turns = self._tokens = 0
        self.blamed: Counter[Blame] = Counter()
        """Whose fault the errors were that requests got in place of an answer; what a budget or bound refuses is none."""
        self._last = SessionEnd.NEVER_SPOKE
        self._spent: SessionEnd | None = None
        """What of the budget is used up: no call begins any more, those that did go on."""
        self._over: SessionEnd | None = None
        self._bug: Exception | None = None
        self._spans = TurnSpans(self.id, request.id)
        self.reading = asyncio.Semaphore(READING)
        """Held for as long as a large body of this session's is read."""
        self._renderer = PromptRenderer(self.tree)
        self._timer = asyncio.get_running_loop().call_later(budget.time_s, self._stop, SessionEnd.TIME)

    @property
    def max_context(self) -> int:
        """Return how many tokens the model takes, prompt and answer together."""
        return self._template.max_context

    @property
    def end(self) -> SessionEnd:
        """Return why it ended, or would if it ended now."""
        return self._over or self._spent or self._last

    @property
    def failure(self) -> RolloutFailure | None:
        """Return why nothing can be graded, if its end says nothing of the policy; None for any other end."""
        end = self.end
        waited = self._last is SessionEnd.NEVER_SPOKE and self._begun  # for its first answer, which is slow
        if end is SessionEnd.TIME and self._last in _STUCK and not waited:
            end = self._last
        heard = end is SessionEnd.REFUSED and self.tree.calls
        if end not in _FAILURES or heard:
            return None
        code, message = _FAILURES[end]
        return RolloutFailure(code, message, len(self.tree.calls))

    # -- asking

    async def answer(self, request: ChatRequest) -> ChatReply:
        """Answer one request; what is returned counts as delivered. Raise `Refusal`."""
        asked = self.ask(request)
        outcome = await asyncio.shield(asked.outcome)
        if isinstance(outcome, Refusal):
            raise outcome
        self.delivered(asked)
        return outcome

    def ask(self, request: ChatRequest, canonical: Canonical | None = None) -> PendingReply:
        """Begin to sample an answer, or find that of the same request. Raise `Refusal`.

        `canonical` is the request's canonical form, if it is known.

        Say afterwards what became of the answer: `delivered`, or `lost`.
        """
        if self._over is not None:
            raise self._ended()
        if request.stop and not self._sampler.stops:
            self.refused(RefusalKind.BAD_REQUEST)
            raise Refusal(
                RefusalKind.BAD_REQUEST,
                "Unsupported parameter: stop texts are not supported with this model: its engine cannot end an answer at a "
                f"text, got {list(request.stop)}. Leave them out.",
                param="stop",
                code="unsupported_parameter",
            )
        match = self.tree.match(request, canonical)
        self.tree.heard(match)
        asked = self._asked.get(match.key)
        if asked is not None and not asked.is_dead():
            return asked
        self._spend(request.n)
        asked = self._asked[match.key] = PendingReply(request)
        asked.max_tokens = self._most(request)
        task = asyncio.get_running_loop().create_task(
            self._sample(asked, match, self._begun), context=self._context.copy()
        )
        self._begun += request.n
        self._turns += request.n
        self._tasks[task] = asked
        task.add_done_callback(self._tasks.pop)
        return asked

    async def count(self, request: ChatRequest, canonical: Canonical | None = None) -> int:
        """Return how many tokens the prompt of a request has. Raise `Refusal`."""
        if self._over is not None:
            raise self._ended()
        return len((await self._renderer.prompt(self.tree.match(request, canonical))).ids)

    def delivered(self, asked: PendingReply) -> None:
        """Note that an answer is with its agent."""
        self._last = SessionEnd.EXITED
        asked.served += 1
        for call in asked.calls:
            self.tree.deliver(call)

    def lost(self, asked: PendingReply, *, broken: bool) -> None:
        """Note that a client went before its answer was complete; `broken`: part of it had left."""
        asked.broken = asked.broken or broken
        # An agent that exits leaves calls beside its task as they are: those have no tools, or are marked.
        tools = asked.has_tools or not any(call.has_tools for call in self.tree.calls)
        if tools and not asked.beside:
            self._last = SessionEnd.CLIENT_GONE

    def refused(self, kind: RefusalKind) -> None:
        """Note that a request got an error: what the agent did wrong is graded, what failed it is a failure."""
        blame = blame_of_refusal(kind)
        self.blamed[blame] += 1
        if kind is RefusalKind.CONTEXT_OVERFLOW:
            self._last = SessionEnd.CONTEXT_FULL
        else:
            self._last = SessionEnd.REFUSED if blame is Blame.AGENT else SessionEnd.ENGINE_FAILED
        logger.info("refused: session_id=%s kind=%s blame=%s", self.id, kind, blame)

    # -- the budget

    def _spend(self, answers: int) -> None:
        """Raise `Refusal` where no call for so many answers may begin."""
        in_flight = sum(asked.answers for asked in self._tasks.values())
        if self._spent is None and self._turns + answers > self.budget.turns:
            self._spent = SessionEnd.TURNS
        elif self._spent is None and self._left() < answers and not self._reserved():
            self._spent = SessionEnd.TOKENS
        if self._spent is not None:
            if not in_flight:
                self.spent.set()
            raise self._ended()
        if in_flight + answers > IN_FLIGHT or self._left() < answers:
            raise Refusal(
                RefusalKind.RATE_LIMIT,
                f"{in_flight} answers of this session are being sampled, expected at most {IN_FLIGHT} and tokens left for "
                f"{answers} more. Ask again in {RETRY_S:g} s.",
                retry_after_s=RETRY_S,
            )

    def _reserved(self) -> int:
        return sum(asked.max_tokens * asked.answers for asked in self._tasks.values())

    def _left(self) -> int:
        return self.budget.tokens - self._tokens - self._reserved()

    def _most(self, request: ChatRequest) -> int:
        """Return how many tokens each answer may have; an agent may only ask for fewer than the session's own."""
        most = self.request.sampling.max_tokens
        wished = most if request.max_tokens is None else request.max_tokens
        return max(1, min(most, wished, self._left() // request.n))

    def _params(self, most: int, prompt_tokens: int) -> SamplingParams:
        """Return the session's own sampling settings, with room for `most` tokens."""
        limit = self._template.max_context
        if prompt_tokens + most > limit:
            raise Refusal(
                RefusalKind.CONTEXT_OVERFLOW,
                f"the prompt has {prompt_tokens} tokens and the answer may have {most}, but the model's context is {limit} "
                "tokens. Shorten the history.",
                details=(
                    ("limit", limit),
                    ("prompt", prompt_tokens),
                    ("completion", most),
                    ("got", prompt_tokens + most),
                ),
            )
        return replace(self.request.sampling, max_tokens=most)

    # -- sampling

    async def _sample(self, asked: PendingReply, match: Match, number: int) -> None:
        """Sample all answers of a request, then tell who waits. `number` is that of its first call."""
        asked_s = time.perf_counter()
        spans = {call: self._spans.begin(call) for call in range(number, number + asked.answers)}
        error: Refusal | None = None
        try:
            with tracing.within(spans[number]):
                prompt = await self._renderer.prompt(match)
                params = self._params(asked.max_tokens, len(prompt.ids))
            one, *more = (
                self._sample_one(asked, match, prompt, params, call, spans, asked_s) for call in tuple(spans)
            )
            if more:
                reply = _as_one(await asyncio.gather(one, *more, return_exceptions=True))
            else:  # most requests: each is spared a task and two turns of the event loop
                reply = await one
            asked.settle(reply)
        except Refusal as refusal:
            error = refusal
        except PolicyError as failure:
            logger.warning("the policy failed: session_id=%s call=%d %s", self.id, number, failure)
            error = _upstream(f"the policy failed: {failure}")
        except Exception as bug:  # told to the agent as a failure, and raised by `record`
            self._bug = self._bug or bug
            logger.exception("a session failed: session_id=%s call=%d", self.id, number)
            error = _upstream("the gateway failed, see its log")
        finally:
            asked.max_tokens = 0
            if error is not None:
                self._give_up(asked, match, error)
            for span in spans.values():
                self._spans.fail(span, error.kind if error else None)
            if not asked.outcome.done():
                asked.settle(_upstream("sampling was broken off"))

    async def _sample_one(
        self,
        asked: PendingReply,
        match: Match,
        prompt: CallPrompt,
        params: SamplingParams,
        number: int,
        spans: dict[int, Span],
        asked_s: float,
    ) -> ChatReply:
        """Sample one answer and keep it, the only place where a turn is made. Its span is taken from `spans`."""
        seed = turn_seed(self.request.seed, number)
        request = SampleRequest(self.request.id, number, prompt.ids, params, seed, match.request.stop)
        with tracing.within(spans[number]):
            completion = await self._sampler.sample(request)
        check_completion(completion, self.request.id, number)
        reply = self._keep(asked, match, prompt, completion, asked_s)
        self._spans.keep(spans.pop(number), self.tree.calls[-1], len(prompt.ids))
        return reply

    def _keep(
        self, asked: PendingReply, match: Match, prompt: CallPrompt, completion: Completion, asked_s: float
    ) -> ChatReply:
        """Put a sample into the tree, before anybody hears of it."""
        index = len(self.tree.calls)
        parsed, stop = read_answer(self._template, completion, match.request, index)
        reply = reply_to(match, prompt, completion, parsed, name=f"{self.id}{index:08x}", stop=stop)
        call = self.tree.commit(
            match,
            prompt,
            completion,
            parsed,
            request=asked.calls[0].request if asked.calls else -1,
            started_s=asked_s - self._opened_s,
            sampled_s=time.perf_counter() - asked_s,
        )
        asked.calls.append(call)
        self._tokens += len(completion.ids)
        return reply

    def _give_up(self, asked: PendingReply, match: Match, refusal: Refusal) -> None:
        """End a call without its answers: those that are missing take no turn, and the same request begins anew."""
        self.refused(refusal.kind)
        self._turns -= asked.answers - len(asked.calls)
        if self._asked.get(match.key) is asked:
            del self._asked[match.key]
        asked.settle(refusal)

    # -- the end

    def _stop(self, end: SessionEnd) -> None:
        """Answer nothing from here on, and let nobody wait."""
        if self._over is not None:
            return
        self._over = end
        self._closed_s = time.perf_counter()
        self._timer.cancel()
        for task, asked in self._tasks.items():
            asked.settle(self._ended())
            task.cancel()

    async def close(self, end: SessionEnd | None = None) -> SessionEnd:
        """End the session and return why it ended: of its own, as `end` says, or told from what happened last.

        Idempotent. Nothing of it is being sampled afterwards.
        """
        self._stop(self._spent or end or self._last)
        if self._tasks:
            await asyncio.wait(tuple(self._tasks))
        self._spans.end(self.tree)
        return self.end

    def record(self, env: str, outcome: Verdict | RolloutFailure, *, policy_step: int = 0) -> Trajectory:
        """Return the record of a closed session whose environment (`name@version`) gave this grade, or failed.

        An end that says nothing of the policy (it was never asked, was cut off, or its engine failed) is a failure whatever
        the grade. Raise what was a bug while sampling.
        """
        if self._bug is not None:
            raise self._bug
        if self._over is None:
            raise RuntimeError(f"session {self.id} is open, expected a closed one. Await close() first.")
        if isinstance(outcome, Verdict):
            outcome = self.failure or outcome
        stop = _STOPS[self._over] if isinstance(outcome, Verdict) else StopReason.FAILED
        duration_s = self._closed_s - self._opened_s
        return trajectory(
            self.tree, self.request, env, stop, outcome, duration_s=duration_s, policy_step=policy_step
        )

    def _ended(self) -> Refusal:
        """Return what a request gets after the end."""
        budget, end = self.budget, self.end
        if end is SessionEnd.TURNS:
            text = f"all {budget.turns} model calls of this session are used up"
        elif end is SessionEnd.TOKENS:
            text = f"all {budget.tokens} sampled tokens of this session are used up"
        elif end is SessionEnd.TIME:
            text = f"this session's {budget.time_s:g} s are over"
        else:
            return Refusal(RefusalKind.CLOSED, f"this session has ended ({end}). Nothing more is answered.")
        return Refusal(RefusalKind.BUDGET, f"{text}. No repetition helps; raise the session's Budget.")


def _as_one(replies: Sequence[ChatReply | BaseException]) -> ChatReply:
    """Return a request's answers as one reply. Raise the first failure; what was sampled is in the record all the same."""
    answers = [each for each in replies if isinstance(each, ChatReply)]
    for each in replies:
        if isinstance(each, BaseException):
            raise each
    return replace(answers[0], others=tuple(answers[1:]))


def _upstream(message: str) -> Refusal:
    return Refusal(RefusalKind.UPSTREAM, message, retry_after_s=RETRY_S)
