"""The webshop: its pages and actions, what callers may do to it, its tasks, and the published files."""

from __future__ import annotations

import gc
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from rock_env.env import Env, observation_hash
from rock_env.errors import FailedPrecondition, InvalidArgument, NotFound, ResourceExhausted
from rock_env.plugins import env_params
from rock_env.spec import EnvParams, TaskSpec
from sandboxes.webshop import ENV
from sandboxes.webshop import params as webshop_params
from sandboxes.webshop.catalogue import Catalogue
from sandboxes.webshop.generator import random_catalogue
from sandboxes.webshop.oracle import plan
from sandboxes.webshop.params import WebshopParams, shop_of
from sandboxes.webshop.product import Product, goal_of
from sandboxes.webshop.search import ProductIndex, words_of
from sandboxes.webshop.shop import Shop, Visit
from sandboxes.webshop.words import KINDS

SMALL: dict[str, Any] = {"products": 60, "kinds": 6}
BRIEF: dict[str, Any] = {**SMALL, "style": "brief", "per_page": 4, "attributes": 1}


def started(index: int = 0, **params: Any) -> tuple[Any, str, TaskSpec]:
    made = WebshopParams(**params)
    env: Any = ENV.factory(made)
    task = ENV.tasks(made).get("train", index)
    page, info = env.reset(task, 0)
    assert info == {}
    return env, page, task


def buttons(page: str) -> str:
    return page.rsplit("\n", 1)[1]


def test_webshops_that_hold_too_much_are_refused_and_what_they_held_is_freed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for cache in (shop_of, webshop_params._tasks, webshop_params._generated, webshop_params._read):
        cache.cache_clear()
    gc.collect()
    start = len(webshop_params._catalogues)
    monkeypatch.setattr(webshop_params, "MOST_HELD", webshop_params._in_use() + 150)
    shops = [ENV.factory(WebshopParams(**SMALL, catalogue_seed=seed)) for seed in (11, 12)]
    with pytest.raises(ResourceExhausted, match="Close webshops of other catalogues"):
        ENV.factory(WebshopParams(**SMALL, catalogue_seed=13))
    assert ENV.factory(WebshopParams(**SMALL, catalogue_seed=12, per_page=5)) is not None
    shops.pop()
    shops.append(ENV.factory(WebshopParams(**SMALL, catalogue_seed=13)))
    assert len(webshop_params._catalogues) == start + len(shops)


# -- pages and actions


def test_a_customer_searches_opens_chooses_and_buys() -> None:
    env, page, task = started(**SMALL)
    goal = goal_of(task.payload)
    target = shop_of(WebshopParams(**SMALL)).catalogue.product(goal.asin)
    assert page.startswith(f"Instruction: {goal.text}\n")
    found = env.step(f"I will look for it: Search[{target.name}]").observation
    assert f"[{target.asin.lower()}] {target.name} ${target.price:.2f}" in found.split("\n")[2]
    item = env.step(f"click[{target.asin}]").observation
    assert f"Price: ${target.price:.2f}" in item
    assert buttons(item) == "[description] [features] [buy now] [< prev] [back to search]"
    for value in goal.options:
        assert f"({value})" in env.step(f"click[{value}]").observation
    bought = env.step("click[Buy Now]")
    assert (bought.reward, bought.terminated, bought.truncated) == (1.0, True, False)
    assert env.evaluate().passed
    after = env.step("click[buy now]")
    assert (after.reward, after.observation) == (0.0, bought.observation)


def test_pages_turn_and_lead_back() -> None:
    env, page, _ = started(**SMALL, per_page=3)
    first = env.step(f"search[{shop_of(WebshopParams(**SMALL)).catalogue.products[0].query}]").observation
    assert "page 1 of" in first
    assert buttons(first) == "[next >] [back to search]"
    second = env.step("click[next >]").observation
    assert "page 2 of" in second
    assert buttons(second).endswith("[< prev] [back to search]")
    assert env.step("click[< prev]").observation == first
    opened = first.split("\n")[2].split("]")[0]
    item = env.step(f"click{opened}]").observation
    for name in ("description", "features"):
        assert env.step(f"click[{name}]").observation != item
        assert env.step("click[< prev]").observation == item
    assert env.step("click[< prev]").observation == first
    assert env.step("click[back to search]").observation == page


@pytest.mark.parametrize(
    "action",
    [
        *(
            "",
            "ponder",
            "click[]",
            "search[]",
            "search[  ]",
            "click[buy now]",
            "click[next >]",
            "click[< prev]",
        ),
        *("click[b0zzzzzzzz]", "click[shirt]", "search", "search]shirt[", "click[search]", "[buy now]"),
    ],
)
def test_what_is_not_on_the_page_is_no_action_and_uses_a_turn(action: str) -> None:
    env, page, _ = started(**SMALL, max_turns=2)
    result = env.step(action)
    assert (result.observation, result.info, result.truncated) == (page, {"illegal": True}, False)
    assert env.step(action).truncated
    assert env.evaluate().details == "nothing bought in 2 turns"


def test_there_is_a_search_box_on_the_search_page_alone() -> None:
    env, _, _ = started(**SMALL)
    assert not env.step("search[lamp]").info
    assert env.step("search[lamp]").info["illegal"]


def test_of_several_actions_the_last_counts() -> None:
    env, _, _ = started(**SMALL)
    page = env.step("click[buy now]? No, search[lamp]. Or rather search[red lamp].").observation
    assert "'red lamp'" in page


def test_the_brief_style_is_played_by_letters_and_signs() -> None:
    env, page, task = started(**BRIEF)
    goal = goal_of(task.payload)
    lines = page.split("\n")
    assert lines[0] == goal.text
    kinds = [line.split()[1] for line in lines[1:]]
    assert [line[0] for line in lines[1:]] == list("abcdef")
    results = env.step("abcdef"[kinds.index(goal.text.split()[0])]).observation
    assert [line[0] for line in results.split("\n")[1:-1]] == list("abcd")
    assert results.endswith("\n>^")
    item = env.step("a").observation
    assert item.endswith("\n!<^")
    assert "*" in env.step("a").observation.split("\n")[1]
    assert env.step("a").info["illegal"]  # chosen already: the page would stay
    assert env.step("z").info["illegal"]
    assert env.step(" < \n").observation == results
    assert env.step("^").observation == page
    assert not env.step("search[lamp]").info


def test_a_value_of_two_groups_chooses_in_the_first_that_lacks_it() -> None:
    groups = (("strap", ("red", "blue")), ("dial", ("red", "gold")))
    product = Product("B1", "Watch", "watch", "", 1.0, (), groups, (), "")
    shop = Shop(Catalogue([product]), per_page=10, suggestions=0)
    once = shop.links(Visit("item", "watch", 1, "B1"))["red"]
    assert once.chosen == (("strap", "red"),)
    assert shop.links(once)["red"].chosen == (("strap", "red"), ("dial", "red"))


@pytest.mark.parametrize("params", [SMALL, BRIEF], ids=["full", "brief"])
def test_the_oracle_finds_its_way_back_from_anywhere(params: dict[str, Any]) -> None:
    env, page, task = started(3, **params)
    player = ENV.oracle(WebshopParams(**params), task)
    for wrong in ("search[lamp]", "a", "b", "<"):
        page = env.step(wrong).observation
    for _ in range(8):
        result = env.step(player(page))
        page = result.observation
        if result.terminated:
            break
    assert result.reward == 1.0


# -- callers


HOSTILE = [
    "search[" + "x" * 1_000_000 + "]",
    "click[" * 200_000,
    "]" * 1_000_000,
    "search[.*+?^${}()|[\\]\\\\(?:a{1,1000000}){1,1000000}]",
    "search[" + "(a+)+$ " * 10_000 + "]",
    "search[İstanbul ﷽ 🛒 \u202e\x00\ud800]",
    "search[ß" + "İ" * 1000 + "]",
    "search['; DROP TABLE products; -- <script>alert(1)</script>]",
    " " * 1_000_000 + "a",
]


@pytest.mark.parametrize("params", [SMALL, BRIEF], ids=["full", "brief"])
@pytest.mark.parametrize("action", HOSTILE, ids=range(len(HOSTILE)))
def test_no_action_is_too_much(params: dict[str, Any], action: str) -> None:
    env, _, _ = started(**params)
    page = env.step(action).observation
    assert len(page) < 4000
    assert observation_hash(page)  # it can be encoded
    state = env.snapshot()
    assert env.restore(state) == page
    assert env.snapshot() == state


@given(query=st.text(max_size=60))
def test_any_search_can_be_saved_and_restored(query: str) -> None:
    env, _, _ = started(**SMALL)
    page = env.step(f"search[{query}]").observation
    assert env.restore(env.snapshot()) == page


@pytest.mark.parametrize(
    "visit",
    [
        {"page": "checkout"},
        {"page": "bought"},
        {"page": "item", "query": "x", "asin": "B1"},
        {"page": "results", "query": "x" * 201},
        {"page": "results", "query": "shirt", "number": 10**9},
        {"page": "results", "query": "shirt", "number": 0},
        {"page": "results", "query": "shirt", "number": "1"},
        {"page": "results", "query": ["shirt"]},
        {"page": "search", "query": "left over"},
        {"page": "results", "query": "shirt", "chosen": [["color", "red"]]},
        {"page": "search", "chosen": 7},
    ],
)
def test_a_snapshot_of_a_place_that_is_none_is_refused(visit: dict[str, Any]) -> None:
    env, page, _ = started(**SMALL)
    state = json.loads(env.snapshot())
    state["visit"] |= visit
    with pytest.raises(InvalidArgument):
        env.restore(json.dumps(state).encode())
    assert env.step("").observation == page


@pytest.mark.parametrize("turn", ["1", -1, 1.5, None, 1e400])
def test_a_snapshot_has_a_number_of_turns(turn: object) -> None:
    env, _, _ = started(**SMALL)
    state = json.loads(env.snapshot()) | {"turn": turn}
    with pytest.raises(InvalidArgument):
        env.restore(json.dumps(state).encode())


@pytest.mark.parametrize(
    "payload",
    [
        *("", "[]", "{}", '{"asin": 1}', "[" * 100_000),
        '{"asin":"B1","text":"","attributes":[],"options":[],"price_upper":1}',
        '{"asin":"B1","text":"","attributes":[' + '"a",' * 1000 + '"a"],"options":[],"price_upper":1}',
        '{"asin":"B1","text":"","attributes":[],"options":[],"price_upper":1' + "0" * 400 + "}",
    ],
)
def test_a_payload_that_is_no_goal_is_refused(payload: str) -> None:
    env, _, _ = started(**SMALL)
    with pytest.raises(InvalidArgument):
        env.reset(TaskSpec("train/0", "train", 0, "", payload), 0)


def test_an_environment_without_an_episode_says_so() -> None:
    env: Env = ENV.factory(WebshopParams(**SMALL))  # type: ignore[assignment]
    for call in (env.evaluate, env.snapshot, lambda: env.step("a")):
        with pytest.raises(FailedPrecondition, match="call reset or restore first"):
            call()
    with pytest.raises(InvalidArgument, match="expected WebshopParams"):
        ENV.factory(EnvParams())


@pytest.mark.parametrize(
    "params",
    [
        *({"products": 1}, {"products": 100_001}, {"kinds": 0}, {"kinds": 1000}, {"per_page": 21}),
        *(
            {"suggestions": 27},
            {"attributes": 4},
            {"options": -1},
            {"max_turns": 0},
            {"catalogue_seed": 1 << 63},
        ),
        *(
            {"products_file": "x"},
            {"products_file": "x", "attributes_file": "y"},
        ),
        {"products_file": "x", "attributes_file": "y", "instructions_file": "z", "kinds": 3},
    ],
)
def test_sizes_are_bounded_and_arguments_belong_together(params: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        WebshopParams(**params)
    with pytest.raises(InvalidArgument):
        env_params(ENV, json.dumps(params))


# -- catalogue, search and tasks


def test_equal_seeds_give_equal_catalogues() -> None:
    one, other = (random_catalogue(300, kinds=10, seed=4) for _ in range(2))
    assert one.products == other.products
    assert one.products != random_catalogue(300, kinds=10, seed=5).products
    assert len(one.by_asin) == 300
    assert {len(products) for products in one.by_query.values()} == {30}
    assert len(random_catalogue(len(KINDS), kinds=len(KINDS), seed=0).by_query) == len(KINDS)


def test_a_search_ranks_what_has_more_and_rarer_words_first() -> None:
    def item(name: str) -> Product:
        return Product(name, name, "", "", 1.0, (), (), (), "")

    index = ProductIndex([item("red lamp"), item("blue lamp"), item("red lamp"), item("lamp of 1000 words")])
    assert index.hits("BLUE lamp!") == (1, 0, 2, 3)
    assert index.hits("red") == (0, 2)
    assert index.hits("nothing") == index.hits("") == index.hits("?!") == ()
    assert words_of("Größe 10-inch_x") == ["größe", "10", "inch", "x"]


def test_held_out_instructions_are_no_training_instructions() -> None:
    params = WebshopParams(**BRIEF)
    source = ENV.tasks(params)
    texts = {
        split: {goal_of(source.get(split, index).payload).text for index in range(600)}
        for split in ("train", "held_out")
    }
    assert len(texts["train"]) > 300
    assert not texts["train"] & texts["held_out"]


@pytest.mark.parametrize("params", [{}, BRIEF, {"products": 2, "kinds": 1, "options": 0, "attributes": 0}])
def test_every_generated_instruction_can_be_fulfilled(params: dict[str, Any]) -> None:
    made = WebshopParams(**params)
    for index in range(100):
        task = ENV.tasks(made).get("held_out" if index % 2 else "train", index)
        assert plan(made, goal_of(task.payload)).reward == 1.0
        assert ENV.optimum(made, task) == 1.0
    assert ENV.optimum(made.model_copy(update={"max_turns": 1}), task) == 0.0


# -- the published files


def record(asin: str, **fields: Any) -> dict[str, Any]:
    plain = {
        "asin": asin,
        "name": f"Oak {asin} Bookcase",
        "query": " Bookcases ",
        "product_category": "Home › Furniture › Bookcases",
        "small_description": ["Solid\nwood", "Five shelves"],
        "full_description": "A bookcase.",
        "pricing": "$19.99",
        "customization_options": {"Color": [{"value": "Red/Blue "}, {"value": "oak [dark]"}], "size": None},
        "images": ["x.jpg"],
    }
    return plain | fields


WORDS = {"instruction": "i need an oak bookcase.", "instruction_attributes": ["solid wood"]}


def written(folder: Path, products: Any, attributes: Any, instructions: Any) -> dict[str, str]:
    named = {"products_file": products, "attributes_file": attributes, "instructions_file": instructions}
    for name, content in named.items():
        (folder / name).write_text(json.dumps(content))
    return {name: str(folder / name) for name in named}


def test_the_published_files_make_a_shop(tmp_path: Path) -> None:
    products = [
        record("B1"),
        record("B2", pricing="$5.00 to $8.50", customization_options=""),
        record("B2"),
        record("nan"),
        record("B3", pricing=None, small_description=None, name="Half \ud800 of a character"),
        record("much too long an id"),
    ]
    instructions = {
        "B1": [
            {**WORDS, "instruction_options": ["oak [dark]"]},
            {**WORDS, "instruction_attributes": [], "instruction_options": []},
        ],
        "B2": [{"instruction": "a cheap one", "instruction_attributes": ["oak"], "instruction_options": {}}],
        "B9": [
            {"instruction": "of another shop", "instruction_attributes": ["x"], "instruction_options": []}
        ],
    }
    files = written(tmp_path, products, {"B1": {"attributes": ["solid wood"]}}, instructions)
    params = WebshopParams(**files)
    shop = shop_of(params)
    assert list(shop.catalogue.by_asin) == ["B1", "B2", "B3"]
    one, two, three = shop.catalogue.products
    assert (one.options, one.query) == ((("color", ("red | blue", "oak [dark]")),), "bookcases")
    assert (one.attributes, two.attributes) == (("solid wood",), ("DUMMY_ATTR",))
    assert (one.price, 5.0 <= two.price <= 8.5, three.price) == (19.99, True, 100.0)
    source = ENV.tasks(params)
    tasks = [source.get(split, index) for split in source.splits for index in range(source.count(split))]
    goals = {goal.asin: goal for goal in (goal_of(task.payload) for task in tasks)}
    assert sorted(goals) == ["B1", "B2"]
    assert goals["B1"].text.startswith("i need an oak bookcase, and price lower than ")
    assert 20.0 < goals["B1"].price_upper <= 60.0
    for task in tasks:
        env: Any = ENV.factory(params)
        page, _ = env.reset(task, 0)
        player = ENV.oracle(params, task)
        while not (result := env.step(player(page))).terminated:
            page = result.observation
            assert observation_hash(page)
        assert result.reward == 1.0, (task, page)
        assert ENV.optimum(params, task) == 1.0
    assert WebshopParams(**files, products=2).products == 2
    assert len(shop_of(WebshopParams(**files, products=2)).catalogue.products) == 2


@pytest.mark.parametrize(
    ("products", "attributes", "instructions", "said"),
    [
        ({}, {}, {}, "must hold a list and"),
        ([record("B1")], [], {}, "Were they exchanged"),
        ([], {}, {}, "has no products"),
        ([{"asin": "B1"}], {}, {}, "product 0 of"),
        ([record("B1", customization_options={"color": [7]})], {}, {}, "product 0 of"),
        ([record("B1", pricing="$")], {}, {}, "product 0 of"),
        ([7], {}, {}, "product 0 of"),
        ([record("B1")], {"B1": 7}, {}, "product 0 of"),
        ([record("B1")], {}, [], "must hold an object"),
        ([record("B1")], {}, {}, "has no instruction for"),
        ([record("B1")], {}, {"B1": [WORDS]}, "instructions for B1"),
        ([record("B1")], {}, {"B1": 7}, "instructions for B1"),
        (
            [record("B1")],
            {},
            {"B1": [{**WORDS, "instruction_options": ["x"] * 65}]},
            "expected at most 64",
        ),
    ],
)
def test_files_of_another_kind_are_refused_by_name(
    tmp_path: Path, products: Any, attributes: Any, instructions: Any, said: str
) -> None:
    params = WebshopParams(**written(tmp_path, products, attributes, instructions))
    with pytest.raises(InvalidArgument, match=said):
        ENV.tasks(params)


def test_files_that_cannot_be_read_are_named(tmp_path: Path) -> None:
    files = written(tmp_path, [record("B1")], {}, {})
    with pytest.raises(NotFound, match="Check products_file"):
        ENV.tasks(WebshopParams(**{**files, "products_file": str(tmp_path / "none")}))
    (tmp_path / "attributes_file").write_text("{" * 200_000)
    with pytest.raises(InvalidArgument, match=r"attributes_file .* is not JSON"):
        ENV.tasks(WebshopParams(**files))
    (tmp_path / "products_file").write_bytes(b"\xff\xfe")
    with pytest.raises(InvalidArgument, match=r"products_file .* is not JSON"):
        ENV.tasks(WebshopParams(**files))
    with (tmp_path / "products_file").open("wb") as sparse:
        sparse.truncate((1 << 28) + 1)
    with pytest.raises(InvalidArgument, match="too large"):
        ENV.tasks(WebshopParams(**files))
