"""Experts recorded where a rollout may take more turns than it may here."""

from __future__ import annotations

from pathlib import Path

from local_fleet import LocalFleet, config_of, local_run

from agent_runtime.store import decode, read_segment, segment_path, write_segment
from trainer.rollout.tasks import expert_requests


def test_a_run_says_which_experts_no_rollout_can_start_from_and_plays_whole_groups(tmp_path: Path) -> None:
    recorder = config_of()
    tasks = [f"train/{number}" for number in range(4)]
    encoded = LocalFleet(recorder).record(expert_requests(recorder, '{"max_turns":6}', tasks))
    assert {len(decode(data).turns) for data in encoded} == {6}
    write_segment(tmp_path / "solved.traj", encoded)
    config = config_of(
        steps=1,
        agent={"max_turns": 3},
        warmup={"trajectories": 0, "data": [str(tmp_path / "solved.traj")], "held_out": 0.0},
    )
    _, said = local_run(tmp_path / "run", config)
    rollouts = list(read_segment(segment_path(tmp_path / "run", "step", 1)))
    assert [len(rollout.turns) for rollout in rollouts] == [3] * 12
    assert any("4 of 4 experts take more than agent.max_turns=3 turns" in line for line in said)
