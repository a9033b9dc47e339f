"""The browser's MCP server without a browser: whatever a client sends is answered, and tools mean actions that exist."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandboxes.browser.actions import ACTIONS
from sandboxes.browser.box.mcp import TOOLS, answer

SEEN: dict[str, Any] = {
    "error": "",
    "notes": ["a dialog"],
    "tabs": [["One", "http://x.test/"], ["Two", "http://x.test/2"]],
    "active": 1,
    "tree": '- button "Go" [ref=e1]',
    "picture": "",
}
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=12),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["ref", "url", "fields", "index", "time", "action", "values"]), inner
        )
    ),
    max_leaves=8,
)


def see(request: dict[str, Any]) -> dict[str, Any]:
    assert request["do"] in ("act", "look", "picture", "tell")
    if request["do"] == "act":
        assert request["op"] in ACTIONS
        json.dumps(request["args"], allow_nan=False)
    return SEEN


@given(JSON, st.sampled_from(["initialize", "ping", "tools/list", "tools/call", "x"]), JSON)
def test_any_message_is_answered_unless_it_wants_no_answer(
    number: object, method: str, params: object
) -> None:
    for message in (params, {"id": number, "method": method, "params": params}):
        reply = answer(message, see)
        if reply is not None:
            assert ("result" in reply) != ("error" in reply)
            json.dumps(reply)


@given(st.sampled_from(sorted(TOOLS)), JSON)
def test_any_arguments_are_an_action_or_told_to_be_wrong(name: str, arguments: object) -> None:
    reply = answer({"id": 1, "method": "tools/call", "params": {"name": name, "arguments": arguments}}, see)
    assert reply is not None
    assert isinstance(reply["result"]["content"], list)


def test_what_was_seen_is_told_with_its_tabs_and_events() -> None:
    called = {
        "id": 1,
        "method": "tools/call",
        "params": {"name": "browser_click", "arguments": {"ref": "e1"}},
    }
    reply = answer(called, see)
    assert reply is not None
    assert reply["result"]["content"][0]["text"].splitlines() == [
        "### Events",
        "- a dialog",
        "### Open tabs",
        "- 0: [One] (http://x.test/)",
        "- 1: (current) [Two] (http://x.test/2)",
        "### Page",
        "- Page URL: http://x.test/2",
        "- Page Title: Two",
        "### Snapshot",
        "```yaml",
        '- button "Go" [ref=e1]',
        "```",
    ]


@pytest.mark.parametrize("message", [{"method": "notifications/initialized"}, {"method": "x", "id": None}])
def test_a_notification_is_not_answered(message: dict[str, object]) -> None:
    assert answer(message, see) is None
