"""A driver in a box, driven without the environment: for pages of a test's own."""

from __future__ import annotations

import re
from typing import Any

from rock_env.sandbox import Sandbox
from sandboxes.browser.link import Link
from sandboxes.browser.reply import Reply

HOST = "hostile.test"
CALM = "<title>Calm</title><h1>Calm</h1><a href='/worse.html'>worse</a>"


async def begin(box: Sandbox, **pages: str) -> tuple[Link, Reply]:
    """Start a browser at `index`; pages are served by their names."""
    files = {f"static/{name}.html": content.encode() for name, content in {"index": CALM, **pages}.items()}
    request = {"site": "static", "host": HOST, "start": "/index.html", "seed": "", "most_tree": 20_000}
    return await Link.start(box, request, files)


async def act(link: Link, box: Sandbox, op: str, **args: Any) -> Reply:
    """Do one action."""
    return await link.ask(box, {"do": "act", "op": op, "args": args})


async def go(link: Link, box: Sandbox, name: str = "worse") -> Reply:
    """Load one of the pages."""
    return await act(link, box, "goto", url=f"http://{HOST}/{name}.html")


async def click(link: Link, box: Sandbox, seen: Reply, what: str) -> Reply:
    """Click the element whose line in the tree begins with `what`."""
    return await act(link, box, "click", bid=bid(seen, what), button="left", modifiers=[])


def bid(seen: Reply, what: str) -> str:
    """Return the id of the element whose line in the tree begins with `what`."""
    found = re.search(rf"^ *- {re.escape(what)}.*?\[ref=(\w+)\]", seen.tree, re.MULTILINE)
    assert found is not None, f"{what} is not in\n{seen.tree}"
    return found[1]
