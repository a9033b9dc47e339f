"""How a run ends: with a summary that anyone can read, whatever it measured."""

from __future__ import annotations

import json
from pathlib import Path

import msgspec
from local_fleet import config_of, local_run

from ale.plots import success_curve


def test_a_run_on_tasks_that_nobody_can_solve_has_a_summary_without_a_share(tmp_path: Path) -> None:
    """One turn never reaches the goal of a lake: the optimum is 0, and a share of it is no number."""
    config = config_of(steps=0, env_args={"max_turns": 1}, warmup={"trajectories": 0, "held_out": 0.0})
    local_run(tmp_path, config)
    summary = msgspec.json.decode((tmp_path / "summary.json").read_bytes())
    assert (summary["optimum"], summary["success_final"]) == (0, 0)
    assert (summary["share_warmup"], summary["share_final"]) == (None, None)
    for line in (tmp_path / "metrics.jsonl").read_bytes().splitlines():
        record = msgspec.json.decode(line)
        assert (record["optimum"], "share_of_optimum" in record) == (0, False)
        assert json.loads(line) == record
    assert success_curve(tmp_path) is not None
