"""Tasks at the wiki."""

from __future__ import annotations

from sandboxes.browser.scenario import On, SiteDraw, SiteScenario, SiteTemplate, State, Step, expecting, say

__all__ = ["TEMPLATES"]


def _site(draw: SiteDraw) -> tuple[State, list[str], list[str]]:
    """Return the wiki, its towns and its people, each town's page with a link to the page of the one who leads it."""
    towns = [word.title() for word in draw.words(5)]
    people = draw.people(5)
    pages = {"Start": "Welcome.\n" + "\n".join(f"[[{town}]]" for town in towns)}
    for town, person in zip(towns, people, strict=True):
        pages[town] = (
            f"{town} is a town of {draw.chance.randint(1000, 9000)} people.\nIts mayor is [[{person}]]."
        )
        pages[person] = f"{person} was born in {draw.chance.randint(1940, 1999)}.\n{person} likes to fish."
    return {"pages": pages, "edits": []}, towns, people


def _edited(state: State, title: str, text: str) -> None:
    state["pages"][title] = text
    state["edits"].append(title)


def _written(text: str) -> str:
    return '"' + text.replace("\n", "\\n") + '"'


def _mayor(draw: SiteDraw) -> SiteScenario:
    state, towns, people = _site(draw)
    number = draw.chance.randrange(5)
    year = state["pages"][people[number]].split("born in ")[1][:4]
    steps: list[Step] = [
        On("click", "link", towns[number]),
        On("click", "link", people[number]),
        say(f"In {year}."),
    ]
    goal = f"In which year was the mayor of {towns[number]} born? Tell the user, and change nothing."
    return SiteScenario("wiki", goal, state, expecting(state, lambda s: None, year), steps)


def _correct(draw: SiteDraw) -> SiteScenario:
    state, towns, _ = _site(draw)
    town, count = draw.chance.choice(towns), draw.chance.randint(10_000, 90_000)
    old = state["pages"][town]
    new = f"{town} is a town of {count} people.\n{old.partition(chr(10))[2]}"
    steps: list[Step] = [
        On("click", "link", town),
        On("click", "link", "Edit this page"),
        On("fill", "textbox", "Text", _written(new)),
        On("click", "button", "Save page"),
        say("done"),
    ]
    goal = (
        f"{town} has grown to {count} people. Correct the number on its page, and change nothing else there."
    )
    return SiteScenario("wiki", goal, state, expecting(state, lambda s: _edited(s, town, new)), steps)


def _create(draw: SiteDraw) -> SiteScenario:
    state, _, _ = _site(draw)
    title = f"{draw.things(1)[0].title()} Museum"
    text = f"Founded in {draw.chance.randint(1800, 1999)}."
    steps: list[Step] = [
        On("click", "link", "New page"),
        On("fill", "textbox", "Title", f'"{title}"'),
        On("fill", "textbox", "Text", f'"{text}"'),
        On("click", "button", "Create page"),
        say("done"),
    ]
    goal = f'Make a new page "{title}" with exactly this text: {text}'
    return SiteScenario("wiki", goal, state, expecting(state, lambda s: _edited(s, title, text)), steps)


def _remove(draw: SiteDraw) -> SiteScenario:
    state, _, people = _site(draw)
    person, hobby = draw.chance.choice(people), f"plays the {draw.things(1)[0]}"
    state["pages"][person] = state["pages"][person].replace("likes to fish", hobby)
    steps: list[Step] = [
        On("click", "link", "Search"),
        On("fill", "textbox", "Words", f'"{hobby}"'),
        On("click", "button", "Find"),
        On("click", "link", person),
        On("click", "link", "Edit this page"),
        'on_dialog("accept")',
        On("click", "button", "Delete page"),
        say("done"),
    ]
    goal = f"One page is about somebody who {hobby}. Find it with the search, and delete that page."
    return SiteScenario("wiki", goal, state, expecting(state, lambda s: s["pages"].pop(person)), steps)


TEMPLATES = (
    SiteTemplate("wiki-mayor", "wiki", "train", _mayor),
    SiteTemplate("wiki-correct", "wiki", "train", _correct),
    SiteTemplate("wiki-create", "wiki", "train", _create),
    SiteTemplate("wiki-remove", "wiki", "held_out", _remove),
)
