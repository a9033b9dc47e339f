"""Solutions of MiniWoB++ tasks, each a conversation: it is sent an observation and yields the next action."""

from __future__ import annotations

import re
from collections.abc import Callable, Generator
from functools import partial

from rock_env.env import Oracle
from sandboxes.browser.view import elements

__all__ = ["SOLVERS"]

Play = Generator[str, str, None]
"""Yields actions and is sent what they led to."""
_QUOTED = re.compile(r'"([^"]*)"')
_VALUE = re.compile(r'\[(e\d+)\] ([\w-]+)(?: "[^"]*")?(?: \[[\w=-]+\])*: ?(.*)$')
_NUMBERS = {
    "1st": 0,
    "2nd": 1,
    "3rd": 2,
    "4th": 3,
    "5th": 4,
    "6th": 5,
    "7th": 6,
    "8th": 7,
    "9th": 8,
    "10th": 9,
}
_GIVE_UP = "noop()"


class _Player:
    """Plays one solution; satisfies `Oracle`."""

    def __init__(self, solve: Callable[[str], Play]) -> None:
        self._solve = solve
        self._play: Play | None = None

    def __call__(self, observation: str) -> str:
        try:
            if self._play is None:
                self._play = self._solve(observation)
                return next(self._play)
            return self._play.send(observation)
        except StopIteration:
            return _GIVE_UP


def _goal(seen: str) -> str:
    return seen.partition("\n")[0].removeprefix("Goal: ")


def _quoted(seen: str) -> list[str]:
    return _QUOTED.findall(_goal(seen))


def _lines(seen: str, role: str) -> list[str]:
    """Return the ids of all elements with a role, whatever their names."""
    return re.findall(rf"\[(e\d+)\] {role}\b", seen.partition("\nPage:\n")[2])


def _values(seen: str, role: str) -> list[tuple[str, str]]:
    """Return id and text of all elements with a role that have a text."""
    found = [_VALUE.match(line.strip()) for line in seen.splitlines()]
    return [(each[1], each[3].strip().strip('"')) for each in found if each and each[2] == role]


def _click(seen: str, role: str, name: str) -> str:
    found = elements(seen, role, name)
    return f'click("{found[0]}")' if found else _GIVE_UP


def _fill(bid: str, text: str) -> str:
    return f'fill("{bid}", "{text}")'


def _buttons(names: Callable[[str], list[str]], seen: str) -> Play:
    """Click buttons, one after the other."""
    for name in names(seen):
        seen = yield _click(seen, "button", name)


def _type(words: Callable[[str], list[str]], send: str, seen: str) -> Play:
    """Fill the text fields from the first on, and press the button."""
    for bid, word in zip(_lines(seen, "textbox"), words(seen), strict=False):
        seen = yield _fill(bid, word)
    yield _click(seen, "button", send)


def _delay(seen: str) -> Play:
    seen = yield _click(seen, "button", "ONE")
    seconds = re.search(
        r"wait (\d+)", _goal(seen)
    )  # of the page's clock, of which each action takes half of one
    seen = yield f"noop({1000 * int(seconds[1]) - 1000 if seconds else 0})"
    yield _click(seen, "button", "TWO")


def _dialog(seen: str) -> Play:
    name = (_quoted(seen) or ["x"])[0]
    yield _click(seen, "button", "Close" if name == "x" else name)


def _wanted(seen: str) -> list[str]:
    """Return the names of a goal such as `Select a, b and click Submit.`"""
    found = re.match(r"Select (.*?)(?: from the(?: scroll)? list)? and click Submit", _goal(seen))
    return [] if found is None or found[1] == "nothing" else found[1].split(", ")


def _tick(role: str, seen: str) -> Play:
    for name in _wanted(seen):
        seen = yield _click(seen, role, name)
    yield _click(seen, "button", "Submit")


def _select(role: str, seen: str) -> Play:
    names = ", ".join(f'"{name}"' for name in _wanted(seen))
    seen = yield f'select_option("{_lines(seen, role)[0]}", [{names}])'
    yield _click(seen, "button", "Submit")


def _collapsible(seen: str) -> Play:
    seen = yield f'click("{_lines(seen, "tab")[0]}")'
    seen = yield "noop(1000)"
    yield _click(seen, "button", "Submit")


def _focus(seen: str) -> Play:
    number = next((index for word, index in _NUMBERS.items() if word in _goal(seen)), 0)
    yield f'focus("{_lines(seen, "textbox")[number]}")'


def _cased(seen: str) -> list[str]:
    word = _quoted(seen)[0]
    return [word.upper() if "upper case" in _goal(seen) else word.lower()]


def _date(seen: str) -> list[str]:
    month, day, year = re.findall(r"\d+", _goal(seen))[:3]
    return [f"{year}-{month}-{day}"]


def _tab(seen: str) -> Play:
    found = re.search(r"Tab #\d+", _goal(seen))
    yield _click(seen, "link", found[0] if found else "")


def _copy(seen: str) -> Play:
    number = next((index for word, index in _NUMBERS.items() if word in _goal(seen)), 0)
    full = _values(seen, "textbox")
    empty = next(bid for bid in _lines(seen, "textbox") if bid not in dict(full))
    for bid, keys in ((full[number][0], "Control+a"), (full[number][0], "Control+c"), (empty, "Control+v")):
        seen = yield f'press("{bid}", "{keys}")'  # blanks at the ends of the text are not to be seen
    yield _click(seen, "button", "Submit")


def _word(seen: str) -> list[str]:
    found = re.search(r"the (\d+)\w\w word", _goal(seen))
    words = _values(seen, "paragraph")[0][1].split()
    return [words[int(found[1]) - 1].strip(".,") if found else ""]


def _cells(seen: str) -> dict[str, str]:
    names = re.findall(r'\[e\d+\] cell "([^"]*)"', seen)
    return dict(zip(names[::2], names[1::2], strict=False))


def _read_table(seen: str) -> list[str]:
    found = re.match(r"Enter the value of (.*) into the text field", _goal(seen))
    return [_cells(seen).get(found[1], "") if found else ""]


def _read_table_2(seen: str) -> list[str]:
    cells = _cells(seen)
    form = seen.rpartition("] cell ")[2]
    return [
        cells[label]
        for label in re.findall(r'(?:generic|text): "?([A-Za-z ]+?):?"?$', form, re.M)
        if label in cells
    ]


def _algebra(seen: str) -> list[str]:
    """Solve `a + x = b`, whichever way round; x is tried, because it is small."""
    equation = next(text for _, text in _values(seen, "generic") if "x" in text and "=" in text)
    for answer in range(-300, 301):
        parts = re.fullmatch(r"(\S+) ([-+]) (\S+) = (\S+)", equation)
        if parts is None:
            break
        a, b, total = (answer if part == "x" else int(part) for part in (parts[1], parts[3], parts[4]))
        if (a + b if parts[2] == "+" else a - b) == total:
            return [str(answer)]
    return ["0"]


def _arithmetic(seen: str) -> list[str]:
    text = next(text for _, text in _values(seen, "generic") if text.endswith("="))
    left, operation, right = text.removesuffix("=").split()
    a, b = int(left), int(right)
    return [str({"+": a + b, "-": a - b, "x": a * b, "*": a * b}.get(operation, 0))]


def _guess(seen: str) -> Play:
    low, high = 0, 9
    while low <= high:
        middle = (low + high) // 2
        seen = yield f'fill("{_lines(seen, "spinbutton")[0]}", "{middle}")'
        seen = yield _click(seen, "button", "Submit")
        if "higher" in seen.partition("[e5]")[2]:
            low = middle + 1
        else:
            high = middle - 1


def _autocomplete(seen: str) -> Play:
    begin, *end = _quoted(seen)
    box = _lines(seen, "textbox")[0]
    seen = yield f'click("{box}")'
    seen = yield f'keyboard_type("{begin}")'
    seen = yield "noop(1000)"
    ending = end[0] if end else ""
    found = [
        bid
        for bid, text in _values(seen, "listitem") + _values(seen, "generic")
        if _fits(text, begin, ending)
    ]
    seen = yield f'click("{found[0]}")' if found else _GIVE_UP
    yield _click(seen, "button", "Submit")


def _fits(text: str, begin: str, end: str) -> bool:
    return text.startswith(begin) and text.endswith(end)


def _odd_or_even(seen: str) -> Play:
    numbers = [int(text) for _, text in _values(seen, "generic") if re.fullmatch(r"-?\d+", text)]
    for index, number in enumerate(numbers):
        found = elements(seen, "button", "Odd" if number % 2 else "Even")
        seen = yield f'click("{found[index]}")'
    yield _click(seen, "button", "Submit")


def _transform(seen: str) -> list[str]:
    page = seen.partition("\nPage:\n")[2]
    return ["".join(text for _, text in _values(page, "generic") if len(text) == 1)]


def _spinner(seen: str) -> Play:
    wanted = re.search(r"Select (-?\d+)", _goal(seen))
    seen = yield f'click("{_lines(seen, "spinbutton")[0]}")'
    for _ in range(abs(int(wanted[1])) if wanted else 0):
        seen = yield f'keyboard_press("Arrow{"Up" if wanted and int(wanted[1]) > 0 else "Down"}")'
    yield _click(seen, "button", "Submit")


def _nested_menu(seen: str) -> Play:
    names = _goal(seen).removeprefix("Select ").split(">")
    for name in names[:-1]:
        found = elements(seen, "menuitem", name)
        seen = yield f'hover("{found[0]}")' if found else _GIVE_UP
        seen = yield "noop(1000)"
    yield _click(seen, "menuitem", names[-1])


def _sections(role: str, seen: str) -> Play:
    """Open tabs or sections in turn until the word of the goal can be clicked."""
    word = _quoted(seen)[0]
    for number in range(12):
        spans = [bid for bid, text in _values(seen, "generic") if text.strip() == word]
        if spans and number:
            yield f'click("{spans[0]}")'
            return
        tabs = _lines(seen, role)
        if number >= len(tabs):
            return
        seen = yield f'click("{tabs[number]}")'
        seen = yield "noop(1000)"


def _greatest(seen: str) -> Play:
    cards = [(int(text), bid) for bid, text in _values(seen, "generic") if re.fullmatch(r"-?\d+", text)]
    seen = yield f'click("{max(cards)[1]}")'
    yield _click(seen, "button", "Submit")


def _label(seen: str) -> Play:
    """Click the first element that has the text of the goal alone."""
    word = _quoted(seen)[0]
    found = [bid for bid, text in _values(seen, "generic") if text == word]
    yield f'click("{found[0]}")' if found else _GIVE_UP


def _generate(seen: str) -> Play:
    goal = re.search(r"(less|greater|odd|even)\D*(\d*)", _goal(seen))
    for _ in range(20):
        seen = yield _click(seen, "button", "Generate")
        shown = [int(text) for _, text in _values(seen, "generic") if re.fullmatch(r"\d+", text)]
        if goal and shown and _suits(goal[1], int(goal[2] or 0), shown[0]):
            break
    yield _click(seen, "button", "Submit")


def _suits(kind: str, bound: int, number: int) -> bool:
    return {
        "less": number < bound,
        "greater": number > bound,
        "odd": number % 2 == 1,
        "even": number % 2 == 0,
    }[kind]


_SOLUTIONS: dict[str, Callable[[str], Play]] = {
    "button-delay": _delay,
    "choose-list": partial(_select, "combobox"),
    "click-button": partial(_buttons, _quoted),
    "click-button-sequence": partial(_buttons, lambda seen: ["ONE", "TWO"]),
    "click-checkboxes": partial(_tick, "checkbox"),
    "click-checkboxes-large": partial(_tick, "checkbox"),
    "click-checkboxes-transfer": partial(_tick, "checkbox"),
    "click-collapsible": _collapsible,
    "click-collapsible-2": partial(_sections, "tab"),
    "click-collapsible-2-nodelay": partial(_sections, "tab"),
    "click-collapsible-nodelay": _collapsible,
    "click-dialog": _dialog,
    "click-dialog-2": _dialog,
    "click-link": _label,
    "click-menu": _nested_menu,
    "click-option": partial(_tick, "radio"),
    "click-scroll-list": partial(_select, "listbox"),
    "click-tab": _tab,
    "click-tab-2": partial(_sections, "tab"),
    "click-tab-2-hard": partial(_sections, "tab"),
    "click-test": partial(_buttons, lambda seen: ["Click Me!"]),
    "click-test-2": partial(_buttons, lambda seen: ["ONE"]),
    "click-test-transfer": partial(_buttons, lambda seen: ["ONE"]),
    "copy-paste": _copy,
    "copy-paste-2": _copy,
    "enter-date": partial(_type, _date, "Submit"),
    "enter-password": partial(_type, lambda seen: 2 * _quoted(seen), "Submit"),
    "enter-text": partial(_type, _quoted, "Submit"),
    "enter-text-2": partial(_type, _cased, "Submit"),
    "enter-text-dynamic": partial(_type, _quoted, "Submit"),
    "enter-time": partial(_type, lambda seen: re.findall(r"\d\d:\d\d", _goal(seen)), "Submit"),
    "find-greatest": _greatest,
    "find-word": partial(_type, _word, "Submit"),
    "focus-text": _focus,
    "focus-text-2": _focus,
    "generate-number": _generate,
    "guess-number": _guess,
    "login-user": partial(_type, _quoted, "Login"),
    "odd-or-even": _odd_or_even,
    "read-table": partial(_type, _read_table, "Submit"),
    "read-table-2": partial(_type, _read_table_2, "Submit"),
    "simple-algebra": partial(_type, _algebra, "Submit"),
    "simple-arithmetic": partial(_type, _arithmetic, "Submit"),
    "text-transform": partial(_type, _transform, "Submit"),
    "unicode-test": partial(_buttons, _quoted),
    "use-autocomplete": _autocomplete,
    "use-autocomplete-nodelay": _autocomplete,
    "use-spinner": _spinner,
}

SOLVERS: dict[str, Callable[[], Oracle]] = {
    name: partial(_Player, solution) for name, solution in _SOLUTIONS.items()
}
"""A reference policy for each MiniWoB++ task that is solved here."""
