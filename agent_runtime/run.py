"""One rollout, top to bottom: make, reset (to the anchor), turns, evaluate, close; out comes a `Trajectory`.

Called by the trainer's rollout workers and by `ale rollout`; hundreds run in one event loop. A failure of
the environment, the policy or the clock is data (`Trajectory.failure`), never a reward of 0; a programming
error is neither caught nor hidden. Nothing here retries: the client and the engine own their retries.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from time import perf_counter
from typing import Protocol

from agent_runtime.agent import Agent, Move, Reply
from agent_runtime.policy import PolicyError
from agent_runtime.types import (
    RolloutFailure,
    RolloutRequest,
    Start,
    StopReason,
    Trajectory,
    Turn,
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
    "limit",
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
    record = _Record(request, policy_step)
    env: RockEnv | None = None
    try:
        async with limit(request.time_limit_s, "the rollout's turns"):
            env = await rock.make(request.env, request.params_json)
            record.version = env.version
            observation, instruction = await reset_to(env, request.task_id, request.start)
            record.first_observation = observation
            stop = await _play(env, make_agent(instruction), record)
        async with limit(evaluate_limit_s, "the evaluation"):
            verdict = await env.evaluate()
        return record.finish(stop, verdict)
    except RockError as error:
        return record.fail(error.code, str(error))
    except PolicyError as error:
        return record.fail("policy", str(error))
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


async def _play(env: RockEnv, agent: Agent, record: _Record) -> StopReason:
    """Let `agent` and `env` alternate until one of them, or the turn limit, ends it."""
    observation = record.first_observation
    # The prefix counts: from an anchor the policy gets the turns that the expert left.
    for _ in range(record.request.agent.max_turns - record.request.start.anchor):
        asked_s = perf_counter()
        move = await agent.act(observation)
        if move is None:
            return StopReason.CONTEXT_FULL
        sampled_s = perf_counter()
        if move.reply is not None:  # not meant for the environment
            record.add_internal(move, move.reply, (asked_s, sampled_s, sampled_s))
            observation = move.reply.text
            continue
        record.lost_tokens = len(move.completion_ids)  # until the environment has answered
        result = await env.step(move.action)
        record.add(move, result, (asked_s, sampled_s, perf_counter()))
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


class _Record:
    """A trajectory in the making: what has happened so far, so that a failure keeps it."""

    def __init__(self, request: RolloutRequest, policy_step: int) -> None:
        self.request = request
        self.version = ""
        self.first_observation = ""
        self.lost_tokens = 0
        self._policy_step = policy_step
        self._began_s = perf_counter()
        self._turns: list[Turn] = []
        self._actions: list[str] = []
        self._observations: list[str] = []
        self._hashes: list[bytes] = []
        self._rewards: list[float] = []
        self._faults: list[TurnFault] = []
        self._labels: list[TurnLabel] = []
        self._internal: list[int] = []
        self._illegal = 0

    def add(self, move: Move, result: StepResult, times: tuple[float, float, float]) -> None:
        """Add a turn that the environment has answered; `times` is when it was asked, sampled and stepped."""
        self.lost_tokens = 0
        self._add(move, result.observation, result.reward, times)
        self._labels.append(TurnLabel.MAIN)
        self._judge(result.info)

    def add_internal(self, move: Move, reply: Reply, times: tuple[float, float, float]) -> None:
        """Add a turn that the agent itself has answered."""
        self._internal.append(len(self._turns))
        self._add(move, reply.text, 0.0, times)
        self._labels.append(reply.label)
        self._faults.append(reply.fault)
        self._illegal += reply.fault is TurnFault.ILLEGAL

    def _add(self, move: Move, observation: str, reward: float, times: tuple[float, float, float]) -> None:
        asked_s, sampled_s, stepped_s = times
        action, parent, context_ids, completion_ids, logprobs, finish_reason, policy_version, _ = move
        self._turns.append(
            Turn(
                len(self._turns),
                parent,
                context_ids,
                completion_ids,
                logprobs,
                finish_reason,
                policy_version,
                started_s=asked_s - self._began_s,
                sampled_s=sampled_s - asked_s,
                stepped_s=stepped_s - sampled_s,
            )
        )
        self._actions.append(action)
        self._observations.append(observation)
        self._hashes.append(observation_hash(observation))
        self._rewards.append(reward)

    def _judge(self, info: Info) -> None:
        """Note what the environment says against the newest turn, or by it against an earlier one."""
        fault = TurnFault.NONE
        match blame_of_info(info):
            case Blame.TOOL:
                fault = TurnFault.TOOL_BROKE
            case Blame.AGENT if info.get("illegal"):
                fault = TurnFault.ILLEGAL
                self._illegal += 1
            case Blame.AGENT:
                fault = TurnFault.TOOL_FAILED
        self._faults.append(fault)
        ago = info.get("undoes", 0)
        internal = frozenset(self._internal)
        acted = [turn for turn in range(len(self._faults)) if turn not in internal]
        # One that lies in the replayed prefix has no turn here.
        if isinstance(ago, int) and 0 < ago < len(acted):
            self._faults[acted[-1 - ago]] = TurnFault.UNDONE

    def finish(self, stop: StopReason, verdict: Verdict) -> Trajectory:
        """Return the record of a graded rollout."""
        return self._build(stop, verdict, None)

    def fail(self, code: str, message: str) -> Trajectory:
        """Return the record of a failed rollout: no reward, the turns done so far."""
        failure = RolloutFailure(code, message, len(self._turns))
        logger.warning(
            "rollout failed: trajectory_id=%s task_id=%s turn=%d code=%s %s",
            self.request.id,
            self.request.task_id,
            failure.turn,
            code,
            message,
        )
        return self._build(StopReason.FAILED, Verdict(math.nan, passed=False), failure)

    def _build(self, stop: StopReason, verdict: Verdict, failure: RolloutFailure | None) -> Trajectory:
        request = self.request
        return Trajectory(
            id=request.id,
            env=f"{request.env}@{self.version}" if self.version else request.env,
            params_json=request.params_json,
            task_id=request.task_id,
            group_id=request.group_id,
            index=request.index,
            seed=request.seed,
            start=request.start,
            first_observation=self.first_observation,
            turns=tuple(self._turns),
            actions=tuple(self._actions),
            observations=tuple(self._observations),
            observation_hashes=tuple(self._hashes),
            turn_rewards=tuple(self._rewards),
            illegal_actions=self._illegal,
            reward=verdict.reward,
            passed=verdict.passed,
            stop_reason=stop,
            failure=failure,
            duration_s=perf_counter() - self._began_s,
            policy_step=self._policy_step,
            turn_faults=tuple(self._faults) if any(self._faults) else (),
            lost_tokens=self.lost_tokens,
            turn_labels=tuple(self._labels) if self._internal else (),
            internal_turns=tuple(self._internal),
        )
