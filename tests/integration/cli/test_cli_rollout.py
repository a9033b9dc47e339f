"""A whole rollout of a CLI agent: it works in its environment's own sandbox, which grades it; all of it is in the record."""

from __future__ import annotations

import asyncio
import json
import math
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from agents_at_gateway import TEMPLATE, Gate, Scripted, rollout_request
from docker_engine import engine  # noqa: F401  a fixture
from flat_branches import token_arrays
from own_agent import own_agent, script_agent, shelf_with_own_agent

from agent_runtime.agents.cli_rollout import CliAgent, run_cli_rollout
from agent_runtime.gateway.server import Gateway
from agent_runtime.graph import validate
from agent_runtime.policy import PolicyError, SampleRequest
from agent_runtime.templates.plain import PlainTemplate
from agent_runtime.types import (
    AgentConfig,
    PrefixTurn,
    RolloutRequest,
    SamplingParams,
    Start,
    StopReason,
    Trajectory,
)
from rock_env.client import Client
from rock_env.errors import InvalidArgument
from rock_env.local import embedded

TOYS = Path(__file__).parents[2] / "contract" / "toy_envs.py"
OFFER = [f"--env={TOYS}:{name}" for name in ("TOY", "BOX", "LOG", "IMAGE")]


def said(command: str) -> str:
    """Return an answer of the model that has the agent run a command."""
    return f'<tool_call>\n{{"name": "bash", "arguments": {json.dumps({"command": command})}}}\n</tool_call>'


@dataclass
class Place:
    """A server, a gateway, and an agent on the shelf."""

    client: Client
    gateway: Gateway
    target: tuple[str, int]

    async def play(
        self,
        policy: Scripted,
        *,
        agent: str = "work",
        tokens: int = 100_000,
        context: int = 100_000,
        touched: bool = False,
        limits: AgentConfig | None = None,
        **changes: Any,
    ) -> Trajectory:
        """Play, and check what must hold of every record; `touched`: what is graded is there from the beginning."""
        if touched:
            changes["env"] = "toy_log"
        if limits is not None:
            changes["agent"] = limits
        played = await run_cli_rollout(
            request(**changes),
            self.agent(policy, agent, tokens, context),
            rock=self.client,
            policy_step=5,
            evaluate_limit_s=60,
        )
        validate(played)
        self.check_tokens(policy, played)
        return played

    def agent(self, policy: Scripted, agent: str, tokens: int, context: int) -> CliAgent:
        spec = script_agent() if agent == "script" else own_agent(agent)
        return CliAgent(spec, self.gateway, self.target, policy, PlainTemplate(context), tokens)

    @staticmethod
    def check_tokens(policy: Scripted, played: Trajectory) -> None:
        """Each sampled token is in exactly one turn, and each branch is a prompt that the engine saw, and its answer."""
        shown = {seen.prompt_ids.tobytes() for seen in policy.seen}
        for branch in played.branches():
            ids, _, _ = token_arrays(branch)
            assert ids[: len(ids) - len(branch.turns[-1].completion_ids)].tobytes() in shown
        assert [turn.completion_ids.tolist() for turn in played.turns] == [
            ids.tolist() for ids in policy.sampled
        ]

    async def boxes(self) -> list[str]:
        return [box.id for box in await self.client.sandboxes.list()]


def request(**changes: Any) -> RolloutRequest:
    values: dict[str, Any] = {
        "env": "toy_box",
        "params_json": "{}",
        "task_id": "train/3",
        "agent": AgentConfig(max_turns=20),
        "sampling": SamplingParams(max_tokens=400),
        "start": Start(env_seed=4),
        "time_limit_s": 120.0,
    }
    return rollout_request("r1", **(values | changes))


@asynccontextmanager
async def placed(shelf: Path, *options: str) -> AsyncIterator[Place]:
    gateway = Gateway()
    async with (
        embedded([f"--shelf={shelf}", *OFFER, *options]) as address,
        Client(address) as client,
        gateway.serving() as url,
    ):
        parts = urlsplit(url)
        assert parts.hostname
        assert parts.port
        yield Place(client, gateway, (parts.hostname, parts.port))


@pytest.fixture
async def place(tmp_path: Path) -> AsyncIterator[Place]:
    async with placed(shelf_with_own_agent(tmp_path)) as made:
        yield made


async def test_an_agent_works_in_the_box_of_its_environment_which_grades_it(place: Place) -> None:
    policy = Scripted(
        said("cat seed; echo one >> log"), said("echo two >> log; echo three >> log"), "That is all."
    )
    played = await place.play(policy)
    assert (played.reward, played.passed, played.failure) == (3.0, True, None)
    assert played.stop_reason is StopReason.TERMINATED
    assert (played.env, played.task_id, played.policy_step) == ("toy_box@1", "train/3", 5)
    assert played.first_observation.endswith(
        "Count to 3.\n\nseed 4"
    )  # what the environment says is the agent's prompt
    assert [turn.parent for turn in played.turns] == [None, 0, 1]
    assert played.observations[0].startswith("4")  # from the file that the environment's reset had written
    assert await place.boxes() == []


@pytest.mark.usefixtures("engine")
async def test_an_agent_works_in_the_container_of_its_environment(place: Place) -> None:
    played = await place.play(Scripted("write it down"), agent="script", env="toy_image")
    assert (played.reward, played.failure, len(played.turns)) == (2.0, None, 1)


async def test_an_agent_is_told_the_task_without_the_tools_of_the_environment_and_begins_in_its_folder(
    place: Place,
) -> None:
    played = await place.play(Scripted(said("cat here"), "Nothing."), task_id="test/3", env="toy_log")
    assert played.first_observation.endswith("Write 3 lines into log.\n\nseed 4")
    assert played.observations[0] == "found"


async def test_turns_used_up_end_the_agent_and_what_it_left_is_graded(place: Place) -> None:
    policy = Scripted(said("echo more >> log"))
    played = await place.play(policy, agent="stubborn", limits=AgentConfig(max_turns=2))
    assert (played.stop_reason, played.reward, len(played.turns)) == (StopReason.MAX_TURNS, 2.0, 2)


async def test_tokens_used_up_truncate(place: Place) -> None:
    policy = Scripted(said("echo more >> log"))
    played = await place.play(
        policy, agent="stubborn", tokens=len(TEMPLATE.encode_answer(said("echo more >> log")))
    )
    assert (played.stop_reason, played.reward, len(played.turns)) == (StopReason.TRUNCATED, 1.0, 1)


async def test_time_used_up_truncates(place: Place) -> None:
    played = await place.play(Scripted("x"), agent="slow", time_limit_s=4.0, touched=True)
    assert (played.stop_reason, played.failure, len(played.turns)) == (StopReason.TRUNCATED, None, 1)


async def test_a_full_context_is_told_and_what_was_done_before_is_graded(place: Place) -> None:
    policy = Scripted(said("echo more >> log; seq 1 3000"))
    played = await place.play(policy, context=4000)
    assert (played.stop_reason, played.reward, len(played.turns)) == (StopReason.CONTEXT_FULL, 1.0, 1)


async def test_an_opening_that_does_not_fit_is_no_crash_and_is_told(
    place: Place, caplog: pytest.LogCaptureFixture
) -> None:
    played = await place.play(Scripted("x"), context=500, touched=True)
    assert (played.stop_reason, played.failure, played.turns) == (StopReason.CONTEXT_FULL, None, ())
    assert "the opening of agent own does not fit a context of 500 tokens" in caplog.text


async def test_an_agent_that_is_killed_is_cut_short_not_done(place: Place) -> None:
    played = await place.play(Scripted("x"), agent="killed", touched=True)
    assert (played.stop_reason, played.failure, len(played.turns)) == (StopReason.TRUNCATED, None, 1)


async def test_an_agent_that_is_killed_while_it_waits_for_an_answer_is_cut_short_too(place: Place) -> None:
    """What kills it may be the policy's own doing, as a program in the background that eats the memory."""
    policy = Scripted(
        said("echo one >> log; (sleep 1; kill -9 $PPID) > /dev/null 2>&1 &"), Gate("never let out")
    )
    played = await place.play(policy)
    assert (played.stop_reason, played.failure, played.reward) == (StopReason.TRUNCATED, None, 1.0)
    assert len(played.turns) == 1


async def test_an_agent_that_never_spoke_has_no_reward_and_its_last_words_are_told(place: Place) -> None:
    played = await place.play(Scripted("x"), agent="silent", touched=True)
    assert played.failure is not None
    assert math.isnan(played.reward)
    assert played.failure.code == "agent_never_spoke"
    assert "exit code 3" in played.failure.message
    assert "there is no such model" in played.failure.message


async def test_an_agent_that_hangs_up_has_no_reward(place: Place) -> None:
    played = await place.play(Scripted(Gate("late")), agent="hasty", touched=True)
    assert played.failure is not None
    assert (played.failure.code, played.turns) == ("agent_gone", ())


async def test_a_policy_that_fails_is_no_reward_of_0(place: Place) -> None:
    played = await place.play(Scripted(PolicyError("out of memory")), touched=True)
    assert played.failure is not None
    assert (played.failure.code, played.stop_reason) == ("policy", StopReason.FAILED)


async def test_an_environment_that_cannot_be_graded_keeps_the_turns(place: Place) -> None:
    played = await place.play(Scripted(said("true"), "Nothing to do."))  # no log: nothing can be counted
    assert played.failure is not None
    assert (len(played.turns), math.isnan(played.reward)) == (2, True)


async def test_a_lost_sandbox_is_a_failure_with_the_turns_so_far(place: Place) -> None:
    async def end_the_box(_: SampleRequest) -> str:
        for box in await place.boxes():
            await (await place.client.sandboxes.attach(box)).delete()
        return said("true")

    played = await place.play(Scripted(said("echo one >> log"), end_the_box))
    assert played.failure is not None
    assert played.failure.code in ("sandbox_lost", "env_lost", "not_found", "infra", "unavailable"), (
        played.failure
    )
    assert len(played.turns) >= 1


async def test_what_cannot_be_is_told(place: Place) -> None:
    without = await place.play(Scripted(), env="toy", task_id="train/3")
    assert without.failure is not None
    assert "toy is an environment without one" in without.failure.message
    unknown = await place.play(Scripted(), env="nowhere")
    assert unknown.failure is not None
    assert (unknown.failure.code, unknown.env) == ("unknown_name", "nowhere")
    for start in (Start(4, "seed 4", (PrefixTurn("ls", "seed\n"),)), Start(4, hint="say ls")):
        with pytest.raises(InvalidArgument, match="begins at the task's own start"):
            await place.play(Scripted(), start=start)


async def test_an_agent_that_is_not_on_the_shelf_is_told_with_the_remedy(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    async with placed(tmp_path / "empty") as place:
        played = await place.play(Scripted())
    assert played.failure is not None
    assert "ale agent install own" in played.failure.message


async def test_a_rollout_that_is_cancelled_leaves_nothing(place: Place) -> None:
    policy = Scripted(Gate("late"))
    playing = asyncio.ensure_future(place.play(policy))
    await policy.asked.wait()
    playing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await playing
    assert await place.boxes() == []
