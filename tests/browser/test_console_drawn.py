"""Rollouts as they are drawn: boards, pages, diffs and pictures."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from console_parts import opened, served, visit, write_runs


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder = tmp_path_factory.mktemp("runs")
    write_runs(folder)
    with served(folder) as found:
        yield found


@pytest.fixture(scope="module")
def page(address: str) -> Iterator[Any]:
    with opened(address) as found:
        yield found


def test_boards_are_stepped_in_place_by_the_arrow_keys(page: Any, address: str) -> None:
    visit(page, address, "board")
    page.wait_for_selector(".stage .board")
    told = page.locator(".stage figcaption")
    first, steps = told.inner_text(), page.locator("article .board").count()
    assert first.startswith(f"1 of {steps + 1} · at the start")
    before = page.locator(".stage .board").get_attribute("aria-label")
    for _ in range(steps + 2):
        page.keyboard.press("ArrowRight")
    assert told.inner_text().startswith(f"{steps + 1} of {steps + 1} · turn {steps - 1}")
    assert page.locator(".stage .board").get_attribute("aria-label") != before
    assert f"turn={steps - 1}" in page.url
    for _ in range(steps + 2):
        page.keyboard.press("ArrowLeft")
    assert told.inner_text() == first


def test_a_room_of_an_environment_s_own_characters_is_a_board(page: Any, address: str) -> None:
    page.goto(f"{address}#/run/lake/rollout?id=room")
    page.wait_for_selector(".stage .board")
    assert page.locator(".stage .c-wall").count() == 12
    assert page.locator(".stage .box").count() == 1


def test_a_page_shows_what_can_be_chosen_and_what_is(page: Any, address: str) -> None:
    visit(page, address, "page")
    shot = page.locator("article .shot").first
    assert shot.locator(".choice:not(.chosen)").all_inner_texts() == ["b01", "blue", "buy now", "< prev"]
    assert shot.locator(".choice.chosen").all_inner_texts() == ["red"]
    assert shot.locator(".k-inst").count() == 1


def test_a_diff_shows_changed_lines_and_tests(page: Any, address: str) -> None:
    visit(page, address, "diff")
    card = page.locator("article").first
    assert card.locator(".k-done .removed").all_inner_texts() == ["return 1\n"]
    assert card.locator(".k-done .added").all_inner_texts() == ["return 2\n"]
    assert [text.strip() for text in card.locator(".k-seen .removed, .k-seen .added").all_inner_texts()] == [
        "-return 1",
        "+return 2",
    ]
    assert [text.strip() for text in card.locator(".k-seen .bad").all_inner_texts()] == [
        "[exit code 1]",
        "FAILED test_a.py::test_one",
    ]
    assert card.locator(".k-seen .good").count() == 1


def test_pictures_that_came_with_turns_are_shown(page: Any, address: str) -> None:
    visit(page, address, "image")
    page.wait_for_function("document.querySelector('.stage img')?.naturalWidth === 160")
    source = page.locator(".stage img").get_attribute("src")
    page.keyboard.press("ArrowRight")
    assert page.locator(".stage img").get_attribute("src") != source


def test_round_brackets_in_a_line_of_no_options_are_text(page: Any, address: str) -> None:
    visit(page, address, "image")
    assert page.locator("article .choice").first.inner_text() == "e1"
    assert page.locator(".choice.chosen").count() == 0
