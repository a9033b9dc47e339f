"""The JSON face: both ways to write a call, errors that name the field, and schemas that fit what is read."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rock_env.tools import TOOLS, Bash, Edit, Malformed, RunTests, Submit, ToolCall, Undo, View, schemas
from rock_env.tools.json_calls import parse_json_call, render_json_call


@pytest.mark.parametrize(
    ("text", "call"),
    [
        ('{"tool": "bash", "args": {"command": " ls\\n"}}', Bash(" ls\n")),
        ('{"tool": "view", "args": {"path": "a", "first": null}}', View("a")),
        ('{"args": {"path": "a", "first": 1, "last": 2}, "tool": "view"}', View("a", 1, 2)),
        ('{"tool": "edit", "args": {"path": "a", "old": "", "new": "x"}}', Edit("a", "", "x")),
        ('{"tool": "undo"}', Undo()),
        ('{"tool": "run_tests", "args": {}}', RunTests()),
        ('{"tool": "run_tests", "args": {"args": null}}', RunTests()),
        ('{"name": "submit", "arguments": {}}', Submit()),
        ('{"name": "run_tests", "arguments": "{\\"args\\": \\"-k a\\"}"}', RunTests("-k a")),
    ],
)
def test_calls_are_read(text: str, call: ToolCall) -> None:
    assert parse_json_call(text) == call


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ('{"tool": "bash"', "the JSON cannot be read"),
        ("[" * 100_000, "the JSON cannot be read"),
        ("[]", "expected a JSON object"),
        ('{"tool": "viw"}', "tool: no tool 'viw'; the tools are bash, view, edit, undo, run_tests, submit"),
        ('{"args": {}}', "tool: no tool None"),
        ('{"name": 3, "arguments": {}}', "name: no tool 3"),
        ('{"tool": "undo", "argz": {}}', "unknown field 'argz': expected 'tool' and 'args'"),
        ('{"tool": "undo", "args": []}', "args: expected an object, got a list"),
        ('{"name": "undo", "arguments": "{"}', "arguments: the JSON cannot be read"),
        ('{"tool": "bash", "args": {}}', "bash: command: expected a string, but it is missing"),
        ('{"tool": "bash", "args": {"command": 3}}', "bash: command: expected a string, got a number"),
        ('{"tool": "bash", "args": {"command": " "}}', "bash: command: expected text, got none"),
        ('{"tool": "bash", "args": {"command": "\\u0000"}}', "bash: command: the NUL character"),
        ('{"tool": "bash", "args": {"command": "\\ud800"}}', "bash: command: expected text, got half"),
        ('{"tool": "bash", "args": {"cmd": "ls"}}', "bash: unknown argument 'cmd': it takes command"),
        ('{"tool": "undo", "args": {"n": 2}}', "undo: unknown argument 'n': it takes no arguments"),
        (
            '{"tool": "view", "args": {"path": "a", "first": "1"}}',
            "first: expected a line number from 1, got '1'",
        ),
        ('{"tool": "view", "args": {"path": "a", "first": true}}', "first: expected a line number from 1"),
        ('{"tool": "view", "args": {"path": "a", "last": 0}}', "last: expected a line number from 1, got 0"),
        (
            '{"tool": "edit", "args": {"path": "a", "old": "x"}}',
            "edit: new: expected a string, but it is missing",
        ),
        ('{"tool": "edit", "args": {"path": "a", "old": null, "new": ""}}', "edit: old: expected a string"),
    ],
)
def test_errors_name_the_field_and_what_was_expected(text: str, problem: str) -> None:
    read = parse_json_call(text)
    assert isinstance(read, Malformed)
    assert problem in read.problem


@given(
    st.builds(Edit, st.text(min_size=1).filter(lambda t: t.strip() and "\0" not in t), st.text(), st.text())
)
def test_written_calls_are_read_as_the_same(call: Edit) -> None:
    text = render_json_call(call)
    assert text.isascii()
    assert parse_json_call(text) == call


def test_there_is_a_schema_for_every_tool_and_its_examples_are_read() -> None:
    functions = [each["function"] for each in schemas()]
    assert tuple(function["name"] for function in functions) == TOOLS
    samples = {"string": "x", "integer": 1}
    for function in functions:
        parameters = function["parameters"]
        assert set(parameters["required"]) <= set(parameters["properties"])
        for fields in (parameters["required"], list(parameters["properties"])):
            args = {field: samples[parameters["properties"][field]["type"]] for field in fields}
            call = {"name": function["name"], "arguments": json.dumps(args)}
            assert not isinstance(parse_json_call(json.dumps(call)), Malformed)
