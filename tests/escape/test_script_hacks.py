"""Registered Harbor tasks whose test script decides: what pays without work is nothing, in eight kinds of script."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from docker_engine import engine, skip_without
from foreign_tasks import Foreign, serving
from hacked_tasks import IMAGE
from script_tasks import KINDS, paid, read_scripted, why_no_make

__all__ = ["engine"]

pytestmark = [pytest.mark.turn(2), pytest.mark.usefixtures("engine"), pytest.mark.timeout(600)]


@pytest.fixture(scope="module")
def rewards(
    engine: None, tmp_path_factory: pytest.TempPathFactory
) -> dict[tuple[str, str], tuple[float, str]]:
    skip_without(IMAGE)
    if why := why_no_make():
        pytest.skip(why)
    return asyncio.run(_all(tmp_path_factory.mktemp("scripted")))


async def _all(folder: Path) -> dict[tuple[str, str], tuple[float, str]]:
    async with serving(read_scripted(folder), folder) as foreign:
        tried = [(kind, name) for kind in KINDS for name in ("idle", "solved", *paid(kind))]
        ends = await asyncio.gather(*(_one(foreign, *each) for each in tried))
        return dict(zip(tried, ends, strict=True))


async def _one(foreign: Foreign, kind: str, name: str) -> tuple[float, str]:
    if name == "solved":
        played = await foreign.solve(kind)
    else:
        played = await foreign.play(kind, [script] if (script := paid(kind).get(name)) else [])
    return played.verdict.reward, played.verdict.details


@pytest.mark.parametrize("kind", KINDS)
def test_the_work_is_rewarded_and_nothing_is_not(
    kind: str, rewards: dict[tuple[str, str], tuple[float, str]]
) -> None:
    assert rewards[kind, "solved"][0] == 1.0, rewards[kind, "solved"]
    assert rewards[kind, "idle"][0] == 0.0


@pytest.mark.parametrize("kind", KINDS)
def test_no_hack_is_rewarded(kind: str, rewards: dict[tuple[str, str], tuple[float, str]]) -> None:
    assert {name: rewards[kind, name] for name in paid(kind) if rewards[kind, name][0] > 0} == {}


def test_a_killed_script_is_said_to_be_one(rewards: dict[tuple[str, str], tuple[float, str]]) -> None:
    details = rewards["make", "a Makefile that writes the reward and kills the script"][1]
    assert "signal 9" in details
