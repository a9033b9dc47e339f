"""The actions, written as BrowserGym writes them: one call such as `click("e5")`, read by a parser of its own.

Nothing is evaluated: a call is a known name and literal arguments (texts, numbers, lists of texts).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, get_args

from rock_env.errors import InvalidArgument

__all__ = ["ACTIONS", "SETS", "Action", "ActionSet", "describe", "parse"]

ActionSet = Literal["bid", "coord", "all"]
Value = str | int | float | list[str]
_MOST_ACTION = 20_000
_NEEDED = object()


@dataclass(frozen=True, slots=True)
class Action:
    """One action: its name and all its arguments, defaults included."""

    op: str
    args: Mapping[str, Value]


@dataclass(frozen=True, slots=True)
class _Parameter:
    name: str
    kind: str
    default: Any = _NEEDED
    choices: tuple[str, ...] = ()


_BUTTONS = ("left", "middle", "right")
_MODIFIERS = ("Alt", "Control", "ControlOrMeta", "Meta", "Shift")
_ON = _Parameter("bid", "bid")
_AT = (_Parameter("x", "number"), _Parameter("y", "number"))
_BUTTON = _Parameter("button", "text", "left", _BUTTONS)
_CLICK = (_ON, _BUTTON, _Parameter("modifiers", "texts", [], _MODIFIERS))

ACTIONS: dict[str, tuple[_Parameter, ...]] = {
    "click": _CLICK,
    "dblclick": _CLICK,
    "hover": (_ON,),
    "fill": (_ON, _Parameter("value", "text")),
    "press": (_ON, _Parameter("key_comb", "key")),
    "select_option": (_ON, _Parameter("options", "text or texts")),
    "check": (_ON,),
    "uncheck": (_ON,),
    "focus": (_ON,),
    "clear": (_ON,),
    "drag_and_drop": (_Parameter("from_bid", "bid"), _Parameter("to_bid", "bid")),
    "upload_file": (_ON, _Parameter("file", "file name")),
    "scroll": (_Parameter("delta_x", "number"), _Parameter("delta_y", "number")),
    "mouse_move": _AT,
    "mouse_down": (*_AT, _BUTTON),
    "mouse_up": (*_AT, _BUTTON),
    "mouse_click": (*_AT, _BUTTON),
    "mouse_dblclick": (*_AT, _BUTTON),
    "mouse_drag_and_drop": tuple(_Parameter(name, "number") for name in ("from_x", "from_y", "to_x", "to_y")),
    "keyboard_press": (_Parameter("key", "key"),),
    "keyboard_down": (_Parameter("key", "key"),),
    "keyboard_up": (_Parameter("key", "key"),),
    "keyboard_type": (_Parameter("text", "text"),),
    "keyboard_insert_text": (_Parameter("text", "text"),),
    "goto": (_Parameter("url", "text"),),
    "go_back": (),
    "go_forward": (),
    "new_tab": (),
    "tab_close": (),
    "tab_focus": (_Parameter("index", "whole number"),),
    "on_dialog": (
        _Parameter("answer", "text", _NEEDED, ("accept", "dismiss")),
        _Parameter("text", "text", ""),
    ),
    "send_msg_to_user": (_Parameter("text", "text"),),
    "report_infeasible": (_Parameter("reason", "text"),),
    "noop": (_Parameter("wait_ms", "number", 1000),),
}
"""Every action and its parameters, in order."""
_FINE = frozenset({"mouse_move", "mouse_down", "mouse_up", "mouse_dblclick"}) | {
    f"keyboard_{each}" for each in ("down", "up", "insert_text")
}
"""Of the mouse and the keyboard what one who names elements has no need of."""
SETS: dict[ActionSet, tuple[str, ...]] = {
    "bid": tuple(name for name in ACTIONS if name not in _FINE),
    "coord": tuple(
        name for name, wanted in ACTIONS.items() if not any(parameter.kind == "bid" for parameter in wanted)
    ),
    "all": tuple(ACTIONS),
}
"""The sets to choose from: elements by their ids, with a mouse and keys for what has none; places alone; or both."""
assert set(SETS) == set(get_args(ActionSet))

_TOKEN = re.compile(
    r"""\s*(?:
    (?P<name>[A-Za-z_][A-Za-z0-9_]*)
  | (?P<number>[-+]?(?:\d+\.?\d*|\.\d+))
  | (?P<text>"(?:[^"\\\n]|\\.)*"|'(?:[^'\\\n]|\\.)*')
  | (?P<mark>[()\[\],=])
  )""",
    re.VERBOSE,
)
_ESCAPE = re.compile(r"\\(u[0-9a-fA-F]{4}|.)", re.DOTALL)
_ESCAPED = {"n": "\n", "t": "\t", "r": "\r", "\\": "\\", '"': '"', "'": "'", "/": "/"}
_FENCE = re.compile(r"```[a-z]*\n(.*?)```", re.DOTALL)
_FORM_OF_ID = re.compile(r"(?:f[0-9]{1,4})?e[0-9]{1,7}")
_FORM_OF_KEY = re.compile(r"(?:(?:Alt|Control|ControlOrMeta|Meta|Shift)\+){0,4}(?:[A-Za-z0-9]{1,20}|[^\w\s])")
_FORM_OF_FILE = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_. -]{0,99}")
_MOST_TEXT = 10_000
_MOST_NUMBER = 1_000_000


def parse(message: str, actions: ActionSet = "bid") -> Action:
    """Return the one action of a message: its last fenced block, or else its last line that is not empty.

    Raise `InvalidArgument` with what is wrong: no call, an unknown action, a wrong, missing or unknown argument.
    """
    if len(message) > _MOST_ACTION:
        raise InvalidArgument(f"the action has {len(message)} characters; at most {_MOST_ACTION} are read")
    fences = _FENCE.findall(message)
    lines = (fences[-1] if fences else message).strip().splitlines()
    if not lines:
        raise InvalidArgument('no action; write one call, such as click("e5") or noop()')
    return _Reader(lines[-1].strip(), SETS[actions]).action()


def describe(actions: ActionSet = "bid") -> str:
    """Return a line per action of a set, as an agent is told."""
    return "\n".join(f"{name}({', '.join(map(_described, ACTIONS[name]))})" for name in SETS[actions])


def _described(parameter: _Parameter) -> str:
    kind = " | ".join(f'"{each}"' for each in parameter.choices) or parameter.kind
    if parameter.kind == "texts":
        kind = f"list of {kind}"
    return f"{parameter.name}: {kind}" + ("" if parameter.default is _NEEDED else f" = {parameter.default!r}")


class _Reader:
    """Reads one call from left to right."""

    def __init__(self, text: str, known: tuple[str, ...]) -> None:
        self._text, self._known, self._at = text, known, 0

    def action(self) -> Action:
        kind, name = self._next()
        if kind != "name" or self._next() != ("mark", "("):
            raise InvalidArgument(f'not an action: {self._text[:80]!r}; write one call, such as click("e5")')
        if name not in self._known:
            raise InvalidArgument(f"unknown action {name[:40]!r}; the actions are {', '.join(self._known)}")
        in_order, by_name = self._arguments(name)
        if self._next() != ("end", ""):
            raise InvalidArgument(f"more after the call of {name}; write one call and nothing behind it")
        return Action(name, _bound(name, in_order, by_name))

    def _arguments(self, op: str) -> tuple[list[Value], dict[str, Value]]:
        in_order: list[Value] = []
        by_name: dict[str, Value] = {}
        token = self._next()
        while token != ("mark", ")"):
            if token[0] == "name":
                if self._next() != ("mark", "="):
                    raise InvalidArgument(f"{op}: texts stand in quotes: {token[1][:40]!r} does not")
                if token[1] in by_name:
                    raise InvalidArgument(f"{op}: the argument {token[1][:40]!r} is given twice")
                by_name[token[1]] = self._value(op, self._next())
            elif by_name:
                raise InvalidArgument(f"{op}: an argument without a name stands behind one with a name")
            else:
                in_order.append(self._value(op, token))
            token = self._next()
            if token == ("mark", ","):
                token = self._next()
            elif token != ("mark", ")"):
                raise InvalidArgument(f"{op}: a comma or a closing bracket is missing")
        return in_order, by_name

    def _value(self, op: str, token: tuple[str, str]) -> Value:
        kind, text = token
        if kind == "text":
            return _unescaped(op, text[1:-1])
        if kind == "number":
            number = float(text) if "." in text else int(text[:12])
            if abs(number) > _MOST_NUMBER:
                raise InvalidArgument(f"{op}: the number {text[:20]} is too large")
            return number
        if token != ("mark", "["):
            raise InvalidArgument(f"{op}: expected a text in quotes, a number or a list, got {text[:40]!r}")
        items: list[str] = []
        token = self._next()
        while token != ("mark", "]"):
            if token[0] != "text":
                raise InvalidArgument(f"{op}: a list holds texts in quotes, got {token[1][:40]!r}")
            items.append(_unescaped(op, token[1][1:-1]))
            token = self._next()
            if token == ("mark", ","):
                token = self._next()
            elif token != ("mark", "]"):
                raise InvalidArgument(f"{op}: a list is not closed")
        return items

    def _next(self) -> tuple[str, str]:
        found = _TOKEN.match(self._text, self._at)
        if found is None:
            rest = self._text[self._at :].strip()
            if rest:
                raise InvalidArgument(f"cannot read the action from {rest[:40]!r} on")
            return "end", ""
        self._at = found.end()
        assert found.lastgroup is not None  # every alternative has a name
        return found.lastgroup, found.group(found.lastgroup)


def _unescaped(op: str, text: str) -> str:
    def one(found: re.Match[str]) -> str:
        mark = found.group(1)
        if len(mark) == 5:
            return chr(int(mark[1:], 16))
        if mark not in _ESCAPED:
            raise InvalidArgument(f"{op}: unknown escape \\{mark}; write \\\\ for a backslash")
        return _ESCAPED[mark]

    plain = _ESCAPE.sub(one, text)
    if len(plain) > _MOST_TEXT:
        raise InvalidArgument(f"{op}: a text of {len(plain)} characters; at most {_MOST_TEXT} are allowed")
    if any(0xD800 <= ord(each) <= 0xDFFF for each in plain):
        raise InvalidArgument(f"{op}: a text holds half a surrogate pair")
    return plain


def _bound(op: str, in_order: list[Value], by_name: dict[str, Value]) -> dict[str, Value]:
    """Return each parameter's value. Raise `InvalidArgument` for what does not fit."""
    wanted = ACTIONS[op]
    if len(in_order) > len(wanted):
        raise InvalidArgument(f"{op} takes {len(wanted)} arguments, got {len(in_order)}")
    given = {parameter.name: value for parameter, value in zip(wanted, in_order, strict=False)}
    for name, value in by_name.items():
        if name in given:
            raise InvalidArgument(f"{op}: the argument {name!r} is given twice")
        given[name] = value
    for unknown in given.keys() - {parameter.name for parameter in wanted}:
        raise InvalidArgument(
            f"{op} has no argument {unknown[:40]!r}: {op}({', '.join(map(_described, wanted))})"
        )
    bound: dict[str, Value] = {}
    for parameter in wanted:
        if parameter.name not in given and parameter.default is _NEEDED:
            raise InvalidArgument(f"{op}: the argument {parameter.name!r} is missing")
        value = given.get(parameter.name, parameter.default)
        _check(op, parameter, value)
        bound[parameter.name] = value
    return bound


def _check(op: str, parameter: _Parameter, value: Value) -> None:
    number = isinstance(value, int | float)
    fits = {
        "bid": isinstance(value, str) and _FORM_OF_ID.fullmatch(value) is not None,
        "file name": isinstance(value, str) and _FORM_OF_FILE.fullmatch(value) is not None,
        "key": isinstance(value, str) and _FORM_OF_KEY.fullmatch(value) is not None,
        "text": isinstance(value, str),
        "texts": isinstance(value, list),
        "text or texts": isinstance(value, str) or (isinstance(value, list) and len(value) <= 100),
        "number": number,
        "whole number": isinstance(value, int),
    }[parameter.kind]
    if not fits:
        hint = ' (an id of the newest observation, such as "e5")' if parameter.kind == "bid" else ""
        raise InvalidArgument(f"{op}: {parameter.name} is no {parameter.kind}{hint}: {str(value)[:60]!r}")
    if parameter.choices:
        for each in value if isinstance(value, list) else [value]:
            if each not in parameter.choices:
                raise InvalidArgument(
                    f"{op}: {parameter.name} is one of {', '.join(parameter.choices)}; got {str(each)[:40]!r}"
                )
