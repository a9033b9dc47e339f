"""The tasks of the environment `webshop` in a real browser: its shop as a site in the box, judged by its own rewards.

The box gets the catalogue, the weights of the search and the instruction's words, and tells what was bought; what that is
worth is computed here.
"""

from __future__ import annotations

import json
from array import array
from base64 import b64encode
from collections.abc import Mapping
from functools import cache
from typing import Any

from rock_env.env import Verdict
from rock_env.errors import InvalidArgument
from rock_env.spec import TaskSource, TaskSpec
from sandboxes.browser.scenario import On, State, Step, quoted
from sandboxes.webshop.env import verdict
from sandboxes.webshop.oracle import plan
from sandboxes.webshop.params import WebshopParams, shop_of, tasks
from sandboxes.webshop.product import goal_of
from sandboxes.webshop.search import MOST_HITS, MOST_QUERY_CHARS, MOST_QUERY_WORDS
from sandboxes.webshop.shop import BUY, Visit

__all__ = [
    "PARAMS",
    "PREFIX",
    "SHOP",
    "clicks",
    "first_state",
    "goal_text",
    "judge",
    "shop_file",
    "solution",
    "source",
]

PREFIX = "webshop:"
"""Before the text mode's payload in a task's own."""
SHOP = "shop.json"
"""The catalogue, in the folder of the site's files."""
PARAMS = WebshopParams()


def source() -> TaskSource:
    """Return the tasks of the text mode, of the same splits and numbers."""
    return tasks(PARAMS)


def goal_text(task: TaskSpec) -> str:
    """Return what a task of the text mode asks for."""
    return f"Buy this in the shop: {goal_of(task.payload).text}. Only the first purchase counts; say so when it is done."


@cache
def shop_file() -> bytes:
    """Return what the site in the box needs to know of the shop; nothing of any task."""
    shop = shop_of(PARAMS)
    weights = {
        word: [b64encode(array("I", places)).decode(), b64encode(array("f", values)).decode()]
        for word, (places, values) in shop.catalogue.index.weights().items()
    }
    products = [
        {
            "asin": product.asin,
            "name": product.name,
            "price": product.price,
            "options": product.options,
            "features": product.features,
            "description": product.description,
        }
        for product in shop.catalogue.products
    ]
    return json.dumps(
        {
            "products": products,
            "weights": weights,
            "per_page": shop.per_page,
            "most_hits": MOST_HITS,
            "most_chars": MOST_QUERY_CHARS,
            "most_words": MOST_QUERY_WORDS,
        }
    ).encode()


def first_state(payload: str) -> State:
    """Return the site's state before anything is bought. Raise `InvalidArgument` for a payload that is none."""
    return {"text": goal_of(payload.removeprefix(PREFIX)).text, "bought": None}


def judge(state: State, payload: str, turns: int) -> Verdict:
    """Grade the purchase in a state that comes out of a box: WebShop's reward, 0.0 for none or for an impossible one."""
    goal, shop = goal_of(payload.removeprefix(PREFIX)), shop_of(PARAMS)
    bought = state.get("bought")
    if bought is None:
        return verdict(None, goal, turns)
    try:
        visit = _visit(bought)
        shop.check(visit)
    except (InvalidArgument, KeyError, TypeError, ValueError) as error:
        return Verdict(0.0, passed=False, details=f"no purchase that this shop sells: {str(error)[:200]}")
    return verdict(shop.score(visit, goal), goal, turns)


def _visit(bought: Mapping[str, Any]) -> Visit:
    """Return a purchase. Raise `KeyError`, `TypeError` or `ValueError` for what is none."""
    query, number, asin = bought["query"], bought["number"], bought["asin"]
    chosen = tuple((name, value) for name, value in bought["chosen"])
    texts = [query, asin, *(text for pair in chosen for text in pair)]
    if type(number) is not int or not all(isinstance(text, str) for text in texts):
        raise TypeError("expected texts and a number")
    return Visit("bought", query, number, asin, chosen)


def clicks(action: str) -> list[Step]:
    """Return what an action of the text mode, `search[words]` or `click[name]`, is in a browser."""
    verb, _, rest = action.partition("[")
    words = rest.removesuffix("]")
    if verb == "search":
        return [On("fill", "searchbox", "Search", quoted(words)), On("click", "button", "Search")]
    return [On("click", "button", "Buy Now") if words == BUY else On("click", "link", words)]


def solution(payload: str) -> list[Step]:
    """Return what the text mode's reference policy would click."""
    found = plan(PARAMS, goal_of(payload.removeprefix(PREFIX)))
    return [step for _, action in found.steps for step in clicks(action)]
