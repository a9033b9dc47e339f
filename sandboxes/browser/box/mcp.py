"""The episode's browser over the Model Context Protocol, for agents in the box: `python3 -m sandboxes.browser.box.mcp`.

Started by an MCP client as its child, with JSON-RPC on standard input and output; the tools are named as Playwright's own
server names them. It asks the driver, by the socket that the driver listens on, and so acts on the one browser there is.
"""

from __future__ import annotations

import json
import socket
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from sandboxes.browser.box.driver import MOST_REQUEST_BYTES, socket_path

__all__ = ["TOOLS", "Tool", "answer"]

_VERSION = "2025-06-18"
_MOST_NUMBER = 1e9
_KINDS: Mapping[str, Callable[[object], bool]] = {
    "string": lambda value: isinstance(value, str),
    "boolean": lambda value: isinstance(value, bool),
    "number": lambda value: (
        isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < _MOST_NUMBER
    ),
    "array": lambda value: isinstance(value, list) and all(isinstance(each, str) for each in value),
    "objects": lambda value: isinstance(value, list) and all(isinstance(each, dict) for each in value),
}
_BUTTONS = ("left", "middle", "right")
_MODIFIERS = ("Alt", "Control", "ControlOrMeta", "Meta", "Shift")
Args = Mapping[str, Any]
Act = tuple[str, dict[str, Any]]


class Wrong(Exception):
    """What the agent asked for is no call of a tool; the text says why."""


@dataclass(frozen=True)
class Tool:
    """One tool: what it is told to be, its arguments by kind, those that must be there, and the actions it means."""

    about: str
    takes: Mapping[str, str]
    needs: tuple[str, ...]
    acts: Callable[[Args], list[Act]]

    def schema(self, name: str) -> dict[str, Any]:
        """Return it as MCP lists tools."""
        kinds = {
            "array": {"type": "array", "items": {"type": "string"}},
            "objects": {"type": "array", "items": {"type": "object"}},
        }
        properties = {each: kinds.get(kind, {"type": kind}) for each, kind in self.takes.items()}
        asked = {"type": "object", "properties": properties, "required": list(self.needs)}
        return {
            "name": name,
            "description": self.about,
            "inputSchema": {**asked, "additionalProperties": False},
        }

    def check(self, args: object) -> Args:
        """Return the arguments. Raise `Wrong` for others than it takes."""
        if not isinstance(args, dict):
            raise Wrong("arguments must be an object")
        for name, value in args.items():
            if name not in self.takes:
                raise Wrong(f"there is no argument {name[:80]!r}; there are {', '.join(self.takes)}")
            if not _KINDS[self.takes[name]](value):
                raise Wrong(f"{name} must be of the kind {self.takes[name]}")
        if missing := [name for name in self.needs if name not in args]:
            raise Wrong(f"missing: {', '.join(missing)}")
        return args


def _click(args: Args) -> list[Act]:
    button, modifiers = args.get("button", "left"), args.get("modifiers", [])
    if button not in _BUTTONS or not set(modifiers) <= set(_MODIFIERS):
        raise Wrong(f"button is one of {', '.join(_BUTTONS)}, modifiers some of {', '.join(_MODIFIERS)}")
    op = "dblclick" if args.get("doubleClick") else "click"
    return [(op, {"bid": args["ref"], "button": button, "modifiers": modifiers})]


def _type(args: Args) -> list[Act]:
    acts: list[Act] = [("fill", {"bid": args["ref"], "value": args["text"]})]
    return [*acts, ("press", {"bid": args["ref"], "key_comb": "Enter"})] if args.get("submit") else acts


def _fill_form(args: Args) -> list[Act]:
    acts: list[Act] = []
    for field in args["fields"]:
        ref, kind, value = (field.get(name) for name in ("ref", "type", "value"))
        if not isinstance(ref, str) or not isinstance(value, str):
            raise Wrong("each field needs the texts ref, type and value")
        if kind in ("checkbox", "radio"):
            acts.append(("check" if value == "true" else "uncheck", {"bid": ref}))
        elif kind == "combobox":
            acts.append(("select_option", {"bid": ref, "options": [value]}))
        else:
            acts.append(("fill", {"bid": ref, "value": value}))
    return acts


def _tabs(args: Args) -> list[Act]:
    index = args.get("index")
    match args["action"]:
        case "list":
            return []
        case "new":
            return [("new_tab", {})]
        case "close":
            return [*([] if index is None else [("tab_focus", {"index": int(index)})]), ("tab_close", {})]
        case "select" if index is not None:
            return [("tab_focus", {"index": int(index)})]
    raise Wrong("action is one of list, new, close and select, the last with an index")


_ON = {"element": "string", "ref": "string"}
TOOLS: Mapping[str, Tool] = {
    "browser_navigate": Tool(
        "Go to an address of the site.", {"url": "string"}, ("url",), lambda a: [("goto", {"url": a["url"]})]
    ),
    "browser_navigate_back": Tool("Go back to the page before.", {}, (), lambda a: [("go_back", {})]),
    "browser_snapshot": Tool(
        "See the page as a tree of roles and names, with a ref for each element.", {}, (), lambda a: []
    ),
    "browser_click": Tool(
        "Click an element by its ref.",
        {**_ON, "doubleClick": "boolean", "button": "string", "modifiers": "array"},
        ("ref",),
        _click,
    ),
    "browser_hover": Tool(
        "Move the mouse over an element.", _ON, ("ref",), lambda a: [("hover", {"bid": a["ref"]})]
    ),
    "browser_drag": Tool(
        "Drag an element onto another.",
        {"startElement": "string", "startRef": "string", "endElement": "string", "endRef": "string"},
        ("startRef", "endRef"),
        lambda a: [("drag_and_drop", {"from_bid": a["startRef"], "to_bid": a["endRef"]})],
    ),
    "browser_type": Tool(
        "Replace the text of a field, and press Enter in it with submit.",
        {**_ON, "text": "string", "submit": "boolean"},
        ("ref", "text"),
        _type,
    ),
    "browser_fill_form": Tool(
        "Set several fields, each {ref, type, value}: textbox, checkbox or radio (true or false), combobox (an option).",
        {"fields": "objects"},
        ("fields",),
        _fill_form,
    ),
    "browser_select_option": Tool(
        "Select options of a list, by their labels or values.",
        {**_ON, "values": "array"},
        ("ref", "values"),
        lambda a: [("select_option", {"bid": a["ref"], "options": a["values"]})],
    ),
    "browser_file_upload": Tool(
        "Choose one of the task's files, by its name, in a field that takes files.",
        {**_ON, "paths": "array"},
        ("ref", "paths"),
        lambda a: [
            ("upload_file", {"bid": a["ref"], "file": name.rpartition("/")[2]}) for name in a["paths"][:1]
        ],
    ),
    "browser_press_key": Tool(
        "Press a key, such as Enter or Control+a.",
        {"key": "string"},
        ("key",),
        lambda a: [("keyboard_press", {"key": a["key"]})],
    ),
    "browser_handle_dialog": Tool(
        "Say how the dialogs that come from now on are answered; until then they are dismissed.",
        {"accept": "boolean", "promptText": "string"},
        ("accept",),
        lambda a: [
            ("on_dialog", {"answer": "accept" if a["accept"] else "dismiss", "text": a.get("promptText", "")})
        ],
    ),
    "browser_tabs": Tool(
        "List tabs, or open, close or select one.",
        {"action": "string", "index": "number"},
        ("action",),
        _tabs,
    ),
    "browser_wait_for": Tool(
        "Let so many seconds of the page's time pass, 10 at most.",
        {"time": "number"},
        ("time",),
        lambda a: [("noop", {"wait_ms": max(0.0, min(a["time"], 10.0)) * 1000})],
    ),
    "browser_take_screenshot": Tool("See the page as a picture.", {}, (), lambda a: []),
    "send_msg_to_user": Tool(
        "Tell the user the answer that the task asks for; the last one counts.",
        {"text": "string"},
        ("text",),
        lambda a: [],
    ),
}


def answer(request: object, ask: Callable[[dict[str, Any]], dict[str, Any]]) -> dict[str, Any] | None:
    """Return the reply to one message of a client, or None where it wants none; `ask` asks the driver."""
    if not isinstance(request, dict) or not isinstance(request.get("method"), str):
        return _error(None, -32600, "no request")
    method, number, params = request["method"], request.get("id"), request.get("params") or {}
    if number is None:
        return None
    if not isinstance(params, dict):
        return _error(number, -32602, "params must be an object")
    if method == "initialize":
        version = params.get("protocolVersion")
        capabilities: dict[str, Any] = {"tools": {}}
        server = {"name": "browser", "version": "0.1"}
        spoken = version if isinstance(version, str) else _VERSION
        return _result(
            number, {"protocolVersion": spoken, "capabilities": capabilities, "serverInfo": server}
        )
    if method == "ping":
        return _result(number, {})
    if method == "tools/list":
        return _result(number, {"tools": [tool.schema(name) for name, tool in TOOLS.items()]})
    if method != "tools/call":
        return _error(number, -32601, f"no method {method[:80]!r}")
    name = str(params.get("name"))
    if name not in TOOLS:
        return _error(number, -32602, f"no tool {name[:80]!r}; there are {', '.join(TOOLS)}")
    try:
        content = _call(name, TOOLS[name].check(params.get("arguments") or {}), ask)
    except Wrong as wrong:
        return _result(number, {"content": [_text(f"### Error\n{wrong}")], "isError": True})
    return _result(number, content)


def _call(name: str, args: Args, ask: Callable[[dict[str, Any]], dict[str, Any]]) -> dict[str, Any]:
    if name == "send_msg_to_user":
        ask({"do": "tell", "text": args["text"]})
        return {"content": [_text("The user has it.")]}
    if name == "browser_take_screenshot":
        picture = ask({"do": "picture"})["picture"]
        return {"content": [{"type": "image", "data": picture, "mimeType": "image/png"}]}
    acts = TOOLS[name].acts(args)
    seen: dict[str, Any] = {}
    for op, values in acts:
        seen = ask({"do": "act", "op": op, "args": values})
        if seen["error"]:
            break
    return _seen(seen or ask({"do": "look"}))


def _seen(seen: Mapping[str, Any]) -> dict[str, Any]:
    """Return what the driver saw as a tool's result."""
    lines = [f"### Error\n{seen['error']}"] if seen["error"] else []
    if seen["notes"]:
        lines += ["### Events", *(f"- {note}" for note in seen["notes"])]
    if len(seen["tabs"]) > 1:
        current = ["(current) " if number == seen["active"] else "" for number in range(len(seen["tabs"]))]
        lines += ["### Open tabs"]
        lines += [f"- {n}: {current[n]}[{title}] ({url})" for n, (title, url) in enumerate(seen["tabs"])]
    title, url = seen["tabs"][seen["active"]]
    lines += [
        "### Page",
        f"- Page URL: {url}",
        f"- Page Title: {title}",
        "### Snapshot",
        "```yaml",
        seen["tree"],
        "```",
    ]
    return {"content": [_text("\n".join(lines))], "isError": bool(seen["error"])}


def _text(text: str) -> dict[str, str]:
    return {"type": "text", "text": text}


def _result(number: object, result: dict[str, Any]) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": number, "result": result}


def _error(number: object, code: int, message: str) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": number, "error": {"code": code, "message": message}}


def main() -> None:
    """Serve until standard input ends."""
    with socket.socket(socket.AF_UNIX) as connection:
        try:
            connection.connect(socket_path())
        except OSError as error:
            sys.exit(f"no browser runs in this box: {error}. Reset the environment first.")
        stream = connection.makefile("rwb")

        def ask(request: dict[str, Any]) -> dict[str, Any]:
            stream.write(json.dumps(request).encode() + b"\n")
            stream.flush()
            reply: dict[str, Any] = json.loads(stream.readline() or b'{"fatal": "the driver ended"}')
            if "fatal" in reply:
                raise Wrong(f"the browser failed: {reply['fatal']}")
            return reply

        while line := sys.stdin.buffer.readline(MOST_REQUEST_BYTES):
            try:
                request = json.loads(line)
            except (ValueError, RecursionError):
                reply: dict[str, Any] | None = _error(None, -32700, "no JSON")
            else:
                reply = answer(request, ask)
            if reply is not None:
                sys.stdout.write(json.dumps(reply) + "\n")
                sys.stdout.flush()


if __name__ == "__main__":
    main()
