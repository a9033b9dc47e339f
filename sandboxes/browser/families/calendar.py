"""Tasks at the calendar."""

from __future__ import annotations

from sandboxes.browser.scenario import On, SiteDraw, SiteScenario, SiteTemplate, State, Step, expecting, say

__all__ = ["TEMPLATES"]

_ROOMS = ("East", "West", "Attic")


def _site(draw: SiteDraw) -> State:
    chance = draw.chance
    places = chance.sample([(day, hour) for day in range(1, 29) for hour in range(8, 18)], 8)
    titles = [
        f"{word.title()} {kind}" for word, kind in zip(draw.words(8), ("review", "lunch") * 4, strict=True)
    ]
    events = [
        {
            "id": number,
            "title": title,
            "date": f"2026-{chance.choice(('03', '04'))}-{day:02d}",
            "time": f"{hour:02d}:00",
            "room": chance.choice(_ROOMS),
        }
        for number, (title, (day, hour)) in enumerate(zip(titles, places, strict=True), start=1)
    ]
    return {"today": "2026-03-02", "events": events}


def _open(event: State) -> list[Step]:
    turn: list[Step] = [On("click", "link", "Next month")] if event["date"].startswith("2026-04") else []
    return [*turn, On("click", "link", f"{event['time']} {event['title']}")]


def _when(event: State) -> str:
    return f"on {event['date']} at {event['time']}"


def _add(draw: SiteDraw) -> SiteScenario:
    state = _site(draw)
    title = f"Talk with {draw.people(1)[0]}"
    new = {
        "id": 9,
        "title": title,
        "date": f"2026-05-{draw.chance.randint(10, 28)}",
        "time": f"{draw.chance.randint(10, 19)}:00",
        "room": draw.chance.choice(_ROOMS),
    }
    steps: list[Step] = [
        On("click", "link", "New appointment"),
        On("fill", "textbox", "Title", f'"{title}"'),
        On("fill", "textbox", "Date (YYYY-MM-DD)", f'"{new["date"]}"'),
        On("select_option", "combobox", "Time", f'"{new["time"]}"'),
        On("fill", "textbox", "Room", f'"{new["room"]}"'),
        On("click", "button", "Save appointment"),
        say("done"),
    ]
    goal = f'Add the appointment "{title}" {_when(new)} in the room {new["room"]}.'
    return SiteScenario("calendar", goal, state, expecting(state, lambda s: s["events"].append(new)), steps)


def _shift(draw: SiteDraw) -> SiteScenario:
    state = _site(draw)
    number = draw.chance.randrange(8)
    event, day = state["events"][number], f"2026-05-{draw.chance.randint(10, 28)}"
    steps: list[Step] = [
        *_open(event),
        On("fill", "textbox", "Date (YYYY-MM-DD)", f'"{day}"'),
        On("click", "button", "Save appointment"),
        say("done"),
    ]
    goal = f"Move the {event['title']}, which is {_when(event)}, to {day}, at the same time and in the same room."
    return SiteScenario(
        "calendar", goal, state, expecting(state, lambda s: s["events"][number].update(date=day)), steps
    )


def _cancel(draw: SiteDraw) -> SiteScenario:
    state = _site(draw)
    number = draw.chance.randrange(8)
    event = state["events"][number]
    steps: list[Step] = [
        *_open(event),
        'on_dialog("accept")',
        On("click", "button", "Delete appointment"),
        say("done"),
    ]
    goal = f"The {event['title']} {_when(event)} is cancelled: delete it."
    return SiteScenario("calendar", goal, state, expecting(state, lambda s: s["events"].pop(number)), steps)


def _where(draw: SiteDraw) -> SiteScenario:
    state = _site(draw)
    number = draw.chance.randrange(8)
    event, room = state["events"][number], f"Cellar {draw.chance.randint(10, 99)}"
    event["room"] = room
    steps: list[Step] = [*_open(event), say(f"In {room}.")]
    goal = (
        f"In which room is the {event['title']}, in March or April 2026? Tell the user, and change nothing."
    )
    return SiteScenario("calendar", goal, state, expecting(state, lambda s: None, room), steps)


TEMPLATES = (
    SiteTemplate("calendar-add", "calendar", "train", _add),
    SiteTemplate("calendar-shift", "calendar", "train", _shift),
    SiteTemplate("calendar-where", "calendar", "train", _where),
    SiteTemplate("calendar-cancel", "calendar", "held_out", _cancel),
)
