"""What a run of a real agent is held to. The runs themselves are in tests/compat; here is that they can fail."""

from __future__ import annotations

from dataclasses import replace

import pytest
from compat.agent_expectations import AGENTS, expected, misses, not_offered, page
from compat.agent_policy import Mode
from compat.agent_runs import Outcome

from agent_runtime.agents.cli_run import AgentEnd, Ending
from agent_runtime.agents.spec import agent_names, load_agent
from agent_runtime.calls.labels import Account
from agent_runtime.gateway.session import SessionEnd
from agent_runtime.types import TurnLabel

GOOD = Outcome(
    agent="pi",
    mode=Mode.NORMAL,
    fixed=True,
    exact=True,
    drift=0,
    unexplained_tokens=0,
    session_end=SessionEnd.EXITED,
    end=AgentEnd(Ending.EXITED, 0, None, 1.0, b"", 0),
    account=Account({TurnLabel.MAIN: 3}, {TurnLabel.MAIN: 90}, {}, 0, 0),
    first_prompt=100,
    happened=True,
)


def labelled(*labels: TurnLabel) -> Account:
    return replace(GOOD.account, calls=dict.fromkeys(labels, 1))


def test_a_run_as_expected_misses_nothing():
    assert misses(GOOD) == []


@pytest.mark.parametrize(
    ("change", "word"),
    [
        ({"exact": False}, "record"),
        ({"unexplained_tokens": 3}, "3 sampled tokens"),
        ({"session_end": SessionEnd.NEVER_SPOKE}, "never asked"),
    ],
)
@pytest.mark.parametrize("agent", ["pi", "an agent of my own"])
def test_every_agent_needs_an_exact_record(change, word, agent):
    assert any(word in miss for miss in misses(replace(GOOD, agent=agent, **change)))


@pytest.mark.parametrize(
    ("change", "word"),
    [
        ({"fixed": False}, "fixed"),
        ({"happened": False}, "did not take place"),
        ({"drift": 1, "reasons": {"history rewritten": 1}}, "drift"),
        ({"account": labelled(TurnLabel.MAIN, TurnLabel.SIDE)}, "labels"),
        ({"session_end": SessionEnd.CONTEXT_FULL}, "end"),
        ({"mode": Mode.LONG_CUT}, "superseded"),
        ({"mode": Mode.EMPTY}, "fixed"),
    ],
)
def test_a_known_agent_is_held_to_what_it_did(change, word):
    assert [miss for miss in misses(replace(GOOD, **change)) if word in miss]
    assert misses(replace(GOOD, agent="an agent of my own", **change)) == []


def test_each_agent_that_can_be_had_is_known_in_every_mode_that_it_offers():
    assert sorted(AGENTS) == [name for name in agent_names() if not load_agent(name).unavailable]
    for name in AGENTS:
        assert expected(name, Mode.NORMAL) is not None
        assert not not_offered(name, Mode.NORMAL)
    for mode in Mode:
        assert any(not not_offered(name, mode) for name in AGENTS)


def test_the_page_tells_what_was_not_offered_installed_or_expected():
    cell = {
        "agent": "pi",
        "version": "1",
        "mode": "normal",
        "fixed": False,
        "exact": True,
        "reasons": {},
        "unexplained_tokens": 0,
        "calls": {"main": 3},
        "session_end": "exited",
        "exit_code": 0,
        "misses": ["fixed: got False, expected True"],
    }
    told = page(
        [
            cell,
            {"agent": "pi", "mode": "sub_agents", "not_offered": "it has none"},
            {"agent": "iflow", "not_installed": "it is gone"},
        ]
    )
    assert "| normal | no (**unexpected**) |" in told
    assert "| sub_agents | – |" in told
    assert "not offered: it has none" in told
    assert "- `iflow`: not installed (it is gone)" in told
