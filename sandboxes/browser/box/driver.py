"""Drives one Chromium for one episode: a JSON request per line on standard input, a JSON reply per line on standard output.

Runs inside the sandbox, as its spec's ready command: it starts the browser and the site's server before it knows the task,
and says so by a first line. Programs of the box, such as `mcp`, ask it by a socket, and only for what an agent may do. All
that a page controls is handled here; what leaves is one line of bounded length per request. A failure of the browser itself
is told as `fatal`, never as an ordinary error. What is graded, the site's state and the agent's word to the user, is in no
file: the request that ends the episode has it in reply.
"""

from __future__ import annotations

import asyncio
import base64
import json
import os
import socket
import subprocess
import sys
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import Any

from sandboxes.browser.box.memory import keep_to_itself

__all__ = ["MOST_MESSAGE", "MOST_PICTURES", "MOST_REQUEST_BYTES", "picture_name", "socket_path"]

MOST_REQUEST_BYTES = 1 << 20
MOST_PICTURES = 50
"""So many are kept; the oldest goes."""
MOST_MESSAGE = 20_000
"""So many characters of what an agent in the box tells the user are kept."""
_STATE_S = 20.0
_ASKED_BY_AGENTS = frozenset({"act", "look", "picture", "tell"})
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
                stdout=subprocess.PIPE,
            )

    def begin(self, site: str, folder: str) -> None:
        """Have it serve a site, whose files lie in a folder, from now on."""
        self._tell([site, folder])

    async def end(self) -> dict[str, Any] | None:
        """Close the site and return its last state; None where that is too large. Raise `OSError` or `ValueError`."""
        self._tell("end")
        assert self._process.stdout is not None  # as it was started
        async with asyncio.timeout(_STATE_S):
            line = await asyncio.to_thread(self._process.stdout.readline)
        state: dict[str, Any] | None = json.loads(line)
        return state

    def _tell(self, what: object) -> None:
        assert self._process.stdin is not None  # as it was started
        self._process.stdin.write(json.dumps(what).encode() + b"\n")
        self._process.stdin.flush()


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
        driver = _Driver(server, browser, BrowserDied)
        await asyncio.start_unix_server(driver.client, socket_path(), limit=MOST_REQUEST_BYTES)
        keep_to_itself()
        _say({"ready": True})
        while line := await reader.readline():
            request = json.loads(line)
            reply = await driver.answer(request)
            if request["do"] in ("start", "act") and "fatal" not in reply:
                await driver.keep_picture(request["id"])
            _say({"id": request["id"], **reply})


class _Driver:
    """Answers requests, one at a time, whoever asks."""

    def __init__(self, server: _SiteServer, browser: Any, died: type[Exception]) -> None:
        self._server, self._browser, self._died = server, browser, died
        self._folder: Path | None = None
        """That of the site's files, while the episode goes on."""
        self._ended: Path | None = None
        """The same once it has ended."""
        self._pictures = False
        self._message: str | None = None
        """What an agent in the box told the user."""
        self._lock = asyncio.Lock()

    async def answer(self, request: dict[str, Any]) -> dict[str, Any]:
        """Return the reply to one request; `fatal` says that there is no browser any more."""
        async with self._lock:
            try:
                return await self._done(request)
            except self._died as died:
                return {"fatal": str(died)[:400]}

    async def _done(self, request: dict[str, Any]) -> dict[str, Any]:
        browser, error = self._browser, ""
        if request["do"] == "start":
            self._server.begin(request["site"], request["folder"])
            await browser.open(request)
            self._folder, self._pictures = Path(request["folder"]), bool(request.get("pictures"))
        elif request["do"] == "record":
            return await self._record()
        elif self._folder is None:
            return {"fatal": "the episode has not begun, or has ended"}
        elif request["do"] == "tell":
            self._message = str(request["text"])[:MOST_MESSAGE].encode("utf-8", "replace").decode()
            return {}
        elif request["do"] == "picture":
            return {"picture": await browser.picture()}
        elif request["do"] == "act":
            error = await browser.act(request["op"], request["args"])
        elif request["do"] == "end":
            return await self._end()
        seen: dict[str, Any] = await browser.observe(error)
        return seen

    async def _end(self) -> dict[str, Any]:
        """End the episode: from here on nothing is done any more, and what it comes to is told."""
        self._folder, self._ended = None, self._folder
        try:
            state = await self._server.end()
        except (OSError, ValueError, TimeoutError) as error:
            return {"fatal": f"the site's server cannot tell its state: {type(error).__name__}"}
        done, reward = self._browser.outcome
        return {"state": state, "message": self._message, "done": done, "reward": reward}

    async def _record(self) -> dict[str, Any]:
        """Write what was recorded of an episode that has ended, as far as that goes."""
        if self._ended is None:
            return {"fatal": "the episode has not ended"}
        try:
            await self._browser.write_record(self._ended)
        except Exception as error:  # noqa: BLE001 -- named boundary: nothing that is graded depends on it
            return {"written": False, "why": type(error).__name__}
        return {"written": True, "why": ""}

    async def keep_picture(self, number: int) -> None:
        """Keep a picture of the page after request `number`, where pictures were asked for."""
        if self._folder is None or not self._pictures:
            return
        async with self._lock:
            taken = base64.b64decode(await self._browser.picture())
            with suppress(OSError):  # of a folder that a program of the box has made something else of
                picture = self._folder / picture_name(number)
                picture.parent.mkdir(exist_ok=True)
                picture.write_bytes(taken)
                (self._folder / picture_name(number - MOST_PICTURES)).unlink(missing_ok=True)

    async def client(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer a program of the box until it hangs up."""
        try:
            while line := await reader.readline():
                request = json.loads(line)
                if request["do"] not in _ASKED_BY_AGENTS:
                    break
                writer.write(json.dumps(await self.answer(request)).encode() + b"\n")
                await writer.drain()
        except (ConnectionError, ValueError, KeyError, TypeError):
            pass  # what is no request gets no answer
        finally:
            writer.close()


def picture_name(number: int) -> str:
    """Return where the picture after request `number` lies, in the folder of the site's files."""
    return f"pictures/{number:04d}.png"


def socket_path() -> str:
    """Return where the driver listens for programs of its box."""
    return str(Path(tempfile.gettempdir()) / "browser.sock")


def _say(reply: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(reply) + "\n")
    sys.stdout.flush()


async def _main() -> None:
    reader = asyncio.StreamReader(limit=MOST_REQUEST_BYTES)
    loop = asyncio.get_running_loop()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    await _serve(reader)


if __name__ == "__main__":
    asyncio.run(_main())
