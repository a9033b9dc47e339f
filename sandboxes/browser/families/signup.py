"""Tasks at the registrations."""

from __future__ import annotations

from sandboxes.browser.scenario import (
    On,
    SiteDraw,
    SiteScenario,
    SiteTemplate,
    State,
    Step,
    address,
    expecting,
    say,
)

__all__ = ["TEMPLATES"]

_TRACKS, _SHIRTS = ["Systems", "Learning", "Security", "Design"], ["S", "M", "L", "XL"]
_OPTIONS = ["Dinner", "Workshop", "City tour"]


def _person(draw: SiteDraw, name: str) -> dict[str, object]:
    chance = draw.chance
    return {
        "name": name,
        "email": address(name),
        "track": chance.choice(_TRACKS),
        "shirt": chance.choice(_SHIRTS),
        "arrival": f"2026-05-{chance.randint(10, 28)}",
        "remarks": "",
        "options": sorted(chance.sample(_OPTIONS, chance.randint(0, 2))),
    }


def _site(draw: SiteDraw, names: list[str]) -> State:
    return {
        "people": [_person(draw, name) for name in names],
        "tracks": _TRACKS,
        "shirts": _SHIRTS,
        "options": _OPTIONS,
        "sessions": [f"{word.title()} session" for word in draw.words(4)],
        "feedback": [],
    }


def _register(draw: SiteDraw) -> SiteScenario:
    new, *others = draw.people(4)
    state = _site(draw, others)
    person = _person(draw, new)
    person["options"] = sorted(draw.chance.sample(_OPTIONS, 2))
    goal = (
        f"Register {new} ({person['email']}) for the track {person['track']}, with a shirt of size {person['shirt']}, "
        f"arriving on {person['arrival']}, with the options {' and '.join(map(str, person['options']))}. "  # type: ignore[call-overload]
        "Leave no remark."
    )
    steps: list[Step] = [
        On("click", "link", "Register"),
        On("fill", "textbox", "Name", f'"{new}"'),
        On("fill", "textbox", "E-mail", f'"{person["email"]}"'),
        On("select_option", "combobox", "Track", f'"{person["track"]}"'),
        On("check", "radio", str(person["shirt"])),
        *(On("check", "checkbox", str(option)) for option in person["options"]),  # type: ignore[attr-defined]
        On("fill", "textbox", "Arrival (YYYY-MM-DD)", f'"{person["arrival"]}"'),
        On("click", "button", "Continue"),
        On("click", "button", "Confirm registration"),
        say("done"),
    ]
    return SiteScenario("signup", goal, state, expecting(state, lambda s: s["people"].append(person)), steps)


def _move(draw: SiteDraw) -> SiteScenario:
    names = draw.people(5)
    state = _site(draw, names)
    number = draw.chance.randrange(5)
    date = f"2026-06-{draw.chance.randint(10, 28)}"
    steps: list[Step] = [
        On("click", "link", "Edit", after=names[number]),
        On("fill", "textbox", "Arrival (YYYY-MM-DD)", f'"{date}"'),
        On("click", "button", "Save"),
        say("done"),
    ]
    goal = f"{names[number]} arrives later: change the arrival to {date}."
    return SiteScenario(
        "signup", goal, state, expecting(state, lambda s: s["people"][number].update(arrival=date)), steps
    )


def _upgrade(draw: SiteDraw) -> SiteScenario:
    names = draw.people(4)
    state = _site(draw, names)
    number = draw.chance.randrange(4)
    person = state["people"][number]
    person["options"] = [option for option in person["options"] if option != "Dinner"]
    track = draw.chance.choice([each for each in _TRACKS if each != person["track"]])
    wanted = {"track": track, "options": sorted([*person["options"], "Dinner"])}
    steps: list[Step] = [
        On("click", "link", "Edit", after=names[number]),
        On("select_option", "combobox", "Track", f'"{track}"'),
        On("check", "checkbox", "Dinner"),
        On("click", "button", "Save"),
        say("done"),
    ]
    goal = f"Move {names[number]} to the track {track}, and add the option Dinner. Change nothing else."
    return SiteScenario(
        "signup", goal, state, expecting(state, lambda s: s["people"][number].update(wanted)), steps
    )


def _feedback(draw: SiteDraw) -> SiteScenario:
    state = _site(draw, draw.people(3))
    session, stars = draw.chance.choice(state["sessions"]), draw.chance.randint(1, 5)
    comment = f"{draw.words(1)[0].title()} was too short."
    given = {"session": session, "stars": str(stars), "comment": comment}
    steps: list[Step] = [
        On("click", "link", "Feedback"),
        On("select_option", "combobox", "Session", f'"{session}"'),
        On("check", "radio", f"{stars} stars"),
        On("fill", "textbox", "Comment", f'"{comment}"'),
        On("click", "button", "Send feedback"),
        say("done"),
    ]
    goal = f'Give the {session} {stars} stars, with the comment "{comment}"'
    return SiteScenario("signup", goal, state, expecting(state, lambda s: s["feedback"].append(given)), steps)


TEMPLATES = (
    SiteTemplate("signup-register", "signup", "train", _register),
    SiteTemplate("signup-move", "signup", "train", _move),
    SiteTemplate("signup-feedback", "signup", "train", _feedback),
    SiteTemplate("signup-upgrade", "signup", "held_out", _upgrade),
)
