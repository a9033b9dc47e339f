"""One rollout of a CLI agent, top to bottom: make, reset, session, agent, grade, record, close; out comes a `Trajectory`.

The agent works in the sandbox of the environment itself, which then grades what it left; none of its steps is an action
of the environment. As in `run`, a failure of the environment, the sandbox or the policy is data, never a reward of 0,
and nothing here retries. How a rollout ends:

    the agent exits by itself                         terminated, graded
    its turns are used up: it is ended                max_turns, graded
    its tokens or its time are used up: it is ended   truncated, graded
    its program is killed, as for want of memory      truncated, graded
    its context is full, and it gives up              context_full, graded
    it asks nothing, or only what cannot be answered,
    hangs up, or its policy fails                     failed
"""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass, replace
from time import perf_counter
from typing import Protocol

from agent_runtime.agents.cli_run import AgentBox, AgentEnd, AgentRun, Ending, box_python, run_agent
from agent_runtime.agents.spec import AgentSpec
from agent_runtime.agents.tunnel import BoxPython, Target
from agent_runtime.calls.record import trajectory
from agent_runtime.calls.tree import CallTree
from agent_runtime.chat import ToolTemplate
from agent_runtime.gateway.server import Gateway
from agent_runtime.gateway.session import Budget, Session, SessionEnd
from agent_runtime.policy import Sampler
from agent_runtime.recording import attached
from agent_runtime.run import (
    EVALUATE_LIMIT_S,
    RockEnv,
    close_surely,
    graded,
    hosting,
    limit,
    log_failure,
    reset_to,
)
from agent_runtime.types import (
    OF_FIRST,
    OF_GRADE,
    Hosting,
    RecordedArtifact,
    RolloutFailure,
    RolloutRequest,
    StopReason,
    Trajectory,
)
from rock_env.backends.docker.bundle import BOX_TOOLS
from rock_env.client.sandbox.handle import AsyncSandbox
from rock_env.env import Verdict
from rock_env.errors import InvalidArgument, NotFound, RockError

__all__ = ["BoxedEnv", "BoxedRock", "CliAgent", "run_cli_rollout"]

logger = logging.getLogger(__name__)

_CUT_SHORT = (Ending.KILLED, Ending.OUT_OF_MEMORY)
_SAID_CHARS = 500
"""Of the end of an agent's output, in the message about one that never spoke."""


class BoxedEnv(RockEnv, Protocol):
    """An environment that acts in a sandbox, as `rock_env.client.AsyncEnv`."""

    @property
    def brief(self) -> str:
        """Return the task without the environment's own tools, after a reset; empty: the instruction is that."""
        ...

    @property
    def workdir(self) -> str:
        """Return the folder where the agent begins, after a reset; empty: where the sandbox's commands do."""
        ...

    async def sandbox(self) -> AsyncSandbox:
        """Return the sandbox of the present episode. Raise `FailedPrecondition` where there is none."""
        ...


class BoxedRock(Protocol):
    """Where such environments come from."""

    async def make(self, env: str, params_json: str) -> BoxedEnv:
        """Make an environment. Raise `RockError`."""
        ...


@dataclass(frozen=True, slots=True)
class CliAgent:
    """A CLI agent, and the policy that it takes for its provider."""

    spec: AgentSpec
    gateway: Gateway
    target: Target
    """Where the gateway is served, as seen from here."""
    sampler: Sampler
    template: ToolTemplate
    tokens: int = 1_000_000
    """Most tokens sampled in one rollout; its turns and its time are the request's."""


async def run_cli_rollout(
    request: RolloutRequest,
    agent: CliAgent,
    *,
    rock: BoxedRock,
    policy_step: int = 0,
    evaluate_limit_s: float = EVALUATE_LIMIT_S,
) -> Trajectory:
    """Let the agent work on one task, and return the record, failed or not.

    Making and resetting the environment may take `time_limit_s`, and then the agent as long again. Raise `InvalidArgument`
    for a start after a prefix or with a hint. What is a bug, and cancellation, propagates after all was closed.
    """
    _check_start(request)
    env: BoxedEnv | None = None
    session: Session | None = None
    end: AgentEnd | None = None
    name = request.env
    hosted: Hosting | None = None
    artifacts: tuple[RecordedArtifact, ...] = ()
    began_s = perf_counter()
    outcome: Verdict | RolloutFailure
    try:
        async with limit(request.time_limit_s, "making and resetting the environment"):
            env = await rock.make(request.env, request.params_json)
            name, made_s = f"{request.env}@{env.version}", perf_counter()
            observation, instruction = await reset_to(env, request.task_id, request.start)
            hosted = hosting(env, began_s, made_s)
            artifacts = attached(env, OF_FIRST)
            box = await env.sandbox()
        session = _open(agent, request)
        async with box:
            prompt = f"{env.brief or instruction}\n\n{observation}".strip()
            end = await _work(agent, session, box, prompt, env.workdir)
        if session.failure is None:
            outcome, hosted = await graded(env, hosted, evaluate_limit_s)
            artifacts += attached(env, OF_GRADE)
        else:
            outcome = session.failure
    except RockError as error:
        outcome = RolloutFailure(error.code, str(error), len(session.tree.calls) if session else 0)
    finally:
        if session is not None:
            await asyncio.shield(agent.gateway.close(session))
        if env is not None:
            await close_surely(env, request.id)
    if isinstance(outcome, RolloutFailure):
        outcome = _told(outcome, end, request)
    if session is None:
        assert isinstance(outcome, RolloutFailure)  # without one nothing was graded
        tree = CallTree(agent.template)
        return trajectory(tree, request, name, StopReason.FAILED, outcome, policy_step=policy_step)
    told = session.record(name, outcome, policy_step=policy_step)
    recorded = replace(told, hosting=hosted, artifacts=artifacts)
    if recorded.stop_reason is StopReason.CONTEXT_FULL and not recorded.turns:
        _say_too_long(agent, request)
    if end is not None and end.ending in _CUT_SHORT and recorded.has_reward:
        return replace(recorded, stop_reason=StopReason.TRUNCATED)
    return recorded


def _say_too_long(agent: CliAgent, request: RolloutRequest) -> None:
    logger.warning(
        "nothing to learn: the opening of agent %s does not fit a context of %d tokens less an answer of %d. Raise the "
        "model's max_context or lower sampling.max_tokens. trajectory_id=%s",
        agent.spec.name,
        agent.template.max_context,
        request.sampling.max_tokens,
        request.id,
    )


def _check_start(request: RolloutRequest) -> None:
    start = request.start
    if start.prefix or start.hint:
        what = f"after {start.anchor} turns" if start.prefix else "with a hint"
        raise InvalidArgument(
            f"rollout {request.id} begins {what}, but a CLI agent begins at the task's own start: the model's turns in a "
            "session are no actions of the environment, and an expert's are none of the agent's. Set "
            "anchors.scheduler='none'."
        )


def _open(agent: CliAgent, request: RolloutRequest) -> Session:
    budget = Budget(turns=request.agent.max_turns, tokens=agent.tokens, time_s=request.time_limit_s)
    return agent.gateway.open(request, sampler=agent.sampler, template=agent.template, budget=budget)


async def _work(agent: CliAgent, session: Session, box: AsyncSandbox, prompt: str, workdir: str) -> AgentEnd:
    """Let the agent work to its end and close its session. Raise `RockError` where the sandbox, not the agent, failed."""
    request = session.request
    run = AgentRun(
        prompt,
        session.key,
        workdir=workdir,
        time_limit_s=request.time_limit_s,
        context_tokens=agent.template.max_context,
        output_tokens=request.sampling.max_tokens,
    )
    inside: AgentBox = box
    end = await run_agent(
        inside, agent.spec, run, gateway=agent.target, python=await _python_of(box), stop=session.spent
    )
    told = SessionEnd.TIME if end.ending is Ending.OUT_OF_TIME else None
    if end.ending in _CUT_SHORT and session.end is SessionEnd.CLIENT_GONE and session.tree.calls:
        told = SessionEnd.EXITED  # it did not hang up by itself
    await agent.gateway.close(session, told)
    return end


async def _python_of(box: AsyncSandbox) -> BoxPython:
    """Return the Python in a box: ROCK's own where its backend brings one, as those of images do; else its `python3`."""
    try:
        await box.files.stat(f"{BOX_TOOLS}/ld.so")
    except (NotFound, InvalidArgument):  # no such file, or none in the box's own folders
        return box_python("")
    return box_python("an image")


def _told(failure: RolloutFailure, end: AgentEnd | None, request: RolloutRequest) -> RolloutFailure:
    """Return the failure, with what the agent said last where it never spoke to the gateway; and log it."""
    if end is not None and failure.code == "agent_never_spoke":
        how = f"signal {end.signal}" if end.signal is not None else f"exit code {end.exit_code}"
        said = end.output.decode(errors="replace").strip()[-_SAID_CHARS:]
        failure = replace(
            failure, message=f"{failure.message}; {end.ending} ({how}), its last words: {said!r}"
        )
    log_failure(request, failure)
    return failure
