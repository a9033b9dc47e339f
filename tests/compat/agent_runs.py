"""One run of a real CLI agent in a sandbox: toy repository, gateway, scripted policy, and what came of it.

Used by `benchmarks.agents` and `tests/compat`. Everything between the agent's process and the policy is the product itself.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
from compat.agent_front import Front
from compat.agent_policy import CUT_MARK, FILES, FIXED, Mode, ScriptedPolicy, long_template
from flat_branches import token_arrays

from agent_runtime.agents.cli_run import AgentEnd, AgentRun, run_agent
from agent_runtime.agents.spec import AgentSpec
from agent_runtime.calls.labels import Account, account, labels
from agent_runtime.calls.tree import Drift
from agent_runtime.gateway.http_server import Limits
from agent_runtime.gateway.server import Gateway
from agent_runtime.gateway.session import Budget, Session, SessionEnd
from agent_runtime.graph import validate
from agent_runtime.types import AgentConfig, Branch, RolloutRequest, SamplingParams, Start, TurnLabel
from rock_env.client import Client
from rock_env.client.sandbox.handle import AsyncSandbox
from rock_env.env import Verdict
from rock_env.spec import Resources, SandboxSpec

__all__ = ["Outcome", "run_mode"]

PROMPT = "The test in test_calc.py fails. Fix the bug in calc.py."
ROOM = Resources(cpus=2.0, memory_bytes=3 << 30, disk_bytes=1 << 30, pids=512)
CONTEXT = 1 << 20
"""Of the template, whose tokens are bytes: no run but that of compaction comes near it."""
COMPACTION_ROOM = 48 << 10
"""What an agent that is to compact has beyond its first prompt, in the template's tokens."""
ANSWER = 4096
"""Most tokens of one answer."""
BUDGET = Budget(turns=60, tokens=200_000, time_s=1800.0)
_GIT = "git init -q . && git add -A && git -c user.email=a@b.c -c user.name=toy commit -q -m start"


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of one run."""

    agent: str
    mode: Mode
    fixed: bool
    """The repository's bug is gone, as the sandbox shows; nothing that the agent said counts."""
    exact: bool
    """The record's branches are what the engine saw, and every sampled token is in exactly one of its turns."""
    drift: int
    """Calls that opened a fresh context although they go on from earlier ones, compactions and their summaries apart."""
    unexplained_tokens: int
    """Sampled tokens that no labelled call accounts for."""
    session_end: SessionEnd
    end: AgentEnd
    account: Account
    first_prompt: int
    reasons: dict[str, int] = field(default_factory=dict)
    """Of the drift."""
    blamed: dict[str, int] = field(default_factory=dict)
    """Whose fault the errors were that the agent got in place of answers."""
    happened: bool = False
    """What the mode is about took place: the agent streamed, saw the fault, had a sub-agent, or compacted."""


async def run_mode(
    client: Client, spec: AgentSpec, mode: Mode, *, time_limit_s: float = 300.0, first_prompt: int = 0
) -> Outcome:
    """Let one agent fix the toy repository in one mode. Raise `RockError` where a sandbox, not an agent, fails.

    `first_prompt` is the length of the agent's first prompt, by which compaction is brought about; 0 finds it out.
    """
    context_tokens = CONTEXT
    if mode is Mode.COMPACTION:
        first_prompt = first_prompt or (await run_mode(client, spec, Mode.NORMAL)).first_prompt
        context_tokens = first_prompt + COMPACTION_ROOM
    template = long_template(context_tokens)
    policy = ScriptedPolicy(spec, mode, template)
    late = Limits(sign_of_life_s=0.2) if mode is Mode.STREAMING else Limits()
    gateway = Gateway(limits=late)
    with TemporaryDirectory(prefix="ale-") as folder:
        front = Front(Path(folder, "gateway"), cut_at=CUT_MARK if mode in (Mode.CUT, Mode.LONG_CUT) else "")
        async with gateway.serving(Path(folder, "gateway")), front.serving(Path(folder, "front")) as target:
            session = gateway.open(
                _request(spec, mode, time_limit_s), sampler=policy, template=template, budget=BUDGET
            )
            async with await client.sandboxes.create(
                spec=SandboxSpec(resources=ROOM, lifetime_s=3600.0)
            ) as box:
                await _lay_out(box)
                run = AgentRun(
                    PROMPT,
                    session.key,
                    time_limit_s=time_limit_s,
                    context_tokens=context_tokens,
                    output_tokens=ANSWER,
                )
                end = await run_agent(box, spec, run, gateway=target)
                fixed = await box.files.read("calc.py") == FIXED.encode()
            session_end = await gateway.close(session)
    outcome = _outcome(spec, mode, policy, session, (fixed, session_end, end))
    return replace(outcome, happened=_happened(mode, policy, front, outcome))


async def _lay_out(box: AsyncSandbox) -> None:
    for name, text in FILES.items():
        await box.files.write(name, text.encode())
    made = await box.exec(["sh", "-c", _GIT])
    assert made.ok, made.stderr


def _request(spec: AgentSpec, mode: Mode, time_limit_s: float) -> RolloutRequest:
    return RolloutRequest(
        id=f"{spec.name}-{mode}",
        env="toy",
        params_json="{}",
        task_id="fix",
        group_id=spec.name,
        index=0,
        seed=7,
        agent=AgentConfig(),
        sampling=SamplingParams(max_tokens=ANSWER),
        start=Start(0),
        time_limit_s=time_limit_s,
    )


def _outcome(
    spec: AgentSpec,
    mode: Mode,
    policy: ScriptedPolicy,
    session: Session,
    came: tuple[bool, SessionEnd, AgentEnd],
) -> Outcome:
    fixed, session_end, end = came
    trajectory = session.record("toy@1", Verdict(float(fixed), passed=fixed))
    validate(trajectory)
    # Over all branches each sampled token trains once; concatenated, a branch is a prompt the engine saw, and its answer.
    trained = [ids[trains] for ids, trains, _ in map(token_arrays, trajectory.branches())]
    once = sorted(np.concatenate(trained).tolist()) if trained else []
    sampled = sorted(np.concatenate(policy.sampled).tolist()) if policy.sampled else []
    told = account(session.tree)
    reasons = Counter(
        str(call.drift)
        for call, label in zip(session.tree.calls, labels(session.tree), strict=True)
        if call.drift not in (Drift.NONE, Drift.COMPACTION) and label is not TurnLabel.SUMMARY
    )
    return Outcome(
        agent=spec.name,
        mode=mode,
        fixed=fixed,
        exact=once == sampled and _prompts_seen(trajectory.branches(), policy),
        drift=sum(reasons.values()),
        unexplained_tokens=sum(map(len, policy.sampled)) - sum(told.tokens.values()),
        session_end=session_end,
        end=end,
        account=told,
        first_prompt=len(policy.prompts[0]) if policy.prompts else 0,
        reasons=dict(reasons),
        blamed={str(blame): count for blame, count in session.blamed.items()},
    )


def _happened(mode: Mode, policy: ScriptedPolicy, front: Front, outcome: Outcome) -> bool:
    match mode:
        case Mode.NORMAL:
            return True
        case Mode.STREAMING:
            return front.streams > 0
        case Mode.PARALLEL:
            return policy.both
        case Mode.RATE_LIMIT | Mode.SERVER_ERROR | Mode.OVERFLOW:
            return bool(outcome.blamed)
        case Mode.MALFORMED:
            return outcome.account.malformed > 0 if policy.spec.shell_tool else policy.faulted
        case Mode.UNKNOWN_TOOL:
            return outcome.account.malformed == 1
        case Mode.EMPTY:
            return policy.faulted
        case Mode.CUT | Mode.LONG_CUT:
            return front.cut
        case Mode.SUB_AGENTS:
            return TurnLabel.SUB_AGENT in outcome.account.calls
        case Mode.COMPACTION:
            return TurnLabel.SUMMARY in outcome.account.calls


def _prompts_seen(branches: Iterable[Branch], policy: ScriptedPolicy) -> bool:
    """Return whether every branch, without its last answer, is a prompt that the engine was given."""
    shown = {prompt.tobytes() for prompt in policy.prompts}
    for branch in branches:
        ids, _, _ = token_arrays(branch)
        if ids[: len(ids) - len(branch.turns[-1].completion_ids)].tobytes() not in shown:
            return False
    return True
