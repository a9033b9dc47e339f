"""Specs of CLI agents: what is shipped loads, what is wrong is refused with the place and the remedy."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from agent_runtime.agents.spec import PLACEHOLDERS, agent_names, fill, load_agent, read_spec
from rock_env.errors import InvalidArgument, UnknownName

PROMISED = {"aider", "claude-code", "codex", "iflow", "mini-swe-agent", "opencode", "pi", "qwen-code"}
VALUES = {name: f"<{name}>" for name in PLACEHOLDERS}
GOOD = """
name: own
version: "1"
about: mine
dialect: chat
install: {pip: ["own==1.0"], program: "own.cli:main"}
command: ["-p", "{prompt}"]
env: {URL: "{base_url}/v1"}
"""


def test_all_agents_that_were_promised_are_shipped() -> None:
    assert set(agent_names()) >= PROMISED


@pytest.mark.parametrize("name", agent_names())
def test_a_shipped_spec_tells_its_agent_task_address_and_key(name: str) -> None:
    spec = load_agent(name)
    assert spec.name == name
    texts = [*spec.argv(VALUES), *(fill(text, VALUES) for text in (*spec.env.values(), *spec.files.values()))]
    for needed in ("<prompt>", "<base_url>", "<key>", "<model>"):
        assert any(needed in text for text in texts) or (needed == "<prompt>" and spec.stdin == "prompt"), (
            needed
        )
    assert not any(re.search(rf"\{{({'|'.join(PLACEHOLDERS)})\}}", text) for text in texts)


@pytest.mark.parametrize("name", agent_names())
def test_a_shipped_spec_pins_the_version_it_names(name: str) -> None:
    spec = load_agent(name)
    assert spec.install.packages[0].endswith(spec.version)


def test_only_the_agent_whose_service_closed_cannot_be_had() -> None:
    assert [name for name in agent_names() if load_agent(name).unavailable] == ["iflow"]


def test_a_users_own_spec_is_named_by_its_path(tmp_path: Path) -> None:
    path = tmp_path / "own.yaml"
    path.write_text(GOOD)
    spec = load_agent(str(path))
    assert spec.argv(VALUES)[-2:] == ["-p", "<prompt>"]


def test_a_value_that_looks_like_a_placeholder_stays_what_it_is() -> None:
    assert fill("{prompt} {key}", {"prompt": "say {key}", "key": "secret"}) == "say {key} secret"


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ("about: mine", "abut: mine", "about"),
        ("own==1.0", "own>=1.0", "not pinned"),
        ("own==1.0", "own", "not pinned"),
        ("{base_url}", "{base-url}{bas_url}", r"unknown placeholder \{bas_url\} in env.URL"),
        ("{base_url}", "{prompt}", "may stand in the command only"),
        ('"{prompt}"', '"x"', "never told its task"),
        ("own.cli:main", "own", "package.module:function"),
        ('pip: ["own==1.0"], ', "", "exactly one"),
        ("dialect: chat", "dialect: smoke", "no dialect 'smoke', expected one of chat, messages, responses"),
        ("name: own", "name: ../own", "name"),
        ("dialect: chat", "dialect: [", "no YAML"),
        ("about: mine", "about: mine\nfiles: {../x: y}", "below the home folder"),
        ("about: mine", "about: mine\nfiles: {/etc/x: y}", "below the home folder"),
    ],
)
def test_a_wrong_spec_is_refused_by_place(old: str, new: str, says: str) -> None:
    assert old in GOOD
    with pytest.raises(InvalidArgument, match=says) as refused:
        read_spec(GOOD.replace(old, new), source="own.yaml")
    assert "own.yaml" in str(refused.value)


def test_an_unknown_agent_lists_the_known_ones() -> None:
    with pytest.raises(UnknownName, match="qwen-code"):
        load_agent("qwen-cod")


def test_the_folder_is_named_by_what_is_installed_and_by_nothing_else() -> None:
    spec = read_spec(GOOD, source="own.yaml")
    other_command = read_spec(GOOD.replace("-p", "--prompt"), source="own.yaml")
    other_version = read_spec(GOOD.replace("own==1.0", "own==1.1"), source="own.yaml")
    assert spec.folder == other_command.folder != other_version.folder
