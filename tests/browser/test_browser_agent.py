"""A real CLI agent plays in the browser over MCP: Codex, before a policy that does by its tools what the oracle would."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import numpy as np
import pytest
from test_browser_mcp import as_seen, tool_for

from agent_runtime.agents.cli_rollout import CliAgent, run_cli_rollout
from agent_runtime.agents.install import default_shelf, find_installed
from agent_runtime.agents.spec import AgentSpec, load_agent
from agent_runtime.gateway.server import Gateway
from agent_runtime.policy import Completion, SampleRequest, first_stop
from agent_runtime.templates.plain import PlainTemplate
from agent_runtime.types import AgentConfig, RolloutRequest, SamplingParams, Start
from rock_env.client import Client
from rock_env.env import Oracle
from rock_env.local import embedded
from sandboxes.browser import ENV
from sandboxes.browser.actions import parse
from sandboxes.browser.catalog import BrowserTasks
from sandboxes.browser.params import BrowserParams

SPEC = load_agent(str(Path(__file__).parents[2] / "sandboxes" / "browser" / "codex.yaml"))
PARAMS = BrowserParams()
TREE = "```yaml"

pytestmark = [
    pytest.mark.timeout(600),
    pytest.mark.skipif(
        find_installed(SPEC, default_shelf()) is None,
        reason="codex is not installed. how: bash scripts/agents.sh codex",
    ),
]


class Scripted:
    """A `Sampler` that reads the newest page out of the prompt and answers with the oracle's next act, as a tool call."""

    stops = True

    def __init__(self, oracle: Oracle, template: PlainTemplate) -> None:
        self._oracle, self._template = oracle, template
        self._told = False

    async def sample(self, request: SampleRequest) -> Completion:
        text = self._answer(self._template.parse(request.prompt_ids, ()).text)
        at, stop = first_stop(text, request.stop)
        text = text[: at + len(stop)] if stop else text
        ids = self._template.encode_answer(text)[: -1 if stop else None][: request.params.max_tokens]
        return Completion(ids, np.full(len(ids), -0.5, np.float32), "stop", 1, stop)

    def _answer(self, prompt: str) -> str:
        if self._told:
            return "Done."
        if TREE not in prompt:
            return call("browser_snapshot", {})
        action = parse(self._oracle(as_seen(prompt[prompt.rindex(TREE) :])))
        self._told = action.op == "send_msg_to_user"
        return call(*tool_for(action))


def call(name: str, arguments: dict[str, object]) -> str:
    return (
        f"<tool_call>\n{json.dumps({'name': f'mcp__browser__{name}', 'arguments': arguments})}\n</tool_call>"
    )


@asynccontextmanager
async def playing(folder: Path) -> AsyncIterator[tuple[Client, Gateway, Path]]:
    gateway = Gateway()
    async with (
        embedded([f"--shelf={default_shelf()}", "--isolation=namespaces"]) as address,
        Client(address) as rock,
        gateway.serving(folder / "gateway"),
    ):
        yield rock, gateway, folder / "gateway"


def find(payload: str) -> str:
    """Return the id of a task, by its template and variant."""
    source = BrowserTasks(PARAMS)
    ids = (f"{split}/{index}" for split in source.splits for index in range(22))
    return next(
        each
        for each in ids
        if source.get(each.partition("/")[0], int(each.partition("/")[2])).payload == payload
    )


@pytest.mark.parametrize("payload", ["files-number/0", "files-clear/0", "signup-register/0"])
async def test_codex_solves_a_task_with_the_browsers_tools(tmp_path: Path, payload: str) -> None:
    spec: AgentSpec = SPEC
    task_id = find(payload)
    split, _, index = task_id.partition("/")
    template = PlainTemplate(1 << 20)
    oracle = ENV.oracle(PARAMS, BrowserTasks(PARAMS).get(split, int(index)))
    async with playing(tmp_path) as (rock, gateway, target):
        agent = CliAgent(spec, gateway, target, Scripted(oracle, template), template)
        request = RolloutRequest(
            id="r",
            env="browser",
            params_json=PARAMS.canonical(),
            task_id=task_id,
            group_id="g",
            index=0,
            seed=0,
            agent=AgentConfig(max_turns=40),
            sampling=SamplingParams(max_tokens=4096),
            start=Start(env_seed=0),
            time_limit_s=300.0,
        )
        played = await run_cli_rollout(request, agent, rock=rock)
    assert played.failure is None, played.failure
    assert (played.reward, played.passed) == (1.0, True), played.details
    assert len(played.turns) > 2
