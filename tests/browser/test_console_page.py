"""The console's page in Chromium: what is clicked and typed, and that no content of a rollout runs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from console_parts import opened, served

from agent_runtime.store import read_segment, segment_path, write_segment
from ale.console.bundle import write_bundle
from ale.console.catalog import place_of

KEPT = Path(__file__).parents[1] / "unit" / "kept" / "every_field.traj"
ATTACKS = (
    "<img src=x onerror=window.ran=1>",
    "<script>window.ran=1</script>",
    "<svg onload=window.ran=1>",
    "\u202egnp.exe",
)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs") / "<img src=x onerror=window.ran=1>"
    folder.mkdir()
    (folder / "config.toml").write_text('env = "frozen_lake"\nalgo = "ipa"\nseed = 1\nsteps = 3\n')
    (folder / "metrics.jsonl").write_text('{"step": 1, "kind": "train", "success": 0.5, "loss": 0.1}\n')
    whole = next(iter(read_segment(KEPT)))
    acts = len(whole.turns)
    made = [
        replace(whole, id=f"{number:04d} {text}", grader_output=text, task_id=text, actions=(text,) * acts)
        for number, text in enumerate(ATTACKS * 50)
    ]
    write_segment(segment_path(folder, "step", 1), made)
    return folder


@pytest.fixture(scope="module")
def address(run: Path) -> Iterator[str]:
    with served(run.parent) as found:
        yield found


@pytest.fixture
def page(address: str) -> Iterator[Any]:
    with opened(address) as found:
        yield found


def test_a_run_its_list_and_a_rollout_are_reached_by_keys(page: Any) -> None:
    page.wait_for_selector("tr.mark")
    page.keyboard.press("Enter")
    page.wait_for_selector(".list .row")
    assert page.locator(".list .row").count() < 60  # of 200: those in sight
    assert page.locator("figure.chart").count() == 8
    page.keyboard.press("j")
    page.keyboard.press("Enter")
    page.wait_for_selector("article")
    assert "onerror" in page.content() or "script" in page.content() or "svg" in page.content()
    first = page.url
    page.keyboard.press("p")
    page.wait_for_url(lambda url: url != first)
    page.wait_for_selector("article")
    page.keyboard.press("t")
    page.wait_for_selector(".token")


def test_filters_stand_in_the_address(page: Any, address: str, run: Path) -> None:
    page.goto(f"{address}#/run/{place_of(run)}?task=*script*&sort=order")
    page.wait_for_selector(".list .row")
    page.wait_for_selector("text=50 of 200 rollouts")
    page.fill("input[name=text]", "window.ran")
    page.wait_for_selector("text=50 of 200 rollouts hold it")
    assert "text=window.ran" in page.url


def test_a_step_appears_while_the_page_is_open(page: Any, address: str, run: Path) -> None:
    page.goto(f"{address}#/run/{place_of(run)}")
    page.wait_for_selector(".list .row")
    write_segment(segment_path(run, "step", 2), [replace(next(iter(read_segment(KEPT))), id="just written")])
    page.wait_for_selector("text=just written")
    segment_path(run, "step", 2).unlink()


def test_a_turn_of_100_000_tokens_is_drawn_in_parts(page: Any, address: str, run: Path) -> None:
    whole, count = next(iter(read_segment(KEPT))), 100_000
    ids, logprobs = np.arange(count, dtype=np.int32), np.full(count, -0.5, dtype=np.float32)
    long = replace(whole.turns[0], completion_ids=ids, logprobs=logprobs, policy_version=1)
    write_segment(segment_path(run, "step", 3), [replace(whole, id="long", turns=(long, *whole.turns[1:]))])
    page.goto(f"{address}#/run/{place_of(run)}/rollout?id=long&heat=logprob")
    tokens = page.locator("article").first.locator(".token")
    page.wait_for_selector("text=96,000 more tokens")
    assert tokens.count() == 4000
    page.click("text=96,000 more tokens")
    page.wait_for_selector("text=92,000 more tokens")
    assert tokens.count() == 8000
    segment_path(run, "step", 3).unlink()


def test_a_bundle_opens_from_its_file_and_is_filtered_without_a_server(
    page: Any, run: Path, tmp_path: Path
) -> None:
    write_bundle(str(run), tmp_path / "one.html", ["text=<svg"])
    opened = (tmp_path / "one.html").as_uri()
    page.goto(f"{opened}#/run/{place_of(run)}?task=*svg*&sort=order")
    page.wait_for_selector(".list .rows .row")
    page.wait_for_selector("text=50 rollouts")
    page.fill("input[name=task]", "*no such task*")
    page.wait_for_selector("text=0 of 50 rollouts")
    page.goto(f"{opened}#/run/{place_of(run)}")
    page.click(".list .rows .row a")
    page.wait_for_selector("article")
    page.keyboard.press("t")
    page.wait_for_selector(".token")
    page.goto(f"{opened}#/compare?runs=0,1")
    page.wait_for_selector("text=open the run itself with")


def test_marks_of_direction_are_written_out(page: Any, address: str, run: Path) -> None:
    page.goto(f"{address}#/run/{place_of(run)}")
    page.wait_for_selector("text=\\u202egnp.exe")


def test_a_phone_scrolls_one_way(page: Any, address: str, run: Path) -> None:
    page.set_viewport_size({"width": 390, "height": 844})
    for place in ("#/", f"#/run/{place_of(run)}", f"#/run/{place_of(run)}?tab=grid"):
        page.goto(f"{address}{place}")
        page.wait_for_selector(".page > *")
        assert page.evaluate("document.documentElement.scrollWidth") <= 390
