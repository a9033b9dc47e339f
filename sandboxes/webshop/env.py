"""The shop as a text environment. Made by the env host through `ENV.factory`; one episode at a time, no randomness."""

from __future__ import annotations

import json
from typing import Any, cast

from rock_env.env import Env, Info, StepResult, Verdict
from rock_env.errors import FailedPrecondition, InvalidArgument
from rock_env.spec import EnvParams, TaskSpec
from sandboxes.webshop.pages import STYLES
from sandboxes.webshop.params import WebshopParams, narrow, shop_of
from sandboxes.webshop.product import Goal, goal_of
from sandboxes.webshop.reward import Score
from sandboxes.webshop.shop import DETAILS, Page, Visit

__all__ = ["Webshop", "make", "verdict"]

_PAGES = ("search", "results", "item", *DETAILS, "bought")


def verdict(score: Score | None, goal: Goal, turns: int) -> Verdict:
    """Return the grade of a purchase, or of none."""
    if score is None:
        return Verdict(0.0, False, f"nothing bought in {turns} turns")
    return Verdict(
        score.reward,
        score.reward == 1.0,
        f"type {score.type:g}, {score.attributes} of {len(goal.attributes)} attributes, {score.options} of "
        f"{len(goal.options)} options, price {'within' if score.price else 'above'} the limit, in {turns} turns",
    )


class Webshop:
    """The agent shops for one instruction. Implements `rock_env.env.Env`."""

    def __init__(self, params: WebshopParams) -> None:
        self._shop = shop_of(params)
        self._style = STYLES[params.style]
        self._max_turns = params.max_turns
        self._goal: Goal | None = None
        self._visit = Visit()
        self._turn = 0

    def reset(self, task: TaskSpec, seed: int) -> tuple[str, Info]:
        """Stand at the search page; `seed` changes nothing. Raise `InvalidArgument` if the payload is no goal of here."""
        self._place(task.payload, Visit(), 0)
        return self._shown(), {}

    def step(self, action: str) -> StepResult:
        """Apply one action; after the end nothing changes any more and the reward is 0."""
        goal = self._shopping()
        if self._ended():
            return self._result(0.0, {})
        self._turn += 1
        there = self._style.step(self._shop, self._visit, action)
        if there is None:
            return self._result(0.0, {"illegal": True})
        self._visit = there
        bought = there.page == "bought"
        return self._result(self._shop.score(there, goal).reward if bought else 0.0, {})

    def evaluate(self) -> Verdict:
        """Grade what was bought: WebShop's reward, passed at 1.0; nothing bought is 0.0."""
        goal = self._shopping()
        score = self._shop.score(self._visit, goal) if self._visit.page == "bought" else None
        return verdict(score, goal, self._turn)

    def snapshot(self) -> bytes:
        """Return goal, place and turn as JSON."""
        state = {"webshop": self._shopping().payload(), "visit": self._visit._asdict(), "turn": self._turn}
        return json.dumps(state).encode()

    def restore(self, state: bytes) -> str:
        """Continue from a snapshot taken under the same arguments. Raise `InvalidArgument` if it is none."""
        try:
            values = json.loads(state)
            payload, visit, turn = str(values["webshop"]), _visit(values["visit"]), values["turn"]
            if type(turn) is not int or turn < 0:
                raise ValueError("no number of turns")
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            raise InvalidArgument(
                f"not a webshop snapshot: got {state[:40]!r}. Pass the bytes that snapshot() returned."
            ) from error
        self._shop.check(visit)
        self._place(payload, visit, turn)
        return self._shown()

    def reseed(self, seed: int) -> None:
        """Do nothing: there is no chance here."""

    def close(self) -> None:
        """Forget the episode."""
        self._goal = None

    def _place(self, payload: str, visit: Visit, turn: int) -> None:
        goal = goal_of(payload)
        self._shop.catalogue.product(goal.asin)
        self._goal, self._visit, self._turn = goal, visit, turn

    def _shopping(self) -> Goal:
        if self._goal is None:
            raise FailedPrecondition("webshop has no episode: call reset or restore first.")
        return self._goal

    def _ended(self) -> bool:
        return self._visit.page == "bought" or self._turn >= self._max_turns

    def _shown(self) -> str:
        return self._style.page(self._shop, self._visit, self._shopping())

    def _result(self, reward: float, info: Info) -> StepResult:
        terminated = self._visit.page == "bought"
        return StepResult(self._shown(), reward, terminated, not terminated and self._ended(), info)


def _visit(values: Any) -> Visit:
    """Return the visit of a snapshot's JSON. Raise `ValueError`, `KeyError` or `TypeError` if it is none."""
    page, number, texts = values["page"], values["number"], (values["query"], values["asin"])
    if page not in _PAGES or type(number) is not int or not all(isinstance(text, str) for text in texts):
        raise ValueError("no place in a shop")
    chosen = tuple((str(name), str(value)) for name, value in values["chosen"])
    return Visit(cast("Page", page), values["query"], number, values["asin"], chosen)


def make(params: EnvParams) -> Env:
    """Build one environment."""
    return Webshop(narrow(params))
