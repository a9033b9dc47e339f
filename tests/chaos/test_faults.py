"""The fault harness, short: `python -m benchmarks.chaos` is the long one."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from fault_harness import Harness
from fleet_harness import FleetHarness

sys.path.insert(0, str(Path(__file__).parents[1] / "integration"))

from docker_engine import BUSYBOX, engine  # noqa: F401  a fixture


@pytest.mark.timeout(300)
@pytest.mark.parametrize(("image", "cycles"), [("", 150), (BUSYBOX, 60)])
async def test_faults_lose_double_and_leak_nothing(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, image: str, cycles: int
) -> None:
    if image:
        request.getfixturevalue("engine")
    harness = Harness(tmp_path_factory.mktemp("f"), image=image)
    report = await harness.run(cycles, width=6, pause_s=0.4)
    assert (report.lost, report.doubled, report.leaked, report.wrong) == ([], [], [], [])
    assert report.cycles == cycles
    assert len(report.faults) >= 3, report.faults


@pytest.mark.timeout(300)
async def test_faults_of_servers_and_database_lose_double_and_leak_nothing() -> None:
    report = await FleetHarness(stopped_s=4.0).run(120, width=6, pause_s=0.2)
    assert (report.lost, report.doubled, report.leaked, report.wrong) == ([], [], [], [])
    assert report.cycles >= 120
    assert len(report.faults) >= 4, report.faults
