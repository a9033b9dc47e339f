"""The web site of the shop, over loopback: the same decisions give the same reward, and no request is too much."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.client import HTTPConnection
from random import Random
from typing import Any

import pytest
from webshop_referee import random_action
from webshop_visitor import Visitor

from rock_env.errors import InvalidArgument
from sandboxes.webshop import ENV
from sandboxes.webshop.html import address, html_page, visit_at
from sandboxes.webshop.params import WebshopParams, shop_of
from sandboxes.webshop.product import goal_of
from sandboxes.webshop.serve import Site
from sandboxes.webshop.shop import Visit

PARAMS = WebshopParams(products=200, kinds=12, per_page=5)
SHOP = shop_of(PARAMS)


@contextmanager
def serving(text: str = "a lamp") -> Iterator[Site]:
    with Site(SHOP, text) as site:
        thread = threading.Thread(target=site.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield site
        finally:
            site.shutdown()
            thread.join()


@pytest.fixture(scope="module")
def site() -> Iterator[Site]:
    with serving() as running:
        yield running


def ask(site: Site, method: str, target: str, body: bytes = b"") -> tuple[int, str]:
    connection = HTTPConnection("127.0.0.1", site.server_port, timeout=30)
    try:
        connection.request(method, target, body)
        answer = connection.getresponse()
        return answer.status, answer.read().decode()
    finally:
        connection.close()


def decisions(index: int) -> tuple[Any, Any, list[str]]:
    """Play an episode in the text mode, by the oracle or at random; return task, environment and actions."""
    task = ENV.tasks(PARAMS).get("train", index)
    env: Any = ENV.factory(PARAMS)
    rng, player = Random(index), ENV.oracle(PARAMS, task)
    page, _ = env.reset(task, 0)
    actions: list[str] = []
    while True:
        actions.append(player(page) if index % 2 else random_action(rng, page, task.payload))
        result = env.step(actions[-1])
        page = result.observation
        if result.terminated or result.truncated:
            return task, env, actions


def test_the_same_decisions_give_the_same_reward_over_http() -> None:
    worths = set()
    for index in range(60):
        task, env, actions = decisions(index)
        goal = goal_of(task.payload)
        with serving(goal.text) as site:
            visitor = Visitor(site.server_port)
            assert f"Instruction: {goal.text}" in visitor.html.replace("&#x27;", "'")
            for action in actions:
                visitor.act(action)
            reward = SHOP.score(site.bought, goal).reward if site.bought else 0.0
        assert reward == env.evaluate().reward, (index, actions)
        worths.add(round(reward, 3))
    assert len(worths) > 3


def test_an_address_holds_the_whole_place() -> None:
    first = SHOP.catalogue.products[0]
    (name, values), *_ = first.options
    item = Visit("item", "a+b & c/d?", 1, first.asin, ((name, values[1]),))
    for visit in (
        Visit(),
        Visit("results", f"{first.query} 100% #1"),
        *(item._replace(page=page) for page in ("item", "description", "features", "bought")),
    ):
        assert visit_at(SHOP, address(visit)) == visit
    assert visit_at(SHOP, "/search?q=") == Visit()
    assert visit_at(SHOP, "/search?q=+Lamp++" + "x" * 300) == SHOP.search(Visit(), " Lamp  " + "x" * 300)


@pytest.mark.parametrize(
    "target",
    [
        *(
            "/x",
            "/item",
            "/item/B1",
            "/item/../etc/passwd",
            "/search?q=lamp&page=0",
            "/search?q=lamp&page=9999",
        ),
        *("/search?q=lamp&page=x", "/search?q=%ff", "/?" + "a=1&" * 1000),
        *(f"/item/{SHOP.catalogue.products[0].asin}", f"/item/{SHOP.catalogue.products[0].asin}/reviews?q=a"),
        f"/item/{SHOP.catalogue.products[0].asin}?q=a&option.color=no+such+color",
        "/search?q=lamp&page=" + "9" * 5000,
        "//[",
    ],
)
def test_an_address_of_no_place_is_refused(site: Site, target: str) -> None:
    with pytest.raises(InvalidArgument):
        visit_at(SHOP, target)
    status, page = ask(site, "GET", target)
    assert (status, "There is no such page" in page) == (404, True)
    assert site.bought is None


def test_what_a_customer_writes_is_text_on_the_page(site: Site) -> None:
    _, page = ask(site, "GET", "/search?q=%3Cscript%3Ealert(1)%3C/script%3E%22")
    assert "<script>" not in page
    assert "&lt;script&gt;" in page
    assert "<img" not in html_page(SHOP, Visit(), "<img src=x>")


def test_only_the_form_buys_and_only_once() -> None:
    one, other = (Visit("bought", "x", 1, product.asin) for product in SHOP.catalogue.products[:2])
    with serving() as site:
        assert ask(site, "GET", address(one))[0] == 405
        assert ask(site, "POST", address(one._replace(page="item")))[0] == 405
        assert ask(site, "PUT", address(one))[0] == 501
        assert site.bought is None
        assert ask(site, "POST", address(one), b"x" * 100_000)[0] == 200
        assert "Thank you" in ask(site, "POST", address(other))[1]
        assert "Thank you" in ask(site, "GET", "/")[1]
        assert site.bought == one


def test_bytes_that_are_no_request_harm_nobody(site: Site) -> None:
    for garbage in (
        b"\xff" * 1000 + b"\r\n\r\n",
        b"GET /" + b"a" * 100_000 + b" HTTP/1.1\r\n\r\n",
        b"GET\r\n\r\n",
    ):
        with socket.create_connection(("127.0.0.1", site.server_port), timeout=10) as raw:
            raw.sendall(garbage)
            raw.recv(1000)
    assert ask(site, "GET", "/")[0] == 200


def test_the_program_says_its_port_and_what_was_bought() -> None:
    words = ["--text", "a lamp", "--params", PARAMS.canonical()]
    command = [sys.executable, "-m", "sandboxes.webshop.serve", *words]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            visitor = Visitor(int(process.stdout.readline()))
            product = SHOP.catalogue.products[0]
            for action in (f"search[{product.name}]", f"click[{product.asin.lower()}]", "click[buy now]"):
                assert visitor.act(action)
            sold = json.loads(process.stdout.readline())
        finally:
            process.terminate()
    assert (sold["page"], sold["asin"], sold["chosen"]) == ("bought", product.asin, [])
