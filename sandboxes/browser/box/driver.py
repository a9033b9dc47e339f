"""Drives one Chromium for one episode: a JSON request per line on standard input, a JSON reply per line on standard output.

Runs inside the sandbox, as its spec's ready command: it starts the browser and the site's server before it knows the task,
and says so by a first line. All that a page controls is handled here; what leaves is one line of bounded length per
request. A failure of the browser itself is told as `fatal`, never as an ordinary error.
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


class _SiteServer:
    """The site's server, on a port that is open from the start, so that nobody waits for it."""

    def __init__(self) -> None:
        with socket.create_server(("127.0.0.1", 0)) as listening:
            self.port: int = listening.getsockname()[1]
            self._process = subprocess.Popen(
                [sys.executable, "-m", "sandboxes.browser.box.server", str(listening.fileno())],
                pass_fds=[listening.fileno()],
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
            )

    def begin(self, site: str, folder: str) -> None:
        """Have it serve a site, whose files lie in a folder, from now on."""
        assert self._process.stdin is not None  # as it was started
        self._process.stdin.write(json.dumps([site, folder]).encode() + b"\n")
        self._process.stdin.close()


async def _serve(reader: asyncio.StreamReader) -> None:
    server = _SiteServer()
    try:
        from playwright.async_api import async_playwright

        from sandboxes.browser.box.browser import Browser, BrowserDied
    except ImportError as missing:
        sys.exit(f"Playwright is not importable in the sandbox: {missing}")
    chromium = next((path for path in _CHROMIUMS if os.access(path, os.X_OK)), "")
    if not chromium:
        sys.exit(f"no Chromium in the sandbox: looked for {', '.join(_CHROMIUMS)}")
    async with async_playwright() as playwright:
        try:
            browser = await Browser.launch(playwright.chromium, chromium, server.port)
        except BrowserDied as died:
            sys.exit(str(died)[:2000])
        _say({"ready": True})
        while line := await reader.readline():
            request = json.loads(line)
            try:
                if request["do"] == "start":
                    server.begin(request["site"], request["folder"])
                    await browser.open(request)
                    reply = await browser.observe()
                else:
                    error = await browser.act(request["op"], request["args"])
                    reply = await browser.observe(error)
            except BrowserDied as died:
                reply = {"fatal": str(died)[:400]}
            _say({"id": request["id"], **reply})


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
