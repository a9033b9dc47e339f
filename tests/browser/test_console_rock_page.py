"""The console's pages of a ROCK server in Chromium: found by words and keys, followed while open, and text stays text."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from console_parts import opened, served

from agent_runtime.store import read_segment, segment_path, write_segment
from agent_runtime.types import Hosting
from rock_env.client import Client
from rock_env.local import EmbeddedServer, start_embedded

KEPT = Path(__file__).parents[1] / "unit" / "kept" / "every_field.traj"
ATTACK = "<img src=x onerror=window.ran=1>"


@dataclass(frozen=True)
class Shown:
    """A server with a sandbox, and the address of a console that shows both and a run that was played there."""

    rock: EmbeddedServer
    box: str
    address: str
    token: str


def asked(address: str, act: Callable[[Client], Awaitable[Any]]) -> Any:
    """Do something at a server; beside Playwright, which has a loop of this thread."""

    async def ask() -> Any:
        async with Client(address) as client:
            return await act(client)

    with ThreadPoolExecutor(1) as beside:
        return beside.submit(asyncio.run, ask()).result()


async def made(client: Client) -> str:
    box = await client.sandboxes.create(labels={"what": ATTACK}, environment="first", lease_s=None)
    process = await box.start_process(["sh", "-c", f"echo '{ATTACK}'; echo bad >&2"])
    await process.wait()
    return box.id


@pytest.fixture(scope="module")
def shown(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shown]:
    run = tmp_path_factory.mktemp("runs") / "lake"
    run.mkdir()
    (run / "metrics.jsonl").write_text('{"step": 1, "kind": "train", "success": 0.5}\n')
    with start_embedded(["--isolation=none"]) as rock:
        box = asked(rock.address, made)
        whole = next(iter(read_segment(KEPT)))
        played = replace(whole, id="played there", hosting=Hosting(sandbox_id=box))
        write_segment(segment_path(run, "step", 1), [played, replace(whole, id="elsewhere")])
        with served(run, "--rock", rock.address) as printed:
            address, _, token = printed.partition("?")
            yield Shown(rock, box, address, token)


@pytest.fixture
def page(shown: Shown) -> Iterator[Any]:
    # A browser says by itself that an answer was an error: the page says which.
    with opened(f"{shown.address}?{shown.token}", says="Failed to load resource") as found:
        yield found


@pytest.mark.timeout(600)
def test_a_sandbox_is_found_by_words_and_read_by_keys(page: Any, shown: Shown) -> None:
    page.click("#bar a >> text=ROCK")
    page.wait_for_selector("tr.mark")
    page.fill("input[name=words]", "no such word")
    page.wait_for_selector("text=No sandbox fits.")
    page.fill("input[name=words]", "first running")
    page.wait_for_selector(f"tr.mark >> text={shown.box}")
    assert "words=first" in page.url
    page.keyboard.press("Escape")
    page.keyboard.press("Enter")
    page.wait_for_selector("text=asked for")
    page.keyboard.press("l")
    page.click("table button")
    page.wait_for_selector("pre.log")
    assert ATTACK in page.locator("pre.log").first.inner_text()
    assert "process=" in page.url
    page.keyboard.press("b")
    page.wait_for_selector("tr.mark")
    for place, says in (("places", "the server"), ("images", "frozen_lake")):
        page.goto(f"{shown.address}#/rock/{place}")
        page.wait_for_selector(f"td >> text={says}")


@pytest.mark.timeout(600)
def test_a_rollout_leads_to_its_sandbox_and_back(page: Any, shown: Shown) -> None:
    page.goto(f"{shown.address}#/run/lake/rollout?id=played there")
    page.click(f"a >> text={shown.box}")
    page.wait_for_selector("text=asked for")
    page.click(".steps a")
    page.wait_for_selector("text=1 of 2 rollouts hold it")


@pytest.mark.timeout(600)
def test_a_new_sandbox_appears_a_phone_scrolls_one_way_and_an_end_is_said(page: Any, shown: Shown) -> None:
    page.set_viewport_size({"width": 390, "height": 844})
    for place in ("#/rock/places", "#/rock/images", f"#/rock/box?id={shown.box}", "#/rock"):
        page.goto(f"{shown.address}{place}")
        page.wait_for_selector("table")
        assert page.evaluate("document.documentElement.scrollWidth") <= 390
    asked(shown.rock.address, lambda client: client.sandboxes.create(environment="second", lease_s=None))
    page.wait_for_selector("td >> text=second")
    shown.rock.close()
    page.wait_for_selector(".problem >> text=is not available")
    assert page.locator("td >> text=second").count() == 1  # what it said last
