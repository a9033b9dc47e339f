"""The console's page in Chromium: what is clicked and typed, and that no content of a rollout runs."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from agent_runtime.store import read_segment, segment_path, write_segment
from ale.console.bundle import write_bundle

KEPT = Path(__file__).parents[1] / "unit" / "kept" / "every_field.traj"
ARGS = ["--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run"]
CHROMIUMS = ("/usr/lib/chromium/chromium-headless-shell", "/usr/lib/chromium/chromium")
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
    words = [sys.executable, "-m", "ale", "console", str(run.parent), "--port", "0"]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        yield process.stdout.readline().strip()
        process.terminate()


@pytest.fixture
def page(address: str) -> Iterator[Any]:
    sync_api = pytest.importorskip("playwright.sync_api")
    path = next(each for each in CHROMIUMS if Path(each).exists())
    with sync_api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=ARGS)
        opened = browser.new_page(viewport={"width": 1200, "height": 800})
        wrong: list[str] = []
        opened.on("pageerror", lambda error: wrong.append(str(error)))
        opened.on("console", lambda said: wrong.append(said.text) if said.type == "error" else None)
        opened.goto(address)
        yield opened
        assert opened.evaluate("window.ran") is None
        assert wrong == []
        browser.close()


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


def test_filters_stand_in_the_address(page: Any, address: str) -> None:
    page.goto(f"{address}#/run/0?task=*script*&sort=order")
    page.wait_for_selector(".list .row")
    page.wait_for_selector("text=50 of 200 rollouts")
    page.fill("input[name=text]", "window.ran")
    page.wait_for_selector("text=50 of 200 rollouts hold it")
    assert "text=window.ran" in page.url


def test_a_step_appears_while_the_page_is_open(page: Any, address: str, run: Path) -> None:
    page.goto(f"{address}#/run/0")
    page.wait_for_selector(".list .row")
    write_segment(segment_path(run, "step", 2), [replace(next(iter(read_segment(KEPT))), id="just written")])
    page.wait_for_selector("text=just written", timeout=10_000)
    segment_path(run, "step", 2).unlink()


def test_a_bundle_opens_from_its_file_and_is_filtered_without_a_server(
    page: Any, run: Path, tmp_path: Path
) -> None:
    write_bundle(str(run), tmp_path / "one.html", ["text=<svg"])
    opened = (tmp_path / "one.html").as_uri()
    page.goto(f"{opened}#/run/0?task=*svg*&sort=order")
    page.wait_for_selector(".list .rows .row")
    page.wait_for_selector("text=50 rollouts")
    page.fill("input[name=task]", "*no such task*")
    page.wait_for_selector("text=0 of 50 rollouts")
    page.goto(f"{opened}#/run/0")
    page.click(".list .rows .row a")
    page.wait_for_selector("article")
    page.keyboard.press("t")
    page.wait_for_selector(".token")
    page.goto(f"{opened}#/compare?runs=0,1")
    page.wait_for_selector("text=open the run itself with")


def test_marks_of_direction_are_written_out(page: Any, address: str) -> None:
    page.goto(f"{address}#/run/0")
    page.wait_for_selector("text=\\u202egnp.exe")


def test_a_phone_scrolls_one_way(page: Any, address: str) -> None:
    page.set_viewport_size({"width": 390, "height": 844})
    for place in ("#/", "#/run/0", "#/run/0?tab=grid"):
        page.goto(f"{address}{place}")
        page.wait_for_selector(".page > *")
        assert page.evaluate("document.documentElement.scrollWidth") <= 390
