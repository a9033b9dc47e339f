"""What an action does to a browser. Each raises `Refused` with a reason that is the same whenever the page is the same.

Nothing is waited for: a page's clock stands still, so what is not possible at once does not become so by itself.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, Protocol

from playwright.async_api import Error as PlaywrightError

from sandboxes.browser.box.tab import PageMoves, Tab

__all__ = ["Acted", "Refused", "perform"]

_GOTO_MS = 10_000
_MOST_WAIT_MS = 10_000
_MODIFIERS = ("Alt", "Control", "Meta", "Shift")


class Refused(Exception):
    """The action cannot be done as things are; the text tells the agent why."""


class Acted(Protocol):
    """What actions ask of a browser."""

    active: int
    dialog_answer: tuple[bool, str]
    origin: str
    pages: list[Any]

    @property
    def page(self) -> Any: ...

    held: set[str]

    def allowed(self, url: str) -> bool: ...

    def file(self, name: str) -> Path | None: ...

    def files(self) -> list[str]: ...

    async def tab(self) -> Tab: ...

    async def new_page(self) -> None: ...

    async def pass_time(self, milliseconds: int) -> None: ...


Args = dict[str, Any]


async def perform(browser: Acted, op: str, args: Args) -> None:
    """Do one action that `sandboxes.browser.actions` has read."""
    if op in _ON_ELEMENT:
        await _ON_ELEMENT[op](await browser.tab(), _Element(op, args["bid"]), args)
    else:
        await _ELSEWHERE[op](browser, args)


class _Element:
    """An element that an action names, and how the action's failures are told."""

    def __init__(self, op: str, bid: str) -> None:
        self._op, self.bid = op, bid

    async def ask(self, tab: Tab, function: str, *arguments: object) -> Any:
        """Return what a function of `page.js` says of the element. Raise `Refused` where there is none, or with a reason."""
        told = await tab.call(function, self.bid, *arguments)
        if told is None:
            raise Refused(
                f"no element {self.bid!r} in this page; the ids are those of the newest observation"
            )
        if isinstance(told, str):
            raise self.refused(told)
        return told

    async def point(self, tab: Tab, *, enabled: bool = True, covered: bool = False) -> tuple[float, float]:
        """Return where in the viewport the element is, scrolled into view."""
        told = await self.ask(tab, "point", enabled, covered)
        return told["x"], told["y"]

    def refused(self, reason: str) -> Refused:
        """Return the action's failure."""
        return Refused(f"{self._op} of {self.bid!r} failed: {reason}")


async def _click(tab: Tab, element: _Element, args: Args) -> None:
    x, y = await element.point(tab)
    await tab.click(x, y, button=args["button"], modifiers=tuple(args["modifiers"]))


async def _dblclick(tab: Tab, element: _Element, args: Args) -> None:
    x, y = await element.point(tab)
    await tab.click(x, y, button=args["button"], count=2, modifiers=tuple(args["modifiers"]))


async def _hover(tab: Tab, element: _Element, args: Args) -> None:
    await tab.hover(*await element.point(tab, enabled=False))


async def _fill(tab: Tab, element: _Element, args: Args) -> None:
    if await element.ask(tab, "fill", args["value"]):
        return
    if args["value"]:
        await tab.page.keyboard.insert_text(args["value"])
    else:
        await tab.page.keyboard.press("Delete")


async def _clear(tab: Tab, element: _Element, args: Args) -> None:
    await _fill(tab, element, {"value": ""})


async def _press(tab: Tab, element: _Element, args: Args) -> None:
    await element.ask(tab, "focus")
    await _pressed(tab.page, args["key_comb"], element.refused)


async def _pressed(page: Any, keys: str, refused: Callable[[str], Refused]) -> None:
    await _keyed(page.keyboard.press(keys), refused)


async def _keyed(doing: Awaitable[None], refused: Callable[[str], Refused]) -> None:
    try:
        await doing
    except PlaywrightError as error:
        if "Unknown key" in str(error):
            raise refused("there is no such key") from None
        raise


async def _select(tab: Tab, element: _Element, args: Args) -> None:
    wanted = args["options"] if isinstance(args["options"], list) else [args["options"]]
    told = await element.ask(tab, "select", wanted)
    if told is not True:
        missing, labels = told
        raise Refused(
            f"{element.bid!r} has no option {missing!r}; it has {', '.join(map(repr, labels))}"[:400]
        )


async def _check(tab: Tab, element: _Element, args: Args) -> None:
    await _toggle(tab, element, True)


async def _uncheck(tab: Tab, element: _Element, args: Args) -> None:
    await _toggle(tab, element, False)


async def _toggle(tab: Tab, element: _Element, wanted: bool) -> None:
    if await element.ask(tab, "checked") is wanted:
        return
    await tab.click(*await element.point(tab))
    with suppress(PlaywrightError, PageMoves):  # a page that moves on for it took it
        if await tab.call("checked", element.bid) is (not wanted):
            raise element.refused("it stays as it is")


async def _focus(tab: Tab, element: _Element, args: Args) -> None:
    await element.ask(tab, "focus")


async def _upload(browser: Acted, args: Args) -> None:
    element, path = _Element("upload_file", args["bid"]), browser.file(args["file"])
    if path is None:
        raise element.refused(
            f"there is no file {args['file']!r}; there are {', '.join(browser.files()) or 'none'}"
        )
    tab = await browser.tab()
    await element.ask(tab, "takes_files")
    await tab.set_file(element.bid, str(path))


_ON_ELEMENT: dict[str, Callable[[Tab, _Element, Args], Awaitable[None]]] = {
    "click": _click,
    "dblclick": _dblclick,
    "hover": _hover,
    "fill": _fill,
    "press": _press,
    "select_option": _select,
    "check": _check,
    "uncheck": _uncheck,
    "focus": _focus,
    "clear": _clear,
}


async def _drag(browser: Acted, args: Args) -> None:
    tab, mouse = await browser.tab(), browser.page.mouse
    source, target = (_Element("drag_and_drop", args[name]) for name in ("from_bid", "to_bid"))
    await target.point(tab, enabled=False, covered=True)  # before anything is picked up
    await mouse.move(*await source.point(tab, enabled=False))
    await mouse.down()
    x, y = await target.point(tab, enabled=False, covered=True)
    await mouse.move(x, y, steps=2)
    await mouse.up()


async def _goto(browser: Acted, args: Args) -> None:
    url = args["url"]
    if not browser.allowed(url):
        raise Refused(f"goto: {url[:120]!r} is not of this site; allowed is {browser.origin}/...")
    await _loaded("goto", browser.page.goto(url, timeout=_GOTO_MS))


async def _loaded(op: str, doing: Awaitable[Any]) -> None:
    try:
        await doing
    except PlaywrightError as error:
        if "Timeout" in str(error):
            raise Refused(f"{op}: the page did not load in {_GOTO_MS} ms") from None
        if "ERR_" in str(error):
            raise Refused(f"{op}: the page cannot be loaded") from None
        raise


async def _back(browser: Acted, args: Args) -> None:
    await _loaded("go_back", browser.page.go_back(timeout=_GOTO_MS))


async def _forward(browser: Acted, args: Args) -> None:
    await _loaded("go_forward", browser.page.go_forward(timeout=_GOTO_MS))


async def _new_tab(browser: Acted, args: Args) -> None:
    await browser.new_page()


async def _tab_close(browser: Acted, args: Args) -> None:
    if len(browser.pages) == 1:
        raise Refused("tab_close: this is the only tab")
    await browser.page.close()


async def _tab_focus(browser: Acted, args: Args) -> None:
    index = args["index"]
    if not 0 <= index < len(browser.pages):
        raise Refused(f"tab_focus: there is no tab {index}; there are {len(browser.pages)}, numbered from 0")
    browser.active = index
    await browser.page.bring_to_front()


async def _scroll(browser: Acted, args: Args) -> None:
    await (await browser.tab()).scroll(args["delta_x"], args["delta_y"])


async def _mouse_click(browser: Acted, args: Args) -> None:
    await _clicked_at(browser, args, 1)


async def _mouse_dblclick(browser: Acted, args: Args) -> None:
    await _clicked_at(browser, args, 2)


async def _clicked_at(browser: Acted, args: Args, count: int) -> None:
    tab, held = await browser.tab(), tuple(sorted(browser.held))
    await tab.click(args["x"], args["y"], button=args["button"], count=count, modifiers=held)


async def _mouse_move(browser: Acted, args: Args) -> None:
    await browser.page.mouse.move(args["x"], args["y"])


async def _mouse_down(browser: Acted, args: Args) -> None:
    await _mouse_move(browser, args)
    await browser.page.mouse.down(button=args["button"])


async def _mouse_up(browser: Acted, args: Args) -> None:
    await _mouse_move(browser, args)
    await browser.page.mouse.up(button=args["button"])


async def _mouse_drag(browser: Acted, args: Args) -> None:
    mouse = browser.page.mouse
    await mouse.move(args["from_x"], args["from_y"])
    await mouse.down()
    await mouse.move(args["to_x"], args["to_y"], steps=5)
    await mouse.up()


async def _key(browser: Acted, args: Args) -> None:
    failed = "keyboard_press of {!r} failed: {}".format
    await _pressed(browser.page, args["key"], lambda reason: Refused(failed(args["key"], reason)))


async def _key_down(browser: Acted, args: Args) -> None:
    key = args["key"]
    await _keyed(
        browser.page.keyboard.down(key), lambda why: Refused(f"keyboard_down of {key!r} failed: {why}")
    )
    if key in _MODIFIERS:
        browser.held.add(key)


async def _key_up(browser: Acted, args: Args) -> None:
    key = args["key"]
    await _keyed(browser.page.keyboard.up(key), lambda why: Refused(f"keyboard_up of {key!r} failed: {why}"))
    browser.held.discard(key)


async def _insert_text(browser: Acted, args: Args) -> None:
    await browser.page.keyboard.insert_text(args["text"])


async def _type(browser: Acted, args: Args) -> None:
    await browser.page.keyboard.type(args["text"])


async def _on_dialog(browser: Acted, args: Args) -> None:
    browser.dialog_answer = (args["answer"] == "accept", args["text"])


async def _noop(browser: Acted, args: Args) -> None:
    await browser.pass_time(min(args["wait_ms"], _MOST_WAIT_MS))


_ELSEWHERE: dict[str, Callable[[Acted, Args], Awaitable[None]]] = {
    "drag_and_drop": _drag,
    "upload_file": _upload,
    "goto": _goto,
    "go_back": _back,
    "go_forward": _forward,
    "new_tab": _new_tab,
    "tab_close": _tab_close,
    "tab_focus": _tab_focus,
    "scroll": _scroll,
    "mouse_move": _mouse_move,
    "mouse_down": _mouse_down,
    "mouse_up": _mouse_up,
    "mouse_click": _mouse_click,
    "mouse_dblclick": _mouse_dblclick,
    "mouse_drag_and_drop": _mouse_drag,
    "keyboard_press": _key,
    "keyboard_down": _key_down,
    "keyboard_up": _key_up,
    "keyboard_insert_text": _insert_text,
    "keyboard_type": _type,
    "on_dialog": _on_dialog,
    "noop": _noop,
}
