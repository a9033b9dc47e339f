"""A CLI agent as an environment: a real process asks, and whoever steps the environment answers."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from agents_at_gateway import rollout_request
from unit.agent_runtime.scripted_world import CharTemplate

from agent_runtime.agents.oracle import record_expert
from agent_runtime.gateway.pull import PulledAgent
from agent_runtime.gateway.server import Gateway
from agent_runtime.gateway.session import Budget, Session, SessionEnd
from agent_runtime.types import StopReason
from rock_env.env import Verdict, observation_hash
from rock_env.errors import FailedPrecondition, InfraError, ResetDivergence

AGENT = """
import json, sys, urllib.request
url, key, work = sys.argv[1:]
history = [{"role": "system", "content": "You are an agent."}, {"role": "user", "content": "fix it"}]
tools = [{"type": "function", "function": {"name": "write", "description": "Write the file.", "parameters": {}}}]
while True:
    body = json.dumps({"model": "m", "messages": history, "tools": tools}).encode()
    headers = {"authorization": "Bearer " + key, "content-type": "application/json"}
    try:
        reply = urllib.request.urlopen(urllib.request.Request(url + "/v1/chat/completions", body, headers))
    except urllib.error.HTTPError:
        sys.exit(1)
    message = json.load(reply)["choices"][0]["message"]
    history.append(message)
    for call in message.get("tool_calls") or ():
        open(work, "w").write(json.loads(call["function"]["arguments"])["text"])
        history.append({"role": "tool", "tool_call_id": call["id"], "content": "written"})
    if not message.get("tool_calls"):
        break
"""
WRITE = '<tool_call>\n{"name": "write", "arguments": {"text": "fixed"}}\n</tool_call>'


@asynccontextmanager
async def pulled(
    folder: Path, *, budget: Budget | None = None, program: str = AGENT
) -> AsyncIterator[PulledAgent]:
    work = folder / "work"
    gateway = Gateway()

    async def grade() -> Verdict:
        fixed = work.exists() and work.read_text() == "fixed"
        return Verdict(float(fixed), passed=fixed)

    async with gateway.serving() as url:

        async def run(session: Session) -> None:
            process = await asyncio.create_subprocess_exec(
                sys.executable, "-c", program, url, session.key, str(work)
            )
            try:
                await process.wait()
            finally:
                if process.returncode is None:
                    process.kill()
                    await process.wait()

        env = PulledAgent(gateway, rollout_request(), run=run, grade=grade, budget=budget or Budget())
        try:
            yield env
        finally:
            await env.close()


async def test_a_program_is_played_to_its_end(tmp_path: Path) -> None:
    async with pulled(tmp_path) as env:
        observation, _, instruction = await env.reset("t", 0)
        assert "<user>\nfix it" in observation
        assert '"name": "write"' in observation
        assert observation.endswith("<assistant>\n")
        assert "tool calls" in instruction
        assert not (await env.evaluate()).passed

        result = await env.step(f"I write it.\n{WRITE}")
        assert not result.terminated
        assert "written" in result.observation
        assert "fix it" not in result.observation  # only what is new

        result = await env.step("Done.")
        assert result.terminated
        assert "exited" in result.observation
        assert (await env.evaluate()).passed
        with pytest.raises(FailedPrecondition, match="the agent has ended"):
            await env.step("more")


@pytest.mark.first
async def test_the_rollout_of_any_environment_plays_it(tmp_path: Path) -> None:
    """What plays environments plays a CLI agent: here somebody who knows the answers."""
    async with pulled(tmp_path) as env:

        class Rock:
            async def make(self, name: str, params_json: str) -> PulledAgent:
                return env

        answers = iter([WRITE, "Done."])
        trajectory = await record_expert(
            rollout_request(), rock=Rock(), oracle=lambda _: next(answers), template=CharTemplate()
        )
        assert trajectory.passed
        assert trajectory.stop_reason is StopReason.TERMINATED
        assert trajectory.actions == (WRITE, "Done.")
        assert "written" in trajectory.observations[0]


async def test_a_malformed_call_is_an_illegal_action(tmp_path: Path) -> None:
    async with pulled(tmp_path) as env:
        await env.reset("t", 0)
        result = await env.step('<tool_call>\n{"name": 3}\n</tool_call>')
        assert result.info["illegal"] is True


async def test_a_budget_truncates(tmp_path: Path) -> None:
    async with pulled(tmp_path, budget=Budget(turns=1)) as env:
        await env.reset("t", 0)
        result = await env.step(WRITE)
        assert (result.terminated, result.truncated) == (False, True)
        assert "turns" in result.observation


async def test_a_reset_replays_a_prefix_and_notices_another_agent(tmp_path: Path) -> None:
    async with pulled(tmp_path) as env:
        first, _, _ = await env.reset("t", 0)
        second = (await env.step(WRITE)).observation
        prefix = [(WRITE, observation_hash(second))]
        again, _, _ = await env.reset("t", 0, prefix, initial_hash=observation_hash(first))
        assert again == second
        assert (await env.step("Done.")).terminated
        with pytest.raises(ResetDivergence, match="after 1 answers"):
            await env.reset(
                "t", 0, [("Done.", observation_hash(second))], initial_hash=observation_hash(first)
            )
        with pytest.raises(ResetDivergence, match="first request"):
            await env.reset("t", 0, prefix, initial_hash=b"else")


async def test_closing_ends_the_program_and_its_session(tmp_path: Path) -> None:
    async with pulled(tmp_path) as env:
        await env.reset("t", 0)
        session = env.session
        assert session is not None
        await env.close()
        assert session.end is not SessionEnd.EXITED
        with pytest.raises(FailedPrecondition):
            await env.step("late")


async def test_an_agent_that_asks_nothing_is_told_as_it_is(tmp_path: Path) -> None:
    async with pulled(tmp_path, program="pass") as env:
        observation, _, _ = await env.reset("t", 0)
        assert observation == "[the agent has ended: never_spoke]"


async def test_what_fails_while_the_agent_runs_is_raised_by_the_step(tmp_path: Path) -> None:
    gateway = Gateway()

    async def run(session: Session) -> None:
        raise InfraError("the sandbox is gone")

    async def grade() -> Verdict:
        return Verdict(0.0, passed=False)

    async with gateway.serving():
        env = PulledAgent(gateway, rollout_request(), run=run, grade=grade)
        with pytest.raises(InfraError, match="sandbox is gone"):
            await env.reset("t", 0)
        await env.close()
