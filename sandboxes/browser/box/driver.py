"""Drives one Chromium for one episode: a JSON request per line on standard input, a JSON reply per line on standard output.

Runs inside the sandbox, started by `sandboxes.browser.link`. All that a page controls is handled here; what leaves is one
line of bounded length per request. A failure of the browser itself is told as `fatal`, never as an ordinary error.
"""

from __future__ import annotations

import asyncio
import json
import os
import socket
import subprocess
import sys
from typing import Any

__all__: list[str] = []

_MOST_REQUEST_BYTES = 1 << 20
_CHROMIUMS = (
    "/usr/lib/chromium/chromium-headless-shell",
    "/usr/lib/chromium/chromium",
    "/usr/bin/chromium-headless-shell",
)


async def _serve(reader: asyncio.StreamReader) -> None:
    try:
        from playwright.async_api import async_playwright

        from sandboxes.browser.box.browser import Browser, BrowserDied
    except ImportError as missing:
        _say({"id": 0, "fatal": f"Playwright is not importable in the sandbox: {missing}"})
        return
    chromium = next((path for path in _CHROMIUMS if os.access(path, os.X_OK)), "")
    if not chromium:
        _say({"id": 0, "fatal": f"no Chromium in the sandbox: looked for {', '.join(_CHROMIUMS)}"})
        return
    async with async_playwright() as playwright:
        browser: Browser | None = None
        while line := await reader.readline():
            request = json.loads(line)
            try:
                if request["do"] == "start":
                    port = _start_server(request)
                    browser = await Browser.start(playwright.chromium, chromium, port, request)
                    reply = await browser.observe()
                else:
                    assert browser is not None  # the first request is a start
                    error = await browser.act(request["op"], request["args"])
                    reply = await browser.observe(error)
            except BrowserDied as died:
                reply = {"fatal": str(died)[:400]}
            _say({"id": request["id"], **reply})


def _start_server(request: dict[str, Any]) -> int:
    """Start the site's server on a port that is already open, so that nobody waits for it, and return the port."""
    listening = socket.create_server(("127.0.0.1", 0))
    port: int = listening.getsockname()[1]
    subprocess.Popen(
        [sys.executable, "-m", "sandboxes.browser.box.server", request["site"], str(listening.fileno())],
        pass_fds=[listening.fileno()],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
    )
    listening.close()
    return port


def _say(reply: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(reply) + "\n")
    sys.stdout.flush()


async def _main() -> None:
    reader = asyncio.StreamReader(limit=_MOST_REQUEST_BYTES)
    loop = asyncio.get_running_loop()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    await _serve(reader)


if __name__ == "__main__":
    asyncio.run(_main())
