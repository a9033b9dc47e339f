"""A customer who knows the catalogue: the shortest search that shows a product worth 1, its options, and the purchase.

Called through `ENV.oracle` and `ENV.optimum`. Its plan is a function of the task; the observation tells where on it the
customer stands, and anything off it leads back to the search page.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from rock_env.env import Oracle
from rock_env.spec import EnvParams, TaskSpec
from sandboxes.webshop.pages import LETTERS, STYLES
from sandboxes.webshop.params import WebshopParams, narrow, shop_of
from sandboxes.webshop.product import Goal, goal_of
from sandboxes.webshop.reward import normal_color, similar
from sandboxes.webshop.shop import BACK, BUY, NEXT, Shop, Visit

__all__ = ["Plan", "make_oracle", "optimum", "plan"]

_FIRST_PAGES = 2
"""Pages of results that a search is read for before a more special one is tried."""


@dataclass(frozen=True, slots=True)
class Plan:
    """What to do at each place, in order, and what the purchase is worth."""

    steps: tuple[tuple[Visit, str], ...]
    """Place, and the action there."""
    reward: float


class WebshopOracle:
    """Does at each page of the plan what the plan says."""

    def __init__(self, params: WebshopParams, goal: Goal) -> None:
        self._back = "^" if params.style == "brief" else f"click[{BACK}]"
        shop, page = shop_of(params), STYLES[params.style].page
        self._actions = {page(shop, visit, goal): action for visit, action in plan(params, goal).steps}

    def __call__(self, observation: str) -> str:
        """Return the action for a page."""
        return self._actions.get(observation, self._back)


@lru_cache(maxsize=4096)
def plan(params: WebshopParams, goal: Goal) -> Plan:
    """Return the best purchase found by what the goal says, or by the title of the product that it describes."""
    shop = shop_of(params)
    brief = params.style == "brief"
    target = shop.catalogue.product(goal.asin)
    queries = [target.query] if target.query in shop.suggestions else []
    queries += [" ".join((target.query, *goal.attributes, *goal.options)), target.name]
    plans = []
    for query in queries:
        first = shop.search(Visit(), query)
        if first is not None:
            plans += [_purchase(shop, goal, first, brief=brief)]
            if plans[-1].reward == 1.0:
                break
    return max(plans, key=lambda one: one.reward)


def _purchase(shop: Shop, goal: Goal, first: Visit, *, brief: bool) -> Plan:
    """Return the best purchase from the first pages of a search."""
    steps = [(Visit(), _search(shop, first.query, brief=brief))]
    best = Plan((), 0.0)
    there = first
    for _ in range(_FIRST_PAGES):
        for at, product in enumerate(shop.shown(there)):
            item = there._replace(page="item", asin=product.asin)
            click = LETTERS[at] if brief else f"click[{product.asin.lower()}]"
            chosen, visit = _options(shop, goal, item, brief=brief)
            reward = shop.score(visit, goal).reward
            if reward > best.reward:
                buy = "!" if brief else f"click[{BUY}]"
                best = Plan((*steps, (there, click), *chosen, (visit, buy)), reward)
            if reward == 1.0:
                return best
        if there.number == shop.pages(there):
            break
        steps.append((there, ">" if brief else f"click[{NEXT}]"))
        there = there._replace(number=there.number + 1)
    return best


def _search(shop: Shop, query: str, *, brief: bool) -> str:
    if brief and query in shop.suggestions:
        return LETTERS[shop.suggestions.index(query)]
    return f"search[{query}]"


def _options(shop: Shop, goal: Goal, item: Visit, *, brief: bool) -> tuple[list[tuple[Visit, str]], Visit]:
    """Choose of each group the first value that is wanted; return the clicks and where they lead."""
    wanted = [normal_color(option) for option in goal.options]
    steps: list[tuple[Visit, str]] = []
    visit, done = item, set[str]()
    for at, (name, value) in enumerate(shop.values(item)):
        fits = [option for option in wanted if similar(normal_color(value), option)]
        if fits and name not in done:
            done.add(name)
            wanted.remove(fits[0])
            letter = brief and at < len(LETTERS)
            steps.append((visit, LETTERS[at] if letter else f"click[{value}]"))
            visit = shop.choose(visit, name, value)
    return steps, visit


def make_oracle(params: EnvParams, task: TaskSpec) -> Oracle:
    """Return the customer for one task."""
    return WebshopOracle(narrow(params), goal_of(task.payload))


def optimum(params: EnvParams, task: TaskSpec) -> float:
    """Return 1.0 if the oracle's purchase is worth 1 and within the turn limit, else 0.0."""
    own = narrow(params)
    found = plan(own, goal_of(task.payload))
    return 1.0 if found.reward == 1.0 and len(found.steps) <= own.max_turns else 0.0
