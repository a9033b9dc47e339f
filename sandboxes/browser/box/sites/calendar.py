"""A calendar by months, with appointments to make, change and remove."""

from __future__ import annotations

from calendar import Calendar, month_name

from sandboxes.browser.box.web import Page, Redirect, Request, State, field_of, form, link, page, pick

__all__ = ["answer"]

_HOURS = tuple(f"{hour:02d}:00" for hour in range(8, 20))


def answer(state: State, request: Request) -> Page | Redirect:
    """Answer one request."""
    events = state["events"]
    post = request.method == "POST"
    match request.path:
        case ():
            return Redirect(f"/month/{state['today'][:7]}")
        case ("month", month) if _is_month(month):
            return _month(state, month)
        case ("new",):
            if post:
                return _save(state, None, request)
            return _form({"title": "", "date": request.query.get("date", ""), "time": "", "room": ""}, "/new")
        case ("event", number, *act) if number.isdecimal():
            event = next((each for each in events if each["id"] == int(number)), None)
            if event is not None and post and act == ["delete"]:
                events.remove(event)
                return Redirect(f"/month/{event['date'][:7]}")
            if event is not None and post:
                return _save(state, event, request)
            if event is not None:
                return _form(event, f"/event/{number}")
    return page("Not found", link("Calendar", "/"), status=404)


def _is_month(text: str) -> bool:
    year, _, month = text.partition("-")
    return len(year) == 4 and year.isdecimal() and month in {f"{number:02d}" for number in range(1, 13)}


def _month(state: State, month: str) -> Page:
    year, number = int(month[:4]), int(month[5:])
    rows = []
    for week in Calendar().monthdayscalendar(max(year, 1), number):
        cells = "".join(f"<td>{_day(state, f'{month}-{day:02d}', day) if day else ''}</td>" for day in week)
        rows.append(f"<tr>{cells}</tr>")
    heads = "".join(f"<th>{day}</th>" for day in ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun"))
    before = f"{year - (number == 1):04d}-{(number - 2) % 12 + 1:02d}"
    after = f"{year + (number == 12):04d}-{number % 12 + 1:02d}"
    moves = f"<p>{link('Previous month', f'/month/{before}')} {link('Next month', f'/month/{after}')}</p>"
    shown = f"<table><thead><tr>{heads}</tr></thead><tbody>{''.join(rows)}</tbody></table>"
    return page(f"{month_name[number]} {year}", moves, link("New appointment", "/new"), shown)


def _day(state: State, date: str, day: int) -> str:
    events = sorted(
        (each for each in state["events"] if each["date"] == date), key=lambda each: str(each["time"])
    )
    links = [link(f"{each['time']} {each['title']}", f"/event/{each['id']}") for each in events]
    return f"{day}" + "".join(f"<div>{each}</div>" for each in links)


def _form(event: State, to: str, note: str = "") -> Page:
    shown = form(
        to,
        field_of("Title", "title", event["title"]),
        field_of("Date (YYYY-MM-DD)", "date", event["date"]),
        pick("Time", "time", ("Choose one", *_HOURS), event["time"]),
        field_of("Room", "room", event["room"]),
        send="Save appointment",
    )
    delete = "" if to == "/new" else form(f"{to}/delete", send="Delete appointment", confirm="Delete it?")
    title = "New appointment" if to == "/new" else event["title"]
    return page(title, shown, delete, link("Calendar", "/"), note=note)


def _save(state: State, event: State | None, request: Request) -> Page | Redirect:
    given: State = {name: request.text(name) for name in ("title", "date", "time", "room")}
    to = "/new" if event is None else f"/event/{event['id']}"
    year, _, day = given["date"].rpartition("-")
    if not given["title"] or not _is_month(year) or not (day.isdecimal() and 1 <= int(day[:3]) <= 31):
        return _form(given, to, "A title and a date such as 2026-03-09 are needed.")
    if given["time"] not in _HOURS:
        return _form(given, to, "Choose a time.")
    taken = [each for each in state["events"] if each is not event and given["room"]]
    if any(
        (each["date"], each["time"], each["room"]) == (given["date"], given["time"], given["room"])
        for each in taken
    ):
        return _form(given, to, "The room is taken at that time.")
    if event is None:
        state["events"].append({"id": 1 + max((each["id"] for each in state["events"]), default=0), **given})
    else:
        event.update(given)
    return Redirect(f"/month/{year}")
