"""Registrations for a conference: a form of every kind of field, checked by the server, with a page to confirm."""

from __future__ import annotations

from html import escape

from sandboxes.browser.box.web import (
    Page,
    Redirect,
    Request,
    State,
    button,
    field_of,
    form,
    link,
    page,
    pick,
    table,
)

__all__ = ["answer"]

_MENU = (("Participants", "/"), ("Register", "/register"), ("Feedback", "/feedback"))
_FIELDS = ("name", "email", "track", "shirt", "arrival", "remarks")


def answer(state: State, request: Request) -> Page | Redirect:
    """Answer one request."""
    match request.path:
        case ():
            return _participants(state, request.query.get("note", ""))
        case ("register",):
            return _register(state, request)
        case ("edit", number) if number.isdecimal() and int(number) < len(state["people"]):
            return _edit(state, request, int(number))
        case ("feedback",):
            return _feedback(state, request)
    return page("Not found", menu=_MENU, status=404)


def _participants(state: State, note: str) -> Page:
    rows = [
        [
            *(escape(person[each]) for each in ("name", "email", "track", "shirt", "arrival")),
            link("Edit", f"/edit/{number}"),
        ]
        for number, person in enumerate(state["people"])
    ]
    heads = ("Name", "E-mail", "Track", "Shirt", "Arrival", "")
    return page("Participants", table(heads, rows), menu=_MENU, note=note)


def _form(state: State, to: str, person: dict[str, str], options: list[str], send: str) -> str:
    shirts = "".join(
        field_of(size, "shirt", size, "radio", checked=person["shirt"] == size) for size in state["shirts"]
    )
    extras = "".join(
        field_of(option, "options", option, "checkbox", checked=option in options)
        for option in state["options"]
    )
    return form(
        to,
        field_of("Name", "name", person["name"]),
        field_of("E-mail", "email", person["email"]),
        pick("Track", "track", ("Choose one", *state["tracks"]), person["track"]),
        f"<fieldset><legend>Shirt</legend>{shirts}</fieldset>",
        f"<fieldset><legend>Options</legend>{extras}</fieldset>",
        field_of("Arrival (YYYY-MM-DD)", "arrival", person["arrival"]),
        field_of("Remarks", "remarks", person["remarks"], "textarea"),
        send=send,
    )


def _register(state: State, request: Request) -> Page | Redirect:
    empty = dict.fromkeys(_FIELDS, "")
    if request.method != "POST":
        return page("Register", _form(state, "/register", empty, [], "Continue"), menu=_MENU)
    person = {name: request.text(name) for name in _FIELDS}
    options = [each for each in request.form.get("options", []) if each in state["options"]]
    wrong = _wrong(state, person)
    if wrong:
        return page(
            "Register", _form(state, "/register", person, options, "Continue"), menu=_MENU, note=wrong
        )
    if request.text("sure") != "yes":
        kept = "".join(
            f'<input type="hidden" name="{n}" value="{escape(v, quote=True)}">' for n, v in person.items()
        )
        kept += "".join(
            f'<input type="hidden" name="options" value="{escape(each, quote=True)}">' for each in options
        )
        told = table(("Field", "Value"), [(name, escape(value)) for name, value in person.items()])
        sure = form("/register", kept, button("Confirm registration", "sure", "yes"))
        return page(
            "Please check", told, f"<p>Options: {escape(', '.join(options) or 'none')}</p>", sure, menu=_MENU
        )
    state["people"].append({**person, "options": sorted(options)})
    return Redirect("/?note=Registered.")


def _edit(state: State, request: Request, number: int) -> Page | Redirect:
    person = state["people"][number]
    if request.method != "POST":
        return page("Edit", _form(state, f"/edit/{number}", person, person["options"], "Save"), menu=_MENU)
    changed = {name: request.text(name) for name in _FIELDS}
    options = [each for each in request.form.get("options", []) if each in state["options"]]
    wrong = _wrong(state, changed)
    if wrong:
        shown = _form(state, f"/edit/{number}", changed, options, "Save")
        return page("Edit", shown, menu=_MENU, note=wrong)
    state["people"][number] = {**changed, "options": sorted(options)}
    return Redirect("/?note=Saved.")


def _wrong(state: State, person: dict[str, str]) -> str:
    if not person["name"]:
        return "A name is needed."
    if "@" not in person["email"]:
        return "An e-mail address has an @."
    if person["track"] not in state["tracks"]:
        return "Choose a track."
    if person["shirt"] not in state["shirts"]:
        return "Choose a shirt."
    parts = person["arrival"].split("-")
    if [len(part) for part in parts] != [4, 2, 2] or not all(part.isdecimal() for part in parts):
        return "The arrival is a date such as 2026-05-01."
    return ""


def _feedback(state: State, request: Request) -> Page | Redirect:
    if request.method == "POST":
        given = {name: request.text(name) for name in ("session", "stars", "comment")}
        if given["session"] in state["sessions"] and given["stars"] in "12345":
            state["feedback"].append(given)
            return Redirect("/?note=Thank+you.")
        note = "Choose a session and a number of stars."
    else:
        note = ""
    stars = "".join(field_of(f"{number} stars", "stars", str(number), "radio") for number in range(1, 6))
    shown = form(
        "/feedback",
        pick("Session", "session", ("Choose one", *state["sessions"])),
        f"<fieldset><legend>Stars</legend>{stars}</fieldset>",
        field_of("Comment", "comment", "", "textarea"),
        send="Send feedback",
    )
    return page("Feedback", shown, menu=_MENU, note=note)
