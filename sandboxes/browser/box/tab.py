"""One page of the browser, by a session of DevTools of its own: the driver's world in it, its mouse, what it loads.

Used by `browser` and `acts`. `page.js` runs in that world; what it answers may be of a page's making, and is bounded where
it leaves the box.
"""

from __future__ import annotations

import asyncio
import json
import math
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from playwright.async_api import Error as PlaywrightError

from sandboxes.browser.box.har import HarLog

__all__ = ["PageMoves", "Tab"]

_SCRIPT = Path(__file__).with_name("page.js").read_text(encoding="utf-8")
_WORLD = "driver"
_MOST_MOVES = 3
"""So often a document may be replaced under one call."""
_MOVED = ("context", "navigated")
"""What Chromium's words for that have in them."""
_UNREAD_S = 1.0
"""What was answered so long ago and has not ended is content that the page does not read, or that never ends."""
_MODIFIERS = {"Alt": 1, "Control": 2, "ControlOrMeta": 2, "Meta": 4, "Shift": 8}
_HELD = {"left": 1, "right": 2, "middle": 4}


class PageMoves(Exception):
    """Each document of the page is replaced before it can be looked at."""


class Tab:
    """A page. Every method raises Playwright's `Error` where the page is gone or moves on, and `call` also `PageMoves`."""

    def __init__(self, page: Any, session: Any, frame: str, stirred: Callable[[], None]) -> None:
        self.page = page
        self.har: HarLog | None = None
        """Where its requests are written down, if anywhere."""
        self._session, self._frame, self._stirred = session, frame, stirred
        self._world: int | None = None
        self._loading: dict[str, str] = {}
        """Requests that are on their way, and the documents that they are for."""
        self._answered: dict[str, float] = {}
        """When those of them were answered whose content is still to come, if anybody reads it."""
        self._pointer = (0.0, 0.0)
        self.document: float | None = None
        """The document that was observed last."""

    @classmethod
    async def attach(cls, page: Any, stirred: Callable[[], None]) -> Tab:
        """Follow a page from now on; `stirred` is called whenever something in it ends or begins."""
        session = await page.context.new_cdp_session(page)
        frames = await session.send("Page.getFrameTree")
        tab = cls(page, session, frames["frameTree"]["frame"]["id"], stirred)
        session.on("Network.requestWillBeSent", tab._sent)
        session.on("Network.responseReceived", tab._received)
        session.on("Network.loadingFinished", tab._ended)
        session.on("Network.loadingFailed", tab._ended)
        session.on("Page.frameNavigated", tab._navigated)
        session.on("Page.loadEventFired", lambda _: stirred())
        on_new = {"source": _SCRIPT, "worldName": _WORLD}
        for method, asked in (
            ("Page.enable", {}),
            ("Network.enable", {}),
            ("Page.addScriptToEvaluateOnNewDocument", on_new),
        ):
            await session.send(method, asked)
        return tab

    async def call(self, function: str, *arguments: object) -> Any:
        """Return what a function of `page.js` returns for these arguments."""
        wanted = f"page.{function}({', '.join(map(json.dumps, arguments))})"
        for _ in range(_MOST_MOVES):
            script = wanted
            if self._world is None:
                asked = {"frameId": self._frame, "worldName": _WORLD}
                made = await self._session.send("Page.createIsolatedWorld", asked)
                self._world, script = made["executionContextId"], f"{_SCRIPT}\n{wanted}"
            try:
                return await self._evaluate(script, contextId=self._world)
            except PlaywrightError as error:
                self._world = None
                if not any(word in str(error) for word in _MOVED):
                    raise
        raise PageMoves("the page moves on and on")

    async def evaluate(self, script: str) -> Any:
        """Return what a script returns in the page's own world, where the page may have changed everything."""
        return await self._evaluate(script)

    async def _evaluate(self, script: str, **where: object) -> Any:
        asked = {"expression": script, "returnByValue": True, "awaitPromise": True, **where}
        told = await self._session.send("Runtime.evaluate", asked)
        if "exceptionDetails" in told:
            raise PlaywrightError("a script failed in the page")
        return told["result"].get("value")

    async def set_file(self, bid: str, path: str) -> None:
        """Choose a file of the box in the field with this id, which `takes_files` has looked at in this very document."""
        asked = {"expression": f"page.element({json.dumps(bid)})", "contextId": self._world}
        found = await self._session.send("Runtime.evaluate", asked)
        field = found["result"].get("objectId")
        await self._session.send("DOM.setFileInputFiles", {"files": [path], "objectId": field})

    async def picture(self) -> str:
        """Return what is in the viewport as a PNG in base64."""
        told = await self._session.send("Page.captureScreenshot", {"format": "png"})
        return str(told["data"])

    # -- what it loads

    def waits(self) -> bool:
        """Return whether something is on its way from the server."""
        unread = time.monotonic() - _UNREAD_S
        return any(self._answered.get(request, math.inf) >= unread for request in self._loading)

    def forget_requests(self) -> None:
        """Wait no more for what is on its way."""
        self._loading.clear()
        self._answered.clear()

    def _sent(self, event: dict[str, Any]) -> None:
        if self.har is not None:
            self.har.sent(id(self), event)
        self._loading[event["requestId"]] = event.get("loaderId", "")

    def _received(self, event: dict[str, Any]) -> None:
        if self.har is not None:
            self.har.received(id(self), event)
        if event["requestId"] in self._loading:
            self._answered[event["requestId"]] = time.monotonic()

    def _ended(self, event: dict[str, Any]) -> None:
        if self.har is not None:
            self.har.ended(id(self), event)
        self._loading.pop(event["requestId"], None)
        self._answered.pop(event["requestId"], None)
        self._stirred()

    def _navigated(self, event: dict[str, Any]) -> None:
        frame = event["frame"]
        if "parentId" not in frame:  # nothing of an earlier document comes any more
            self._world = None
            self._loading = {
                request: document
                for request, document in self._loading.items()
                if document == frame["loaderId"]
            }
            self._answered = {
                request: at for request, at in self._answered.items() if request in self._loading
            }
            self._stirred()

    # -- its mouse

    async def click(
        self, x: float, y: float, *, button: str = "left", count: int = 1, modifiers: tuple[str, ...] = ()
    ) -> None:
        """Press and release a mouse button there, `count` times."""
        held = sum({_MODIFIERS[name] for name in modifiers})
        events: list[dict[str, object]] = [{"type": "mouseMoved"}]
        for number in range(1, count + 1):
            pressed: dict[str, object] = {"button": button, "clickCount": number}
            events.append({"type": "mousePressed", "buttons": _HELD[button], **pressed})
            events.append({"type": "mouseReleased", **pressed})
        self._pointer = (x, y)
        # All at once: by itself a movement would wait for the next frame.
        await asyncio.gather(*(self._mouse(x, y, modifiers=held, **event) for event in events))

    async def hover(self, x: float, y: float) -> None:
        """Move the mouse there."""
        self._pointer = (x, y)
        await self._mouse(x, y, type="mouseMoved")

    async def scroll(self, delta_x: float, delta_y: float) -> None:
        """Turn the wheel where the mouse is."""
        await self._mouse(*self._pointer, type="mouseWheel", deltaX=delta_x, deltaY=delta_y)

    async def _mouse(self, x: float, y: float, **event: object) -> None:
        await self._session.send("Input.dispatchMouseEvent", {"x": x, "y": y, **event})
