"""Five questions of whoever trains, each answered by the console's page within four clicks, on a run with planted causes."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from console_parts import ARGS, CHROMIUMS
from unit.ale.console_run import plain, write_run

from agent_runtime.types import Trajectory

MOST_CLICKS = 4
DOOR = "the door was never opened"
SERVER = "import sys; sys.executable = sys.argv.pop(1); from ale.cli import main; main()"
"""A console whose `ale replay tokens` is a program of the test's: a real one computes a step again."""


def rollouts(step: int) -> list[Trajectory]:
    """Return two rollouts of each of three tasks: one solved until step 50, one always, one never."""
    solved = {"train/falls": step < 50, "train/easy": True, "train/never": False}
    return [
        replace(
            plain(),
            id=f"{step}-{task[6:]}-{number}",
            task_id=task,
            group_id=f"{step}-{task}",
            policy_step=step,
            passed=is_solved,
            reward=float(is_solved),
            grader_output="" if is_solved else DOOR,
        )
        for task, is_solved in solved.items()
        for number in range(2)
    ]


def fates(rollout: Trajectory) -> list[list[str]]:
    """Return what the planted account says of each token: every other turn had no credit."""
    words = ("trained", "masked: zero credit")
    return [[words[turn.index % 2]] * len(turn.completion_ids) for turn in rollout.turns]


def account(rollout: Trajectory) -> list[dict[str, Any]]:
    return [
        {
            "trajectory": rollout.id,
            "turn": turn.index,
            "fates": told,
            "advantage": 0.75 - turn.index,
            "chunk": 0,
            "version": 1,
            "sampled_logprobs": [-0.5] * len(told),
            "learner_logprobs": [-0.25] * len(told),
            "texts": ["go"] * len(told),
        }
        for turn, told in zip(rollout.turns, fates(rollout), strict=True)
    ]


def metrics(step: int, *, is_sick: bool) -> dict[str, Any]:
    wave = (step * 7 % 5) / 100
    ledger = Counter(fate for rollout in rollouts(step) for told in fates(rollout) for fate in told)
    return {
        "step": step,
        "kind": "train",
        "success": 0.5 + wave,
        "loss": 0.1 + wave,
        "entropy": 1.0 + wave,
        "groups": 8,
        "mixed_groups": 4,
        "updates": 1,
        "faults/infrastructure": 0,
        "filter/played": 32,
        "learn_s": float(step),
        "mismatch/token_abs": (0.5 if is_sick and step > 50 else 0.001) + wave / 100,
        "tokens/trained": ledger["trained"],
        "tokens/masked/zero_credit": ledger["masked: zero credit"],
    }


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs")
    for name in ("sick", "well"):
        write_run(folder / name, {step: rollouts(step) for step in (40, 60)} if name == "sick" else {})
        lines = [metrics(step, is_sick=name == "sick") for step in range(1, 81)]
        (folder / name / "metrics.jsonl").write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    return folder


@pytest.fixture(scope="module")
def address(runs: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    told = tmp_path_factory.mktemp("accounts")
    for rollout in (each for step in (40, 60) for each in rollouts(step)):
        (told / rollout.id).write_text(json.dumps(account(rollout)))
    program = told / "program"
    read = f"import pathlib, sys; print((pathlib.Path({str(told)!r}) / sys.argv[-1]).read_text())"
    program.write_text(f"#!{sys.executable}\n{read}\n")
    program.chmod(0o755)
    words = [sys.executable, "-c", SERVER, str(program), "console", str(runs), "--port", "0"]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        yield process.stdout.readline().strip()
        process.terminate()


class Reader:
    """Somebody at the list of runs, whose clicks are counted; to choose and to type into a field is one, too."""

    def __init__(self, page: Any) -> None:
        self.page, self.clicks = page, 0

    def click(self, selector: str) -> None:
        self.clicks += 1
        self.page.click(selector)

    def choose(self, selector: str, value: str) -> None:
        self.clicks += 1
        self.page.select_option(selector, value)

    def type(self, selector: str, text: str) -> None:
        self.clicks += 1
        self.page.fill(selector, text)

    def sees(self, selector: str, *texts: str) -> None:
        for text in texts:
            self.page.locator(selector).filter(has_text=text).first.wait_for(timeout=60_000)
        assert self.clicks <= MOST_CLICKS


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    sync_api = pytest.importorskip("playwright.sync_api")
    path = next(each for each in CHROMIUMS if Path(each).exists())
    with sync_api.sync_playwright() as playwright:
        opened = playwright.chromium.launch(executable_path=path, args=ARGS, timeout=250_000)
        yield opened
        opened.close()


@pytest.fixture
def reader(browser: Any, address: str) -> Iterator[Reader]:
    page = browser.new_page(viewport={"width": 1200, "height": 1000})
    page.set_default_timeout(60_000)
    wrong: list[str] = []
    page.on("pageerror", lambda error: wrong.append(str(error)))
    page.goto(address)
    yield Reader(page)
    page.close()
    assert wrong == []


def test_why_did_this_rollout_fail(reader: Reader) -> None:
    reader.click("a:text-is('sick')")
    reader.choose("select[name=outcome]", "unsolved")
    reader.click("a:text-is('40-never-1')")
    reader.sees(".why", DOOR)


def test_which_token_got_which_credit(reader: Reader) -> None:
    reader.click("a:text-is('sick')")
    reader.click("a:text-is('40-easy-0')")
    reader.choose("select[aria-label='colour tokens by']", "advantage")
    reader.sees(".token[title*='advantage 0.75']", "go")
    first = reader.page.locator("article[data-turn='0'] .token")
    assert first.count() == len(plain().turns[0].completion_ids)
    reader.choose("select[aria-label='colour tokens by']", "mask")
    reader.sees(".legend", "trained")


def test_the_sums_of_the_tokens_of_a_step_are_its_ledger(reader: Reader, address: str) -> None:
    found: Counter[str] = Counter()
    for rollout in rollouts(40):
        reader.page.goto(f"{address}#/run/sick/rollout?id={rollout.id}&heat=mask")
        reader.page.locator("h1").filter(has_text=rollout.id).wait_for()
        reader.page.locator(".tools .legend b").first.wait_for()
        cells = reader.page.locator(".token").evaluate_all(
            "all => all.map((each) => each.title.split('\\n')[3])"
        )
        said = {
            text.rpartition(" ")[0]: int(text.rpartition(" ")[2].replace(",", ""))
            for text in reader.page.locator(".tools .legend span").all_inner_texts()
        }
        assert said == Counter(cells)
        found.update(said)
    ledger = metrics(40, is_sick=True)
    assert found == {
        "trained": ledger["tokens/trained"],
        "masked: zero credit": ledger["tokens/masked/zero_credit"],
    }


def test_what_changed_between_two_steps(reader: Reader) -> None:
    reader.click("a:text-is('sick')")
    reader.click("button:text-is('Between two steps')")
    reader.type("input[name=from]", "40")
    reader.type("input[name=to]", "60")
    reader.sees("th", "step 60")
    reader.sees("tr:has(td:text-is('train/falls'))", "2 of 20 of 2")
    reader.page.locator("tbody >> nth=0").locator("td:text-is('mismatch/token_abs')").first.wait_for()
    assert reader.page.locator("tbody td").first.inner_text() == "mismatch/token_abs"
    assert reader.page.locator("td:text-is('train/easy')").count() == 0
    assert reader.page.locator("td:text-is('learn_s')").count() == 0  # times are no change


def test_which_tasks_are_never_solved(reader: Reader) -> None:
    reader.click("a:text-is('sick')")
    reader.click("button:text-is('Tasks × steps')")
    reader.sees(".unsolved", "1 of 3 tasks are never solved: train/never")
    reader.click(".unsolved button")
    reader.sees(".list .row a", "60-never-1")


@pytest.mark.parametrize(
    ("run", "said"),
    [
        ("sick", "Not healthy: learner and sampler differ by 0.5 nats per token"),
        ("well", "no sign of trouble in 6 checks"),
    ],
)
def test_is_this_run_healthy(reader: Reader, run: str, said: str) -> None:
    reader.click(f"a:text-is('{run}')")
    reader.sees(".health", said)
