"""What an action does to a browser. Each raises `Refused` with a reason that is the same whenever the page is the same."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Protocol

from playwright.async_api import Error as PlaywrightError

__all__ = ["Acted", "Refused", "perform"]

_ELEMENT_MS = 8000
_GOTO_MS = 10_000
_MOST_WAIT_MS = 10_000


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

    def allowed(self, url: str) -> bool: ...

    async def new_page(self) -> None: ...

    async def pass_time(self, milliseconds: int) -> None: ...


async def perform(browser: Acted, op: str, args: dict[str, Any]) -> None:
    """Do one action that `sandboxes.browser.actions` has read."""
    if op in _ON_ELEMENT:
        await _on_element(browser, op, args)
    elif op == "drag_and_drop":
        source = await _element(browser, args["from_bid"])
        target = await _element(browser, args["to_bid"])
        await _tried(op, args["from_bid"], source.drag_to(target, timeout=_ELEMENT_MS))
    else:
        await _ELSEWHERE[op](browser, args)


async def _element(browser: Acted, bid: str) -> Any:
    found = browser.page.locator(f"aria-ref={bid}")
    try:
        count = await found.count()
    except PlaywrightError:  # of an element that was there in an earlier page
        count = 0
    if count != 1:
        raise Refused(f"no element {bid!r} in this page; the ids are those of the newest observation")
    return found


async def _on_element(browser: Acted, op: str, args: dict[str, Any]) -> None:
    bid = args["bid"]
    found = await _element(browser, bid)
    if op not in ("hover", "focus") and not await found.is_enabled():
        raise Refused(f"the element {bid!r} is disabled")
    await _tried(op, bid, _ON_ELEMENT[op](found, args))


async def _tried(op: str, bid: str, doing: Awaitable[Any]) -> None:
    """Await it, and give each way of failing one text: Playwright's own differ from try to try."""
    try:
        await doing
    except PlaywrightError as error:
        said = str(error)
        if "scheduled navigations" in said:  # it was done, and led to a page that takes long to come
            return
        for part, reason in _REASONS:
            if part in said:
                raise Refused(f"{op} of {bid!r} failed: {reason}") from None
        if "Timeout" in said:
            raise Refused(f"{op} of {bid!r} failed: it did not become possible in {_ELEMENT_MS} ms") from None
        raise


_REASONS = (
    ("intercepts pointer events", "another element covers it"),
    ("not visible", "it is not visible"),
    ("not enabled", "it is disabled"),
    ("outside of the viewport", "it cannot be scrolled into view"),
    ("not an <input>", "it is no field that takes text"),
    ("Cannot type text into", "its type of field does not take this text"),
    ("Malformed value", "its type of field does not take this text"),
    ("not a <select>", "it is no list to select from"),
    ("did not find some options", "it has no such option"),
    ("Not a checkbox or radio", "it is no check box or radio button"),
    ("not a checkbox or radio", "it is no check box or radio button"),
    ("did not change its state", "it stays as it is"),
    ("Unknown key", "there is no such key"),
    ("not attached", "it is gone"),
    ("detached", "it is gone"),
)


async def _select(found: Any, args: dict[str, Any]) -> None:
    wanted = args["options"] if isinstance(args["options"], list) else [args["options"]]
    there = await found.evaluate(
        "e => e.tagName === 'SELECT' ? [...e.options].slice(0, 1000).map(o => [o.label.trim(), o.value]) : null"
    )
    if there is None:
        raise Refused(f"select_option of {args['bid']!r} failed: it is no list to select from")
    for each in wanted:
        if not any(each in pair for pair in there):
            shown = ", ".join(repr(label) for label, _ in there[:10])
            raise Refused(f"{args['bid']!r} has no option {each!r}; it has {shown}"[:400])
    chosen = [next(number for number, pair in enumerate(there) if each in pair) for each in wanted]
    await found.select_option(index=chosen, timeout=_ELEMENT_MS)


async def _toggle(found: Any, wanted: bool) -> None:
    """Set a check box. One whose label covers it is clicked where it lies."""
    await found.set_checked(wanted, timeout=_ELEMENT_MS)


_ON_ELEMENT: dict[str, Callable[[Any, dict[str, Any]], Awaitable[Any]]] = {
    "click": lambda e, a: e.click(button=a["button"], modifiers=a["modifiers"], timeout=_ELEMENT_MS),
    "dblclick": lambda e, a: e.dblclick(button=a["button"], modifiers=a["modifiers"], timeout=_ELEMENT_MS),
    "hover": lambda e, a: e.hover(timeout=_ELEMENT_MS),
    "fill": lambda e, a: e.fill(a["value"], timeout=_ELEMENT_MS),
    "press": lambda e, a: e.press(a["key_comb"], timeout=_ELEMENT_MS),
    "select_option": _select,
    "check": lambda e, a: _toggle(e, True),
    "uncheck": lambda e, a: _toggle(e, False),
    "focus": lambda e, a: e.focus(timeout=_ELEMENT_MS),
    "clear": lambda e, a: e.fill("", timeout=_ELEMENT_MS),
}


async def _goto(browser: Acted, args: dict[str, Any]) -> None:
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


async def _back(browser: Acted, args: dict[str, Any]) -> None:
    await _loaded("go_back", browser.page.go_back(timeout=_GOTO_MS))


async def _forward(browser: Acted, args: dict[str, Any]) -> None:
    await _loaded("go_forward", browser.page.go_forward(timeout=_GOTO_MS))


async def _new_tab(browser: Acted, args: dict[str, Any]) -> None:
    await browser.new_page()


async def _tab_close(browser: Acted, args: dict[str, Any]) -> None:
    if len(browser.pages) == 1:
        raise Refused("tab_close: this is the only tab")
    await browser.page.close()


async def _tab_focus(browser: Acted, args: dict[str, Any]) -> None:
    index = args["index"]
    if not 0 <= index < len(browser.pages):
        raise Refused(f"tab_focus: there is no tab {index}; there are {len(browser.pages)}, numbered from 0")
    browser.active = index
    await browser.page.bring_to_front()


async def _scroll(browser: Acted, args: dict[str, Any]) -> None:
    await browser.page.mouse.wheel(args["delta_x"], args["delta_y"])


async def _mouse_click(browser: Acted, args: dict[str, Any]) -> None:
    await browser.page.mouse.click(args["x"], args["y"], button=args["button"])


async def _mouse_drag(browser: Acted, args: dict[str, Any]) -> None:
    mouse = browser.page.mouse
    await mouse.move(args["from_x"], args["from_y"])
    await mouse.down()
    await mouse.move(args["to_x"], args["to_y"], steps=5)
    await mouse.up()


async def _key(browser: Acted, args: dict[str, Any]) -> None:
    await _tried("keyboard_press", args["key"], browser.page.keyboard.press(args["key"]))


async def _type(browser: Acted, args: dict[str, Any]) -> None:
    await browser.page.keyboard.type(args["text"])


async def _on_dialog(browser: Acted, args: dict[str, Any]) -> None:
    browser.dialog_answer = (args["answer"] == "accept", args["text"])


async def _noop(browser: Acted, args: dict[str, Any]) -> None:
    await browser.pass_time(min(args["wait_ms"], _MOST_WAIT_MS))


_ELSEWHERE: dict[str, Callable[[Acted, dict[str, Any]], Awaitable[None]]] = {
    "goto": _goto,
    "go_back": _back,
    "go_forward": _forward,
    "new_tab": _new_tab,
    "tab_close": _tab_close,
    "tab_focus": _tab_focus,
    "scroll": _scroll,
    "mouse_click": _mouse_click,
    "mouse_drag_and_drop": _mouse_drag,
    "keyboard_press": _key,
    "keyboard_type": _type,
    "on_dialog": _on_dialog,
    "noop": _noop,
}
