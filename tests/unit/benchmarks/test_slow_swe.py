"""The environment that benchmarks slow down: its latencies are those that are claimed, and processes find it."""

import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.scaffold import percentiles
from benchmarks.slow_swe import latency_s, variables


def test_latencies_are_set_by_episode_and_turn_with_the_claimed_percentiles() -> None:
    drawn = [latency_s("episode", turn, 2.0) for turn in range(4_000)]
    assert percentiles(drawn) == pytest.approx((0.25, 2.0), rel=0.15)
    assert drawn[:9] == [latency_s("episode", turn, 2.0) for turn in range(9)]
    assert drawn[:9] != [latency_s("another", turn, 2.0) for turn in range(9)]


def test_a_process_finds_it_beside_what_is_installed(tmp_path: Path) -> None:
    asked = "from rock_env.plugins import load_env; print(load_env('slow_swe').name, load_env('swe').name)"
    done = subprocess.run(
        [sys.executable, "-c", asked], env=variables(tmp_path), capture_output=True, text=True, check=False
    )
    assert done.stdout == "slow_swe swe\n", done.stderr
