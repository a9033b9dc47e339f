"""The JSON face of the tools: `{"tool": NAME, "args": {...}}`, and the tools' schemas as chat APIs take them.

`{"name": NAME, "arguments": {...}}` is read as well, since that is what a model that was given the schemas writes;
its arguments may be a string of JSON. A field that is wrong is named with what was expected.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from typing import Any

from rock_env.tools.calls import TOOLS, Bash, Edit, Malformed, RunTests, Submit, ToolCall, Undo, View

__all__ = ["call_from", "looks_like_json_call", "parse_json_call", "render_json_call", "schemas"]

_MOST_LINES = 10**9 - 1
_LOOKS = re.compile(r'\{\s*"(?:tool|args|name|arguments)"\s*:')
_BUILD: Mapping[str, Callable[..., ToolCall]] = {
    "bash": Bash, "view": View, "edit": Edit, "undo": Undo, "run_tests": RunTests, "submit": Submit
}  # fmt: skip
_TEXT = {"type": "string"}
_LINE = {"type": "integer", "minimum": 1}
_PATH = {**_TEXT, "description": "relative to the project folder, or absolute"}
_WHAT: Mapping[str, tuple[str, Mapping[str, Mapping[str, Any]], tuple[str, ...]]] = {
    "bash": (
        "Run a shell command. Working folder, variables and functions last from one command to the next.",
        {"command": {**_TEXT, "description": "the command, of one or more lines"}},
        ("command",),
    ),
    "view": (
        "Show a file, or lines of it, or the entries of a folder.",
        {
            "path": _PATH,
            "first": {**_LINE, "description": "first line to show, counted from 1"},
            "last": {**_LINE, "description": "last line to show"},
        },
        ("path",),
    ),
    "edit": (
        "Replace a piece of a file. The old text must be in the file exactly once, to the last blank.",
        {
            "path": _PATH,
            "old": {**_TEXT, "description": "the text to replace; empty creates the file"},
            "new": {**_TEXT, "description": "the text to put there"},
        },
        ("path", "old", "new"),
    ),
    "undo": ("Take the last edit back. Called again, it goes further back.", {}, ()),
    "run_tests": (
        "Run the project's tests.",
        {"args": {**_TEXT, "description": "added to the test command, such as the path of a test file"}},
        (),
    ),
    "submit": ("End the task. What is in the project folder then is graded.", {}, ()),
}


def schemas() -> list[dict[str, Any]]:
    """Return the tools as chat APIs take them: a list of `{"type": "function", "function": {...}}`."""
    return [
        {
            "type": "function",
            "function": {
                "name": name,
                "description": what,
                "parameters": {
                    "type": "object",
                    "properties": {field: dict(schema) for field, schema in fields.items()},
                    "required": list(required),
                    "additionalProperties": False,
                },
            },
        }
        for name, (what, fields, required) in _WHAT.items()
    ]


def looks_like_json_call(text: str) -> bool:
    """Tell a JSON call, also a broken one, from a shell command that begins with a brace."""
    return bool(_LOOKS.match(text))


def parse_json_call(text: str) -> ToolCall | Malformed:
    """Read a JSON object as a call, or say which field is wrong and what was expected."""
    try:
        message = json.loads(text)
    except (ValueError, RecursionError) as problem:
        return Malformed(f"the JSON cannot be read: {problem}")
    if not isinstance(message, dict):
        return Malformed(f'expected a JSON object {{"tool": ..., "args": {{...}}}}, got {_kind(message)}')
    name_field, args_field = ("name", "arguments") if "name" in message else ("tool", "args")
    unknown = sorted(set(message) - {name_field, args_field})
    if unknown:
        return Malformed(f"unknown field {unknown[0]!r}: expected {name_field!r} and {args_field!r}")
    args = message.get(args_field, {})
    if args_field == "arguments" and isinstance(args, str):
        try:
            args = json.loads(args)
        except (ValueError, RecursionError) as problem:
            return Malformed(f"arguments: the JSON cannot be read: {problem}")
    if not isinstance(args, dict):
        return Malformed(f"{args_field}: expected an object, got {_kind(args)}")
    return call_from(message.get(name_field), args, named=name_field)


def call_from(tool: object, args: Mapping[str, Any], *, named: str = "tool") -> ToolCall | Malformed:
    """Build the call of a tool from its name and arguments, or say what is wrong with them."""
    if not isinstance(tool, str) or tool not in _WHAT:
        return Malformed(f"{named}: no tool {tool!r}; the tools are {', '.join(TOOLS)}")
    _, fields, required = _WHAT[tool]
    unknown = sorted(set(args) - set(fields))
    if unknown:
        takes = f"takes {', '.join(fields)}" if fields else "takes no arguments"
        return Malformed(f"{tool}: unknown argument {unknown[0]!r}: it {takes}")
    for field, schema in fields.items():
        problem = _problem(args, field, schema, field in required)
        if problem:
            return Malformed(f"{tool}: {field}: {problem}")
    given = {field: value for field, value in args.items() if value is not None}
    return _BUILD[tool](**given)


def render_json_call(call: ToolCall) -> str:
    """Write a call as `{"tool": ..., "args": {...}}`, in ASCII."""
    name = next(name for name, kind in _BUILD.items() if isinstance(call, kind))  # type: ignore[arg-type]
    fields = {field: getattr(call, field) for field in _WHAT[name][1]}
    return json.dumps({"tool": name, "args": {field: v for field, v in fields.items() if v is not None}})


def _problem(args: Mapping[str, Any], field: str, schema: Mapping[str, Any], required: bool) -> str:
    """Return what is wrong with one argument, or an empty string."""
    value = args.get(field)
    if value is None:
        return f"expected {_expected(schema)}, but it is missing" if required else ""
    if schema["type"] == "integer":
        fits = isinstance(value, int) and not isinstance(value, bool) and 1 <= value <= _MOST_LINES
        return "" if fits else f"expected {_expected(schema)}, got {value!r}"
    if not isinstance(value, str):
        return f"expected {_expected(schema)}, got {_kind(value)}"
    if field in ("path", "command") and not value.strip():
        return "expected text, got none"
    if field in ("path", "command", "args") and "\0" in value:
        return "the NUL character cannot stand here"
    try:
        value.encode()
    except UnicodeEncodeError:
        return "expected text, got half of a surrogate pair"
    return ""


def _expected(schema: Mapping[str, Any]) -> str:
    return "a line number from 1" if schema["type"] == "integer" else "a string"


def _kind(value: object) -> str:
    kinds = {dict: "an object", list: "a list", str: "a string", bool: "a truth value", type(None): "null"}
    return kinds.get(type(value), "a number")
