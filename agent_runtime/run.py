"""One rollout, top to bottom: make, reset (to the anchor), turns, evaluate, close; out comes a `Trajectory`.

Hundreds run in one event loop. A failure of the environment, the policy or the clock is data (`Trajectory.failure`),
never a reward of 0; a programming error is neither caught nor hidden. Nothing here retries: the client and the engine
own their retries.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from time import perf_counter
from typing import Protocol

from agent_runtime.agent import Agent, Move, Reply
from agent_runtime.policy import PolicyError
from agent_runtime.recording import Recording, attached
from agent_runtime.types import (
    OF_FIRST,
    OF_GRADE,
    TURNS,
    Hosting,
    RolloutFailure,
    RolloutRequest,
    Start,
    StopReason,
    Trajectory,
    TurnFault,
    TurnLabel,
)
from rock_env.env import Info, StepResult, Verdict, observation_hash
from rock_env.errors import DeadlineExceeded, RockError
from rock_env.faults import Blame, blame_of_info

__all__ = [
    "EVALUATE_LIMIT_S",
    "Rock",
    "RockEnv",
    "close_surely",
    "graded",
    "hosting",
    "limit",
    "log_failure",
    "reset_to",
    "rollout",
]

logger = logging.getLogger(__name__)

EVALUATE_LIMIT_S = 600.0
"""Time for the grade, apart from the turns': a rollout that used up its own must still be graded in full."""
CLOSE_LIMIT_S = 30.0
"""After this the environment is left to its lease, which the server ends."""


class RockEnv(Protocol):
    """One environment as the runtime uses it."""

    @property
    def version(self) -> str:
        """Return the environment's version, as the server made it."""
        ...

    @property
    def sandbox_id(self) -> str:
        """Return the sandbox it acts in, since `reset`; "" for one without."""
        ...

    @property
    def image(self) -> str:
        """Return the image of that sandbox, by its content digest where there is one; "" without an image."""
        ...

    async def reset(
        self,
        task_id: str,
        seed: int,
        prefix: Sequence[tuple[str, bytes]] = (),
        resume_seed: int | None = None,
        initial_hash: bytes = b"",
    ) -> tuple[str, Info, str]:
        """Start the task, replay `prefix`, and return (observation, info, instruction). Raise `RockError`."""
        ...

    async def step(self, action: str) -> StepResult:
        """Apply one action. Raise `RockError`."""
        ...

    async def evaluate(self) -> Verdict:
        """Grade the current state. Raise `RockError`."""
        ...

    async def close(self) -> None:
        """Free the environment. Raise `RockError`."""
        ...


class Rock(Protocol):
    """Where environments come from."""

    async def make(self, env: str, params_json: str) -> RockEnv:
        """Make an environment. Raise `RockError`."""
        ...


async def rollout(
    request: RolloutRequest,
    make_agent: Callable[[str], Agent],
    *,
    rock: Rock,
    policy_step: int = 0,
    evaluate_limit_s: float = EVALUATE_LIMIT_S,
) -> Trajectory:
    """Let the agent that `make_agent(instruction)` builds play one task; the whole story of one rollout.

    `RockError`, `PolicyError` and running out of time give a trajectory with `failure` set and the turns done
    so far. Anything else, cancellation included, propagates after the environment was closed.
    """
    record = Recording(request, policy_step=policy_step)
    env: RockEnv | None = None
    try:
        async with limit(request.time_limit_s, TURNS):
            env = await rock.make(request.env, request.params_json)
            record.env = f"{request.env}@{env.version}" if env.version else request.env
            made_s = perf_counter()
            observation, instruction = await reset_to(env, request.task_id, request.start)
            record.hosting = hosting(env, record.began_s, made_s)
            record.first_observation = observation
            record.artifacts += attached(env, OF_FIRST)
            stop = await _play(env, make_agent(instruction), record)
        verdict, record.hosting = await graded(env, record.hosting, evaluate_limit_s)
        record.artifacts += attached(env, OF_GRADE)
        return record.trajectory(stop, verdict)
    except RockError as error:
        return _failed(record, error.code, str(error))
    except PolicyError as error:
        return _failed(record, "policy", str(error))
    finally:
        if env is not None:
            await close_surely(env, request.id)


async def reset_to(env: RockEnv, task_id: str, start: Start) -> tuple[str, str]:
    """Bring `env` to a start, anchor included; return (observation, instruction).

    Raise `ResetDivergence` where the replayed prefix does not lead to the recorded observations.
    """
    observation, _, instruction = await env.reset(
        task_id,
        start.env_seed,
        prefix=[(turn.action, observation_hash(turn.observation)) for turn in start.prefix],
        resume_seed=start.resume_seed,
        initial_hash=observation_hash(start.first_observation) if start.prefix else b"",
    )
    return observation, instruction


def hosting(env: RockEnv, began_s: float, made_s: float) -> Hosting:
    """Return where an environment that was reset just now is hosted; the times are `perf_counter`'s."""
    return Hosting(env.sandbox_id, env.image, made_s=made_s - began_s, reset_s=perf_counter() - made_s)


async def graded(env: RockEnv, hosted: Hosting, limit_s: float) -> tuple[Verdict, Hosting]:
    """Evaluate within a limit; return the verdict, and where it ran with the time of this as well."""
    began_s = perf_counter()
    async with limit(limit_s, "the evaluation"):
        verdict = await env.evaluate()
    return verdict, replace(hosted, graded_s=perf_counter() - began_s)


async def close_surely(env: RockEnv, trajectory_id: str) -> None:
    """Close to the end, whatever is cancelled meanwhile; then let the cancellation go on.

    A failure to close is logged only: the record is complete, and the environment's lease ends it.
    """
    closing = asyncio.ensure_future(_close_in_time(env, trajectory_id))
    cancelled: asyncio.CancelledError | None = None
    while not closing.done():
        try:
            await asyncio.shield(closing)
        except asyncio.CancelledError as error:
            cancelled = error
    if cancelled is not None:
        raise cancelled
    closing.result()


async def _close_in_time(env: RockEnv, trajectory_id: str) -> None:
    try:
        async with limit(CLOSE_LIMIT_S, "closing the environment"):
            await env.close()
    except RockError as error:
        logger.warning(
            "environment not closed: trajectory_id=%s code=%s %s", trajectory_id, error.code, error
        )


async def _play(env: RockEnv, agent: Agent, record: Recording) -> StopReason:
    """Let `agent` and `env` alternate until one of them, or the turn limit, ends it."""
    observation = record.first_observation
    # The prefix counts: from an anchor the policy gets the turns that the expert left.
    left = record.request.agent.max_turns - record.request.start.anchor
    while left > 0:
        asked_s = perf_counter()
        move = await agent.act(observation)
        if move is None:
            return StopReason.CONTEXT_FULL
        sampled_s = perf_counter()
        left -= (
            move.reply is None or move.reply.label is not TurnLabel.THOUGHT
        )  # its answer follows, and counts
        if move.reply is not None:  # not meant for the environment
            _add(record, move, move.reply, (asked_s, sampled_s, sampled_s))
            observation = move.reply.text
            continue
        record.lost_tokens = len(move.completion_ids)  # until the environment has answered
        result = await env.step(move.action)
        record.artifacts += attached(env, len(record.turns))
        _add(record, move, result, (asked_s, sampled_s, perf_counter()))
        if result.terminated:
            return StopReason.TERMINATED
        if result.truncated:
            return StopReason.TRUNCATED
        observation = result.observation
    return StopReason.MAX_TURNS


@asynccontextmanager
async def limit(seconds: float, what: str) -> AsyncIterator[None]:
    """Bound the body; its expiry, and no other timeout, is `DeadlineExceeded` naming what ran out of time."""
    try:
        async with asyncio.timeout(seconds) as scope:
            yield
    except TimeoutError as error:
        if isinstance(error, RockError) or not scope.expired():
            raise
        raise DeadlineExceeded(f"{what} took longer than {seconds:g} s") from error


def _fault(info: Info) -> TurnFault:
    """Return what the environment says against a turn."""
    match blame_of_info(info):
        case Blame.TOOL:
            return TurnFault.TOOL_BROKE
        case Blame.AGENT:
            return TurnFault.ILLEGAL if info.get("illegal") else TurnFault.TOOL_FAILED
    return TurnFault.NONE


def log_failure(request: RolloutRequest, failure: RolloutFailure) -> None:
    """Log that a rollout failed, and why."""
    logger.warning(
        "rollout failed: trajectory_id=%s task_id=%s turn=%d code=%s %s",
        request.id,
        request.task_id,
        failure.turn,
        failure.code,
        failure.message,
    )


def _failed(record: Recording, code: str, message: str) -> Trajectory:
    """Return the record of a failed rollout: no reward, the turns done so far."""
    failure = RolloutFailure(code, message, len(record.turns))
    log_failure(record.request, failure)
    return record.trajectory(StopReason.FAILED, failure)


def _add(
    record: Recording, move: Move, result: StepResult | Reply, times: tuple[float, float, float]
) -> None:
    """Add a turn that the environment, or the agent itself, has answered; `times`: when asked, sampled and stepped."""
    asked_s, sampled_s, stepped_s = times
    turn = move.turn(len(record.turns), asked_s - record.began_s, sampled_s - asked_s, stepped_s - sampled_s)
    if isinstance(result, Reply):
        record.add(turn, move.action, result.text, fault=result.fault, label=result.label, internal=True)
        return
    record.lost_tokens = 0
    record.add(turn, move.action, result.observation, reward=result.reward, fault=_fault(result.info))
    record.undo(result.info.get("undoes", 0))  # a turn of the replayed prefix is none of this record
