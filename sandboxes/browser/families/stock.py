"""Tasks at the stock room."""

from __future__ import annotations

from sandboxes.browser.scenario import On, SiteDraw, SiteScenario, SiteTemplate, State, Step, expecting, say

__all__ = ["TEMPLATES"]

_GROUPS = ("kitchen", "garden", "office")


def _site(draw: SiteDraw) -> State:
    chance = draw.chance
    names = [f"{word} {thing}" for thing, word in zip(draw.things(12), draw.words(12), strict=True)]
    prices = chance.sample(range(120, 9900), 12)
    items = [
        {
            "id": number,
            "name": name,
            "group": chance.choice(_GROUPS),
            "price": price,
            "quantity": chance.randint(1, 60),
            "supplier": draw.people(1)[0],
        }
        for number, (name, price) in enumerate(zip(names, prices, strict=True), start=1)
    ]
    items[0]["group"] = items[1]["group"] = items[2]["group"] = "kitchen"
    return {"items": items, "orders": []}


def _find(state: State, item: State) -> list[Step]:
    """Return the way from the list to an article: by its name, which sorts the list, on one page of two."""
    place = sorted(each["name"] for each in state["items"]).index(item["name"])
    turn: list[Step] = [On("click", "link", "Next page")] if place >= 8 else []
    return [*turn, On("click", "link", item["name"])]


def _quantity(draw: SiteDraw) -> SiteScenario:
    state = _site(draw)
    number = draw.chance.randrange(12)
    item, wanted = state["items"][number], draw.chance.randint(70, 200)
    steps: list[Step] = [
        *_find(state, item),
        On("fill", "textbox", "Quantity", f'"{wanted}"'),
        On("click", "button", "Save"),
        say("done"),
    ]
    goal = f"A count found {wanted} of the article {item['name']}. Correct its quantity."
    return SiteScenario(
        "stock", goal, state, expecting(state, lambda s: s["items"][number].update(quantity=wanted)), steps
    )


def _delete(draw: SiteDraw) -> SiteScenario:
    state = _site(draw)
    number = draw.chance.randrange(12)
    item = state["items"][number]
    steps: list[Step] = [
        *_find(state, item),
        'on_dialog("accept")',
        On("click", "button", "Delete article"),
        say("done"),
    ]
    goal = f"The article {item['name']} is not sold any more: delete it."
    return SiteScenario("stock", goal, state, expecting(state, lambda s: s["items"].pop(number)), steps)


def _cheapest(draw: SiteDraw) -> SiteScenario:
    state = _site(draw)
    item = min(
        (each for each in state["items"] if each["group"] == "kitchen"), key=lambda each: int(each["price"])
    )
    others = [each["supplier"] for each in state["items"] if each is not item]
    if item["supplier"] in others:
        for each in state["items"]:
            if each is not item and each["supplier"] == item["supplier"]:
                each["supplier"] = "nobody"
    steps: list[Step] = [
        On("select_option", "combobox", "Group", '"kitchen"'),
        On("click", "button", "Show"),
        On("click", "link", "Price"),
        On("click", "link", item["name"]),
        say(f"It is {item['supplier']}."),
    ]
    goal = (
        "Who supplies the cheapest article of the group kitchen? Tell the user the name, and change nothing."
    )
    return SiteScenario("stock", goal, state, expecting(state, lambda s: None, item["supplier"]), steps)


def _order(draw: SiteDraw) -> SiteScenario:
    state = _site(draw)
    low = sorted(state["items"], key=lambda each: (int(each["quantity"]), str(each["name"])))[:3]
    for amount, each in enumerate(low):
        each["quantity"] = amount
    for each in state["items"]:
        if each not in low:
            each["quantity"] += 3
    wanted = sorted(int(each["id"]) for each in low)
    steps: list[Step] = [
        On("click", "link", "Quantity"),
        *(On("check", "checkbox", f"select {each['name']}") for each in low),
        On("click", "button", "Order selected"),
        say("done"),
    ]
    goal = "Order the three articles of which the fewest are left, all three in one order."
    return SiteScenario("stock", goal, state, expecting(state, lambda s: s["orders"].append(wanted)), steps)


TEMPLATES = (
    SiteTemplate("stock-quantity", "stock", "train", _quantity),
    SiteTemplate("stock-delete", "stock", "train", _delete),
    SiteTemplate("stock-cheapest", "stock", "train", _cheapest),
    SiteTemplate("stock-order", "stock", "held_out", _order),
)
