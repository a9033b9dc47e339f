"""A customer portal behind a login: profile, password, devices. Three wrong passwords lock an account."""

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

_MENU = (("Overview", "/"), ("Profile", "/profile"), ("Password", "/password"), ("Devices", "/devices"))


def answer(state: State, request: Request) -> Page | Redirect:
    """Answer one request. Who is logged in is the site's state: there is one visitor."""
    if request.path == ("login",) and request.method == "POST":
        return _login(state, request)
    user = state["users"].get(state["logged_in"])
    if user is None:
        return _ask(request.query.get("note", ""))
    post = request.method == "POST"
    match request.path:
        case ("logout",) if post:
            state["logged_in"] = ""
            return Redirect("/?note=You+are+logged+out.")
        case ():
            told = f"<p>Welcome, {escape(user['display'])}. Your last login was {escape(user['last_login'])}.</p>"
            invoices = table(("Invoice", "Amount", "State"), [map(escape, each) for each in user["invoices"]])
            out = form("/logout", send="Log out")
            return page("Overview", told, invoices, out, menu=_MENU, note=request.query.get("note", ""))
        case ("profile",):
            return _profile(user, request)
        case ("password",):
            return _password(user, request)
        case ("devices",):
            rows = [
                (
                    escape(name),
                    form("/devices", button("Sign out", "device", name), confirm=f"Sign out {name}?"),
                )
                for name in user["devices"]
            ]
            if post:
                gone = request.text("device")
                user["devices"] = [name for name in user["devices"] if name != gone]
                return Redirect("/devices")
            return page("Devices", table(("Device", ""), rows), menu=_MENU)
    return page("Not found", menu=_MENU, status=404)


def _ask(note: str) -> Page:
    fields = field_of("User name", "user"), field_of("Password", "password", "", "password")
    return page("Log in", form("/login", *fields, send="Log in"), note=note)


def _login(state: State, request: Request) -> Page | Redirect:
    user = state["users"].get(request.text("user"))
    if user is None:
        return _ask("Unknown user or wrong password.")
    if user["failures"] >= 3:
        return _ask("This account is locked.")
    if request.text("password") != user["password"]:
        user["failures"] += 1
        return _ask("Unknown user or wrong password.")
    user["failures"] = 0
    state["logged_in"] = request.text("user")
    return Redirect("/")


def _profile(user: State, request: Request) -> Page | Redirect:
    if request.method == "POST":
        user["display"], user["city"] = request.text("display"), request.text("city")
        user["language"] = request.text("language")
        user["newsletter"] = bool(request.form.get("newsletter"))
        user["two_factor"] = bool(request.form.get("two_factor"))
        return Redirect("/?note=Saved.")
    shown = form(
        "/profile",
        field_of("Display name", "display", user["display"]),
        field_of("City", "city", user["city"]),
        pick("Language", "language", ("English", "German", "French", "Spanish"), user["language"]),
        field_of("Newsletter", "newsletter", "on", "checkbox", checked=user["newsletter"]),
        field_of("Two-factor login", "two_factor", "on", "checkbox", checked=user["two_factor"]),
        send="Save profile",
    )
    return page("Profile", shown, link("Cancel", "/"), menu=_MENU)


def _password(user: State, request: Request) -> Page | Redirect:
    note = ""
    if request.method == "POST":
        old, new, again = (request.text(name) for name in ("old", "new", "again"))
        if old != user["password"]:
            note = "The old password is wrong."
        elif len(new) < 8:
            note = "A password has 8 characters or more."
        elif new != again:
            note = "The new passwords differ."
        else:
            user["password"] = new
            return Redirect("/?note=Password+changed.")
    fields = [
        field_of(label, name, "", "password")
        for label, name in (
            ("Old password", "old"),
            ("New password", "new"),
            ("Repeat new password", "again"),
        )
    ]
    return page("Password", form("/password", *fields, send="Change password"), menu=_MENU, note=note)
