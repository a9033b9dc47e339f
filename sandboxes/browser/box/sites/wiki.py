"""A wiki: pages with links between them, a search, editing, new pages and their history."""

from __future__ import annotations

import re
from html import escape

from sandboxes.browser.box.web import Page, Redirect, Request, State, button, field_of, form, link, page

__all__ = ["answer"]

_MENU = (("Start", "/"), ("All pages", "/all"), ("Search", "/search"), ("New page", "/new"))
_LINK = re.compile(r"\[\[([^\[\]]{1,80})\]\]")


def answer(state: State, request: Request) -> Page | Redirect:
    """Answer one request."""
    pages: dict[str, str] = state["pages"]
    post = request.method == "POST"
    match request.path:
        case ():
            return Redirect("/page/Start")
        case ("page", title) if title in pages:
            edit = f"<p>{link('Edit this page', f'/edit/{title}')}</p>"
            return page(title, _shown(pages[title]), edit, menu=_MENU)
        case ("edit", title) if title in pages:
            if post:
                return _save(state, title, request.text("text"))
            fields = (field_of("Text", "text", pages[title], "textarea"), button("Save page"))
            gone = form(f"/delete/{title}", send="Delete page", confirm=f"Delete {title}?")
            return page(f"Edit {title}", form(f"/edit/{title}", *fields), gone, menu=_MENU)
        case ("delete", title) if title in pages and post:
            del pages[title]
            return Redirect("/all")
        case ("new",):
            return _new(state, request)
        case ("all",):
            listed = "".join(f"<li>{link(title, f'/page/{title}')}</li>" for title in sorted(pages))
            return page("All pages", f"<ul>{listed}</ul>", menu=_MENU)
        case ("search",):
            return _search(pages, request.query.get("words", ""))
    return page("Not found", "<p>There is no such page.</p>", menu=_MENU, status=404)


def _shown(text: str) -> str:
    def one(found: re.Match[str]) -> str:
        return link(found.group(1), f"/page/{found.group(1)}")

    return "".join(f"<p>{_LINK.sub(one, escape(line, quote=False))}</p>" for line in text.splitlines())


def _save(state: State, title: str, text: str) -> Redirect:
    state["pages"][title] = text.replace("\r\n", "\n")
    state["edits"].append(title)
    return Redirect(f"/page/{title}")


def _new(state: State, request: Request) -> Page | Redirect:
    title, text, note = request.text("title"), request.text("text"), ""
    if request.method == "POST":
        if title and title not in state["pages"] and len(title) <= 80 and "/" not in title:
            return _save(state, title, text)
        note = "A new page needs a title that no page has."
    fields = (field_of("Title", "title", title), field_of("Text", "text", text, "textarea"))
    return page("New page", form("/new", *fields, send="Create page"), menu=_MENU, note=note)


def _search(pages: dict[str, str], words: str) -> Page:
    wanted = words.lower().split()
    found = [
        title
        for title, text in pages.items()
        if wanted and all(each in f"{title} {text}".lower() for each in wanted)
    ]
    listed = "".join(f"<li>{link(title, f'/page/{title}')}</li>" for title in sorted(found))
    ask = form("/search", field_of("Words", "words", words), send="Find", method="get")
    return page("Search", ask, f"<p>{len(found)} pages</p><ul>{listed}</ul>", menu=_MENU)
