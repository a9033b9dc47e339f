"""The real CLI agents, headless in sandboxes, before a scripted policy: what they do, and that the record is exact.

Slow, and only of what is installed: `scripts/agents.sh` installs; `ALE_AGENTS` says where. What is expected of each is in
`compat.agent_expectations`; `python -m benchmarks.agents` shows the same runs as a table.
"""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio
from compat.agent_expectations import AGENTS, misses, not_offered
from compat.agent_policy import Mode
from compat.agent_runs import run_mode

from agent_runtime.agents.install import default_shelf, find_installed
from agent_runtime.agents.spec import load_agent
from rock_env.client import Client
from rock_env.local import embedded

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900), pytest.mark.asyncio(loop_scope="module")]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def client() -> AsyncIterator[Client]:
    """A server with the shelf of installed agents."""
    async with embedded([f"--shelf={default_shelf()}"]) as address, Client(address) as made:
        yield made


def untested(name: str, mode: Mode) -> str:
    """Return why a cell cannot be tested here; empty where it can."""
    spec = load_agent(name)
    if why := not_offered(name, mode):
        return f"{name} has no mode {mode}: {why}"
    if find_installed(spec, default_shelf()) is None:
        return f"{name} {spec.version} is NOT tested: not installed. how: bash scripts/agents.sh {name}"
    return ""


CELLS = [
    pytest.param(name, mode, marks=[pytest.mark.skip(reason=why)] if (why := untested(name, mode)) else [])
    for name in AGENTS
    for mode in Mode
]


@pytest.mark.parametrize(("name", "mode"), CELLS)
async def test_an_agent_does_what_is_known_of_it(client: Client, name: str, mode: Mode) -> None:
    outcome = await run_mode(client, load_agent(name), mode)
    assert not misses(outcome), f"{outcome.account}\n{outcome.end.output.decode(errors='replace')[-2000:]}"
