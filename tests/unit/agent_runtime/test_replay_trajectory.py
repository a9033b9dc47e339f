"""Replay: a faithful environment reproduces the record; every kind of difference is named where it first appears."""

from __future__ import annotations

from dataclasses import replace

import pytest
from scripted_world import CharTemplate, MemoryRock, ScriptedSampler, a_request

from agent_runtime.agents.chat_loop import run_rollout
from agent_runtime.replay import Divergence, replay, score
from agent_runtime.types import (
    AgentConfig,
    PrefixTurn,
    RewardSource,
    RolloutFailure,
    Start,
    StopReason,
    Trajectory,
    TurnLabel,
)
from rock_env.errors import InfraError, InvalidArgument


async def play(rock=None, **changes) -> Trajectory:
    params = {"goal": 2, **changes.pop("params", {})}
    request = a_request(params=params, agent=AgentConfig(max_turns=12), **changes)
    return await run_rollout(
        request, rock=rock or MemoryRock(), sampler=ScriptedSampler(), template=CharTemplate()
    )


async def test_a_faithful_environment_reproduces_the_record():
    rock = MemoryRock()
    trajectory = await play()
    report = await replay(trajectory, rock)
    assert report.identical
    assert report.turns == len(trajectory.turns) > 2
    assert (rock.made, rock.closed) == (1, 1)


async def test_the_session_of_a_cli_agent_is_refused_before_anything_is_made():
    rock, trajectory = MemoryRock(), await play()
    session = replace(trajectory, turn_labels=(TurnLabel.MAIN,) * len(trajectory.turns))
    with pytest.raises(InvalidArgument, match="no actions of the environment"):
        await replay(session, rock)
    assert rock.made == 0


async def test_a_rollout_from_an_anchor_is_replayed_from_its_anchor():
    source = await play()
    start = Start(3, source.first_observation, (PrefixTurn(source.actions[0], source.observations[0]),), 4)
    trajectory = await play(start=start)
    assert (await replay(trajectory, MemoryRock())).identical
    other_future = replace(trajectory, start=replace(start, resume_seed=5))
    report = await replay(other_future, MemoryRock())
    assert report.divergence is not None
    assert (report.divergence.turn, report.divergence.what) == (0, "observation")
    broken = replace(trajectory, start=replace(start, prefix=(PrefixTurn("x", source.observations[0]),)))
    report = await replay(broken, MemoryRock())
    assert report.divergence is not None
    assert (report.divergence.turn, report.divergence.what) == (-1, "reset")


async def test_a_failed_trajectory_is_compared_up_to_its_last_turn():
    trajectory = await play(params={"fail": {"evaluate": "infra"}})
    assert trajectory.stop_reason is StopReason.FAILED
    report = await replay(trajectory, MemoryRock())  # whose evaluation would fail again, were it asked
    assert report.identical
    assert report.turns == len(trajectory.turns) > 2


async def test_an_environment_that_drifts_is_caught_at_its_first_different_turn():
    rock = MemoryRock()
    trajectory = await play(rock, params={"drift": True})
    report = await replay(trajectory, rock)
    assert report.turns == 1
    assert report.divergence is not None
    assert (report.divergence.turn, report.divergence.what) == (1, "observation")
    assert report.divergence.recorded == trajectory.observations[1]
    assert rock.made == rock.closed


@pytest.mark.parametrize(
    ("spoil", "expected"),
    [
        (lambda t: replace(t, env="chain@2"), Divergence(-1, "version", "2", "3")),
        (
            lambda t: replace(t, first_observation="x"),
            lambda t: Divergence(-1, "first_observation", "x", t.first_observation),
        ),
        (
            lambda t: replace(t, turn_rewards=(0.5, *t.turn_rewards[1:])),
            lambda t: Divergence(0, "turn_reward", "0.5", str(t.turn_rewards[0])),
        ),
        (
            lambda t: replace(t, stop_reason=StopReason.MAX_TURNS),
            lambda t: Divergence(len(t.turns) - 1, "end", "goes on", "terminated"),
        ),
        (
            lambda t: replace(t, reward=0.25),
            lambda t: Divergence(
                len(t.turns), "verdict", "reward 0.25, passed True", "reward 1.0, passed True"
            ),
        ),
    ],
)
async def test_the_first_difference_is_named(spoil, expected):
    trajectory = await play()
    report = await replay(spoil(trajectory), MemoryRock())
    assert not report.identical
    assert report.divergence == (expected if isinstance(expected, Divergence) else expected(trajectory))


async def test_rewards_of_a_reward_worker_are_no_difference():
    trajectory = await play()
    source = RewardSource("w", "1", "", "", 0.0, 0, 0, trajectory.reward, trajectory.turn_rewards)
    judged = replace(
        trajectory, reward=0.25, turn_rewards=(0.5,) * len(trajectory.turns), reward_source=source
    )
    assert (await replay(judged, MemoryRock())).identical
    other = replace(judged, reward_source=replace(source, env_reward=0.75))
    assert (await replay(other, MemoryRock())).divergence == Divergence(
        len(trajectory.turns), "verdict", "reward 0.75, passed True", "reward 1.0, passed True"
    )


async def test_a_failing_service_is_an_error_not_a_difference():
    rock = MemoryRock()
    trajectory = await play()
    with pytest.raises(InfraError):
        await replay(replace(trajectory, params_json='{"goal": 2, "fail": {"step1": "infra"}}'), rock)
    assert (rock.made, rock.closed) == (1, 1)


async def test_todays_grader_grades_what_was_done_then():
    trajectory = await play()
    report = await score(trajectory, MemoryRock())
    assert report.verdict is not None
    assert (report.verdict.reward, report.verdict.passed) == (trajectory.reward, trajectory.passed)
    told_otherwise = replace(trajectory, reward=0.25, passed=False, env="toy@of another version")
    report = await score(told_otherwise, MemoryRock())
    assert report.verdict is not None
    assert report.verdict.reward == trajectory.reward
    drifted = replace(trajectory, observation_hashes=(b"x" * 8, *trajectory.observation_hashes[1:]))
    report = await score(drifted, MemoryRock())
    assert report.verdict is None
    assert report.divergence is not None
    assert (report.divergence.turn, report.divergence.what) == (0, "observation")


async def test_a_rollout_that_never_ended_is_not_graded():
    rock, trajectory = MemoryRock(), await play()
    broken = trajectory.as_failed(RolloutFailure("env_lost", "gone", 1))
    with pytest.raises(InvalidArgument, match="failed to run at turn 1"):
        await score(broken, rock)
    assert rock.made == 0
    ungraded = trajectory.as_failed(RolloutFailure("infra", "no grade", len(trajectory.turns)))
    assert (await score(ungraded, rock)).verdict is not None
