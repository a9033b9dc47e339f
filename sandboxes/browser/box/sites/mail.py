"""A mailbox: folders, search, reading, answering, forwarding, stars, moving and deleting."""

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

_FOLDERS = ("inbox", "archive", "receipts", "trash", "sent")
_MENU = (*((each.title(), f"/folder/{each}") for each in _FOLDERS), ("Compose", "/compose"))


def answer(state: State, request: Request) -> Page | Redirect:
    """Answer one request."""
    post = request.method == "POST"
    match request.path:
        case ():
            return Redirect("/folder/inbox")
        case ("folder", folder) if folder in _FOLDERS:
            return _folder(state, folder, request.query.get("find", ""), request.query.get("note", ""))
        case ("mail", number) if number.isdecimal() and (mail := _mail(state, int(number))) is not None:
            return _read(mail)
        case ("mail", number, act) if number.isdecimal() and (mail := _mail(state, int(number))) is not None:
            if post and act == "move" and request.text("folder") in _FOLDERS:
                mail["folder"] = request.text("folder")
                return Redirect("/folder/inbox")
            if post and act == "star":
                mail["starred"] = not mail["starred"]
                return Redirect(f"/mail/{number}")
            if act == "reply":
                return _write(mail["from"], f"Re: {mail['subject']}", "")
            if act == "forward":
                return _write("", f"Fwd: {mail['subject']}", mail["body"])
        case ("compose",):
            return _send(state, request) if post else _write("", "", "")
    return page("Not found", menu=_MENU, status=404)


def _mail(state: State, number: int) -> State | None:
    return next((mail for mail in state["mails"] if mail["id"] == number), None)


def _folder(state: State, folder: str, find: str, note: str) -> Page:
    shown = [mail for mail in state["mails"] if mail["folder"] == folder]
    shown = [
        mail for mail in shown if find.lower() in f"{mail['from']} {mail['subject']} {mail['body']}".lower()
    ]
    rows = [
        (
            "starred" if mail["starred"] else "",
            escape(mail["to"] if folder == "sent" else mail["from"]),
            link(mail["subject"] or "(no subject)", f"/mail/{mail['id']}"),
            escape(mail["date"]),
        )
        for mail in reversed(shown)
    ]
    search = form(f"/folder/{folder}", field_of("Find", "find", find), send="Search", method="get")
    listed = table(("Star", "To" if folder == "sent" else "From", "Subject", "Date"), rows)
    return page(folder.title(), search, listed, menu=_MENU, note=note)


def _read(mail: State) -> Page:
    number = mail["id"]
    about = table(
        ("Field", "Value"),
        [(name.title(), escape(mail[name])) for name in ("from", "to", "date", "folder")],
    )
    text = "".join(f"<p>{escape(line)}</p>" for line in mail["body"].splitlines())
    move = form(f"/mail/{number}/move", pick("Folder", "folder", _FOLDERS[:-1], mail["folder"]), send="Move")
    delete = form(f"/mail/{number}/move", button("Delete", "folder", "trash"))
    star = form(f"/mail/{number}/star", send="Remove star" if mail["starred"] else "Add star")
    acts = f"<p>{link('Reply', f'/mail/{number}/reply')} {link('Forward', f'/mail/{number}/forward')}</p>"
    return page(mail["subject"] or "(no subject)", about, text, acts, move, delete, star, menu=_MENU)


def _write(to: str, subject: str, body: str, note: str = "") -> Page:
    shown = form(
        "/compose",
        field_of("To", "to", to),
        field_of("Subject", "subject", subject),
        field_of("Text", "body", body, "textarea"),
        send="Send",
    )
    return page("Compose", shown, menu=_MENU, note=note)


def _send(state: State, request: Request) -> Page | Redirect:
    to, subject, body = (request.text(name) for name in ("to", "subject", "body"))
    if "@" not in to:
        return _write(to, subject, body, "An address has an @.")
    state["mails"].append(
        {
            "id": 1 + max(mail["id"] for mail in state["mails"]),
            "folder": "sent",
            "from": state["owner"],
            "to": to,
            "subject": subject,
            "date": state["today"],
            "body": body.replace("\r\n", "\n"),
            "starred": False,
        }
    )
    return Redirect("/folder/inbox?note=Sent.")
