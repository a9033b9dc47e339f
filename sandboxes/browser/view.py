"""What the agent reads: a reply of the driver as text, and how an element is found again in such a text.

An element is a line such as `[e6] textbox "Name": Ada`, indented below the element that holds it.
"""

from __future__ import annotations

import re

from sandboxes.browser.reply import Reply

__all__ = ["elements", "render"]

_REF = re.compile(r" ?\[ref=((?:f\d+)?e\d+)\]")
_POINTER = " [cursor=pointer]"
_LINE = re.compile(
    r'^\s*\[(?P<bid>(?:f\d+)?e\d+)\] (?P<role>[\w-]+)(?: "(?P<name>(?:[^"\\]|\\.)*)")?(?P<rest>.*)$'
)


def render(reply: Reply, error: str, most_tree: int) -> str:
    """Return the observation. `error` replaces the driver's own, for an action that never reached it."""
    lines = [f"Goal: {reply.goal}"] if reply.goal else []
    for number, (title, url) in enumerate(reply.tabs):
        lines.append(
            f"Tab {number}{' (active)' if number == reply.active else ''}: {_flat(title)!r} at {_flat(url)}"
        )
    tree = _tree(reply.tree, most_tree)
    focused = next((line.strip() for line in tree if " [active]" in line), "")
    if focused:
        lines.append(f"Focused: {focused.replace(' [active]', '').rstrip(':')[:200]}")
    lines += [f"Note: {_flat(note)}" for note in reply.notes]
    said = error or reply.error
    if said:
        lines.append(f"Error: {_flat(said)}")
    return "\n".join([*lines, "Page:", *(tree or ["(nothing to show)"])])


def elements(observation: str, role: str, name: str, after: str = "") -> list[str]:
    """Return the ids of the elements with this role and name, in order, of an observation's page below a text."""
    page = observation.partition("\nPage:\n")[2]
    if after:
        page = page.partition(after)[2]
    found = []
    for line in page.splitlines():
        match = _LINE.match(line)
        if match and match["role"] == role and (match["name"] or "").replace('\\"', '"') == name:
            found.append(match["bid"])
    return found


def _tree(tree: str, most: int) -> list[str]:
    """Return the lines of a tree, each with its id in front."""
    lines = []
    length = 0
    source = tree.splitlines()
    for number, line in enumerate(source):
        shown = _line(line)
        length += len(shown) + 1
        if length > most:
            lines.append(f"... cut: {len(source) - number} more lines of this page are not shown")
            break
        lines.append(shown)
    return lines


def _line(line: str) -> str:
    body = line.lstrip()
    indent = line[: len(line) - len(body)]
    body = body.removeprefix("- ").replace(_POINTER, "")
    if body.startswith("'"):  # quoted as a whole, for a colon in it
        body = body[1:].replace("''", "'")
        body = body[:-1] if body.endswith("'") else body.replace("':", ":", 1)
    found = _REF.search(body)
    if found is None:
        return indent + body
    return f"{indent}[{found.group(1)}] {body[: found.start()]}{body[found.end() :]}".removesuffix(":")


def _flat(text: str) -> str:
    return " ".join(text.split())
