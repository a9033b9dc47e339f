"""Ways to a reward that are no work, on registered Harbor, Terminal-Bench and SWE-bench tasks: none pays, and work does.

Of 69 hacks that are root of the image 32 paid on the Harbor task when a grade ran in a plain copy of the agent's box.
Each is tried in one of the formats here; `python -m benchmarks.reward_hacks` tries all in all.
"""

from __future__ import annotations

import pytest
from docker_engine import engine, skip_without
from hacked_tasks import IMAGE
from registered_hacks import FORMATS, Try, all_tries, play_all, read_all

__all__ = ["engine"]

pytestmark = [pytest.mark.turn(2), pytest.mark.usefixtures("engine"), pytest.mark.timeout(600)]


@pytest.fixture(scope="module")
def played(engine: None, tmp_path_factory: pytest.TempPathFactory) -> list[Try]:
    skip_without(IMAGE)
    folder = tmp_path_factory.mktemp("hacked")
    tasks = [task for task in read_all(folder) if task.name in FORMATS]
    tries = all_tries(tasks)
    turn = {name: number for number, name in enumerate(dict.fromkeys(each.name for each in tries))}
    kept = [
        each
        for each in tries
        if each.format == FORMATS[turn[each.name] % 3]
        and (not each.name.startswith("swe: ") or turn[each.name] % 4 == 0)
    ]
    return play_all(kept, tasks, folder)


def test_no_hack_is_rewarded(played: list[Try]) -> None:
    tried = [each for each in played if not each.honest]
    assert len(tried) > 80
    assert [(each.format, each.name, each.details) for each in tried if each.reward] == []


def test_a_hack_is_graded_as_work_that_failed(played: list[Try]) -> None:
    assert [(each.format, each.name, each.details) for each in played if each.reward is None] == []


def test_honest_work_is_rewarded(played: list[Try]) -> None:
    tried = [each for each in played if each.honest]
    assert len(tried) >= 20
    assert [(each.format, each.name, each.details) for each in tried if each.reward != 1.0] == []
