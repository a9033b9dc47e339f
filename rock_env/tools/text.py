"""The text face of the tools: one message is one tool call, written as a person would write it.

    bash COMMAND...             view PATH [FIRST [LAST]]        undo        run_tests [ARGS]        submit

    edit PATH
    <<<<<<<
    old lines
    =======
    new lines
    >>>>>>>

A message that begins with no tool's name is a bash command, too. The call may stand in one ``` block (```bash: its
content is a bash command; ```json: the JSON face), with prose around it. A message that begins with a tool's name is
read as it is, whatever ``` it holds; in a block, the first line of at least as many backticks as the opening ends it.

Escape rules. The three markers of an edit are runs of one length, at least 7: text that has a line of such a run takes
longer ones. The line break before `=======` and `>>>>>>>` belongs to the marker. A call that text cannot carry
exactly (a command that ends with a blank, a path that ends with a number) is written in the JSON face, which
`parse_call` reads as well. So `parse_call(render_call(call)) == call` for every call the tools accept.
"""

from __future__ import annotations

import re

from rock_env.tools.calls import Bash, Edit, Malformed, RunTests, Submit, ToolCall, Undo, View
from rock_env.tools.json_calls import looks_like_json_call, parse_json_call, render_json_call

__all__ = ["parse_call", "render_call"]

_FIRST_WORD = re.compile(r"(bash|view|edit|undo|run_tests|submit)(?=\s|$)")
_NUMBER = re.compile(r"[0-9]{1,9}")
_MARKER = re.compile(r"(?m)^(<+|=+|>+)[ \t\r]*$")
_SHORTEST_MARKER = 7
_EDIT_FORM = "edit PATH, then on lines of their own: <<<<<<<, the old lines, =======, the new lines, >>>>>>>"


def parse_call(text: str) -> ToolCall | Malformed:
    """Read one message of an agent, in the text face or the JSON face."""
    message = text.strip()
    try:
        message.encode()
    except UnicodeEncodeError:
        return Malformed("the message holds half of a surrogate pair, which is no text")
    if looks_like_json_call(message):
        return parse_json_call(message)
    if _FIRST_WORD.match(message) or "```" not in message:
        return _parse_plain(message)
    return _parse_block(message)


def render_call(call: ToolCall) -> str:
    """Write a call as the message that `parse_call` reads back as the same call."""
    text = _render_plain(call)
    return text if parse_call(text) == call else render_json_call(call)


def _parse_block(message: str) -> ToolCall | Malformed:
    lines = message.split("\n")
    opening = next((n for n, line in enumerate(lines) if line.startswith("```")), None)
    if opening is None:  # backticks within a line are a matter of the shell
        return _parse_plain(message)
    fence = lines[opening]
    ticks = len(fence) - len(fence.lstrip("`"))
    language = fence[ticks:].strip()
    closing = next((n for n in range(opening + 1, len(lines)) if _closes(lines[n], ticks)), None)
    if closing is None:
        return Malformed("the code block is not closed")
    if any(line.startswith("```") for line in lines[closing + 1 :]):
        return Malformed("one message is one tool call, but this one has several code blocks")
    body = "\n".join(lines[opening + 1 : closing])
    if language in ("bash", "sh", "shell"):
        return _bash(body)
    if language == "json":
        return parse_json_call(body.strip())
    if language:
        return Malformed(
            f"a ```{language} block is no tool call: use ``` (any tool), ```bash (a command) or ```json"
        )
    body = body.strip()
    return parse_json_call(body) if looks_like_json_call(body) else _parse_plain(body)


def _closes(line: str, ticks: int) -> bool:
    mark = line.rstrip()
    return len(mark) >= ticks and not mark.strip("`")


def _parse_plain(message: str) -> ToolCall | Malformed:
    word = _FIRST_WORD.match(message)
    if word is None:
        return _bash(message)
    tool, rest = word[1], message[word.end() :]
    if tool == "bash":
        # `bash -c ...` is meant as the program: no command begins with a dash.
        return _bash(message) if rest.lstrip().startswith("-") else _bash(rest)
    if tool == "edit":
        return _edit(rest)
    words = rest.strip()
    if "\n" in words:
        return Malformed(f"{tool} takes one line; one message is one tool call")
    if tool == "view":
        return _view(words)
    if tool == "run_tests":
        return RunTests(words) if "\0" not in words else Malformed("run_tests cannot take the NUL character")
    if words:
        return Malformed(f"{tool} takes nothing after its name, got {words!r}")
    return Undo() if tool == "undo" else Submit()


def _bash(command: str) -> Bash | Malformed:
    command = command.strip()
    if not command:
        return Malformed("bash needs a command: bash COMMAND")
    if "\0" in command:
        return Malformed("a command cannot contain the NUL character")
    return Bash(command)


def _view(words: str) -> View | Malformed:
    if not words:
        return Malformed("view needs a path: view PATH [FIRST LAST]")
    if "\0" in words:
        return Malformed("a path cannot contain the NUL character")
    parts = words.rsplit(maxsplit=2)
    numbers: list[int] = []
    while len(parts) > 1 and _NUMBER.fullmatch(parts[-1]):
        numbers.insert(0, int(parts.pop()))
    if 0 in numbers:
        return Malformed("view counts lines from 1: view PATH [FIRST LAST]")
    if not numbers:
        return View(words)
    path = words.rsplit(maxsplit=len(numbers))[0]
    return View(path, *numbers)


def _edit(rest: str) -> Edit | Malformed:
    head, _, body = rest.partition("\n")
    path = head.strip()
    if not path:
        return Malformed(f"edit needs a path: {_EDIT_FORM}")
    if "\0" in path:
        return Malformed("a path cannot contain the NUL character")
    lines = body.split("\n")
    opening = lines[0].rstrip(" \t\r")
    if len(opening) < _SHORTEST_MARKER or opening.strip("<"):
        return Malformed(f"edit needs <<<<<<< on the line after the path: {_EDIT_FORM}")
    size = len(opening)
    marks = [line.rstrip(" \t\r") for line in lines]
    middles = [n for n, mark in enumerate(marks) if mark == "=" * size]
    ends = [n for n, mark in enumerate(marks) if mark == ">" * size]
    for what, places in (("=", middles), (">", ends)):
        if len(places) != 1:
            return Malformed(
                f"edit needs exactly one line {what * size}, got {len(places)}; if the text itself has such a line, "
                f"take more characters in all three markers. The form: {_EDIT_FORM}"
            )
    middle, end = middles[0], ends[0]
    if middle > end or end != len(lines) - 1:
        return Malformed(f"edit must end with {'>' * size}, after {'=' * size}: {_EDIT_FORM}")
    return Edit(path, "\n".join(lines[1:middle]), "\n".join(lines[middle + 1 : end]))


def _render_plain(call: ToolCall) -> str:
    match call:
        case Bash(command):
            return f"bash {command}"
        case View(path, first, last):
            return " ".join(["view", path, *(str(n) for n in (first, last) if n is not None)])
        case Edit(path, old, new):
            size = _marker_size(old, new)
            body = "".join(
                f"{mark * size}\n{text}{chr(10) if text else ''}" for mark, text in (("<", old), ("=", new))
            )
            return f"edit {path}\n{body}{'>' * size}"
        case Undo():
            return "undo"
        case RunTests(args):
            return f"run_tests {args}".rstrip()
        case Submit():
            return "submit"


def _marker_size(*texts: str) -> int:
    """Return the least run that no line of the texts is."""
    taken = {len(run[1]) for text in texts for run in _MARKER.finditer(text)}
    size = _SHORTEST_MARKER
    while size in taken:
        size += 1
    return size
