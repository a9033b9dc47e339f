"""The browser environment without a browser: actions, the driver's words, what is shown, tasks and sites."""

from __future__ import annotations

import json
import re
from contextlib import suppress
from copy import deepcopy
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rock_env.errors import InfraError, InvalidArgument, Unimplemented, UnknownName
from sandboxes.browser import ENV, miniwob, webshop
from sandboxes.browser.actions import ACTIONS, SETS, ActionSet, describe, parse
from sandboxes.browser.box.server import SITES
from sandboxes.browser.box.sites.webshop import ShopSite
from sandboxes.browser.box.web import Page, Redirect, Request
from sandboxes.browser.catalog import TEMPLATES, VARIANTS, BrowserTasks, scenario
from sandboxes.browser.miniwob_oracles import SOLVERS
from sandboxes.browser.params import BrowserParams, narrow
from sandboxes.browser.reply import MOST_LINE, LineReader, read_end, read_reply
from sandboxes.browser.scenario import On
from sandboxes.browser.view import elements, render
from sandboxes.frozen_lake.params import FrozenLakeParams
from sandboxes.webshop.oracle import plan
from sandboxes.webshop.params import shop_of
from sandboxes.webshop.product import goal_of
from sandboxes.webshop.shop import Visit

REPLY: dict[str, Any] = {
    "id": 3,
    "goal": "",
    "done": False,
    "reward": 0.0,
    "error": "",
    "tree": '- generic [active] [ref=e1]:\n  - textbox "Name" [ref=e2]: Ada\n  - \'link "a: b" [ref=e3]\':\n    - /url: /x',
    "tabs": [["Title", "http://x.test/"]],
    "active": 0,
    "notes": [],
}


def line(**changed: Any) -> bytes:
    return json.dumps({**REPLY, **changed}).encode()


# -- actions


@pytest.mark.parametrize(
    ("text", "op", "args"),
    [
        ('click("e5")', "click", {"bid": "e5", "button": "left", "modifiers": []}),
        (
            "click('f2e5', modifiers=['Shift'])",
            "click",
            {"bid": "f2e5", "button": "left", "modifiers": ["Shift"]},
        ),
        (r'fill("e1", "a\n\"b\" \u00e9")', "fill", {"bid": "e1", "value": 'a\n"b" é'}),
        ('select_option("e1", ["a", "b"])', "select_option", {"bid": "e1", "options": ["a", "b"]}),
        ("scroll(0, -20.5)", "scroll", {"delta_x": 0, "delta_y": -20.5}),
        ("I think so.\n```\nnoop()\n```", "noop", {"wait_ms": 1000}),
        ("first I look\ntab_focus(index=1)", "tab_focus", {"index": 1}),
        ('press("e1", "Control+a")', "press", {"bid": "e1", "key_comb": "Control+a"}),
    ],
)
def test_an_action_is_read(text: str, op: str, args: dict[str, Any]) -> None:
    action = parse(text)
    assert (action.op, dict(action.args)) == (op, args)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "no action"),
        ("hello", "not an action"),
        ("jump()", "unknown action 'jump'"),
        ("click()", "'bid' is missing"),
        ("click(e5)", "texts stand in quotes"),
        ('click("#id")', "bid is no bid"),
        ('click("e5", "up")', "button is one of left, middle, right"),
        ('click("e5"', "a comma or a closing bracket is missing"),
        ('click("e5"); click("e6")', "cannot read the action"),
        ('click("e5") click("e6")', "more after the call"),
        ('click("e5", bid="e6")', "given twice"),
        ('click("e5", speed=3)', "has no argument 'speed'"),
        ("noop(999999999999)", "too large"),
        ('click(__import__("os"))', "texts stand in quotes"),
        (r'fill("e1", "\x41")', "unknown escape"),
        (r'fill("e1", "\ud800")', "half a surrogate pair"),
        ('press("e1", "a b")', "key_comb is no key"),
    ],
)
def test_what_is_no_action_is_refused_with_its_reason(text: str, said: str) -> None:
    with pytest.raises(InvalidArgument) as refused:
        parse(text)
    assert said in refused.value.message


@given(
    st.text(max_size=200)
    | st.sampled_from(sorted(ACTIONS)).flatmap(lambda name: st.text().map(lambda t: f"{name}({t})"))
)
def test_any_text_is_an_action_or_refused(text: str) -> None:
    try:
        action = parse(text)
    except InvalidArgument:
        return
    assert action.op in ACTIONS
    json.dumps(dict(action.args))


def test_every_action_is_described() -> None:
    assert [told.partition("(")[0] for told in describe("all").splitlines()] == list(ACTIONS)
    assert {told.partition("(")[0] for told in describe().splitlines()} | set(SETS["coord"]) == set(ACTIONS)


@pytest.mark.parametrize(
    ("text", "chosen", "others"),
    [
        ('click("e5")', ("bid", "all"), ("coord",)),
        ('upload_file("e5", "report 1.txt")', ("bid", "all"), ("coord",)),
        ("mouse_click(3, 4)", ("bid", "coord", "all"), ()),
        ("mouse_down(3, 4, 'right')", ("coord", "all"), ("bid",)),
        ("keyboard_insert_text('é')", ("coord", "all"), ("bid",)),
    ],
)
def test_a_set_of_actions_has_its_own_alone(
    text: str, chosen: tuple[ActionSet, ...], others: tuple[ActionSet, ...]
) -> None:
    for actions in chosen:
        assert parse(text, actions).op == text.partition("(")[0]
        assert (
            BrowserTasks(BrowserParams(actions=actions)).get("train", 0).instruction.count(text.split("(")[0])
        )
    for actions in others:
        with pytest.raises(InvalidArgument, match="unknown action"):
            parse(text, actions)


@pytest.mark.parametrize("name", ["../secret", "/etc/passwd", "a/b", ".hidden", "", "x" * 200])
def test_a_file_is_named_and_never_a_path(name: str) -> None:
    with pytest.raises(InvalidArgument, match="no file name"):
        parse(f'upload_file("e1", "{name}")')


# -- the driver's words


def test_a_reply_is_read() -> None:
    reply = read_reply(line(), expected=3)
    assert (reply.tabs, reply.active, reply.done) == ((("Title", "http://x.test/"),), 0, False)


@pytest.mark.parametrize(
    "bad",
    [
        b"",
        b"{",
        b"[]",
        b"\xff\xfe",
        b"[" * 5000,
        line(id=4),
        line(id=True),
        line(extra=1),
        line(tree=5),
        line(tree="x" * 300_000),
        line(tabs=[["a"]]),
        line(tabs=[]),
        line(tabs=[["t", "u"]] * 40),
        line(active=1),
        line(notes=["n"] * 40),
        line(reward="1"),
        line().replace(b"0.0", b"NaN"),
        line().replace(b"0.0", b"1e999"),
        line().replace(b'"goal"', b'"done"', 1),
        b'{"id": 3, "fatal": "gone"}',
    ],
)
def test_what_is_no_reply_is_a_failure_of_the_environment(bad: bytes) -> None:
    with pytest.raises(InfraError):
        read_reply(bad, expected=3)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.sampled_from(sorted(REPLY)), inner, max_size=9)
    ),
    max_leaves=20,
)


@given(st.binary(max_size=300) | JSON.map(lambda value: json.dumps(value).encode()))
def test_any_line_is_a_reply_or_a_failure(data: bytes) -> None:
    try:
        read_reply(data, expected=3)
    except InfraError:
        return
    raise AssertionError("a line of chance is no reply")


@given(st.sampled_from(sorted(REPLY)), JSON)
def test_any_field_is_taken_within_bounds_or_refused(name: str, value: object) -> None:
    try:
        reply = read_reply(line(**{name: value}), expected=3)
    except InfraError:
        return
    assert -1.0 <= reply.reward <= 1.0
    assert len(reply.tree) <= 200_000
    assert 0 <= reply.active < len(reply.tabs)


@given(st.lists(st.binary(max_size=50), max_size=20))
def test_a_line_comes_in_pieces(pieces: list[bytes]) -> None:
    reader = LineReader()
    whole = b"".join(pieces)
    got = None
    try:
        for piece in pieces:
            got = reader.feed(piece)
            if got is not None:
                break
    except InfraError:
        assert b"\n" in whole
        return
    assert got is None or got == whole.partition(b"\n")[0]


def test_a_line_without_end_is_given_up() -> None:
    reader = LineReader()
    for _ in range(MOST_LINE // 4096):
        assert reader.feed(b"x" * 4096) is None
    with pytest.raises(InfraError, match="more than"):
        reader.feed(b"x" * 4096)


# -- what is shown


def test_an_observation_shows_ids_and_finds_them_again() -> None:
    shown = render(read_reply(line(notes=["a\nb"]), expected=3), "", 5000)
    assert shown.splitlines() == [
        "Tab 0 (active): 'Title' at http://x.test/",
        "Focused: [e1] generic",
        "Note: a b",
        "Page:",
        "[e1] generic [active]",
        '  [e2] textbox "Name": Ada',
        '  [e3] link "a: b"',
        "    /url: /x",
    ]
    assert elements(shown, "link", "a: b") == ["e3"]
    assert elements(shown, "textbox", "Name", after='link "a: b"') == []


def test_a_long_tree_is_cut_and_that_is_said() -> None:
    tree = "\n".join(f'- link "{number}" [ref=e{number}]' for number in range(100))
    shown = render(read_reply(line(tree=tree), expected=3), "wrong", 300)
    assert shown.endswith("more lines of this page are not shown")
    assert shown.count("Error: wrong") == 1
    assert len(shown) < 500


# -- tasks and sites


def test_there_are_tasks_of_every_site_in_both_splits() -> None:
    assert len(TEMPLATES) >= 25
    for split in VARIANTS:
        assert {each.site for each in TEMPLATES.values() if each.split == split} == set(SITES)
    only = BrowserTasks(BrowserParams(site="mail"))
    assert only.count("train") == 3 * VARIANTS["train"]
    with pytest.raises(UnknownName):
        scenario("no-such-template/0")


@pytest.mark.parametrize("name", sorted(TEMPLATES))
def test_nothing_done_is_wrong_and_variants_differ(name: str) -> None:
    drawn = [scenario(f"{name}/{variant}") for variant in range(12)]
    assert len({each.goal for each in drawn}) > 6 or len({json.dumps(each.state) for each in drawn}) > 6
    for each in drawn:
        state = json.loads(json.dumps(each.state))
        assert each.check(state, None)
        assert each.check({}, "x")
        assert state == each.state


@pytest.mark.parametrize("name", sorted(TEMPLATES))
def test_reading_a_site_changes_nothing(name: str) -> None:
    drawn = scenario(f"{name}/1")
    state = deepcopy(drawn.state)
    seen, waiting = set(), ["/"]
    while waiting and len(seen) < 80:
        path = waiting.pop()
        if path in seen:
            continue
        seen.add(path)
        asked = tuple(part for part in path.partition("?")[0].split("/") if part)
        reply = SITES[drawn.site](state, Request("GET", asked))
        if isinstance(reply, Page):
            waiting += [piece.partition('"')[0] for piece in reply.html.split('href="')[1:]]
        elif isinstance(reply, Redirect):
            waiting.append(reply.to)
    assert len(seen) >= 1
    assert state == drawn.state


def test_solutions_name_actions_that_exist() -> None:
    for name in TEMPLATES:
        for step in scenario(f"{name}/0").steps:
            parse(f'{step.op}("e1"{", " + step.rest if step.rest else ""})' if isinstance(step, On) else step)


def test_miniwob_tasks_are_named_and_some_are_solved() -> None:
    assert len(miniwob.NAMES) >= 80
    assert set(SOLVERS) <= set(miniwob.NAMES)
    tasks = BrowserTasks(BrowserParams(suite="miniwob"))
    assert tasks.get("train", 0).payload == f"miniwob:{miniwob.NAMES[0]}/train-0"
    unsolved = next(index for index, name in enumerate(miniwob.NAMES) if name not in SOLVERS)
    with pytest.raises(Unimplemented, match="no reference policy"):
        ENV.oracle(BrowserParams(suite="miniwob"), tasks.get("train", unsolved))


def test_other_arguments_are_refused() -> None:
    with pytest.raises(InvalidArgument):
        narrow(FrozenLakeParams())


# -- the webshop as a site


def test_the_shop_in_a_box_finds_what_the_text_mode_finds() -> None:
    shop = shop_of(webshop.PARAMS)
    site = ShopSite(json.loads(webshop.shop_file()))
    state = webshop.first_state(webshop.PREFIX + webshop.source().get("train", 0).payload)
    for index in range(300):
        goal = goal_of(webshop.source().get("train", index).payload)
        query = " ".join(goal.text.lower().split())[:200].rstrip()
        shown = site.answer(state, Request("GET", ("search",), {"q": query, "page": "2"}))
        assert isinstance(shown, Page)
        found = re.findall(r'href="/item/(\w+)\?', shown.html)
        assert found == [product.asin for product in shop.shown(Visit("results", query, 2))], query


def test_only_a_purchase_that_the_shop_sells_is_worth_something() -> None:
    payload = webshop.PREFIX + webshop.source().get("train", 1).payload
    site, state = ShopSite(json.loads(webshop.shop_file())), webshop.first_state(payload)
    (*_, (visit, _)) = plan(webshop.PARAMS, goal_of(payload.removeprefix(webshop.PREFIX))).steps
    chosen = {f"option.{name}": [value] for name, value in visit.chosen}
    fields = {"q": [visit.query], "page": [str(visit.number)], **chosen}
    site.answer(state, Request("GET", ("buy", visit.asin), {}))
    assert state["bought"] is None, "a purchase is posted"
    site.answer(state, Request("POST", ("buy", visit.asin), {}, fields))
    assert webshop.judge(state, payload, 3).reward == 1.0
    for wrong in (
        {"asin": "B000000000"},
        {"chosen": [["size", "of no shop"]]},
        {"chosen": 7},
        {"number": True},
        {"query": ""},
    ):
        forged = {"text": "", "bought": {**state["bought"], **wrong}}
        assert webshop.judge(forged, payload, 3).reward == 0.0
    assert webshop.judge({"bought": []}, payload, 3).reward == 0.0


# -- what comes out of the box, fuzzed


END: dict[str, Any] = {"id": 3, "state": {"tree": {"a/": ""}}, "message": None, "done": False, "reward": 0.0}
ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=40),
    lambda inner: st.lists(inner, max_size=6) | st.dictionaries(st.text(max_size=10), inner, max_size=6),
    max_leaves=40,
)


def check_read(data: bytes) -> None:
    """Read a line in both ways: what comes of it is a bounded value of the right types, or `InfraError`."""
    with suppress(InfraError):
        reply = read_reply(data, expected=3)
        assert 0 <= reply.active < len(reply.tabs) <= 16
        assert len(reply.tree) <= 200_000
        assert len(reply.notes) <= 16
        assert all(len(note) <= 300 for note in reply.notes)
        assert -1.0 <= reply.reward <= 1.0
        shown = render(reply, "", 2000)
        assert all(mark == "\n" or mark.isprintable() for mark in shown)
    with suppress(InfraError):
        end = read_end(data, expected=3)
        assert end.state is None or isinstance(end.state, dict)
        assert end.message is None or len(end.message) <= 20_000
        assert -1.0 <= end.reward <= 1.0


@given(st.sampled_from([REPLY, END]), st.data())
@settings(max_examples=1000)
def test_no_field_of_another_kind_breaks_the_reader(reply: dict[str, Any], data: st.DataObject) -> None:
    names = data.draw(st.lists(st.sampled_from(sorted(reply)), max_size=3, unique=True))
    changed = {**reply, **{name: data.draw(ANYTHING) for name in names}}
    if data.draw(st.booleans()):
        changed.pop(data.draw(st.sampled_from(sorted(changed))))
    check_read(json.dumps(changed).encode())


@given(
    st.sampled_from([REPLY, END]), st.lists(st.tuples(st.integers(0, 400), st.binary(max_size=3)), max_size=6)
)
@settings(max_examples=1000)
def test_no_damaged_line_breaks_the_reader(reply: dict[str, Any], edits: list[tuple[int, bytes]]) -> None:
    damaged = bytearray(json.dumps(reply).encode())
    for at, piece in edits:
        at = min(at, len(damaged))
        damaged[at : at + len(piece)] = piece
    check_read(bytes(damaged))


@pytest.mark.parametrize("most", [b"[", b'{"a":', b'[{"a":', b'"\\"[', b"\xff"])
def test_deep_and_long_lines_are_refused_soon(most: bytes) -> None:
    data = (most * (MOST_LINE // len(most)))[:MOST_LINE]
    for read in (read_reply, read_end):
        with pytest.raises(InfraError):
            read(data, expected=3)
