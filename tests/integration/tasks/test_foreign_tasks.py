"""Tasks that others might have published, unmodified, in containers of their own images, through a real server."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest
from docker_engine import engine  # noqa: F401  fixture
from foreign_tasks import (  # noqa: F401  bases is a fixture
    FOREIGN,
    Foreign,
    Played,
    bases,
    make_repository,
    read_foreign,
    serving,
)

NAMES = (
    "orchard/sales-rollup",
    "orchard/rotate-backups",
    "noisy-client",
    "orchard/retry-policy",
    "locked-down-share",
    "matrix-cli",
    "torn-archive",
    "word-squares",
    "acme__ledger-14",
    "acme__ledger-21",
    "acme__ledger-30",
    "acme__ledger.83590268.combine_file__k3j9x0qa",
)
CHEATED = "acme__ledger-14"
PLANTED = """\
bash mkdir -p /logs/verifier
echo 1 >/logs/verifier/reward.txt
echo '{"reward": 1}' >/logs/verifier/reward.json"""


FAKED = """\
bash cat >unittest.py <<'PY'
import json
for test in json.load(open("names.json")):
    print(test, "... ok")
PY
echo 'import os; os._exit(0)' | tee sitecustomize.py conftest.py >tests/__init__.py
echo >tests/test_money.py"""
"""What an agent might do that even knows the names of the hidden tests, in `names.json`."""


async def play_all(folder: Path) -> dict[str, tuple[Played, Played]]:
    """Play each task twice, with its solution and doing nothing, and one by cheating."""
    tasks = await asyncio.to_thread(read_foreign, folder)
    async with serving(tasks, folder) as foreign:

        async def both(name: str) -> tuple[Played, Played]:
            return await foreign.solve(name), await nothing(foreign, name)

        assert set(foreign.tasks) == set(NAMES)
        played = await asyncio.gather(*map(both, NAMES))
        verifier = foreign.tasks[CHEATED].verifier
        names = json.dumps([*verifier.must_pass, *verifier.keep_passing])
        cheated = await foreign.play(CHEATED, [f"bash cat >names.json <<'END'\n{names}\nEND", FAKED])
    return {**dict(zip(NAMES, played, strict=True)), "cheated": (cheated, cheated)}


async def nothing(foreign: Foreign, name: str) -> Played:
    """Do nothing for the task; of one that is graded by a file, leave that file as an agent would like it."""
    reward_file = foreign.tasks[name].verifier.parser == "reward_file"
    return await foreign.play(name, [PLANTED] if reward_file else [])


@pytest.fixture(scope="module")
def played(bases: None, tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[Played, Played]]:  # noqa: F811
    return asyncio.run(play_all(tmp_path_factory.mktemp("foreign")))


@pytest.mark.parametrize("name", NAMES)
def test_the_solution_passes_and_doing_nothing_does_not(
    name: str, played: dict[str, tuple[Played, Played]]
) -> None:
    solved, idle = played[name]
    assert (solved.verdict.reward, solved.verdict.passed) == (1.0, True), solved
    assert (idle.verdict.reward, idle.verdict.passed) == (0.0, False), idle


def test_an_agent_sees_the_project_and_none_of_its_history(played: dict[str, tuple[Played, Played]]) -> None:
    first = played["acme__ledger-30"][0].observations[0]
    assert first.startswith("You are in the folder /testbed.")
    assert {"README.md", "ledger", "tests"} <= set(first.splitlines())


def test_nothing_is_earned_by_standing_in_for_the_test_runner(
    played: dict[str, tuple[Played, Played]],
) -> None:
    cheated, _ = played["cheated"]
    assert cheated.verdict.reward == 0.0, cheated


def test_the_repository_is_always_the_same(tmp_path: Path) -> None:
    commits = make_repository(tmp_path / "repos")
    rows = (FOREIGN / "swe" / "instances.jsonl").read_text()
    assert all(f'"base_commit": "{commit}"' in rows for commit in commits[:3])
    assert commits[4].startswith("83590268")
