"""Whose fault it is: said by environments, kept in the record, counted; the infrastructure's is never a reward."""

from __future__ import annotations

import asyncio
import math

import pytest
from scripted_world import CharTemplate, MemoryRock, ScriptedSampler, a_request

from agent_runtime.agents.chat_loop import run_rollout
from agent_runtime.chat import RefusalKind
from agent_runtime.faults import blame_of_refusal, blame_of_turn, count_blame
from agent_runtime.types import AgentConfig, TurnFault
from rock_env.faults import Blame, blame_of_info


@pytest.mark.parametrize(
    ("info", "blame"),
    [
        ({}, None),
        ({"undoes": 2}, None),
        ({"illegal": True}, Blame.AGENT),
        ({"tool_failed": 1}, Blame.AGENT),
        ({"tool_failed": 0}, None),
        ({"tool_broke": True}, Blame.TOOL),
        ({"tool_broke": True, "tool_failed": True}, Blame.TOOL),
    ],
)
def test_info_says_whose_fault_it_is(info, blame):
    assert blame_of_info(info) is blame


def test_the_record_says_which_and_a_broken_tool_stays_an_example():
    infos = [{"tool_broke": 1}, {"tool_failed": 1}, {"undoes": 1}, {}]
    request = a_request(params={"goal": 99, "infos": infos}, seed=2, agent=AgentConfig(max_turns=4))
    trajectory = asyncio.run(
        run_rollout(request, rock=MemoryRock(), sampler=ScriptedSampler(), template=CharTemplate())
    )
    legal = [k for k in range(4) if not trajectory.actions[k].startswith("d")]
    assert {0, 1} <= set(legal), "choose another seed: an illegal action hides the info"
    assert trajectory.turn_faults[0] is TurnFault.TOOL_BROKE
    assert not trajectory.is_faulty(0)
    assert trajectory.is_faulty(1)
    assert blame_of_turn(trajectory.turn_faults[0]) is Blame.TOOL
    assert count_blame([trajectory])[Blame.TOOL] == 1
    assert count_blame([trajectory])[Blame.AGENT] == sum(
        fault in (TurnFault.ILLEGAL, TurnFault.TOOL_FAILED) for fault in trajectory.turn_faults
    )
    assert count_blame([trajectory])[Blame.INFRASTRUCTURE] == 0


@pytest.mark.parametrize(("params", "fail_at"), [({"fail": {"step1": "infra"}}, -1), ({}, 1)])
def test_a_failure_below_is_the_infrastructures_and_no_reward(params, fail_at):
    request = a_request(params={"goal": 99, **params})
    trajectory = asyncio.run(
        run_rollout(
            request, rock=MemoryRock(), sampler=ScriptedSampler(fail_at=fail_at), template=CharTemplate()
        )
    )
    assert math.isnan(trajectory.reward)
    assert count_blame([trajectory, trajectory])[Blame.INFRASTRUCTURE] == 2


def test_a_refused_request_is_the_engines_fault_only_where_no_other_request_would_do():
    infrastructure = {kind for kind in RefusalKind if blame_of_refusal(kind) is Blame.INFRASTRUCTURE}
    assert infrastructure == {RefusalKind.RATE_LIMIT, RefusalKind.UPSTREAM}
