"""The reward of the webshop: the published cases, a second computation by other code, and the generator's part in it."""

from __future__ import annotations

import json
from itertools import combinations
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from webshop_referee import Referee, alike, random_action, title_nouns

from sandboxes.webshop import ENV
from sandboxes.webshop.catalogue import Catalogue
from sandboxes.webshop.generator import short
from sandboxes.webshop.params import WebshopParams, shop_of
from sandboxes.webshop.product import Goal, Product
from sandboxes.webshop.reward import normal_color, nouns, score, similar, type_reward
from sandboxes.webshop.words import DEPARTMENTS, KINDS

POWER = "Saireed UL Listed 2 Prong Power Cord for JBL Bar 3.1 Bar 2.1 Channel 4K Ultra HD Soundbar"
THEATER = "BRST AC Power Cord Outlet Socket Cable Plug Lead for Panasonic SC-HT830V DVD/VCR Combo Home Theater System"
SNEAKERS = "Mens D.O.N. Issue 2 Gca Basketball Sneakers Shoes Casual - Off White"
SHAMPOO = {
    "features": ("This shampoo has essential oils and smells like lemons",),
    "description": "Best shampoo on the market, made with natural ingredients",
}
WANTED = ("tea tree", "essential oils", "natural ingredients")


def product(**fields: Any) -> Product:
    plain: dict[str, Any] = {
        "asin": "B1",
        "name": "Name 1",
        "query": "query 1",
        "category": "a › b › c",
        "price": 35.0,
        "attributes": (),
        "options": (),
        "features": (),
        "description": "",
    }
    return Product(**(plain | fields))


def goal(**fields: Any) -> Goal:
    plain: dict[str, Any] = {"asin": "B1", "text": "", "attributes": (), "options": (), "price_upper": 40.0}
    return Goal(**(plain | fields))


@pytest.mark.parametrize(
    ("wanted", "bought", "title"),
    [
        (
            "adidas Unisex-Adult D.o.n. Issue 2 Basketball Shoe",
            "adidas Unisex-Adult D.o.n. Issue 2 Indoor Court Shoe",
            0.85,
        ),
        (f"{POWER} Home Theater System Subwoofer", THEATER, 0.31),
        (POWER, THEATER, 0.17),
        (
            "Rusticware 921ORB Kitchen and Bath Cabinet Knob",
            "Minkissy 2pcs Stainless Steel Eyebrow Tweezers Blackhead Acne Remover Portable Makeup Tweezers (Silver)",
            0.0,
        ),
    ],
)
def test_the_rule_for_nouns_agrees_with_the_published_title_scores(
    wanted: str, bought: str, title: float
) -> None:
    found = len(set(nouns(wanted)) & set(nouns(bought))) / len(nouns(wanted))
    assert found == pytest.approx(title, abs=0.01)


@pytest.mark.parametrize(
    ("categories", "shared"),
    [
        ("b › c › a", True),
        ("d › e › f", False),
        ("a › d › b", True),
        ("a › a › b", True),
        ("a › a › d", False),
    ],
)
def test_two_shared_categories_make_a_product_of_the_kind(categories: str, shared: bool) -> None:
    target = product(name="Lamp Oak Shade Brass Cord Switch Base")
    bought = product(query="query 2", category=categories, name="Lamp Chair")
    assert type_reward(bought, target) == (1.0 if shared else 0.5)


def test_a_title_with_next_to_nothing_in_common_is_worth_next_to_nothing() -> None:
    target = product(name=" ".join(f"word{letter}" for letter in "abcdefghijkl"))
    assert type_reward(product(name="worda"), target) == 0.1
    assert type_reward(product(name="chair"), target) == 0.0
    assert type_reward(product(name="chair"), product(name="12 34")) == 1.0  # the query fits
    assert type_reward(product(name="chair", query="2", category="x"), product(name="12 34")) == 0.5


@pytest.mark.parametrize(
    ("fields", "matched"),
    [
        ({"attributes": ("tea tree", "essential oil", "natural ingredients")}, 3),
        ({"attributes": ("essential oil", "natural ingredients")}, 2),
        (SHAMPOO, 2),
        ({"attributes": ("tea bag", "earl gray", "lipton"), "name": "English tea for breakfast"}, 0),
    ],
)
def test_attributes_match_by_likeness_or_as_part_of_a_text(fields: dict[str, Any], matched: int) -> None:
    bought = product(**fields)
    assert score(bought, (), goal(attributes=WANTED), bought).attributes == matched


@pytest.mark.parametrize(
    ("wanted", "chosen", "matched"),
    [
        (("grey", "XL", "pack of 12"), ("pack of 12", "grey", "XL"), 3),
        (("grey", "XL", "pack of 12"), ("pack of 12", "blue", "XL"), 2),
        (("cool powder snow", "XL", "pack of 12"), ("pack of 12", "powder snow", "XL"), 3),
        ((), ("goal 1", "goal 2"), 0),
        (("goal 1", "goal 2"), (), 0),
    ],
)
def test_options_match_by_likeness_after_their_colours(
    wanted: tuple[str, ...], chosen: tuple[str, ...], matched: int
) -> None:
    assert score(product(), chosen, goal(options=wanted), product()).options == matched


def test_the_published_totals() -> None:
    wanted = goal(attributes=WANTED, options=("grey", "XL"))
    target = product(name=SNEAKERS)
    full = product(name=SNEAKERS, attributes=("tea tree", "essential oil", "natural ingredients"))
    assert score(full, ("grey", "XL"), wanted, target).reward == 1.0
    spelled = SHAMPOO | {
        "features": tuple(SHAMPOO["features"][0])
    }  # the published case has a text where a list belongs
    bought = product(name=SNEAKERS, **spelled)
    assert score(bought, ("grey", "XL"), wanted, target).reward == pytest.approx(2 / 3)
    more = goal(attributes=WANTED, options=("grey", "XL", "pack of 12"))
    assert score(bought, ("grey", "XL"), more, target).reward == pytest.approx(0.5714, abs=1e-4)
    other = product(name=THEATER, query="query 2", category="a › d › e", **spelled)
    assert score(other, ("grey", "XL"), more, product(name=POWER)).reward == pytest.approx(0.2857, abs=1e-4)
    assert score(full, ("grey", "XL"), goal(price_upper=34.99), full).reward == 0.0


def test_the_first_colour_of_the_list_stands_for_a_value() -> None:
    assert normal_color("black forest 1 | green") == "black"
    assert normal_color("light navy") == "light"
    assert normal_color("xl") == "xl"


@given(one=st.text("ab c-é", max_size=12), other=st.text("ab c-é", max_size=12))
def test_likeness_is_that_of_the_second_computation(one: str, other: str) -> None:
    assert similar(one, other) == (alike(one, other) > 85)
    assert list(nouns(one)) == title_nouns(one)


@pytest.mark.parametrize(
    "params",
    [
        WebshopParams(),
        WebshopParams(products=300, kinds=6, attributes=3, catalogue_seed=7),
        WebshopParams(products=2000, options=1, suggestions=5),
    ],
)
def test_a_second_computation_gives_the_same_rewards(params: WebshopParams) -> None:
    """Thousands of random episodes, most of them bought; the benchmark plays 10,000."""
    rng, shop = Random(1), shop_of(params)
    env: Any = ENV.factory(params)
    worths: list[float] = []
    for index in range(700):
        task = ENV.tasks(params).get("train" if index % 3 else "held_out", index)
        referee = Referee(shop.catalogue, task.payload)
        page, _ = env.reset(task, 0)
        referee.follow("", page)
        while True:
            action = random_action(rng, page, task.payload)
            result = env.step(action)
            page = result.observation
            referee.follow(action, page)
            if result.terminated or result.truncated:
                break
        assert result.terminated == (referee.bought is not None)
        expected = float(referee.bought or 0)
        assert result.reward == pytest.approx(expected, abs=1e-12)
        assert env.evaluate().reward == result.reward
        worths.append(expected)
    assert len(worths) == 700
    assert sum(worth > 0 for worth in worths) > 200
    assert len(set(worths)) > 5


def test_the_stock_of_a_generated_shop_can_be_told_apart() -> None:
    for department in DEPARTMENTS:
        for group in (department.attributes, *(values for _, values in department.options)):
            assert not any(similar(one, other) for one, other in combinations(group, 2))
            assert len({short(text) for text in group}) == len(group)
    assert len({short(kind.name) for kind in KINDS}) == len(KINDS)


def test_a_payload_is_all_the_second_computation_needs() -> None:
    task = ENV.tasks(WebshopParams()).get("train", 0)
    assert set(json.loads(task.payload)) == {"asin", "text", "attributes", "options", "price_upper"}
    assert Referee(Catalogue(shop_of(WebshopParams()).catalogue.products), task.payload).bought is None
