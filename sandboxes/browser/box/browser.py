"""One Chromium with one context: acts as told, and says what the page then shows.

Time stands still for pages but in steps: each action lets `_TICK_MS` of the page's own clock pass, so that equal actions
give equal pages however busy the machine is. Every wait here has a bound; a page that passes it is closed, and that is said.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, TypeVar

from playwright.async_api import Error as PlaywrightError
from playwright.async_api import TimeoutError as PlaywrightTimeout

from sandboxes.browser.box.acts import Refused, perform
from sandboxes.browser.box.downloads import Downloads
from sandboxes.browser.box.har import HarLog
from sandboxes.browser.box.tab import PageMoves, Tab

__all__ = ["Browser", "BrowserDied"]

_T = TypeVar("_T")
_ARGS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-extensions",
    "--disable-breakpad",
    "--disable-crash-reporter",
    "--disable-default-apps",
    "--disable-features=Translate,MediaRouter,OptimizationHints",
    "--no-proxy-server",
    "--no-zygote",
    "--font-render-hinting=none",
    "--force-color-profile=srgb",
    "--disable-site-isolation-trials",
)
_BEGIN = datetime(2026, 3, 2, 8, tzinfo=UTC)
"""When every episode begins, to its pages."""
_TICK_MS = 500
_LAUNCH_S = 40.0
_LOAD_S = 8.0
_RESPOND_S = 10.0
_LOOK_S = 0.05
"""A page that is not at rest is looked at again after this long, whatever happens."""
_ACT_S = 20.0
_MOST_TABS = 8
_MOST_ELEMENTS = 20_000
_MOST_TEXT = 2_000_000
_MOST_NOTES = 8
_MINIWOB_STYLE = (
    "#reward-display, #click-canvas, #sync-task-cover { display: none !important; } "
    ".alink { display: inline-block; }"
)
"""Hides what is not of the task, and lets words that are links without being `<a>` have an id."""
_MINIWOB_START = "seed => { Math.seedrandom(seed); core.EPISODE_MAX_TIME = 1e8; core.startEpisodeReal(); }"
_MINIWOB_STATE = """[document.getElementById('query').innerText.slice(0, 2000),
    WOB_DONE_GLOBAL === true, Number(WOB_RAW_REWARD_GLOBAL) || 0]"""


def _absolute(folder: str) -> Path:
    return Path(folder).resolve()


def _write(path: Path, text: str) -> None:
    path.write_text(text, encoding="utf-8")


class BrowserDied(Exception):
    """The browser itself is gone or does not start: nobody's action can mend that."""


class Browser:
    """The browser of one episode."""

    def __init__(self, browser: Any) -> None:
        self._browser = browser
        self.origin, self._most_tree = "", 0
        self._context: Any = None
        self._miniwob = False
        self.outcome: tuple[bool, float] = (False, 0.0)
        """Whether the page of a MiniWoB++ task took an answer, and its reward, as they were seen last."""
        self.pages: list[Any] = []
        self.active = 0
        self.dialog_answer: tuple[bool, str] = (False, "")
        """Whether questions of the page are answered with yes, and the text for those that ask for one."""
        self._titles: dict[Any, str] = {}
        self._notes: list[str] = []
        self._crashed: set[Any] = set()
        self._tabs: dict[Any, Tab] = {}
        self.held: set[str] = set()
        """Modifier keys that an action pressed and none has let go."""
        self._files = Path("files")
        self._downloads: Downloads | None = None
        self._taking: set[asyncio.Task[None]] = set()
        self._har: HarLog | None = None
        """The episode's requests, where a record of it is wanted."""
        self._targets: set[str] = set()
        """Every page there is in Chromium, also one that is only being opened."""
        self._stirred = asyncio.Event()
        self._seen = ("", "")
        """Title and tree of the page as it was seen last."""
        self._documents = 0
        """How many were shown: each gives its elements ids that no other has."""

    @classmethod
    async def launch(cls, chromium: Any, path: str, port: int) -> Browser:
        """Start Chromium with an empty page, for a site whose server has this port. Raise `BrowserDied`."""
        rules = f"MAP *.test:80 127.0.0.1:{port}, MAP * ~NOTFOUND, EXCLUDE 127.0.0.1:{port}"
        try:
            launched = await chromium.launch(
                executable_path=path,
                args=[*_ARGS, f"--host-resolver-rules={rules}"],
                timeout=_LAUNCH_S * 1000,
            )
            browser = cls(launched)
            await browser._begin()
        except PlaywrightError as error:
            raise BrowserDied(f"Chromium does not start: {error}") from error
        return browser

    async def _begin(self) -> None:
        self._context = context = await self._browser.new_context(
            viewport={"width": 1024, "height": 768},
            accept_downloads=True,
            service_workers="block",
            reduced_motion="reduce",
            locale="en-GB",
            timezone_id="UTC",
        )
        context.set_default_timeout(_RESPOND_S * 1000)
        await context.clock.install(time=_BEGIN)
        await context.clock.pause_at(_BEGIN + timedelta(seconds=1))
        context.on("page", self._opened)
        context.on("dialog", self._dialog)
        targets = await self._browser.new_browser_cdp_session()
        targets.on("Target.targetCreated", self._target_created)
        targets.on("Target.targetDestroyed", self._target_destroyed)
        await targets.send("Target.setDiscoverTargets", {"discover": True})
        await context.new_page()
        await self.tab()

    async def open(self, request: dict[str, Any]) -> None:
        """Open the site's first page and, for a MiniWoB++ task, begin its episode. Raise `BrowserDied`."""
        self._need_browser()
        self.origin, self._most_tree = f"http://{request['host']}", request["most_tree"]
        folder = _absolute(request["folder"])
        self._files, self._downloads = folder / "files", Downloads(folder / "downloads")
        page = self.page
        # What may be asked for is not asked about: only the rest comes here, to be refused.
        elsewhere = re.compile(rf"^(?!{re.escape(self.origin)}(?:/|$)|about:blank$|data:|blob:)")
        try:
            if request.get("record"):
                await self._record()
            await self._context.route(elsewhere, self._refuse)
            await page.goto(self.origin + request["start"], timeout=_LAUNCH_S * 1000)
            if request["seed"]:
                self._miniwob = True
                await page.add_style_tag(content=_MINIWOB_STYLE)
                await page.evaluate(_MINIWOB_START, request["seed"])
        except PlaywrightError as error:
            raise BrowserDied(f"the site's first page does not load: {error}") from error

    async def _record(self) -> None:
        """Write down requests and Playwright's trace from now on."""
        self._har = (await self.tab()).har = HarLog()
        await self._context.tracing.start(screenshots=True, snapshots=False, sources=False)

    async def write_record(self, folder: Path) -> None:
        """Write what was recorded, `requests.har` and `trace.zip`. Raise Playwright's `Error` or `OSError`."""
        if self._har is not None:
            _write(folder / "requests.har", self._har.text())
            await self._within(self._context.tracing.stop(path=folder / "trace.zip"))

    @property
    def page(self) -> Any:
        """Return the page of the active tab."""
        return self.pages[self.active]

    async def tab(self) -> Tab:
        """Return the active tab."""
        page = self.page
        if page not in self._tabs:
            self._tabs[page] = await Tab.attach(page, self._stirred.set)
            self._tabs[page].har = self._har
        return self._tabs[page]

    def allowed(self, url: str) -> bool:
        """Return whether a page may be there: at the site itself, or at the empty page."""
        return url == "about:blank" or url == self.origin or url.startswith(self.origin + "/")

    def file(self, name: str) -> Path | None:
        """Return the path of one of the task's files; None where there is none of this name."""
        path = self._files / name
        return path if path.parent == self._files and path.is_file() else None

    def files(self) -> list[str]:
        """Return the names of the task's files, the first ten."""
        return sorted(path.name for path in self._files.glob("*"))[:10]

    async def new_page(self) -> None:
        """Open an empty tab. Raise `Refused` beyond the most there may be."""
        if len(self.pages) >= _MOST_TABS:
            raise Refused(f"there are {_MOST_TABS} tabs already; close one first")
        await self._context.new_page()

    async def pass_time(self, milliseconds: int) -> None:
        """Let so much of the pages' time pass."""
        await self._context.clock.run_for(milliseconds)

    async def act(self, op: str, args: dict[str, Any]) -> str:
        """Do one action and return what went wrong, or an empty string."""
        self._need_browser()
        try:
            async with asyncio.timeout(_ACT_S):
                await perform(self, op, args)
        except Refused as refused:
            return str(refused)
        except PageMoves as moving:
            return f"{op} failed: {moving}"
        except TimeoutError:
            return f"{op} took longer than {_ACT_S:g} s and was given up"
        except PlaywrightError as error:
            self._need_browser()
            if self.page in self._crashed:
                return f"the page crashed during {op}"
            return f"{op} failed ({type(error).__name__})"
        return ""

    async def observe(self, error: str = "") -> dict[str, Any]:
        """Wait until the active page is quiet and return what there is to see."""
        self._need_browser()
        tree, title = "", ""
        try:
            if self.page in self._crashed:
                raise Refused("the page crashed and was closed")
            if not await self._within(self._settled()):
                self.note("the page did not come to rest: it keeps loading or moving on")
                tab = await self.tab()
                self._accept(tab, await self._within(self._look(tab, "tree")))
            title, tree = self._seen
        except Refused as gone:
            error = "; ".join(filter(None, (error, str(gone))))
            await self._replace()
        except (TimeoutError, PlaywrightTimeout):
            self._need_browser()
            closed = f"the page did not respond within {_RESPOND_S:g} s and was closed"
            error = "; ".join(filter(None, (error, closed)))
            await self._replace()
        except PageMoves as moving:
            error = "; ".join(filter(None, (error, f"{moving}, and was closed")))
            await self._replace()
        except PlaywrightError as failed:
            self._need_browser()
            self.note(f"the page could not be read ({type(failed).__name__})")
        self._titles[self.page] = title
        reply: dict[str, Any] = {"goal": "", "done": False, "reward": 0.0}
        if self._miniwob:
            reply |= await self._miniwob_state()
        notes, self._notes = self._notes, []
        tabs = [[self._titles.get(page, ""), page.url[:500]] for page in self.pages]
        return {
            **reply,
            "error": error[:500],
            "tree": tree,
            "tabs": tabs,
            "active": self.active,
            "notes": notes[:_MOST_NOTES],
        }

    async def picture(self) -> str:
        """Return the active page as a PNG in base64; empty where it cannot be drawn in time."""
        self._need_browser()
        try:
            return await self._within((await self.tab()).picture())
        except (TimeoutError, PlaywrightError):
            self._need_browser()
            return ""

    def note(self, text: str) -> None:
        """Keep something for the next observation."""
        if len(self._notes) < _MOST_NOTES:
            self._notes.append(text[:300])

    def _need_browser(self) -> None:
        if not self._browser.is_connected():
            raise BrowserDied("Chromium ended")

    async def _within(self, awaitable: Awaitable[_T]) -> _T:
        async with asyncio.timeout(_RESPOND_S):
            return await awaitable

    async def _settled(self) -> bool:
        """Let the page's clock go on and see the page at rest. Return False where it does not come to rest."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + _LOAD_S
        ticked = False
        while loop.time() < deadline:
            page = self.page
            self._stirred.clear()
            try:
                tab = await self.tab()
                seen: Any = None
                if not self._busy(tab):
                    seen = await (self._look(tab, "look") if ticked else tab.call("rests"))
                if seen and page is self.page and not self._busy(tab):
                    if ticked:
                        self._accept(tab, seen)
                        return True
                    await self._context.clock.run_for(_TICK_MS)
                    ticked = True
                    continue
            except (PlaywrightError, PageMoves):  # the page moved on: look again
                self._need_browser()
                if page in self._crashed:
                    raise Refused("the page crashed and was closed") from None
            with suppress(TimeoutError):
                async with asyncio.timeout(_LOOK_S):
                    await self._stirred.wait()
        (await self.tab()).forget_requests()
        return False

    def _busy(self, tab: Tab) -> bool:
        """Return whether a request, a new tab or a download is on its way."""
        if self._downloads is not None and self._downloads.running:
            return True
        return tab.waits() or len(self._targets) > len(self.pages)

    async def _look(self, tab: Tab, function: str) -> Any:
        """Return a page's title, tree and measures; by `look` only where it is at rest, else None."""
        prefix = f"f{self._documents}" if self._documents else ""
        return await tab.call(function, tab.document, prefix, _MOST_ELEMENTS, _MOST_TEXT, self._most_tree)

    def _accept(self, tab: Tab, seen: dict[str, Any]) -> None:
        """Take what was seen as the observation. From here on its document has these ids, and no other has."""
        if seen["token"] != tab.document:
            tab.document = seen["token"]
            self._documents += 1
        if seen["elements"] > _MOST_ELEMENTS or seen["text"] > _MOST_TEXT:
            self.note(
                f"the page is too large to show: {seen['elements']} elements and {seen['text']} characters, of at most "
                f"{_MOST_ELEMENTS} and {_MOST_TEXT}"
            )
        tree = seen["tree"] + ("\n- cut: the rest of the page is not shown" if seen["cut"] else "")
        self._seen = seen["title"], tree

    async def _miniwob_state(self) -> dict[str, Any]:
        try:
            goal, done, reward = await self._within((await self.tab()).evaluate(_MINIWOB_STATE))
        except PlaywrightError as error:
            raise BrowserDied(f"the task's page cannot tell its state: {type(error).__name__}") from error
        self.outcome = done, reward
        return {"goal": " ".join(goal.split()), "done": done, "reward": reward}

    async def _replace(self) -> None:
        """Close the active page, whatever state it is in, and put an empty one in its place."""
        gone, index = self.page, self.active
        try:  # at first: behind another page, one that moves on for ever does not close
            await self._within(gone.close())
        except TimeoutError:
            raise BrowserDied("a page could not be closed") from None
        self._closed(gone)
        fresh = await self._within(self._context.new_page())
        self.pages.remove(fresh)
        self.pages.insert(index, fresh)
        self.active = index

    def _opened(self, page: Any) -> None:
        if len(self.pages) > _MOST_TABS:
            self.note("a pop-up was closed: there are too many tabs")
            asyncio.get_running_loop().create_task(page.close())
            return
        self._stirred.set()
        self.pages.append(page)
        self.active = len(self.pages) - 1
        page.on("crash", lambda crashed: self._crashed.add(crashed))
        page.on("close", self._closed)
        page.on("download", self._downloaded)

    def _downloaded(self, download: Any) -> None:
        if self._downloads is not None:
            task = asyncio.get_running_loop().create_task(self._take(self._downloads, download))
            self._taking.add(task)
            task.add_done_callback(self._taking.discard)

    async def _take(self, downloads: Downloads, download: Any) -> None:
        try:
            with suppress(
                PlaywrightError, PageMoves, IndexError
            ):  # the page is gone, and what it began is not
                await (await self.tab()).call("stays")
            self.note(await downloads.take(download))
        except (PlaywrightError, OSError) as error:
            self.note(f"a download could not be kept ({type(error).__name__})")
        self._stirred.set()

    def _target_created(self, event: dict[str, Any]) -> None:
        if event["targetInfo"]["type"] == "page":
            self._targets.add(event["targetInfo"]["targetId"])

    def _target_destroyed(self, event: dict[str, Any]) -> None:
        self._targets.discard(event["targetId"])
        self._stirred.set()

    def _closed(self, page: Any) -> None:
        if page not in self.pages:
            return
        self._stirred.set()
        self._tabs.pop(page, None)
        index = self.pages.index(page)
        del self.pages[index]
        if self.active >= index:
            self.active = max(0, self.active - 1)

    async def _dialog(self, dialog: Any) -> None:
        accepted, text = self.dialog_answer
        told = dialog.type in ("alert", "beforeunload")
        self.note(
            f"the page showed {dialog.type} {dialog.message[:160]!r}: {'accepted' if told or accepted else 'dismissed'}"
        )
        try:
            if told or accepted:
                await dialog.accept(text if dialog.type == "prompt" else "")
            else:
                await dialog.dismiss()
        except PlaywrightError:  # the page is gone, and with it the question
            self._need_browser()

    async def _refuse(self, route: Any, request: Any) -> None:
        self.note(f"a request to {request.url[:120]!r} was refused: it leaves the site")
        try:
            await route.abort("blockedbyclient")
        except PlaywrightError:  # the page is gone, and with it the request
            self._need_browser()
