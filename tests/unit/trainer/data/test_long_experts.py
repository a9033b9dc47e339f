"""Experts that no rollout can start from, and fewer of them than were asked for: the run says so."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from local_fleet import LocalFleet, config_of, local_run

from agent_runtime.store import decode, read_segment, segment_path, write_segment
from agent_runtime.types import Trajectory
from trainer.rollout.tasks import expert_requests


def test_a_run_says_which_experts_no_rollout_can_start_from_and_plays_whole_groups(tmp_path: Path) -> None:
    recorder = config_of()
    tasks = [f"train/{number}" for number in range(4)]
    encoded = LocalFleet(recorder).record(expert_requests(recorder, '{"max_turns":6}', tasks))
    assert {len(decode(data).turns) for data in encoded} == {6}
    write_segment(tmp_path / "solved.rollouts", encoded)
    config = config_of(
        steps=1,
        agent={"max_turns": 3},
        warmup={"trajectories": 0, "data": [str(tmp_path / "solved.rollouts")], "held_out": 0.0},
    )
    _, said = local_run(tmp_path / "run", config)
    rollouts = list(read_segment(segment_path(tmp_path / "run", "step", 1)))
    assert [len(rollout.turns) for rollout in rollouts] == [3] * 12
    assert any("4 of 4 experts take more than agent.max_turns=3 turns" in line for line in said)


def test_a_run_says_that_its_oracle_solved_fewer_tasks_than_were_asked_for(tmp_path: Path) -> None:
    def first_only(trajectory: Trajectory) -> Trajectory:
        solved = not trajectory.is_expert or trajectory.id == "expert-00000"
        return trajectory if solved else replace(trajectory, passed=False, reward=0.0)

    _, said = local_run(tmp_path, config_of(steps=0), change=first_only)
    assert any("solved 1 of 24 tasks: fewer experts than warmup.trajectories=3." in line for line in said)
    assert len(list(read_segment(segment_path(tmp_path, "expert")))) == 1
