"""The real CLI agents, headless in sandboxes, before a scripted policy: what they do, and that the record is exact.

Slow, and only of what is installed: `scripts/agents.sh` installs; `ALE_AGENTS` says where. `normal` is measured with these
versions; what the faults lead to is expected from an earlier study (docs/agents.md). A version that does otherwise fails.
"""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from agent_runtime.agents.install import default_shelf, find_installed
from agent_runtime.agents.spec import agent_names, load_agent
from agent_runtime.gateway.session import SessionEnd
from agent_runtime.types import TurnLabel
from benchmarks.agent_policy import Mode
from benchmarks.agent_runs import Outcome, run_mode
from rock_env.client import Client
from rock_env.local import embedded

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]

AGENTS = [name for name in agent_names() if not load_agent(name).unavailable]
UNFIXED = {
    ("codex", Mode.OVERFLOW),
    ("mini-swe-agent", Mode.OVERFLOW),
    ("opencode", Mode.EMPTY),
    ("pi", Mode.CUT),
    ("pi", Mode.EMPTY),
    ("aider", Mode.EMPTY),
}
"""They give up there, by themselves and often with exit code 0: no fault of the gateway's."""
SUB_AGENTS = {"claude-code", "opencode", "qwen-code"}


@pytest.fixture
async def client() -> AsyncIterator[Client]:
    """A server with the shelf of installed agents."""
    shelf = default_shelf()
    shelf.mkdir(parents=True, exist_ok=True)
    async with embedded([f"--shelf={shelf}"]) as address, Client(address) as made:
        yield made


async def played(client: Client, name: str, mode: Mode) -> Outcome:
    """Run an agent in a mode and check what must hold whatever it does."""
    spec = load_agent(name)
    if find_installed(spec, default_shelf()) is None:
        pytest.skip(f"{name} {spec.version} is NOT tested: not installed. Get it: scripts/agents.sh {name}")
    outcome = await run_mode(client, spec, mode)
    assert outcome.session_end is not SessionEnd.NEVER_SPOKE, outcome.end.output.decode(errors="replace")[
        -2000:
    ]
    assert outcome.exact
    assert outcome.unexplained_tokens == 0
    return outcome


@pytest.mark.parametrize("name", AGENTS)
async def test_an_agent_fixes_the_bug_and_appends_only(client: Client, name: str) -> None:
    outcome = await played(client, name, Mode.NORMAL)
    assert outcome.fixed, outcome.end.output.decode(errors="replace")[-2000:]
    assert outcome.drift == 0, outcome.reasons
    assert set(outcome.account.calls) <= {TurnLabel.MAIN, TurnLabel.SIDE}


@pytest.mark.parametrize(
    "mode", [mode for mode in Mode if mode not in (Mode.NORMAL, Mode.SUB_AGENTS, Mode.COMPACTION)]
)
@pytest.mark.parametrize("name", AGENTS)
async def test_an_agent_meets_a_fault(client: Client, name: str, mode: Mode) -> None:
    outcome = await played(client, name, mode)
    assert outcome.fixed is ((name, mode) not in UNFIXED), outcome.end.output.decode(errors="replace")[-2000:]


@pytest.mark.parametrize("name", sorted(SUB_AGENTS))
async def test_calls_of_sub_agents_are_told_apart(client: Client, name: str) -> None:
    outcome = await played(client, name, Mode.SUB_AGENTS)
    assert outcome.fixed, outcome.end.output.decode(errors="replace")[-2000:]
    assert outcome.account.calls[TurnLabel.SUB_AGENT] >= 1


@pytest.mark.parametrize("name", ["claude-code", "codex", "opencode", "pi", "qwen-code"])
async def test_a_compaction_is_a_summary_and_goes_on(client: Client, name: str) -> None:
    outcome = await played(client, name, Mode.COMPACTION)
    assert outcome.account.calls.get(TurnLabel.SUMMARY, 0) >= 1, outcome.account
    assert outcome.fixed
